//! The registered probes, as `nanoprobe -l -p PID` finds them from outside: rows in a mapping with a name
//! ([`nanoprobe_arena::registry`]). A fork copies the mapping with the probes. If there is no mapping, the probes
//! still work.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use nanoprobe_arena::registry::{ENABLED, HEAD_BYTES, Head, MAGIC, NAME, ROW_BYTES, Row};

use super::function::Function;
use super::watch;
use crate::api::tactic_number;
use crate::hit::PROBES_MAX;
use crate::{hit, self_process};

const BYTES: usize = (HEAD_BYTES + ROW_BYTES * PROBES_MAX).next_multiple_of(4096);

/// The rows.
pub struct Shown(Option<&'static [AtomicU64]>);

impl Shown {
    /// Maps the rows, all of them free.
    pub fn new() -> Shown {
        let head = Head {
            rows: PROBES_MAX as u32,
            threads: hit::threads_address(),
            next_offset: offset_of!(hit::Thread, next) as u32,
            counters_offset: offset_of!(hit::Thread, counters) as u32,
        };
        let shown = Shown(map());
        if let Some(words) = shown.0 {
            for (word, bytes) in words.iter().zip(head.to_bytes().chunks_exact(8)).skip(1) {
                word.store(
                    u64::from_le_bytes(bytes.try_into().unwrap_or_default()),
                    Ordering::Relaxed,
                );
            }
            if let Some(first) = words.first() {
                first.store(MAGIC, Ordering::Release);
            }
        }
        shown
    }

    fn set(&self, index: u32, row: Row) {
        let at = (HEAD_BYTES + index as usize * ROW_BYTES) / 8;
        let words = self.0.and_then(|words| words.get(at..at + ROW_BYTES / 8));
        let Some([address, order, state]) = words else { return };
        let now = row.address == address.load(Ordering::Relaxed) && row.order == order.load(Ordering::Relaxed);
        if !now {
            // A reader that comes now sees a free row, and sees no row twice.
            state.store(0, Ordering::SeqCst);
            address.store(row.address, Ordering::SeqCst);
            order.store(row.order, Ordering::SeqCst);
        }
        state.store(row.state, Ordering::SeqCst);
    }

    /// Frees a row.
    pub fn clear(&self, index: u32) {
        self.set(index, Row::default());
    }

    /// Fills in the rows of all probes in a function.
    pub fn function(&self, function: &Function) {
        for (address, state) in &function.sites {
            let tactic = function.tactic_at(*address);
            for member in state.members.iter().filter(|member| member.is_counted()) {
                let (enabled, tactic) = match member.is_enabled() {
                    true => (ENABLED, tactic_number(tactic) as u64),
                    false => (0, 0),
                };
                let row = Row {
                    address: *address,
                    order: member.id,
                    state: member.kind as u64 | tactic << 8 | enabled,
                };
                self.set(member.entry.index, row);
            }
        }
    }

    /// Fills in the row of a watchpoint.
    pub fn watch(&self, watchpoint: &watch::Watchpoint) {
        let (index, row) = watchpoint.row();
        self.set(index, row);
    }
}

fn map() -> Option<&'static [AtomicU64]> {
    // A file beyond the limit would raise a signal that ends the program.
    if !self_process::may_have_file_of(BYTES as u64) {
        return None;
    }
    let name = std::ffi::CString::new(NAME).ok()?;
    // SAFETY: the name ends with 0; the descriptor is ours until it is closed below.
    let mapped = unsafe {
        let file = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
        if file < 0 {
            return None;
        }
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
        let mapped = match libc::ftruncate(file, BYTES as libc::off_t) {
            0 => libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, file, 0),
            _ => libc::MAP_FAILED,
        };
        libc::close(file);
        mapped
    };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: a new mapping of that many bytes, aligned to a page. It is never unmapped, and only this code writes
    // it.
    Some(unsafe { std::slice::from_raw_parts(mapped.cast::<AtomicU64>(), BYTES / 8) })
}
