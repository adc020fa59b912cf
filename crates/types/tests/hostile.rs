//! Damaged debug information: no panic, no hang, no unbounded memory.
//!
//! The debug sections of a compiled program are changed at random, a few bytes at a time. Then every
//! question is asked. The same seed gives the same bytes. `NANOPROBE_MUTATIONS` is the number of rounds for
//! each program, 2000 by default.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{compile, typed_c};
use nanoprobe_lang::program::{Structure, Type};
use nanoprobe_symbols::Module;
use nanoprobe_types::{DebugInfo, Kind, at_entry, at_return};

/// The number of rounds for each program.
fn rounds() -> u32 {
    let given = std::env::var("NANOPROBE_MUTATIONS").ok();
    given.map_or(2000, |given| given.parse().expect("NANOPROBE_MUTATIONS is a number"))
}

/// The generator xorshift64*.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Reads a type as deep as `print()` would, and the type that it points to.
fn look(of: &Type, depth: u32, left: &mut u32) {
    let Some(next) = left.checked_sub(1) else {
        return;
    };
    *left = next;
    let _size = nanoprobe_lang::types::size_of(of);
    let _name = nanoprobe_lang::types::name(of);
    match of {
        _ if depth == 0 => {}
        Type::Structure(structure) => look_inside(structure, depth - 1, left),
        Type::Pointer(Some(to)) => look(to, depth - 1, left),
        Type::Array { of, .. } => look(of, depth - 1, left),
        _ => {}
    }
}

fn look_inside(structure: &Structure, depth: u32, left: &mut u32) {
    let _missing = structure.member("no such member");
    for member in structure.body().map_or(&[][..], |body| &body.members) {
        if let Some(bits) = member.bits {
            assert!(bits.width >= 1 && bits.shift + bits.width <= 64, "{bits:?}");
        }
        look(&member.member_type, depth, left);
    }
}

/// Asks every question. Yields how many were answered.
fn ask(module: &Module) -> u32 {
    let Ok(info) = DebugInfo::of(module) else {
        return 0;
    };
    let mut answers = 0;
    let mut left = 2000;
    for function in ["serve", "paint", "both", "many", "follow", "main"] {
        let Some(function) = module.functions().iter().find(|of| &*of.name == function) else {
            continue;
        };
        if let Ok(signature) = info.function(function.address.0) {
            answers += 1;
            for argument in at_entry(&signature).iter().chain(&at_return(&signature)) {
                look(&argument.value_type, 12, &mut left);
            }
        }
    }
    for (kind, name) in [
        (Kind::Structure, "request"),
        (Kind::Structure, "large"),
        (Kind::Named, "point_t"),
        (Kind::Enumeration, "color"),
        (Kind::Structure, "nobody"),
    ] {
        if let Ok(of) = info.type_named(kind, name) {
            answers += 1;
            look(&of, 12, &mut left);
        }
    }
    for name in ["counter", "table", "storage", "nobody"] {
        if let Ok(variable) = info.variable(name, None) {
            answers += 1;
            look(&variable.value_type, 12, &mut left);
        }
    }
    for line in [1, 90, 100_000] {
        answers += u32::from(info.line("typed.c", line).is_ok());
    }
    // However damaged the information is, no copies of another function are found.
    let copies = info.inlined("twice", |name| (name == "twice").then(|| name.to_owned()));
    for function in copies.iter().flatten() {
        let count = function.signature.parameters.len();
        assert!(
            function
                .copies
                .iter()
                .all(|copy| copy.parameters.len() == count && copy.address != 0)
        );
    }
    answers + u32::from(copies.is_ok()) + u32::from(info.enumerator("RED").is_some())
}

/// The ranges of a file's debug sections.
fn debug_sections(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    use object::{Object as _, ObjectSection as _};
    let file = object::File::parse(bytes).unwrap();
    file.sections()
        .filter(|section| section.name().is_ok_and(|name| name.starts_with(".debug")))
        .filter_map(|section| section.file_range())
        .map(|(start, length)| start as usize..(start + length) as usize)
        .collect()
}

fn mutate(flags: &[&str], seed: u64) {
    let program = compile("cc", &typed_c(), &[&["-D_GNU_SOURCE"], flags].concat());
    let bytes = std::fs::read(&program.path).unwrap();
    let sections = debug_sections(&bytes);
    assert!(sections.len() >= 4, "{sections:?}");
    let whole = ask(&Module::parse(Arc::new(bytes.clone()), "program").unwrap());
    assert_eq!(whole, 16);
    let mut random = Random(seed);
    let (mut unlike, mut answered) = (0, 0);
    for _ in 0..rounds() {
        let mut damaged = bytes.clone();
        for _ in 0..=random.below(8) {
            let section = sections[random.below(sections.len())].clone();
            let at = section.start + random.below(section.len());
            damaged[at] = match random.below(4) {
                0 => 0xff,
                1 => 0,
                2 => damaged[at] ^ (1 << random.below(8)),
                _ => random.next() as u8,
            };
        }
        let answers = ask(&Module::parse(Arc::new(damaged), "program").unwrap());
        unlike += u32::from(answers != whole);
        answered += u32::from(answers > 0);
    }
    // The damage changes some answers, but does not hide everything.
    assert!(unlike > rounds() / 50, "{unlike} rounds differ");
    assert!(answered > rounds() / 2, "{answered} rounds answered");
}

#[test]
fn damaged_dwarf_5_does_no_harm() {
    mutate(&["-g", "-gdwarf-5"], 5);
}

#[test]
fn damaged_dwarf_4_with_type_units_does_no_harm() {
    mutate(&["-g", "-gdwarf-4", "-fdebug-types-section", "-O2"], 4);
}

#[test]
fn damaged_compressed_sections_do_no_harm() {
    let program = compile("cc", &typed_c(), &["-D_GNU_SOURCE", "-g", "-gz=zlib"]);
    let bytes = std::fs::read(&program.path).unwrap();
    let sections = debug_sections(&bytes);
    let mut random = Random(6);
    let mut refused = 0;
    for _ in 0..rounds() / 4 {
        let mut damaged = bytes.clone();
        let section = sections[random.below(sections.len())].clone();
        // The header gives the size of the decompressed section.
        let at = section.start + random.below(section.len().min(40));
        damaged[at] = random.next() as u8;
        refused += u32::from(DebugInfo::of(&Module::parse(Arc::new(damaged), "program").unwrap()).is_err());
    }
    assert!(refused > 20, "{refused}");
}
