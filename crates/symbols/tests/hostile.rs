//! Damaged and hostile files: every answer stays consistent, and the work stays in proportion to the size of the
//! file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::sync::{Arc, OnceLock};

use common::Build;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{Error, FileOffset, ImageAddress, Module, unwind_rows};
use nanoprobe_tests::left_out::left_out;
use proptest::prelude::*;

/// A small real library with every kind of content: symbols, versions, TLS, relocations, IFUNC, cold parts, a debug
/// link.
fn sample() -> &'static [u8] {
    static SAMPLE: OnceLock<Vec<u8>> = OnceLock::new();
    SAMPLE.get_or_init(|| {
        let source = r#"
            #include <stdio.h>
            #include <stdlib.h>
            __thread int t;
            __attribute__((cold, noinline)) void rare(int x) { printf("%d", x); }
            int often(int *v, int n) {
                int s = 0;
                for (int i = 0; i < n; i++) { if (v[i] < 0) { rare(v[i]); rare(s); abort(); } s += v[i] + t; }
                return s;
            }
            static int one(void) { return 1; }
            static int (*choose(void))(void) { return one; }
            int chosen(void) __attribute__((ifunc("choose")));
            unsigned short semaphore __attribute__((section(".probes")));
            void probed(int x) {
                __asm__ volatile("990: nop\n.pushsection .note.stapsdt,\"?\",\"note\"\n.balign 4\n"
                    ".4byte 8, 992f-991f, 3\n.asciz \"stapsdt\"\n991: .8byte 990b, base, semaphore\n"
                    ".asciz \"provider\"\n.asciz \"na__me\"\n.asciz \"-4@%0 8@base(%%rip)\"\n992: .balign 4\n.popsection\n"
                    ".pushsection .stapsdt.base,\"a\",\"progbits\"\nbase: .space 1\n.popsection" : : "r"(x));
            }
            int alias(int *, int) __attribute__((alias("often")));
            int main(void) { int v[3] = {1, 2, 3}; return alias(v, 3) + chosen(); }
        "#;
        match Build::new("gcc", &["-O2"], "sample.c", source) {
            Some(build) => std::fs::read(build.path("program")).unwrap(),
            None => std::fs::read("/lib64/ld-linux-x86-64.so.2").unwrap(),
        }
    })
}

struct GoSample {
    bytes: Vec<u8>,
    /// Offsets in the descriptions of functions: the tables' heads, their last entries, the versions, the module's
    /// data.
    offsets: Vec<usize>,
}

/// A Go program without symbols.
fn go_sample() -> Option<&'static GoSample> {
    static SAMPLE: OnceLock<Option<GoSample>> = OnceLock::new();
    let make = || {
        let path = nanoprobe_tests::program::need_program("goargs", nanoprobe_tests::program::Build::GoStripped)?;
        let bytes = std::fs::read(path).unwrap();
        let find = |wanted: &[u8]| bytes.windows(wanted.len()).position(|found| found == wanted);
        let table = find(&[0xf1, 0xff, 0xff, 0xff, 0, 0, 1, 8])?;
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let entries = table + word(table + 64);
        let information = find(b"\xff Go buildinf:")?;
        let mut offsets: Vec<usize> = (table..table + 72).step_by(4).collect();
        offsets.extend((entries..entries + 512).step_by(4));
        let described = entries + 8 * word(table + 8);
        offsets.extend((described..described + 512).step_by(4));
        offsets.extend((information..information + 0x400).step_by(4));
        Some(GoSample { bytes, offsets })
    };
    SAMPLE.get_or_init(make).as_ref()
}

