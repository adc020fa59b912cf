//! The way home: how a borrowed thread returns to its own work by itself when the tracer dies.
//!
//! While the tracer makes system calls in a thread, the thread's registers hold the tracer's values. If the tracer is
//! killed then, the kernel lets the thread run on from where it stands. So a borrowed thread always stands in a block
//! of code that was made for it and that restores its state:
//!
//! ```text
//!     call:    syscall                          what we asked for
//!     home:    rt_sigprocmask(SIG_SETMASK, mask, NULL, 8)
//!              mov rdi, ...  mov r11, ...       what system calls take and change
//!              jmp [place]                      where the thread was
//!     place:   8 bytes
//!     mask:    8 bytes
//!     return:  mov rbx, rax                     where a called function returns to; rbx is for us
//!     leave:   mov eax, 15; syscall             rt_sigreturn, with the frame below
//!     text:    32 bytes                         a name for a system call
//!     list:    many system calls in one go      see `list`
//! ```
//!
//! A system call changes nothing else: no flag, no SIMD register, no byte of the stack. So the way home needs no
//! writable memory, and **no stack**: below a stack pointer there may be other memory (goroutines and coroutines have
//! stacks side by side). The block lies in unused bytes after a code segment ([`unused`](crate::unused)). It is
//! removed when the thread is given back.
//!
//! A called function changes more than these, so its return needs a signal frame with the whole state. The caller of
//! [`Remote::call`](crate::Remote::call) provides memory for this frame.
//!
//! ```text
//!   frame:    F         address of `return`     what a function called with rsp = F returns to
//!             F+8       struct ucontext         flags, registers, signal mask
//!             ...       XSAVE area              as rt_sigreturn wants it
//! ```
//!
//! A tracer that dies leaves its block. The next tracer recognises this block, uses another one, and removes the old
//! one unless a thread still needs it ([`Stopped::clear_way_home`](crate::Stopped::clear_way_home)).

use std::arch::x86_64::__cpuid_count;
use std::ops::Range;

use nanoprobe_patch::TargetAddress;

use crate::error::MemoryError;
use crate::map::Map;
use crate::memory::Memory;
use crate::raw::Registers;
use crate::unused::{self, Unused};

pub(crate) mod list;

/// The size of a block.
const BLOCK: usize = LIST + list::LIST_BYTES;
/// The most blocks in one place: other tracers may have died here, or may be borrowing another thread.
const BLOCKS_MAX: usize = 8;
const HOME: u64 = 2;
/// The offset of `place`: the stored address of the instruction to which `home` leads.
const PLACE: usize = 128;
const MASK: usize = 136;
const RETURN: usize = 144;
const LEAVE: u64 = 147;
const LEFT: u64 = 154;
const TEXT: usize = 160;
/// Room for a short text, in bytes.
pub(crate) const TEXT_ROOM: usize = LIST - TEXT;
const LIST: usize = 192;
const LIST_PLACE: usize = LIST + list::PLACE;

/// The address of a block in the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HomingCode(pub TargetAddress);

impl HomingCode {
    /// The address at which a thread makes a system call.
    pub fn call(self) -> u64 {
        self.0.0
    }

    /// The address from which a thread goes home.
    pub fn home(self) -> u64 {
        self.0.0 + HOME
    }

    /// The address to which a called function returns; the function's result is then in `rbx`.
    pub fn return_point(self) -> u64 {
        self.0.0 + RETURN as u64
    }

    /// The `rip` of a thread that has just entered rt_sigreturn.
    pub fn in_leaving(self) -> u64 {
        self.0.0 + LEFT
    }

    /// The address from which a thread makes a list of system calls.
    pub fn list(self) -> u64 {
        self.0.0 + LIST as u64
    }

    /// The address of the pointer to the list's cursor.
    pub fn list_place(self) -> TargetAddress {
        TargetAddress(self.0.0 + LIST_PLACE as u64)
    }

    /// Whether a thread with this `rip` is still in the block.
    pub fn holds(self, rip: u64) -> bool {
        rip.wrapping_sub(self.0.0) < BLOCK as u64
    }

    /// The address at which a short text for a system call may be put.
    pub fn text(self) -> TargetAddress {
        TargetAddress(self.0.0 + TEXT as u64)
    }

