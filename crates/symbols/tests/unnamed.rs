//! Functions of stripped files, against the same files with their symbols.

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use nanoprobe_symbols::{Function, FunctionKind, ImageAddress, Module, files};
use nanoprobe_tests::in_time::InTime as _;
use nanoprobe_tests::left_out::left_out;

use common::{Build, is_here, only};

/// `piece` and `cut` are parts of `whole_asm` with FDEs of their own. `piece` is entered by a conditional jump. `cut`
/// is entered by a plain jump, and jumps back. `follows` is a part into which `before` continues. `ends_in` is a
/// function that is only jumped to.
const ASSEMBLY: &str = r#"
	.text
	.globl whole_asm
	.type whole_asm, @function
whole_asm:
	.cfi_startproc
	cmpl $7, %edi
	je piece
	cmpl $8, %edi
	jne 1f
	jmp cut
back:
	addl $1, %eax
	ret
1:	leal 1(%rdi), %eax
	ret
	.cfi_endproc
	.size whole_asm, .-whole_asm
	.globl jumps
	.type jumps, @function
jumps:
	.cfi_startproc
	addl $2, %edi
	jmp ends_in
	.cfi_endproc
	.size jumps, .-jumps
	.type before, @function
	.globl before
before:
	.cfi_startproc
	addl $3, %edi
	.cfi_endproc
follows:
	.cfi_startproc
	leal 5(%rdi), %eax
	ret
	.cfi_endproc
	.size before, .-before
	.section .text.unlikely, "ax"
piece:
	.cfi_startproc
	movl $70, %eax
	ret
	.cfi_endproc
cut:
	.cfi_startproc
	movl $80, %eax
	jmp back
	.cfi_endproc
	.type ends_in, @function
ends_in:
	.cfi_startproc
	leal 9(%rdi), %eax
	ret
	.cfi_endproc
	.size ends_in, .-ends_in
	.text
"#;

const SOURCE: &str = r#"
#include <stdlib.h>
#include <stdio.h>
int whole_asm(int), jumps(int), before(int);
volatile int sink;
__attribute__((noipa)) static int plain(int n) { return n + sink; }
__attribute__((noipa)) static int pointed(int n) { return n ^ sink; }
__attribute__((noipa, cold)) static void complain(int n) { printf("%d\n", n); }
__attribute__((noipa)) int hot(int *v, int n)
{
	int sum = plain(n);
	if (__builtin_expect(v[0] == 12345, 0)) {
		complain(sum);
		for (int i = 0; i < n; i++) sum += v[i] * i;
		complain(sum);
	}
	return sum + plain(n + 1);
}
__attribute__((noipa)) static int leaf(int *v, int n)
{
	if (__builtin_expect(v[n] == 12345, 0))
		abort();
	return v[n] + sink;
}
int (*const table[])(int) = { pointed, jumps, before };
int main(int c, char **words)
{
	int v[4] = { c, 2, 3, 4 };
	return hot(v, c) + leaf(v, c & 3) + table[c & 1](c) + whole_asm(c) + (words == 0);
}
"#;

fn build(flags: &[&str]) -> Option<Build> {
    let with_assembly = format!("{SOURCE}\n__asm__({ASSEMBLY:?});\n").replace("\\t", " ");
    let mut all = vec!["-O2"];
    all.extend(flags);
    Build::new("gcc", &all, "program.c", &with_assembly)
}

fn at(module: &Module, address: ImageAddress) -> Option<&Function> {
    module.functions().iter().find(|function| function.address == address)
}

fn start(module: &Module, name: &str) -> ImageAddress {
    only(module, name).address
}

/// The address of a label, which may be static.
fn label(module: &Module, name: &str) -> ImageAddress {
    module.symbol(name).unwrap_or_else(|| panic!("no {name}")).address
}

#[test]
fn functions_without_symbols_are_called_by_where_they_begin() {
    for flags in [&["-fPIE", "-pie"][..], &["-fno-pie", "-no-pie"]] {
        let Some(build) = build(flags) else { return };
        let whole = build.module();
        assert!(whole.functions().iter().all(|function| function.is_named));
        build.run("strip", &["program"]).unwrap();
        let stripped = build.module();
        assert!(!stripped.has_full_symbols());
        for name in [
            "main",
            "hot",
            "plain",
            "pointed",
            "leaf",
            "complain",
            "whole_asm",
            "jumps",
            "ends_in",
            "_start",
        ] {
            let right = only(&whole, name);
            let found = at(&stripped, right.address).unwrap_or_else(|| panic!("{flags:?}: {name} is missing"));
            assert_eq!(&*found.name, format!("{:#x}", right.address.0), "{name}");
            assert_eq!(found.extent(), right.extent(), "{name}");
            assert_eq!(
                (found.is_named, found.global, found.kind),
                (false, false, FunctionKind::Code)
            );
            let inside = ImageAddress(right.extent().end.0 - 1);
            assert_eq!(stripped.resolve(inside), Some((&*found.name, right.size - 1)));
            assert_eq!(stripped.function_at(inside), Some(found));
        }
    }
}