/// Asks all questions, and checks that the answers are consistent.
fn interrogate(bytes: Vec<u8>) -> Result<(), TestCaseError> {
    let length = bytes.len() as u64;
    let Ok(mut module) = Module::parse(Arc::new(bytes), "sample") else {
        return Ok(());
    };
    module.name_the_unnamed();
    let ranges: Vec<_> = module.executable_ranges().collect();
    for pair in ranges.windows(2) {
        prop_assert!(pair[0].end <= pair[1].start);
    }
    for range in &ranges {
        for sequence in module.restartable_in(*range) {
            prop_assert!(sequence.start < sequence.end);
            prop_assert!(
                module
                    .code_at(sequence.start, sequence.end.0 - sequence.start.0)
                    .is_some()
            );
        }
    }
    for probe in module.static_probes() {
        prop_assert!(ranges.iter().any(|range| range.contains(probe.address)));
        let data = module.image_range();
        prop_assert!(probe.semaphore.is_none_or(|semaphore| data.contains(semaphore)));
    }
    for pair in module.functions().windows(2) {
        prop_assert!(pair[0].address <= pair[1].address);
    }
    for function in module.functions() {
        let extent = function.extent();
        prop_assert!(!extent.is_empty() && extent.len() <= length);
        prop_assert!(
            ranges
                .iter()
                .any(|range| range.start <= extent.start && extent.end <= range.end)
        );
        prop_assert_eq!(
            module.code_at(extent.start, extent.len()).map(|code| code.len() as u64),
            Some(extent.len())
        );
        prop_assert!(
            module
                .extent_at(extent.start)
                .is_some_and(|found| found.contains(extent.start))
        );
        prop_assert!(function.names().all(|name| !name.is_empty()));
        let (_, offset) = module.resolve(function.address).unwrap();
        prop_assert!(offset <= length);
        let padding = module.padding_after(extent.end);
        prop_assert!(padding.is_empty() || module.code_at(padding.start, padding.len()).is_some());
        if let Some(name) = function.demangled() {
            prop_assert!(!name.full.is_empty());
        }
        for part in &function.fragments {
            prop_assert_eq!(
                module.cold_fragment_at(part.range.start).map(|range| range.start),
                Some(part.range.start)
            );
        }
    }
    let rows = unwind_rows(&module);
    prop_assert_eq!(rows.first().map(|row| row.pc), Some(0));
    prop_assert!(rows.windows(2).all(|pair| pair[0].pc < pair[1].pc));
    prop_assert!(rows.iter().all(|row| row.cfa <= 6 && row.rbp <= 3));
    prop_assert!(module.relocations().len() as u64 <= length / 24 * 4);
    let probes = ranges
        .iter()
        .flat_map(|range| (range.start.0..range.end.0).step_by(61).take(200));
    for address in probes.chain([0, 1, u64::MAX, 1 << 63, length]).map(ImageAddress) {
        if let Some((name, _)) = module.resolve(address) {
            prop_assert!(!name.is_empty());
        }
        let fragment = module.cold_fragment_at(address);
        prop_assert!(fragment.is_none_or(|range| range.contains(address)));
        let extent = module.extent_at(address);
        prop_assert!(extent.is_none_or(|range| range.contains(address)));
        prop_assert_eq!(module.code_at(address, u64::MAX), None);
    }
    for offset in [0, 4096, length, u64::MAX].map(FileOffset) {
        if let Some(bias) = module.bias_of_mapping(TargetAddress(0x7f00_0000_0000), offset) {
            prop_assert_eq!(bias.to_image(bias.to_target(ImageAddress(5))), ImageAddress(5));
        }
        prop_assert_eq!(module.image_address(FileOffset(u64::MAX)), None);
    }
    prop_assert!(module.symbol("no such name").is_none());
    prop_assert!(!module.names().is_empty());
    Ok(())
}

