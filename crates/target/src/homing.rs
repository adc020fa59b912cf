//! The road home: how a borrowed thread gets back by itself when the tracer dies.
//!
//! While we make system calls in a thread, its registers are ours. Should the tracer be killed then, the kernel lets the
//! thread run on from wherever it stands. So it only ever stands in twelve bytes of code of ours, which end in
//! `rt_sigreturn`, above a signal frame that holds its own state:
//!
//! ```text
//!   code:     0f 05           call:    syscall             what we asked for
//!             48 89 c3        return:  mov rbx, rax        (kept for us when a called function has returned)
//!             b8 0f 00 00 00  home:    mov eax, 15
//!             0f 05                    syscall             rt_sigreturn: registers, signal mask, SIMD state
//!
//!   frame:    F       address of `return`                  what a function called with rsp = F returns to
//!   rsp = F+8         struct ucontext: flags, registers, signal mask
//!             ...     XSAVE area, as rt_sigreturn wants it
//! ```
//!
//! The code goes to the end of an executable mapping, into bytes of the last page that belong to nothing (the vDSO ends
//! in some); the frame goes below the stack, beyond the red zone. Both are put back afterwards. A tracer that dies leaves
//! the twelve bytes there; the next one recognises them, and takes them away unless a thread still stands in them
//! ([`Stopped::clear_way_home`](crate::Stopped::clear_way_home)).

use std::arch::x86_64::__cpuid_count;

use nanoprobe_patch::TargetAddress;

use crate::error::MemoryError;
use crate::map::{Map, Mapping, MappingKind};
use crate::memory::Memory;
use crate::raw::Registers;

const CODE: [u8; 12] = [0x0f, 0x05, 0x48, 0x89, 0xc3, 0xb8, 15, 0, 0, 0, 0x0f, 0x05];
/// Bytes at the end of a mapping that must be unused.
const CODE_ROOM: usize = 16;
const RED_ZONE: u64 = 128;
/// Room for a short string below the frame.
pub(crate) const TEXT_ROOM: u64 = 256;

/// The twelve bytes in the target.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HomingCode(pub TargetAddress);

impl HomingCode {
    /// Where a thread makes a system call.
    pub fn call(self) -> u64 {
        self.0.0
    }

    /// Where a called function returns to; its result is then in `rbx`.
    pub fn return_point(self) -> u64 {
        self.0.0 + 2
    }

    /// From where the thread goes home.
    pub fn home(self) -> u64 {
        self.0.0 + 5
    }

    /// `rip` at the entry of rt_sigreturn.
    pub fn in_home(self) -> u64 {
        self.0.0 + 12
    }

    /// Whether a thread with this `rip` is on its way home: left there by a tracer that died, it has not run since.
    pub fn holds(self, rip: u64) -> bool {
        (self.call()..=self.in_home()).contains(&rip)
    }

    /// Writes the code to a place that is free for it, or finds it (true) where a tracer that died has left it.
    /// `None`: there is no such place, or it cannot be written.
    ///
    /// # Errors
    /// [`MemoryError::Gone`] when the whole address space is: who executes another program has a place for the code there, which
    /// is found by the process's number.
    pub fn install(map: &Map, memory: &Memory) -> Result<Option<(HomingCode, bool)>, MemoryError> {
        let Some((place, found)) = candidates(map).find_map(|mapping| free_end(mapping, memory)) else {
            return Ok(None);
        };
        match memory.write(place, &CODE) {
            Ok(()) => Ok(Some((HomingCode(place), found))),
            Err(gone @ MemoryError::Gone { .. }) => Err(gone),
            Err(_) => Ok(None),
        }
    }

    /// All that tracers that died have left.
    pub fn left(map: &Map, memory: &Memory) -> Vec<HomingCode> {
        let found = |mapping| free_end(mapping, memory).filter(|&(_, found)| found);
        candidates(map)
            .filter_map(|mapping| found(mapping).map(|(place, _)| HomingCode(place)))
            .collect()
    }