/// Code that is entered by jumps is a part of the function that jumps, and no function of its own.
#[test]
fn parts_of_functions_are_no_functions() {
    let Some(build) = build(&[]) else { return };
    let whole = build.module();
    let (piece, cut, follows) = (label(&whole, "piece"), label(&whole, "cut"), label(&whole, "follows"));
    let (whole_asm, before) = (start(&whole, "whole_asm"), start(&whole, "before"));
    let mut parts: Vec<(ImageAddress, ImageAddress)> = vec![(piece, whole_asm), (cut, whole_asm), (follows, before)];
    // The first function has a frame, the second has none.
    for name in ["hot", "leaf"] {
        let function = only(&whole, name);
        assert_eq!(function.fragments.len(), 1, "{name}");
        parts.push((function.fragments[0].range.start, function.address));
    }
    build.run("strip", &["program"]).unwrap();
    let stripped = build.module();
    for (part, function) in parts {
        assert_eq!(at(&stripped, part), None, "{part}");
        assert_eq!(stripped.resolve(part), Some((&*format!("{function}.cold"), 0)));
        let owner = stripped.function_at(part).map(|owner| owner.address);
        assert_eq!(owner, Some(function), "{part}");
        assert!(stripped.is_cold_fragment(part), "{part}");
    }
}

#[test]
fn linkage_stubs_and_named_functions_are_not_doubled() {
    let Some(build) = build(&["-rdynamic", "-fcf-protection"]) else {
        return;
    };
    let whole = build.module();
    build.run("strip", &["program"]).unwrap();
    let stripped = build.module();
    let hot = only(&stripped, "hot");
    assert!(hot.is_named);
    assert_eq!(
        hot.fragments.iter().map(|part| &*part.name).collect::<Vec<_>>(),
        ["hot.cold"]
    );
    let functions = stripped.functions();
    let distinct: std::collections::BTreeSet<_> = functions.iter().map(|function| function.address).collect();
    assert_eq!(distinct.len(), functions.len());
    for function in functions {
        assert!(at(&whole, function.address).is_some(), "{} is none", function.name);
    }
    // Without sections, stubs can only be recognised by their code.
    let bare = std::fs::read(build.path("program")).unwrap();
    let mut bare = bare;
    bare[0x28..0x30].fill(0);
    bare[0x3c..0x40].fill(0);
    let mut bare = Module::parse(Arc::new(bare), "program").unwrap();
    bare.name_the_unnamed();
    for function in bare.functions() {
        assert!(at(&whole, function.address).is_some(), "{} is none", function.name);
    }
    assert!(at(&bare, start(&whole, "plain")).is_some());
}

/// A file with symbols, in itself or in a debug file, has the same functions as before.
#[test]
fn files_with_symbols_are_left_alone() {
    let Some(build) = build(&[]) else { return };
    let mut whole = build.module();
    let before = whole.functions().to_vec();
    whole.name_the_unnamed();
    assert_eq!(whole.functions(), before);
    build
        .run("objcopy", &["--only-keep-debug", "program", "program.debug"])
        .unwrap();
    build.run("strip", &["program"]).unwrap();
    build
        .run("objcopy", &["--add-gnu-debuglink=program.debug", "program"])
        .unwrap();
    assert_eq!(build.module().functions(), before);
    // Twice is once.
    std::fs::remove_file(build.path("program.debug")).unwrap();
    let mut stripped = build.module();
    let named = stripped.functions().to_vec();
    stripped.name_the_unnamed();
    assert_eq!(stripped.functions(), named);
}

/// The functions of a stripped file, compared with the functions that the symbols name.
#[derive(Debug, Default)]
struct Compared {
    /// The number of functions that both have, with the same end.
    same: usize,
    /// Functions with symbols that the stripped file does not have, though an FDE begins there.
    missing: Vec<String>,
    /// Functions of the stripped file that are not functions according to the symbols.
    false_ones: Vec<String>,
    /// Parts that the stripped file has for functions, and as parts.
    mistaken: Vec<String>,
    told: usize,
}

