//! Whether a stack leads back into our code.
//!
//! A thread whose instruction pointer is outside of our code can come back in three ways only. Our code calls no code
//! of the program but its signal handlers, so there is no other return address to look for.
//!
//! | on the stack | is |
//! |---|---|
//! | a signal frame that is not ours, whose saved `rip` is in our code | a handler of the program's interrupted a detour |
//! | a signal frame of ours, where there is a shadow stack | we have handed a signal on |
//! | the address of a thunk | a return address that was replaced, and could not be put back (`agent/returns.h`) |
//!
//! Without a shadow stack, a handler to which we hand a signal on returns to the program's own restorer, and nothing of
//! ours is on the stack (`agent/chain.c`). All other frames of ours are of handlers that are done, or whose thread is in
//! our code.
//!
//! Stacks are full of old data. With a shadow stack, a frame of ours that has done its work looks like one that still
//! waits. But it comes from a trap that leads into our code, and a trap that was handed on does not lead there. Other
//! addresses of ours, for example those in detours that have called handlers, are no return addresses. A frame on an
//! alternate stack does not belong to a thread that stands on another stack: Go's stacks lie side by side in its
//! heap, and a search goes from one into the next.
//!
//! ```text
//!   frame + 0    where the handler returns to (the restorer, which makes the system call rt_sigreturn)
//!         + 8    struct ucontext: flags, link
//!         + 24   the alternate stack: start, flags, size
//!         + 48   registers
//!         + 168  rsp
//!         + 176  rip, flags
//!         + 192  cs, gs, fs, ss
//!         + 200  error code, trap number
//!         + 240  eight words that are not used; in the last one we keep what we have taken out of the mask
//!         + 304  the mask that is put back
//! ```

use std::ops::Range;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Map, Memory, MemoryError};
use nanoprobe_text::returns::has_shadow_stack;

/// How much of a stack is searched.
const STACK_BYTES_MAX: usize = 256 << 10;
/// How many stacks a thread may use at once, each interrupted by a handler on the next.
const STACKS_MAX: usize = 8;
/// Words from a frame's start.
const FLAGS: usize = 1;
const LINK: usize = 2;
const RSP: usize = 21;
const RIP: usize = 22;
const SEGMENTS: usize = 24;
const TRAP_NUMBER: usize = 26;
/// The word with the start of the alternate stack.
const ALTERNATE: usize = 3;
const ALTERNATE_BYTES: usize = 5;
/// All flags of struct ucontext that exist: the highest is UC_STRICT_RESTORE_SS.
const FLAGS_MAX: u64 = 7;
const USER_CS: u64 = 0x33;
/// How the thunk of a replaced return address begins: [`nanoprobe_agent::thunks`].
const THUNK: [u8; 7] = [0x48, 0x8d, 0x64, 0x24, 0xe8, 0x50, 0xb8];
/// The mask that the handler's return puts back.
const MASK: usize = 38;
/// The last of the words that the kernel keeps for later; it neither writes nor reads them.
const MARK: usize = 37;
/// The word holds this ("np"), a checksum of the interrupted registers, and the signals that we have taken out of the
/// mask. Later the kernel may write another frame around the word. The checksum then shows that the mark does not
/// belong to the new frame.
const MARK_MAGIC: u64 = 0x6e70 << 48;
/// The words that the checksum covers: the registers, among them rip and the flags.
const SUMMED: Range<usize> = 5..24;
/// Processor exceptions: #BP and #UD.
const TRAPS: [u64; 2] = [3, 6];

/// The code to which our signal handlers return.
#[derive(Clone, Copy)]
pub(crate) struct Restorer {
    /// Its address, in the agent; 0: there are no handlers.
    pub address: u64,
    /// Whether the process has shadow stacks.
    pub has_shadow_stack: bool,
}

impl Restorer {
    /// The restorer at `address` in a process.
    pub fn of(pid: i32, address: u64) -> Restorer {
        Restorer {
            address,
            has_shadow_stack: has_shadow_stack(pid),
        }
    }

    /// Where the program's handlers return if a signal was handed on to them; 0: to none of ours.
    pub fn programs_handlers(self) -> u64 {
        if self.has_shadow_stack { self.address } else { 0 }
    }
}

/// The addresses of our code in a target.
pub(crate) struct OurCode {
    /// All ranges of our code, ascending and disjoint.
    pub ranges: Vec<Range<u64>>,
    /// The agent's image.
    pub image: Range<u64>,
    /// [`Restorer::programs_handlers`].
    pub restorer: u64,
    /// The image of the agent that calls ours in its signal handlers; empty: ours is called by the kernel.
    pub host: Range<u64>,
}

