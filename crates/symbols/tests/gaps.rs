//! Bytes without an owner: between sections of code, and after the last section.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Build, only};
use nanoprobe_symbols::{Function, ImageAddress, Module};

/// The beginning and end of a static musl program: three bytes of `.init`, `.text` at the next multiple of 16, three
/// bytes of `.fini`.
const SOURCE: &str = r#"
    .section .init, "ax", @progbits
    .globl first
    .type first, @function
    first: push %rax
    pop %rax
    ret
    .size first, . - first
    .text
    .p2align 4
    .globl _start
    .type _start, @function
    _start: ud2
    .size _start, . - _start
    .section .fini, "ax", @progbits
    .globl last
    .type last, @function
    last: push %rax
    pop %rax
    ret
    .size last, . - last
"#;

fn build() -> Option<Build> {
    Build::new(
        "gcc",
        &["-nostdlib", "-static", "-Wl,-z,separate-code"],
        "program.s",
        SOURCE,
    )
}

/// The gap after a function at the end of its section.
fn gap(module: &Module, name: &str) -> (u64, ImageAddress) {
    let function: &Function = only(module, name);
    let end = function.extent().end;
    assert!(module.padding_after(end).is_empty(), "{name}: its section ends");
    let gap = module.gap_after(end);
    assert_eq!(gap.start, end);
    (gap.len(), end)
}

#[test]
fn the_gap_before_an_aligned_section_is_found() {
    let Some(build) = build() else { return };
    let module = build.module();
    let (bytes, end) = gap(&module, "first");
    assert_eq!(bytes, 13);
    assert_eq!(module.code_with_gap_at(end, bytes), Some(&[0; 13][..]));
    let start = only(&module, "_start").address;
    assert_eq!(start.0, end.0 + bytes);
    assert!(module.gap_after(start).is_empty(), "no section ends there");
    assert!(module.gap_after(ImageAddress(end.0 - 1)).is_empty());
}

#[test]
fn the_gap_in_the_last_page_is_found() {
    let Some(build) = build() else { return };
    let module = build.module();
    let (bytes, end) = gap(&module, "last");
    assert!(
        (1..4096).contains(&bytes) && (end.0 + bytes).is_multiple_of(4096),
        "{bytes}"
    );
    assert_eq!(module.code_at(end, 1), None, "it is in no segment's part of the file");
    // The kernel maps the whole page, with the bytes of the file as far as there are any.
    if let Some(code) = module.code_with_gap_at(end, bytes) {
        assert_eq!(code.len() as u64, bytes);
    }
    assert_eq!(module.code_with_gap_at(end, bytes + 1), None);
    assert_eq!(module.code_with_gap_at(ImageAddress(u64::MAX), 2), None);
}

/// If the headers leave a doubt, there is no gap.
#[test]
fn doubts_leave_no_gap() {
    let Some(build) = build() else { return };
    let file = std::fs::read(build.path("program")).unwrap();
    let word = |at: usize| u64::from_le_bytes(file[at..at + 8].try_into().unwrap()) as usize;
    let half = |at: usize| usize::from(u16::from_le_bytes(file[at..at + 2].try_into().unwrap()));
    let changed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = file.clone();
        change(&mut bytes);
        Module::parse(Arc::new(bytes), "program").unwrap()
    };
    let gaps = |module: &Module| (gap(module, "first").0 > 0, gap(module, "last").0 > 0);
    assert_eq!(gaps(&changed(&|_| ())), (true, true));
    // The section that is left out leaves more space than the next section's alignment explains.
    let (sections, count) = (word(0x28), half(0x3c));
    let text = only(&changed(&|_| ()), "_start").address;
    let of_text = (0..count).map(|index| sections + 64 * index);
    let of_text = of_text.clone().find(|at| word(at + 16) as u64 == text.0).unwrap();
    let unaligned = changed(&|bytes| bytes[of_text + 48..of_text + 56].copy_from_slice(&4u64.to_le_bytes()));
    assert_eq!(gaps(&unaligned), (false, true));
    // First the last segment with code continues in memory. Then another segment begins in its page.
    let (programs, count) = (word(0x20), half(0x38));
    let segments: Vec<usize> = (0..count).map(|index| programs + 56 * index).collect();
    let is_code = |at: &&usize| file[**at] == 1 && file[**at + 4] & 1 != 0;
    let code = *segments.iter().find(is_code).unwrap();
    let memory = word(code + 40) as u64 + 1;
    let longer = changed(&|bytes| bytes[code + 40..code + 48].copy_from_slice(&memory.to_le_bytes()));
    assert_eq!(gaps(&longer), (true, false));
    let other = *segments.iter().find(|at| **at != code).unwrap();
    let behind = (word(code + 16) + word(code + 40) + 1) as u64;
    let shared = changed(&|bytes| {
        bytes[other..other + 4].copy_from_slice(&1u32.to_le_bytes());
        bytes[other + 16..other + 24].copy_from_slice(&behind.to_le_bytes());
        bytes[other + 32..other + 40].copy_from_slice(&1u64.to_le_bytes());
        bytes[other + 40..other + 48].copy_from_slice(&1u64.to_le_bytes());
    });
    assert_eq!(gaps(&shared), (true, false));
}