    /// The address at which a thread that a dead tracer left in the block has to continue; `None` if this `rip` is
    /// not in the block.
    pub fn way_on(self, rip: u64) -> Option<u64> {
        match rip.checked_sub(self.0.0)? {
            0..RETURN_OFFSET => Some(self.home()),
            RETURN_OFFSET..=LEFT => Some(self.0.0 + LEAVE),
            // A thread in a list goes home and skips the rest. The maker of a list records each of its calls
            // separately.
            LIST_OFFSET..BLOCK_BYTES => Some(self.home()),
            _ => None,
        }
    }

    /// Writes a block that restores these registers and this mask into free space. `None`: there is no free space, or
    /// it cannot be written.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when the address space no longer exists. After an execve the new program has space for a
    /// block, too. That space must not be used, because only the process's number leads to it.
    pub fn install(
        known: Option<Unused>,
        map: &dyn Fn() -> Result<Map, MemoryError>,
        memory: &Memory,
        registers: &Registers,
        mask: u64,
    ) -> Result<Option<(HomingCode, Unused)>, MemoryError> {
        let bytes = block(values(registers), registers.rip, mask);
        let place_in = |unused: &Unused| Some((free_block(unused, memory)?, *unused));
        let still = known.filter(|unused| unused.is_still_there(memory));
        let found = match still.as_ref().and_then(place_in) {
            Some(found) => Some(found),
            None => unused::places(&map()?, memory).find_map(|unused| place_in(&unused)),
        };
        let Some((code, unused)) = found else { return Ok(None) };
        match memory.write(code.0, &bytes) {
            Ok(()) => Ok(Some((code, unused))),
            Err(gone @ MemoryError::Gone { .. }) => Err(gone),
            Err(_) => Ok(None),
        }
    }

    /// All blocks that dead tracers have left.
    pub fn left(map: &Map, memory: &Memory) -> Vec<HomingCode> {
        let mut found = Vec::new();
        for unused in unused::places(map, memory) {
            let mut bytes = vec![0; unused.bytes()];
            if memory.read(unused.start(), &mut bytes).is_err() {
                continue;
            }
            let blocks = blocks(&unused).filter(|code| {
                let from = (code.0.0 - unused.start().0) as usize;
                bytes.get(from..from + BLOCK).is_some_and(is_block)
            });
            found.extend(blocks);
        }
        found
    }

    /// Whether one of these words, from a stack pointer upwards, points into the block. Such a word may be the return
    /// address of a called function, or the place where a signal handler of the program interrupted a thread on its
    /// way home. It may also be an old value without a meaning.
    pub fn is_returned_to(self, stack: &[u8]) -> bool {
        let inside = |word: u64| self.holds(word) && !(TEXT..LIST).contains(&((word - self.0.0) as usize));
        let mut words = stack.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        words.any(inside)
    }

    /// Removes the block.
    pub fn remove(self, memory: &Memory) {
        // An error means that the address space is gone, and with it the block.
        let _ = memory.write(self.0, &[0; BLOCK]);
    }
}

const RETURN_OFFSET: u64 = RETURN as u64;
const LIST_OFFSET: u64 = LIST as u64;
const BLOCK_BYTES: u64 = BLOCK as u64;

/// The addresses of possible blocks, the highest first.
fn blocks(unused: &Unused) -> impl Iterator<Item = HomingCode> {
    let (start, end) = (unused.start().0, unused.end().0);
    let offsets = (1..=BLOCKS_MAX as u64).map(move |index| end.saturating_sub(index * BLOCK as u64));
    offsets
        .take_while(move |&at| at >= start)
        .map(|at| HomingCode(TargetAddress(at)))
}

fn free_block(unused: &Unused, memory: &Memory) -> Option<HomingCode> {
    let is_free = |code: &HomingCode| {
        memory
            .read_array::<BLOCK>(code.0)
            .is_ok_and(|bytes| bytes == [0; BLOCK])
    };
    blocks(unused).find(is_free)
}

/// The ranges of the 64-bit values in a block. Only these bytes differ from block to block.
const VALUES: [Range<usize>; 11] = [
    34..42,
    44..52,
    54..62,
    64..72,
    74..82,
    84..92,
    94..102,
    104..112,
    114..122,
    PLACE..RETURN,
    LIST_PLACE..LIST_PLACE + 8,
];