    /// Whether a word of these, from a stack pointer upwards, is the bottom of a frame that leads here: the return
    /// address of a called function, and the flags above it.
    pub fn is_returned_to(self, stack: &[u8]) -> bool {
        let words = [self.return_point(), FRAME_FLAGS].map(u64::to_le_bytes);
        stack
            .chunks_exact(8)
            .zip(stack.chunks_exact(8).skip(1))
            .any(|(low, high)| low == words[0] && high == words[1])
    }

    /// Takes the code away again.
    pub fn remove(self, memory: &Memory) {
        // An error means that the address space is gone, and the code with it.
        let _ = memory.write(self.0, &[0; CODE.len()]);
    }
}

/// Where the code may lie; the vDSO first.
fn candidates(map: &Map) -> impl Iterator<Item = &Mapping> {
    let of_kind = |vdso: bool| {
        map.mappings().iter().filter(move |mapping| {
            let private = mapping.permissions.execute && !mapping.permissions.shared;
            let is_vdso = mapping.kind == MappingKind::Vdso;
            private && is_vdso == vdso && (vdso || mapping.path().is_some())
        })
    };
    of_kind(true).chain(of_kind(false))
}

fn free_end(mapping: &Mapping, memory: &Memory) -> Option<(TargetAddress, bool)> {
    let place = mapping.end.checked_sub(CODE_ROOM as u64)?;
    let bytes: [u8; CODE_ROOM] = memory.read_array(place).ok()?;
    let found = bytes.starts_with(&CODE) && bytes.ends_with(&[0; CODE_ROOM - CODE.len()]);
    (found || bytes == [0; CODE_ROOM]).then_some((place, found))
}

/// Where the frame may go: `bytes` bytes, of which nobody has anything.
///
/// The main stack has room below, or grows when it is written to there; a goroutine's has none to spare. So, when all
/// threads stand still, the far end of the main stack is preferred to an unknown thread's stack: it is free when no
/// thread is near and it holds zeros.
pub(crate) fn frame_room(
    map: &Map,
    memory: &Memory,
    stack_pointer: TargetAddress,
    all_stack_pointers: Option<&[TargetAddress]>,
    bytes: u64,
) -> Option<TargetAddress> {
    let own = map.find(stack_pointer).filter(|mapping| mapping.permissions.write)?;
    let below = stack_pointer
        .checked_sub(RED_ZONE + bytes)
        .map(|start| start.align_down(64));
    if own.kind == MappingKind::Stack {
        return below;
    }
    let below = below.filter(|&start| start >= own.start);
    let far_end = || {
        let all = all_stack_pointers?;
        let main = map
            .mappings()
            .iter()
            .find(|mapping| mapping.kind == MappingKind::Stack)?;
        let end = main.start.checked_add(bytes + RED_ZONE)?;
        let nobody = all.iter().all(|&pointer| pointer < main.start || pointer > end) && end < main.end;
        let mut there = vec![1; usize::try_from(bytes).ok()?];
        memory.read(main.start, &mut there).ok()?;
        (nobody && there.iter().all(|&byte| byte == 0)).then_some(main.start)
    };
    far_end().or(below)
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

/// How many bytes [`frame`] makes at most, its alignment included.
pub(crate) fn frame_bytes(extended: &[u8]) -> u64 {
    (16 + UCONTEXT_BYTES + 64 + extended.len() + 8) as u64
}

/// The bytes of a frame that starts at `at` (`at % 16 == 8`, so that a function called with it is aligned as it expects).
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
        // uc_stack: of no size, which is invalid and so leaves the thread's alternate stack as it is
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

/// The state components that a thread has a right to, and where the last of them ends in the area.
///
/// ptrace always gives the largest area there can be, and rt_sigreturn takes no more than the thread may use: AMX tiles
/// must be asked for. So they count only when the thread has some. A shorter area than the thread's is fine.
fn used_state(extended: &[u8]) -> (u64, usize) {
    const TILES: u64 = 1 << 18;
    let word = |at: usize| {
        extended.get(at..at + 8).map_or(0, |bytes| {
            bytes.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte))
        })
    };
    // The kernel notes what there can be in the area's software bytes; what there is, the processor notes in the header.
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
