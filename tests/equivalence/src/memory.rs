//! The memory of the sequences: at fixed addresses, so that a case is the same in every run.
//!
//! ```text
//!   base                 code: the sequence and its callees
//!   base + 0x8000        the exit pad: read-only, since sequences write to any address that they come by
//!   base + 0x1_0000      data: registers and RIP-relative operands point here; unmapped on both sides
//!   base + 0x2_0000      stack: rsp begins in its middle; unmapped on both sides
//!   anywhere +-2 GiB     detours: mapped when they are first needed
//! ```
//!
//! There are two such arenas: a low one, whose addresses fit into 31 bits, and a high one. Code is writable here: this
//! tests the effect of the bytes, not how they are written (invariant I7 is tested on live programs).

use std::collections::HashSet;
use std::ops::Range;

use nanoprobe_patch::TargetAddress;

/// The bases of the arenas: some fit into 31 bits, some do not.
pub const BASES: [u64; 2] = [0x4000_0000, 0x2a55_5000_0000];
pub const CODE_BYTES: u64 = 0x1000;
pub const DATA_BYTES: usize = 0x1000;
pub const STACK_BYTES: usize = 0x1000;
/// The initial rsp, in bytes from the start of the stack.
pub const STACK_TOP: u64 = 0x900;
/// The base of fs and gs, in bytes from the start of the data. It is the thread pointer, and its own address is stored
/// there.
pub const THREAD_POINTER: u64 = 0x200;
/// The place of the pointers to the sequence's instructions, in bytes from the start of the data.
pub const POINTERS: u64 = 0xc00;
pub const POINTERS_MAX: usize = 64;

const EXIT_PAD: u64 = 0x8000;
const BLOCK: u64 = 64 << 10;
/// The kernel allows some 65,000 mappings.
const BLOCKS_MAX: usize = 4000;

pub struct Arena {
    pub base: u64,
    /// The number of pieces of detours, of 64 KiB each.
    blocks: HashSet<u64>,
}

impl Arena {
    /// Maps an arena at `base`; `exit` is the destination of the pad.
    pub fn new(base: u64, exit: u64) -> Arena {
        map(base, CODE_BYTES as usize, true);
        map(base + 0x1_0000, DATA_BYTES, false);
        map(base + 0x2_0000, STACK_BYTES, false);
        map(base + EXIT_PAD, 4096, true);
        write(base + EXIT_PAD, &[0xff, 0x25, 0, 0, 0, 0]); // jmp [rip]
        write(base + EXIT_PAD + 6, &exit.to_le_bytes());
        // SAFETY: the page that was mapped just now; it is only executed from here on.
        let result = unsafe { libc::mprotect((base + EXIT_PAD) as *mut _, 4096, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(result, 0, "mprotect: {}", std::io::Error::last_os_error());
        Arena {
            base,
            blocks: HashSet::new(),
        }
    }

    pub fn code(&self) -> u64 {
        self.base
    }

    /// A jump to this place ends the run.
    pub fn exit_pad(&self) -> u64 {
        self.base + EXIT_PAD
    }

    pub fn data(&self) -> u64 {
        self.base + 0x1_0000
    }

    pub fn stack(&self) -> u64 {
        self.base + 0x2_0000
    }

    pub fn stack_top(&self) -> u64 {
        self.stack() + STACK_TOP
    }

    /// The memory in which detours may lie.
    pub fn holes(&self) -> Vec<Range<u64>> {
        let low = self.base.saturating_sub(1 << 31).max(0x10_0000);
        vec![low..self.base - BLOCK, self.base + 0x10_0000..self.base + (1 << 31)]
    }

    /// Makes sure that a range of a hole is mapped.
    pub fn need(&mut self, range: Range<TargetAddress>) {
        if self.blocks.len() > BLOCKS_MAX {
            for block in self.blocks.drain() {
                // SAFETY: only detours lie there, and none is in use between two patchings.
                unsafe { libc::munmap(block as *mut _, BLOCK as usize) };
            }
        }
        let mut block = range.start.0 & !(BLOCK - 1);
        while block < range.end.0 {
            if self.blocks.insert(block) {
                map(block, BLOCK as usize, true);
            }
            block += BLOCK;
        }
    }
}

/// Maps memory at an exact address.
fn map(address: u64, bytes: usize, executable: bool) {
    let protection = libc::PROT_READ | libc::PROT_WRITE | if executable { libc::PROT_EXEC } else { 0 };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping that replaces nothing.
    let found = unsafe { libc::mmap(address as *mut _, bytes, protection, flags, -1, 0) };
    assert_eq!(
        found as u64,
        address,
        "mmap at {address:#x}: {}",
        std::io::Error::last_os_error()
    );
}

/// Maps memory wherever there is room.
pub fn map_anywhere(bytes: usize) -> u64 {
    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: an anonymous mapping, placed by the kernel.
    let found = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    assert_ne!(found, libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
    found as u64
}

/// Writes into memory that was mapped here.
pub fn write(address: u64, bytes: &[u8]) {
    // SAFETY: callers write only inside of the mappings made above.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// Reads memory that was mapped here.
pub fn read(address: u64, bytes: usize) -> &'static [u8] {
    // SAFETY: callers read only inside of the mappings made above, which stay, and drop the slice before the next run.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }
}

pub fn read_word(address: u64) -> u64 {
    // SAFETY: callers read only inside of the mappings made above.
    unsafe { (address as *const u64).read_unaligned() }
}