/// The offsets at which damage has most effect: headers, and the tables that they point to.
fn interesting(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let sections = word(0x28);
    let mut offsets: Vec<usize> = (0..0x40 + 56 * 13).collect();
    offsets.extend(sections..bytes.len());
    for header in (sections..bytes.len()).step_by(64) {
        // Contents of small sections: symbols, strings, versions, relocations, notes, frames, the dynamic segment.
        let (offset, size) = (word(header + 0x18), word(header + 0x20));
        if size < 4096 && offset + size <= bytes.len() {
            offsets.extend(offset..offset + size);
        }
    }
    offsets
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn damage_in_headers_and_tables_is_survived(
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..12),
    ) {
        let mut bytes = sample().to_vec();
        static OFFSETS: OnceLock<Vec<usize>> = OnceLock::new();
        let offsets = OFFSETS.get_or_init(|| interesting(sample()));
        for (index, value) in hits {
            let at = offsets[index.index(offsets.len())];
            // Magic and machine stay unchanged, because the reader would reject the file at once otherwise.
            if at >= 20 {
                bytes[at] = value;
            }
        }
        interrogate(bytes)?;
    }

    #[test]
    fn fields_with_extreme_values_are_survived(
        hits in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(vec![0, 1, 7, 0xff, 0x7fff_ffff, u64::MAX, 1 << 63, u64::MAX - 8])),
            1..6,
        ),
    ) {
        let mut bytes = sample().to_vec();
        static OFFSETS: OnceLock<Vec<usize>> = OnceLock::new();
        let offsets = OFFSETS.get_or_init(|| interesting(sample()));
        for (index, value) in hits {
            let at = offsets[index.index(offsets.len())] & !7;
            if at >= 24 && at + 8 <= bytes.len() {
                bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
            }
        }
        interrogate(bytes)?;
    }

    #[test]
    fn damage_in_tables_of_go_is_survived(
        hits in proptest::collection::vec(
            (any::<prop::sample::Index>(), prop::sample::select(vec![0, 1, 0xff, 0x7fff_ffff, u64::MAX, 1 << 63, u64::MAX - 8])),
            1..4,
        ),
    ) {
        let Some(sample) = go_sample() else { return Ok(()) };
        let mut bytes = sample.bytes.clone();
        for (index, value) in hits {
            let at = sample.offsets[index.index(sample.offsets.len())];
            bytes[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        }
        if let Ok(module) = Module::parse(Arc::new(bytes), "sample") {
            for function in module.functions().iter().step_by(97) {
                prop_assert!(!function.extent().is_empty());
                let _ = module.go_call(function.address);
            }
            let _ = (module.goroutine_slot(), module.go_version());
        }
    }

    #[test]
    fn cut_files_are_survived(length in any::<prop::sample::Index>()) {
        let whole = sample();
        interrogate(whole[..length.index(whole.len())].to_vec())?;
    }
}

#[test]
fn other_files_are_refused_with_a_reason() {
    let parse = |bytes: &[u8]| Module::parse(Arc::new(bytes.to_vec()), "/x").map(|_| ());
    assert!(matches!(parse(b""), Err(Error::NotElf { .. })));
    assert!(matches!(parse(b"#!/bin/sh\n"), Err(Error::NotElf { .. })));
    assert!(matches!(parse(&sample()[..40]), Err(Error::NotElf { .. })));
    let with = |at: usize, value: u8| {
        let mut bytes = sample().to_vec();
        bytes[at] = value;
        parse(&bytes)
    };
    assert!(matches!(with(4, 1), Err(Error::OtherMachine { .. })), "32 bits");
    assert!(matches!(with(5, 2), Err(Error::OtherMachine { .. })), "big endian");
    assert!(matches!(with(18, 183), Err(Error::OtherMachine { .. })), "AArch64");
    assert!(
        matches!(with(16, 1), Err(Error::NotLoadable { elf_type: 1, .. })),
        "an object file"
    );
    assert!(
        matches!(with(16, 4), Err(Error::NotLoadable { elf_type: 4, .. })),
        "a core file"
    );
    let message = parse(b"text").unwrap_err().to_string();
    assert_eq!(message, "/x: not an ELF file");
}

