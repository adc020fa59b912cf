//! Where a module makes system calls. Pure.
//!
//! Every `syscall` in code that a symbol, call frame information or a file's section describes. Not `int 0x80` and
//! `sysenter`, the calls of 32-bit programs.

use std::collections::BTreeMap;

use nanoprobe_patch::SystemCall;
use nanoprobe_patch::order::gather;
use nanoprobe_symbols::{ImageAddress, Module};

use crate::code::extent_around;
use crate::shims::{SYSCALL, decoded};

/// All system calls of a module, ascending.
pub fn find(module: &Module) -> Vec<SystemCall> {
    let mut calls = Vec::new();
    for range in module.executable_ranges() {
        let size = range.end.0.saturating_sub(range.start.0);
        let Some(text) = module.code_at(range.start, size) else {
            continue;
        };
        let pairs = text.windows(SYSCALL.len()).enumerate();
        let places = pairs.filter_map(|(offset, pair)| (pair == SYSCALL).then_some(offset as u64));
        let extents = places.filter_map(|offset| {
            let (extent, _) = extent_around(module, ImageAddress(range.start.0.saturating_add(offset)))?;
            Some((extent.start, extent.end))
        });
        for (start, end) in gather::<BTreeMap<u64, u64>, _>(extents) {
            let image = |address| module.bias().to_image(nanoprobe_patch::TargetAddress(address));
            let map = decoded(module, image(start), image(end));
            calls.extend(map.iter().flat_map(SystemCall::find));
        }
    }
    calls.sort_by_key(|call| call.syscall);
    calls.dedup_by_key(|call| call.syscall);
    calls
}