impl OurCode {
    /// Adds an address that is not in the ranges yet.
    pub fn add(&mut self, address: u64) {
        let index = self.ranges.partition_point(|range| range.start <= address);
        self.ranges.insert(index, address..address.saturating_add(1));
    }

    /// Whether an address lies in our code.
    pub fn holds(&self, address: u64) -> bool {
        let before = self
            .ranges
            .partition_point(|range| range.start <= address)
            .checked_sub(1);
        before
            .and_then(|index| self.ranges.get(index))
            .is_some_and(|range| range.contains(&address))
    }

    /// Whether a thread with this stack pointer will come back into our code.
    pub fn is_awaited_on(&self, memory: &Memory, map: &Map, rsp: u64) -> bool {
        let words = words_from(memory, map, rsp);
        self.is_awaited_in(&words, rsp, |address| memory.read_array(TargetAddress(address)).ok())
    }

    /// `words`: the words from the stack pointer on. `code_at` yields eight bytes of our code.
    fn is_awaited_in(&self, words: &[u64], rsp: u64, code_at: impl Fn(u64) -> Option<[u8; 8]>) -> bool {
        let ours = words.iter().enumerate().filter(|(_, word)| self.holds(**word));
        ours.into_iter().any(|(index, word)| {
            if *word == self.restorer && is_frame(words, index, rsp) {
                let field = |offset: usize| words.get(index + offset).copied().unwrap_or(0);
                return !(self.holds(field(RIP)) && TRAPS.contains(&field(TRAP_NUMBER)));
            }
            match index.checked_sub(RIP) {
                Some(frame) if is_frame(words, frame, rsp) => words
                    .get(frame)
                    .is_none_or(|back| !self.holds(*back) && !self.host.contains(back)),
                _ => code_at(*word).is_some_and(|bytes| bytes.starts_with(&THUNK)),
            }
        })
    }
}

/// The stack's words, from the stack pointer on.
fn words_from(memory: &Memory, map: &Map, rsp: u64) -> Vec<u64> {
    let start = rsp & !7;
    // A stack ends with its mapping; the memory after it belongs to something else.
    let end = map.find(TargetAddress(rsp)).map_or(u64::MAX, |mapping| mapping.end.0);
    let bytes = usize::try_from(end.saturating_sub(start)).unwrap_or(usize::MAX);
    let mut stack = vec![0; bytes.min(STACK_BYTES_MAX)];
    let read = memory.read_some(TargetAddress(start), &mut stack).unwrap_or(0);
    let words = stack.get(..read).unwrap_or_default().chunks_exact(8);
    words
        .filter_map(|word| Some(u64::from_le_bytes(word.try_into().ok()?)))
        .collect()
}

/// The most signals that a thread with this stack pointer may block once all its current handlers have returned. A
/// thread in no handler yields all bits.
pub(crate) fn mask_after_handlers(memory: &Memory, map: &Map, rsp: u64) -> u64 {
    mask_behind(&words_from(memory, map, rsp), rsp)
}

fn mask_behind(words: &[u64], rsp: u64) -> u64 {
    let frames = (0..words.len()).filter(|start| is_frame(words, *start, rsp));
    let masks = frames.filter_map(|start| words.get(start + MASK));
    masks.fold(u64::MAX, |all, mask| all & mask)
}

/// A signal frame of the program's, whose handler a thread is in.
struct Frame {
    address: u64,
    rip: u64,
    mask: u64,
    mark: u64,
    /// The mark without signals.
    seal: u64,
}

impl Frame {
    fn write(&self, memory: &Memory, field: usize, value: u64) -> Result<(), MemoryError> {
        let place = TargetAddress(self.address.saturating_add(8 * field as u64));
        memory.write(place, &value.to_le_bytes())
    }
}

/// 32 bits of words (FNV-1a).
fn sum(words: impl Iterator<Item = u64>) -> u64 {
    let sum = words.fold(0xcbf2_9ce4_8422_2325_u64, |sum, word| {
        (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3)
    });
    sum >> 32
}