/// An ELF file with one executable segment that holds the whole file at its offsets, and the given sections: name,
/// type, flags, link, contents. Section 0 is the empty section; the section with the names comes last.
fn synthetic(sections: &[(&str, u32, u64, u32, &[u8])]) -> Vec<u8> {
    let mut file = vec![0; 0x40 + 56];
    let mut names = vec![0];
    let mut headers = vec![0; 64];
    let mut header = |file: &mut Vec<u8>, name: u32, kind: u32, flags: u64, link: u32, contents: &[u8]| {
        file.resize(file.len().next_multiple_of(16), 0);
        let at = file.len() as u64;
        file.extend(contents);
        headers.extend(name.to_le_bytes());
        headers.extend(kind.to_le_bytes());
        for word in [flags, at, at, contents.len() as u64] {
            headers.extend(word.to_le_bytes());
        }
        headers.extend(link.to_le_bytes());
        headers.extend([0; 20]);
    };
    for (name, kind, flags, link, contents) in sections {
        header(&mut file, names.len() as u32, *kind, *flags, *link, contents);
        names.extend(name.bytes().chain([0]));
    }
    names.extend(b".shstrtab\0");
    header(&mut file, names.len() as u32 - 10, 3, 0, 0, &names);
    file.resize(file.len().next_multiple_of(16), 0);
    let sections_at = file.len() as u64;
    let count = headers.len() / 64;
    file.extend(headers);
    let length = file.len() as u64;
    file[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
    file[0x20..0x28].copy_from_slice(&0x40u64.to_le_bytes());
    file[0x28..0x30].copy_from_slice(&sections_at.to_le_bytes());
    for (at, value) in [
        (0x34, 64),
        (0x36, 56),
        (0x38, 1),
        (0x3a, 64),
        (0x3c, count),
        (0x3e, count - 1),
    ] {
        file[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes());
    }
    file[0x40..0x48].copy_from_slice(&[1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, r-x
    file[0x60..0x68].copy_from_slice(&length.to_le_bytes());
    file[0x68..0x70].copy_from_slice(&length.to_le_bytes());
    file
}

fn symbol(name: u32, address: u64, size: u64) -> Vec<u8> {
    let mut symbol = name.to_le_bytes().to_vec();
    symbol.extend([0x12, 0, 1, 0]); // global function in section 1
    symbol.extend(address.to_le_bytes());
    symbol.extend(size.to_le_bytes());
    symbol
}

const TEXT_AT: u64 = 0x40 + 56 + 8;

#[test]
fn the_synthetic_file_is_valid() {
    let text = [0x90; 64];
    let file = synthetic(&[
        (".text", 1, 6, 0, &text),
        (".symtab", 2, 0, 3, &symbol(1, TEXT_AT, 7)),
        (".strtab", 3, 0, 0, b"\0name\0"),
    ]);
    let module = Module::parse(Arc::new(file), "x").unwrap();
    let function = common::only(&module, "name");
    assert_eq!((function.address, function.size), (ImageAddress(TEXT_AT), 7));
    assert_eq!(module.code_at(function.address, 7), Some(&text[..7]));
}

#[test]
fn names_that_share_a_megabyte_are_not_all_read() {
    // 40 thousand symbols. The name of each is the tail of the same megabyte: all names together would have 20 GB.
    let names: Vec<u8> = std::iter::once(0)
        .chain(std::iter::repeat_n(b'n', 1 << 20))
        .chain([0])
        .collect();
    let symbols: Vec<u8> = (0..40_000u32)
        .flat_map(|index| symbol(1 + index, TEXT_AT + u64::from(index % 64), 1))
        .collect();
    // The last symbol has a short name. If it is found, the table was read correctly.
    let symbols = [symbol((1 << 20) - 3, TEXT_AT, 1), symbols].concat();
    let file = synthetic(&[
        (".text", 1, 6, 0, &[0x90; 64]),
        (".symtab", 2, 0, 3, &symbols),
        (".strtab", 3, 0, 0, &names),
    ]);
    let module = Module::parse(Arc::new(file), "x").unwrap();
    let bytes: usize = module
        .functions()
        .iter()
        .flat_map(|function| function.names())
        .map(str::len)
        .sum();
    assert_eq!(common::named(&module, "nnnn").len(), 1);
    assert!(bytes < 16 << 20, "{bytes}");
}

#[test]
fn tens_of_thousands_of_names_at_one_address_are_folded() {
    let names: Vec<u8> = (0..50_000)
        .flat_map(|index| format!("\0n{index}").into_bytes())
        .chain([0])
        .collect();
    let starts = names
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == 0)
        .map(|(at, _)| at as u32 + 1);
    let symbols: Vec<u8> = starts.take(50_000).flat_map(|name| symbol(name, TEXT_AT, 4)).collect();
    let file = synthetic(&[
        (".text", 1, 6, 0, &[0x90; 64]),
        (".symtab", 2, 0, 3, &symbols),
        (".strtab", 3, 0, 0, &names),
    ]);
    let module = Module::parse(Arc::new(file), "x").unwrap();
    assert_eq!(module.functions().len(), 1);
    assert_eq!(module.functions()[0].aliases.len(), 49_999);
    assert_eq!(&*module.functions()[0].name, "n0");
}

#[test]
fn overlong_common_entries_are_refused() {
    // A CIE of 200 KB of instructions (nops), and 20 thousand FDEs that would each run them.
    let cie = |instructions: usize| {
        let mut body = vec![0, 0, 0, 0, 1];
        body.extend(b"zR\0\x01\x78\x10\x01\x1b");
        body.extend([0x0c, 7, 8, 0x90, 1]); // cfa = rsp + 8, ra at cfa - 8
        body.resize(body.len() + instructions, 0);
        let mut entry = (body.len() as u32).to_le_bytes().to_vec();
        entry.extend(body);
        entry
    };
    let build = |instructions: usize, count: u32| {
        let text = [0x90; 64];
        let frame_at = (TEXT_AT + 64).next_multiple_of(16);
        let mut frames = cie(instructions);
        for index in 0..count {
            let here = frames.len() as u32;
            frames.extend(13u32.to_le_bytes());
            frames.extend((here + 4).to_le_bytes());
            let start = TEXT_AT as i64 + i64::from(index % 32) * 2 - (frame_at as i64 + i64::from(here) + 8);
            frames.extend((start as i32).to_le_bytes());
            frames.extend(2u32.to_le_bytes());
            frames.push(0);
        }
        frames.extend([0; 4]);
        let file = synthetic(&[(".text", 1, 6, 0, &text), (".eh_frame", 1, 2, 0, &frames)]);
        unwind_rows(&Module::parse(Arc::new(file), "x").unwrap())
    };
    let described =
        |rows: &[nanoprobe_arena::layout::UnwindRow]| rows.iter().any(|row| (row.cfa, row.cfa_offset) == (1, 8));
    assert!(described(&build(8, 32)));
    assert!(!described(&build(200_000, 20_000)));
}

#[test]
fn a_file_that_is_not_there_is_an_error() {
    let missing = Path::new("/nonexistent/program");
    let error = nanoprobe_symbols::files::open(missing, missing).unwrap_err();
    assert!(error.to_string().starts_with("/nonexistent/program: "), "{error}");
}

/// Each byte of the notes is changed in turn. No change may cause a panic, or an address outside of the image.
#[test]
fn damaged_notes_of_static_probes_are_left_out() {
    let Ok(module) = Module::parse(Arc::new(sample().to_vec()), "sample") else {
        panic!("the sample is good");
    };
    let good = module.static_probes();
    if good.is_empty() {
        // Without a compiler the sample is the dynamic linker, which may have no static probes.
        return left_out("damaged static probes", "the sample has none");
    }
    assert_eq!(
        (good.len(), &*good[0].provider, &*good[0].name),
        (1, "provider", "na__me")
    );
    assert!(good[0].arguments.ends_with("8@base(%rip)") && good[0].semaphore.is_some());
    let start = sample().windows(8).position(|bytes| bytes == b"stapsdt\0").unwrap() - 12;
    let mut fewer = 0;
    for at in start..start + 12 + 8 + 24 + 16 {
        for byte in [0, 1, 0x7f, 0xff] {
            let mut bytes = sample().to_vec();
            bytes[at] = byte;
            interrogate(bytes.clone()).unwrap();
            let module = Module::parse(Arc::new(bytes), "sample").unwrap();
            fewer += usize::from(module.static_probes().is_empty());
        }
    }
    assert!(fewer > 100, "{fewer}");
}

/// prelink moved everything by 64 KiB, including the base, and left the notes unchanged.
#[test]
fn addresses_follow_the_base() {
    let good = Module::parse(Arc::new(sample().to_vec()), "sample")
        .unwrap()
        .static_probes();
    let Some(good) = good.first() else {
        return left_out("moved static probes", "the sample has none");
    };
    let mut bytes = sample().to_vec();
    let note = bytes.windows(8).position(|bytes| bytes == b"stapsdt\0").unwrap() + 8;
    for field in 0..3 {
        let at = note + 8 * field;
        let value = u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        bytes[at..at + 8].copy_from_slice(&value.wrapping_sub(0x10000).to_le_bytes());
    }
    let moved = Module::parse(Arc::new(bytes), "sample").unwrap().static_probes();
    assert_eq!(moved.first(), Some(good));
}
