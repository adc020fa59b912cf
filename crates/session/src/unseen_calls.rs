//! System calls that no probe sees: those of code that the program has made at run time, and what it submits to an
//! io_uring. Users are told once.
//!
//! Code that no file describes is not decoded: where its instructions begin is known to its maker only. A call is told
//! where the bytes leave no doubt: the instruction with its number before it, or with the test of its error after it.

use std::ops::Range;
use std::time::{Duration, Instant};

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{Mapping, MappingKind, Process};

use crate::made_calls::{Form, calls_in};
use crate::made_code::is_made;

/// The first time between two looks. It doubles with each look.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// A look takes at most this part of the time.
const WAIT_FACTOR: u32 = 100;
/// How much memory is read in one look, and in one piece.
const READ_MAX: u64 = 32 << 20;
const PIECE: usize = 1 << 16;
/// Pieces overlap by more than a call with what stands before and after it.
const PATTERNS: usize = 32;

/// What was told, and when to look again.
pub(crate) struct UnseenCalls {
    told_ring: bool,
    told_code: bool,
    wait: Duration,
    next: Instant,
}

impl UnseenCalls {
    /// Nothing is told yet. `of_code`: calls of made code are to be told.
    pub(crate) fn new(of_code: bool) -> UnseenCalls {
        UnseenCalls {
            told_ring: false,
            told_code: !of_code,
            wait: FIRST_WAIT,
            next: Instant::now(),
        }
    }

    /// Whether it is time for a look.
    pub(crate) fn is_due(&self) -> bool {
        !(self.told_ring && self.told_code) && Instant::now() >= self.next
    }

    /// Looks at the memory of a process whose calls are traced, and yields what is to be told. `own`: nanoprobe's code
    /// there.
    pub(crate) fn look(&mut self, process: Option<&Process>, own: impl FnOnce() -> Vec<Range<u64>>) -> Vec<String> {
        let start = Instant::now();
        let told = process.map_or_else(Vec::new, |process| self.look_now(process, own));
        self.wait = (self.wait * 2).max(start.elapsed() * WAIT_FACTOR);
        self.next = Instant::now() + self.wait;
        told
    }

    fn look_now(&mut self, process: &Process, own: impl FnOnce() -> Vec<Range<u64>>) -> Vec<String> {
        let Ok(map) = process.map() else { return Vec::new() };
        // After the map: our code is listed before the process has it.
        let own = own();
        let is_own = |mapping: &Mapping| own.iter().any(|own| own.contains(&mapping.start.0));
        let mut told = Vec::new();
        if !self.told_ring && map.mappings().iter().any(is_ring) {
            self.told_ring = true;
            told.push("the program has an io_uring: what it submits there are no system calls, and is not seen".into());
        }
        let mut left = READ_MAX;
        let made = map
            .mappings()
            .iter()
            .filter(|mapping| is_made(mapping) && !is_own(mapping));
        let mut found = made.filter_map(|mapping| found_in(process, mapping, &mut left));
        if !self.told_code
            && let Some(address) = found.next()
        {
            self.told_code = true;
            told.push(format!(
                "the program has made code at run time that makes system calls, at {address:#x}: they are not seen"
            ));
        }
        told
    }
}

fn is_ring(mapping: &Mapping) -> bool {
    const NAME: &str = "anon_inode:[io_uring]";
    matches!(&mapping.kind, MappingKind::File { path, .. } if path.as_os_str() == NAME)
}

/// The first call in a mapping.
fn found_in(process: &Process, mapping: &Mapping, left: &mut u64) -> Option<u64> {
    let mut bytes = vec![0; PIECE + PATTERNS];
    let mut at = mapping.start.0;
    while at < mapping.end.0 && *left > 0 {
        let length = usize::try_from(mapping.end.0 - at)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let read = process
            .memory()
            .read_some(TargetAddress(at), bytes.get_mut(..length)?)
            .ok()?;
        if let Some(offset) = bytes.get(..read).and_then(call_in) {
            return Some(at.saturating_add(offset as u64));
        }
        *left = left.saturating_sub(PIECE as u64);
        at = at.saturating_add(PIECE as u64);
    }
    None
}

/// The offset of the first `syscall` that is certain.
fn call_in(bytes: &[u8]) -> Option<usize> {
    let mut calls = calls_in(bytes);
    calls.find_map(|call| (call.form == Form::Certain { is_patched: false }).then_some(call.offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_where_the_bytes_leave_no_doubt() {
        // mov $39, %eax; syscall; ret
        assert_eq!(call_in(&[0x90, 0xb8, 39, 0, 0, 0, 0x0f, 0x05, 0xc3]), Some(6));
        // mov $39, %rax; syscall
        assert_eq!(call_in(&[0x48, 0xc7, 0xc0, 39, 0, 0, 0, 0x0f, 0x05]), Some(7));
        // syscall; cmp $-4095, %rax
        assert_eq!(call_in(&[0x0f, 0x05, 0x48, 0x3d, 0x01, 0xf0, 0xff, 0xff]), Some(0));
        // The bytes of a constant, and a number that no call has.
        assert_eq!(call_in(&[0xb8, 0x0f, 0x05, 0, 0, 0xc3]), None);
        assert_eq!(call_in(&[0xb8, 39, 0, 1, 0, 0x0f, 0x05]), None);
        assert_eq!(call_in(&[]), None);
        // mov %rcx, %r10; syscall
        assert_eq!(call_in(&[0x49, 0x89, 0xca, 0x0f, 0x05, 0xc3]), Some(3));
    }
}