/// The frames of the handlers that a thread with this stack pointer is in.
///
/// The program's own memory will be changed, so a frame counts only if its handler returns to code that makes the
/// system call rt_sigreturn. A handler on an alternate stack has interrupted another stack, where a handler may
/// have been running already.
fn frames_of_handlers(memory: &Memory, map: &Map, rsp: u64) -> Vec<Frame> {
    let mut frames = Vec::new();
    let mut next = Some(rsp);
    let mut searched: Vec<Range<u64>> = Vec::new();
    while let Some(rsp) = next.take().filter(|_| searched.len() < STACKS_MAX) {
        let words = words_from(memory, map, rsp);
        let start = rsp & !7;
        searched.push(start..start.saturating_add(8 * words.len() as u64));
        for index in (0..words.len()).filter(|index| is_frame(&words, *index, rsp)) {
            let field = |offset: usize| words.get(index + offset).copied().unwrap_or(0);
            let restorer = memory.read_array(TargetAddress(field(0))).ok();
            if !restorer.is_some_and(|code| makes_sigreturn(&code)) {
                continue;
            }
            frames.push(Frame {
                address: start.saturating_add(8 * index as u64),
                rip: field(RIP),
                mask: field(MASK),
                mark: field(MARK),
                seal: MARK_MAGIC | sum(SUMMED.map(field)) << 16,
            });
            if !searched.iter().any(|stack| stack.contains(&field(RSP))) {
                next = Some(field(RSP));
            }
        }
    }
    frames
}

/// Takes signals out of the masks that a thread's handlers restore when they return: no shim stands before the system
/// call rt_sigreturn. The removed signals are kept in the frame.
pub(crate) fn unblock_behind_handlers(memory: &Memory, map: &Map, rsp: u64, signals: u64) -> Result<(), MemoryError> {
    for frame in frames_of_handlers(memory, map, rsp) {
        let bits = frame.mask & signals;
        if bits != 0 {
            frame.write(memory, MARK, frame.seal | bits)?;
            frame.write(memory, MASK, frame.mask & !bits)?;
        }
    }
    Ok(())
}

/// Undoes [`unblock_behind_handlers`], except where a handler returns to our code, which needs the signals.
pub(crate) fn block_behind_handlers(
    memory: &Memory,
    map: &Map,
    rsp: u64,
    signals: u64,
    is_ours: impl Fn(u64) -> bool,
) -> Result<(), MemoryError> {
    for frame in frames_of_handlers(memory, map, rsp) {
        if frame.mark & !signals == frame.seal {
            if !is_ours(frame.rip) {
                frame.write(memory, MASK, frame.mask | frame.mark & signals)?;
            }
            frame.write(memory, MARK, 0)?;
        }
    }
    Ok(())
}

/// Whether code is `mov $15, %rax; syscall`, in one of its two encodings. Unwinders, too, recognise a signal frame by
/// this code.
fn makes_sigreturn(code: &[u8; 9]) -> bool {
    code.starts_with(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5]) || code.starts_with(&[0xb8, 15, 0, 0, 0, 0x0f, 5])
}

