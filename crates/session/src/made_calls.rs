//! The system calls of code that no file describes: which pairs of bytes in it are a `syscall`.
//!
//! Where such code has its instructions is known to its maker only. Three signs leave no doubt that a pair of bytes is
//! a call: the load of a number, or of the fourth argument, directly before it, and the usual test of its result after
//! it. `agent/made.c` knows the same signs.

use std::ops::Range;

use nanoprobe_arena::layout::CALL_NUMBERS;
use nanoprobe_patch::{MadeCall, TargetAddress, is_likely_call};
use nanoprobe_target::{Map, Mapping, Memory};

use crate::made_code::is_made;

/// How much memory is read in one look, and in one piece.
const READ_MAX: u64 = 256 << 20;
const PIECE: usize = 1 << 18;
/// Pieces overlap by what a call has before it and after it.
const BEFORE: usize = 40;
const AFTER: usize = 40;
const PAGE: u64 = 4096;

const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// `mov $NUMBER, %eax`, `mov $NUMBER, %rax`.
const NUMBERS: [&[u8]; 2] = [&[0xb8], &[0x48, 0xc7, 0xc0]];
/// `mov %rcx, %r10`: no code but that of a call does this before the bytes of one.
const FOURTH: [u8; 3] = [0x49, 0x89, 0xca];
/// `cmp $-4096, %rax`, `cmp $-4095, %rax`.
const TESTS: [[u8; 6]; 2] = [
    [0x48, 0x3d, 0x00, 0xf0, 0xff, 0xff],
    [0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff],
];
/// munmap, rt_sigreturn, exit.
const MUNMAP: u32 = 11;
const SIGRETURN: u32 = 15;
const EXIT: u32 = 60;
/// How far after a `munmap` another call is searched.
const UNMAP_DISTANCE: usize = 32;

/// What a pair of bytes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A call; `is_patched`: with our byte.
    Certain { is_patched: bool },
    /// Perhaps a call, perhaps a part of another instruction, or data.
    Doubtful,
}

/// A pair of bytes in a piece of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub offset: usize,
    pub form: Form,
    pub number: Option<u32>,
}

/// A call in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub address: TargetAddress,
    /// Whether our byte is there: a patch, or a copy of one.
    pub is_patched: bool,
    /// Why nothing may be written there.
    pub refusal: Option<&'static str>,
}

/// The calls of a process.
#[derive(Debug, Default)]
pub(crate) struct Look {
    pub calls: Vec<Found>,
    /// An instruction that is likely to be a call of any number.
    pub doubtful: Option<TargetAddress>,
}

/// All pairs of bytes that are, or may be, a call.
pub(crate) fn calls_in(bytes: &[u8]) -> impl Iterator<Item = Pair> + '_ {
    let pairs = bytes.array_windows::<2>().enumerate();
    pairs.filter_map(|(offset, pair)| {
        let is_patched = *pair == MadeCall::PATCHED;
        if *pair != SYSCALL && !is_patched {
            return None;
        }
        let (before, after) = (bytes.get(..offset)?, bytes.get(offset + pair.len()..)?);
        let number = number_of(before);
        let is_certain =
            number.is_some() || before.ends_with(&FOURTH) || TESTS.iter().any(|test| after.starts_with(test));
        let form = match (is_certain, is_patched) {
            (true, _) => Form::Certain { is_patched },
            (false, false) => Form::Doubtful,
            (false, true) => return None,
        };
        Some(Pair { offset, form, number })
    })
}

/// The number that the last instruction loads.
fn number_of(before: &[u8]) -> Option<u32> {
    let (before, number) = before.split_last_chunk::<4>()?;
    let number = u32::from_le_bytes(*number);
    (number < CALL_NUMBERS && NUMBERS.iter().any(|load| before.ends_with(load))).then_some(number)
}

