//! Where a module makes system calls. Pure.
//!
//! Every `syscall` in code that a symbol, call frame information or a file's section describes. Of the calls of 32-bit
//! programs, `int 0x80` where a number is loaded before it, and `sysenter` beside others.

use std::collections::BTreeMap;

use nanoprobe_patch::order::gather;
use nanoprobe_patch::{CallInstruction, SystemCall};
use nanoprobe_symbols::{ImageAddress, Module};

use crate::code::extent_around;
use crate::shims::decoded;

/// `mov $NUMBER, %eax` begins with this byte.
const LOAD: u8 = 0xb8;
/// How far it is searched before an `int 0x80`.
const LOAD_DISTANCE: usize = 32;

/// Whether the code around these bytes is worth decoding. By chance they are in much code: each is one of 65,536 pairs.
fn may_be_call(text: &[u8], offset: usize, pair: [u8; 2]) -> bool {
    let has_load = || {
        let before = text.get(offset.saturating_sub(LOAD_DISTANCE)..offset);
        before.is_some_and(|before| before.contains(&LOAD))
    };
    pair == CallInstruction::Syscall.bytes() || (pair == CallInstruction::Interrupt.bytes() && has_load())
}

/// All system calls of a module, ascending.
pub fn find(module: &Module) -> Vec<SystemCall> {
    let mut calls = Vec::new();
    for range in module.executable_ranges() {
        let size = range.end.0.saturating_sub(range.start.0);
        let Some(text) = module.code_at(range.start, size) else {
            continue;
        };
        let pairs = text.array_windows::<2>().enumerate();
        let places = pairs.filter_map(|(offset, pair)| may_be_call(text, offset, *pair).then_some(offset as u64));
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