fn compare(whole: &Module, stripped: &Module) -> Compared {
    let code = |module: &Module| -> BTreeMap<ImageAddress, (ImageAddress, String)> {
        let list = module
            .functions()
            .iter()
            .filter(|function| function.kind == FunctionKind::Code);
        list.map(|function| (function.address, (function.extent().end, function.name.to_string())))
            .collect()
    };
    let (right, found) = (code(whole), code(stripped));
    let parts = whole.functions().iter().flat_map(|function| &function.fragments);
    let parts: BTreeMap<ImageAddress, &str> = parts.map(|part| (part.range.start, &*part.name)).collect();
    let mut compared = Compared::default();
    for (start, (end, name)) in &right {
        match found.get(start) {
            Some((other, _)) => compared.same += usize::from(other == end),
            None if stripped.extent_at(*start).is_some() => compared.missing.push(name.clone()),
            None => {}
        }
    }
    for (start, (_, name)) in &found {
        match parts.get(start) {
            Some(part) => compared.mistaken.push((*part).to_owned()),
            None if !right.contains_key(start) => compared.false_ones.push(name.clone()),
            None => {}
        }
    }
    let is_told = |start: &&ImageAddress| stripped.is_cold_fragment(**start) && stripped.resolve(**start).is_some();
    compared.told = parts.keys().filter(is_told).count();
    compared
}

/// Strips real programs of this machine that have symbols. Nearly all functions are found, and hardly anything else.
#[test]
fn real_programs_keep_their_functions_when_they_are_stripped() {
    let this = std::env::current_exe().unwrap();
    let node = Path::new("/usr/bin/node");
    let mut compared_any = false;
    for path in [&this, node] {
        if !is_here(path.to_str().unwrap()) {
            continue;
        }
        let whole = files::open(path, path).unwrap();
        if !whole.has_full_symbols() {
            left_out(
                "the functions of a stripped program",
                &format!("{} is stripped here", path.display()),
            );
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("program");
        let mut strip = Command::new("strip");
        assert!(strip.arg("-o").arg(&copy).arg(path).status_in_time().unwrap().success());
        let stripped = files::open(&copy, &copy).unwrap();
        let compared = compare(&whole, &stripped);
        let per_cent = |few: usize| few * 100;
        assert!(compared.same > 1000, "{compared:?}");
        assert!(
            per_cent(compared.missing.len()) <= compared.same,
            "{:?}",
            compared.missing
        );
        assert!(
            per_cent(compared.false_ones.len()) * 10 <= compared.same,
            "{:?}",
            compared.false_ones
        );
        assert!(
            per_cent(compared.mistaken.len()) * 10 <= compared.same,
            "{:?}",
            compared.mistaken
        );
        assert!(
            per_cent(compared.mistaken.len()) <= 2 * compared.told,
            "{:?}",
            compared.mistaken
        );
        compared_any = true;
    }
    assert!(compared_any);
}

/// A table is full of FDEs, each of which overlaps the next. Reading it costs little.
#[test]
fn pieces_that_overlap_are_one_function() {
    // A CIE without augmentation data but for the encoding of pointers (absolute, 8 bytes), then FDEs.
    let cie = b"\x14\0\0\0\0\0\0\0\x01zR\0\x01\x78\x10\x01\x00\x0c\x07\x08\x90\x01\0\0";
    let cie_bytes = cie.len();
    const FDES: u64 = 100_000;
    const CODE: u64 = 1 << 20;
    let mut frames = cie.to_vec();
    frames[0] = (cie_bytes - 4) as u8;
    for number in 0..FDES {
        let here = frames.len();
        frames.extend(24u32.to_le_bytes());
        frames.extend(((here + 4) as u32).to_le_bytes());
        frames.extend((0x1000 + number).to_le_bytes());
        frames.extend((CODE - number).to_le_bytes());
        frames.extend([0; 4]);
    }
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    file.resize(0x40, 0);
    file[0x20] = 0x40;
    file[0x36] = 56;
    file[0x38] = 3;
    let frames_at = 0x1000 + CODE;
    let header_at = frames_at + frames.len() as u64;
    for (kind, flags, offset, bytes) in [
        (1u32, 5u32, 0x1000, CODE),
        (1, 4, frames_at, frames.len() as u64 + 12),
        (0x6474_e550, 4, header_at, 12),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        for word in [offset, offset, offset, bytes, bytes, 0x1000] {
            file.extend(word.to_le_bytes());
        }
    }
    file.resize(0x1000, 0);
    file.resize(frames_at as usize, 0x90);
    file.extend(&frames);
    // Version, the pointer's encoding (absolute, 8 bytes), no table.
    file.extend([1, 0x00, 0xff, 0xff]);
    file.extend(frames_at.to_le_bytes());
    let mut module = Module::parse(Arc::new(file), "hostile").unwrap();
    assert_eq!(module.functions().len(), 0);
    module.name_the_unnamed();
    let names: Vec<&str> = module.functions().iter().map(|function| &*function.name).collect();
    assert_eq!(names, ["0x1000"]);
    assert_eq!(module.functions()[0].size, CODE);
}