/// Whether there is still a call at an address, with our byte or without.
pub(crate) fn is_call(memory: &Memory, address: TargetAddress, is_patched: bool) -> bool {
    const AROUND: usize = 8;
    let mut bytes = [0; 2 * AROUND + SYSCALL.len()];
    let Some(start) = address.0.checked_sub(AROUND as u64) else {
        return false;
    };
    let (before, rest) = bytes.split_at_mut(AROUND);
    // What lies before or after may be another mapping, or none.
    if memory.read(TargetAddress(start), before).is_err() {
        let inside = (address.0 % PAGE).min(AROUND as u64) as usize;
        let (_, inside) = before.split_at_mut(AROUND - inside);
        let _ = memory.read(TargetAddress(address.0 - inside.len() as u64), inside);
    }
    if memory.read_some(address, rest).unwrap_or(0) < SYSCALL.len() {
        return false;
    }
    calls_in(&bytes).any(|pair| pair.offset == AROUND && pair.form == Form::Certain { is_patched })
}

/// Looks at all executable memory that no file describes, except our `own`.
pub(crate) fn look(memory: &Memory, map: &Map, own: &[Range<u64>]) -> Look {
    let mut look = Look::default();
    let mut left = READ_MAX;
    let is_own = |mapping: &Mapping| own.iter().any(|own| own.contains(&mapping.start.0));
    for mapping in map
        .mappings()
        .iter()
        .filter(|mapping| is_made(mapping) && !is_own(mapping))
    {
        let shared = mapping
            .permissions
            .shared
            .then_some("other processes may share its memory");
        for_pieces(
            memory,
            mapping.start.0..mapping.end.0,
            &mut left,
            &mut |start, bytes, counted| {
                for pair in calls_in(bytes).filter(|pair| counted.contains(&pair.offset)) {
                    let address = TargetAddress(start.saturating_add(pair.offset as u64));
                    match pair.form {
                        Form::Certain { is_patched } => look.calls.push(Found {
                            address,
                            is_patched,
                            refusal: shared.or_else(|| refusal(pair, bytes)),
                        }),
                        Form::Doubtful if look.doubtful.is_none() && is_likely_call(bytes, pair.offset) => {
                            look.doubtful = Some(address);
                        }
                        Form::Doubtful => {}
                    }
                }
            },
        );
    }
    look
}

fn refusal(pair: Pair, bytes: &[u8]) -> Option<&'static str> {
    let after = bytes.get(pair.offset + SYSCALL.len()..).unwrap_or_default();
    let near = after.get(..after.len().min(UNMAP_DISTANCE)).unwrap_or_default();
    let makes_call = || near.array_windows::<2>().any(|pair| *pair == SYSCALL);
    match pair.number? {
        SIGRETURN => Some("unwinders know this code by its bytes"),
        EXIT => Some("the thread may have given its stack up"),
        MUNMAP if makes_call() => Some("the thread may unmap its own stack"),
        _ => None,
    }
}

/// See [`for_pieces`].
pub(crate) type Act<'a> = dyn FnMut(u64, &[u8], Range<usize>) + 'a;