/// The register values in a block, in the order of the instructions that restore them.
fn values(r: &Registers) -> [u64; 9] {
    [r.rdi, r.rsi, r.rdx, r.rcx, r.rax, r.r8, r.r9, r.r10, r.r11]
}

fn block(values: [u64; 9], rip: u64, mask: u64) -> [u8; BLOCK] {
    // mov rdi, ...; mov rsi, ...; and so on
    const MOVES: [[u8; 2]; 9] = [
        [0x48, 0xbf],
        [0x48, 0xbe],
        [0x48, 0xba],
        [0x48, 0xb9],
        [0x48, 0xb8],
        [0x49, 0xb8],
        [0x49, 0xb9],
        [0x49, 0xba],
        [0x49, 0xbb],
    ];
    let mut code: Vec<u8> = vec![0x0f, 0x05];
    // mov eax, rt_sigprocmask; mov edi, SIG_SETMASK; lea rsi, [rip + mask]; mov edx, 0; mov r10d, 8; syscall
    code.extend([0xb8, libc::SYS_rt_sigprocmask as u8, 0, 0, 0]);
    code.extend([0xbf, libc::SIG_SETMASK as u8, 0, 0, 0]);
    code.extend([0x48, 0x8d, 0x35, (MASK - 19) as u8, 0, 0, 0]);
    code.extend([0xba, 0, 0, 0, 0]);
    code.extend([0x41, 0xba, 8, 0, 0, 0]);
    code.extend([0x0f, 0x05]);
    for (opcode, value) in MOVES.into_iter().zip(values) {
        code.extend(opcode);
        code.extend(value.to_le_bytes());
    }
    // jmp [rip + 0]
    code.extend([0xff, 0x25, 0, 0, 0, 0]);
    code.extend(rip.to_le_bytes());
    code.extend(mask.to_le_bytes());
    // mov rbx, rax; mov eax, rt_sigreturn; syscall
    code.extend([0x48, 0x89, 0xc3]);
    code.extend([0xb8, libc::SYS_rt_sigreturn as u8, 0, 0, 0, 0x0f, 0x05]);
    code.resize(LIST, 0);
    code.extend(list::code((LIST as u64 - HOME) as i32));
    let mut bytes = [0; BLOCK];
    for (to, from) in bytes.iter_mut().zip(code) {
        *to = from;
    }
    bytes
}

fn is_block(bytes: &[u8]) -> bool {
    let example = block([0; 9], 0, 0);
    let differs = |at: usize| (TEXT..LIST).contains(&at) || VALUES.iter().any(|value| value.contains(&at));
    let mut code = bytes.iter().zip(example).enumerate();
    bytes.len() == BLOCK && code.all(|(at, (byte, expected))| *byte == expected || differs(at))
}

const UCONTEXT_BYTES: usize = 304;
const UC_FP_XSTATE: u64 = 1;
const UC_SIGCONTEXT_SS: u64 = 2;
const UC_STRICT_RESTORE_SS: u64 = 4;
const FRAME_FLAGS: u64 = UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS;
const XSTATE_MAGIC1: u32 = 0x4650_5853;
const XSTATE_MAGIC2: u32 = 0x4650_5845;
const FXSAVE_BYTES: usize = 512;
const XSAVE_HEADER_END: usize = 576;
const SOFTWARE_BYTES: usize = 464;

/// The largest size of a [`frame`], its alignment included.
pub(crate) fn frame_bytes(extended: &[u8]) -> u64 {
    (16 + UCONTEXT_BYTES + 64 + extended.len() + 8) as u64
}