/// Whether a signal frame that the thread has not left may start at this word.
fn is_frame(words: &[u64], start: usize, rsp: u64) -> bool {
    let field = |offset: usize| words.get(start + offset).copied();
    let address = (rsp & !7).saturating_add(8 * start as u64);
    let alternate = field(ALTERNATE).zip(field(ALTERNATE_BYTES));
    let is_on_another = alternate.is_some_and(|(stack, bytes)| {
        let holds = |address: u64| address.wrapping_sub(stack) < bytes;
        holds(address) && !holds(rsp)
    });
    if is_on_another {
        return false;
    }
    field(FLAGS).is_some_and(|flags| flags <= FLAGS_MAX)
        && field(LINK) == Some(0)
        && field(SEGMENTS).is_some_and(|segments| segments & 0xffff == USER_CS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTORER: u64 = 0x1100;
    const DETOUR: u64 = 0x5010;
    const PROGRAM: u64 = 0x9000;
    const STACK: u64 = 0x70_0000;

    fn code() -> OurCode {
        OurCode {
            ranges: vec![0x1000..0x3000, 0x5000..0x6000],
            image: 0x1000..0x2000,
            restorer: RESTORER,
            host: 0x7000..0x8000,
        }
    }

    fn frame(back: u64, rip: u64, trap: u64) -> Vec<u64> {
        let mut words = vec![0xaaaa; 40];
        words[..3].copy_from_slice(&[back, 7, 0]);
        words[RIP] = rip;
        words[SEGMENTS] = 0x2b << 48 | USER_CS;
        words[TRAP_NUMBER] = trap;
        words
    }

    fn is_awaited(words: &[u64]) -> bool {
        code().is_awaited_in(words, STACK, |_| Some([0x90; 8]))
    }

    #[test]
    fn stack_words_that_only_look_like_ours_are_not_awaited() {
        assert!(!is_awaited(&[]));
        assert!(!is_awaited(&[DETOUR, 0, RESTORER, 0x1500, 0x2500]));
        assert!(!is_awaited(&frame(RESTORER, DETOUR, 3)), "a trap that was redirected");
        assert!(!is_awaited(&frame(PROGRAM, PROGRAM, 14)), "a frame of the program's");
        assert!(
            !is_awaited(&frame(0x7100, DETOUR, 3)),
            "a trap that our host has let us redirect"
        );
    }

    #[test]
    fn frames_that_lead_back_are() {
        for before in [0, 1, 30] {
            let on = |frame: Vec<u64>| is_awaited(&[vec![1; before], frame, vec![DETOUR; 3]].concat());
            assert!(on(frame(PROGRAM, DETOUR, 0)), "a detour that was interrupted");
            assert!(on(frame(PROGRAM, 0x2500, 0)), "a handler that was interrupted");
            assert!(on(frame(RESTORER, PROGRAM, 3)), "a trap that was handed on");
            assert!(on(frame(RESTORER, DETOUR, 14)), "a fault of the detour's own");
        }
    }

    #[test]
    fn without_a_shadow_stack_the_remains_of_our_frames_are_not() {
        let code = OurCode { restorer: 0, ..code() };
        let on = |frame: Vec<u64>| code.is_awaited_in(&frame, STACK, |_| Some([0x90; 8]));
        for trap in [3, 6, 14] {
            assert!(!on(frame(RESTORER, PROGRAM, trap)), "an instruction that was emulated");
            assert!(!on(frame(RESTORER, DETOUR, trap)), "a trap that was redirected");
            assert!(
                on(frame(PROGRAM, DETOUR, trap)),
                "a fault of the detour's own that was handed on"
            );
        }
    }

    /// A handler's frame on an alternate stack that the thread has left is over.
    #[test]
    fn frames_on_a_stack_that_was_left_are_not() {
        let on_alternate = |start: u64, bytes: u64| {
            let mut frame = frame(PROGRAM, DETOUR, 0);
            (frame[ALTERNATE], frame[ALTERNATE_BYTES]) = (start, bytes);
            is_awaited(&[vec![1; 32], frame].concat())
        };
        assert!(
            !on_alternate(STACK + 128, 4096),
            "the frame is on it, the thread is not"
        );
        assert!(on_alternate(STACK - 128, 4096), "both are");
        assert!(on_alternate(STACK + 0x10_0000, 4096), "the frame is not on it");
        assert!(on_alternate(0, 0), "there is none");
    }

    #[test]
    fn a_handlers_frame_tells_what_is_blocked_behind_it() {
        let mut words = frame(PROGRAM, PROGRAM, 0);
        assert_eq!(mask_behind(&[1; 80], STACK), u64::MAX);
        words[MASK] = 0x10;
        assert_eq!(mask_behind(&[vec![1; 7], words.clone()].concat(), STACK), 0x10);
        let mut outer = frame(PROGRAM, PROGRAM, 0);
        outer[MASK] = 0x410;
        assert_eq!(mask_behind(&[words, outer].concat(), STACK), 0x10);
    }

    #[test]
    fn a_seal_is_of_its_registers() {
        let registers: Vec<u64> = (0..19).map(|word| word * 0x1111).collect();
        let of = |registers: &[u64]| MARK_MAGIC | sum(registers.iter().copied()) << 16;
        let seal = of(&registers);
        assert_eq!(seal & 0xffff, 0, "room for signals");
        assert_eq!(seal >> 48, 0x6e70);
        for changed in 0..registers.len() {
            let mut other = registers.clone();
            other[changed] += 1;
            assert_ne!(of(&other), seal);
        }
    }

    #[test]
    fn only_sigreturn_is_sigreturn() {
        assert!(makes_sigreturn(&[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 5]));
        assert!(makes_sigreturn(&[0xb8, 15, 0, 0, 0, 0x0f, 5, 0x90, 0x90]));
        assert!(!makes_sigreturn(&[0x48, 0xc7, 0xc0, 14, 0, 0, 0, 0x0f, 5]));
        assert!(!makes_sigreturn(&[0xb8, 15, 0, 0, 0, 0xc3, 0x0f, 5, 0x90]));
    }

    #[test]
    fn a_replaced_return_address_is() {
        let thunks = nanoprobe_agent::thunks(0x1000, 0x2500, 2);
        let at = |address: u64| {
            let offset = usize::try_from(address.checked_sub(0x2500)?).ok()?;
            thunks.get(offset..offset + 8)?.try_into().ok()
        };
        assert!(code().is_awaited_in(&[1, 0x2510], STACK, at));
        assert!(!code().is_awaited_in(&[1, 0x2518], STACK, at));
    }
}