/// Reads memory in pieces that overlap. `act` gets the address of a piece, its bytes, and the offsets that belong to
/// this piece and to no other. What was unmapped since the map was read is passed over: neighbouring mappings are one
/// in the map, and the program may free the first of them and keep the rest.
pub(crate) fn for_pieces(memory: &Memory, range: Range<u64>, left: &mut u64, act: &mut Act<'_>) {
    let all = usize::try_from(range.end.saturating_sub(range.start)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; all.min(PIECE + BEFORE + AFTER)];
    let mut at = range.start;
    let mut readable = range.start;
    while at < range.end && *left > 0 {
        let start = at.saturating_sub(BEFORE as u64).max(readable);
        let before = (at - start) as usize;
        let length = usize::try_from(range.end - start).unwrap_or(usize::MAX);
        let length = length.min(before + PIECE + AFTER).min(bytes.len());
        let Some(into) = bytes.get_mut(..length) else {
            return;
        };
        let read = memory.read_some(TargetAddress(start), into).unwrap_or(0);
        let is_whole = read == length;
        let read = into.get(..read).unwrap_or_default();
        act(start, read, before..before + PIECE);
        let next = match is_whole {
            true => at.saturating_add(PIECE as u64),
            false => {
                let hole = at.max(start.saturating_add(read.len() as u64));
                readable = (hole | (PAGE - 1)).saturating_add(1);
                readable
            }
        };
        *left = left.saturating_sub(next - at);
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(bytes: &[u8]) -> Vec<(usize, Form)> {
        calls_in(bytes).map(|pair| (pair.offset, pair.form)).collect()
    }

    #[test]
    fn a_patched_call_is_known_by_the_bytes_around_it() {
        const PATCHED: Form = Form::Certain { is_patched: true };
        // mov $39, %eax; int3; 05
        assert_eq!(forms(&[0xb8, 39, 0, 0, 0, 0xcc, 0x05]), [(5, PATCHED)]);
        assert_eq!(forms(&[0xcc, 0x05, 0x48, 0x3d, 0, 0xf0, 0xff, 0xff]), [(0, PATCHED)]);
        assert_eq!(forms(&[0x49, 0x89, 0xca, 0xcc, 0x05]), [(3, PATCHED)]);
        // int3; add $1, %eax: the program's own breakpoint.
        assert_eq!(forms(&[0x90, 0xcc, 0x05, 1, 0, 0, 0]), []);
        assert_eq!(forms(&[0x90, 0x0f, 0x05, 0xc3]), [(1, Form::Doubtful)]);
    }

    #[test]
    fn calls_are_found_where_pieces_meet() {
        let mut code = vec![0x90_u8; 2 * PIECE + 100];
        let places = [PIECE - 7, PIECE - 2, PIECE, 2 * PIECE + 3];
        for (index, place) in places.into_iter().enumerate().filter(|(index, _)| index % 2 == 0) {
            code[place..place + 7].copy_from_slice(&[0xb8, index as u8, 0, 0, 0, 0x0f, 0x05]);
        }
        code[2 * PIECE + 3..2 * PIECE + 10].copy_from_slice(&[0xb8, 39, 0, 0, 0, 0x0f, 0x05]);
        let memory = Memory::of_self().unwrap();
        let start = code.as_ptr() as u64;
        let mut found = Vec::new();
        let mut left = READ_MAX;
        for_pieces(
            &memory,
            start..start + code.len() as u64,
            &mut left,
            &mut |at, bytes, counted| {
                let pairs = calls_in(bytes).filter(|pair| counted.contains(&pair.offset));
                found.extend(pairs.map(|pair| at + pair.offset as u64 - start));
            },
        );
        assert_eq!(found, [PIECE as u64 - 2, PIECE as u64 + 5, 2 * PIECE as u64 + 8]);
    }

    /// The map shows one mapping, of which the program has freed pages since.
    #[test]
    fn calls_after_a_hole_are_found() {
        const PAGES: usize = 6;
        let length = PAGES * PAGE as usize;
        // SAFETY: new memory, of which nobody else knows.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(start, libc::MAP_FAILED);
        let start = start as u64;
        for page in [1, 2, 4] {
            let call = [0xb8, 39, 0, 0, 0, 0x0f, 0x05];
            let memory = Memory::of_self().unwrap();
            memory.write(TargetAddress(start + page * PAGE), &call).unwrap();
        }
        for page in [0, 3, 5] {
            // SAFETY: a page of the new memory.
            let freed = unsafe { libc::munmap((start + page * PAGE) as *mut _, PAGE as usize) };
            assert_eq!(freed, 0);
        }
        let mut found = Vec::new();
        let mut left = READ_MAX;
        for_pieces(
            &Memory::of_self().unwrap(),
            start..start + length as u64,
            &mut left,
            &mut |at, bytes, counted| {
                let pairs = calls_in(bytes).filter(|pair| counted.contains(&pair.offset));
                found.extend(pairs.map(|pair| at + pair.offset as u64 - start));
            },
        );
        assert_eq!(found, [PAGE + 5, 2 * PAGE + 5, 4 * PAGE + 5]);
        assert_eq!(READ_MAX - left, length as u64);
        // SAFETY: the rest of the new memory.
        unsafe { libc::munmap(start as *mut _, length) };
    }

    #[test]
    fn only_whole_instructions_are_likely_calls() {
        // Sixteen times mov %rdi, %rax, then syscall; ret.
        let mut code = [0x48, 0x89, 0xf8].repeat(16);
        code.extend([0x0f, 0x05, 0xc3]);
        assert!(is_likely_call(&code, 48));
        // The same, but the bytes are those of mov $0x5050f, %eax.
        let mut code = [0x48, 0x89, 0xf8].repeat(16);
        code.extend([0xb8, 0x0f, 0x05, 0x05, 0, 0xc3]);
        assert!(!is_likely_call(&code, 49));
        assert!(is_likely_call(&[0x0f, 0x05], 0));
    }
}