/// The bytes of a frame at the address `at`. `at % 16` is 8, because a called function expects this alignment of
/// its stack.
pub(crate) fn frame(
    at: TargetAddress,
    code: HomingCode,
    registers: &Registers,
    signal_mask: u64,
    extended: &[u8],
) -> Vec<u8> {
    let (features, size) = used_state(extended);
    let extended_at = (at.0 + 8 + UCONTEXT_BYTES as u64).next_multiple_of(64);
    let r = registers;
    let segments = (r.cs & 0xffff) | (r.ss & 0xffff) << 48;
    let words = [
        code.return_point(),
        FRAME_FLAGS,
        0,
        // uc_stack with size 0, which is invalid: the thread's alternate stack stays as it is
        0,
        0,
        0,
        r.r8,
        r.r9,
        r.r10,
        r.r11,
        r.r12,
        r.r13,
        r.r14,
        r.r15,
        r.rdi,
        r.rsi,
        r.rbp,
        r.rbx,
        r.rdx,
        r.rax,
        r.rcx,
        r.rsp,
        r.rip,
        r.eflags,
        segments,
        // err, trapno, oldmask, cr2
        0,
        0,
        0,
        0,
        if size == 0 { 0 } else { extended_at },
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        signal_mask,
    ];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let area = extended.get(..size).unwrap_or_default();
    if !area.is_empty() {
        bytes.resize((extended_at - at.0) as usize, 0);
        let area_from = bytes.len();
        bytes.extend_from_slice(area);
        let mut software = [0u8; FXSAVE_BYTES - SOFTWARE_BYTES];
        let fields: [&[u8]; 4] = [
            &XSTATE_MAGIC1.to_le_bytes(),
            &(size as u32 + 4).to_le_bytes(),
            &features.to_le_bytes(),
            &(size as u32).to_le_bytes(),
        ];
        for (byte, value) in software.iter_mut().zip(fields.into_iter().flatten()) {
            *byte = *value;
        }
        for (byte, value) in bytes.iter_mut().skip(area_from + SOFTWARE_BYTES).zip(software) {
            *byte = value;
        }
        bytes.extend_from_slice(&XSTATE_MAGIC2.to_le_bytes());
    }
    bytes
}

/// The state components that a thread may use, and the end of the last of them in the area.
///
/// ptrace always yields the largest possible area, but rt_sigreturn accepts only the components that the thread may
/// use. A thread must request AMX tiles first, so they count only if the thread uses them. An area that is shorter
/// than the thread's is accepted.
fn used_state(extended: &[u8]) -> (u64, usize) {
    const TILES: u64 = 1 << 18;
    let word = |at: usize| {
        extended.get(at..at + 8).map_or(0, |bytes| {
            bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        })
    };
    // The kernel notes the possible components in the area's software bytes. The processor notes the components in use
    // in the header.
    let features = (word(SOFTWARE_BYTES) & !TILES) | word(FXSAVE_BYTES);
    let end_of = |feature: u32| {
        let leaf = __cpuid_count(0xd, feature);
        (leaf.eax + leaf.ebx) as usize
    };
    let size = (2..63)
        .filter(|feature| features >> feature & 1 == 1)
        .map(end_of)
        .max()
        .unwrap_or(0);
    (features, size.max(XSAVE_HEADER_END).min(extended.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> [u8; BLOCK] {
        block(
            [u64::MAX, 2, 3, 4, 0x1111_1111_1111_1111, 6, 7, 8, 9],
            0x7f00_1234_5678,
            0xabc,
        )
    }

    #[test]
    fn a_block_is_recognised_whatever_it_leads_to() {
        let ours = example();
        assert!(is_block(&ours));
        let mut with_text = ours;
        with_text[TEXT..TEXT + 4].copy_from_slice(b"name");
        assert!(is_block(&with_text));
        assert!(!is_block(&[0; BLOCK]));
        let mut other = ours;
        other[0] = 0x90;
        assert!(!is_block(&other));
        assert!(!is_block(&ours[1..]));
    }

    #[test]
    fn the_parts_of_a_block_are_where_they_are_said_to_be() {
        let bytes = example();
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!((word(PLACE), word(MASK)), (0x7f00_1234_5678, 0xabc));
        assert_eq!(bytes[RETURN..RETURN + 3], [0x48, 0x89, 0xc3]);
        assert_eq!(bytes[LEAVE as usize], 0xb8);
        assert_eq!(bytes[LEFT as usize - 2..LEFT as usize], [0x0f, 0x05]);
        assert_eq!(word(VALUES[4].start), 0x1111_1111_1111_1111);
        let code = HomingCode(TargetAddress(0x1000));
        assert_eq!(code.way_on(0x1000), Some(0x1002));
        assert_eq!(code.way_on(0x1000 + LEFT), Some(0x1000 + LEAVE));
        assert_eq!((code.way_on(0xfff), code.way_on(0x1000 + TEXT as u64)), (None, None));
        let list = 0x1000 + LIST as u64;
        assert_eq!(
            (code.way_on(list), code.way_on(list + 80)),
            (Some(0x1002), Some(0x1002))
        );
        assert_eq!(code.way_on(0x1000 + BLOCK as u64), None);
    }
}
