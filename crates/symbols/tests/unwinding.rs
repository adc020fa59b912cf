//! The compiled rows are compared with two independent readings of the same frame descriptions: gimli's evaluation at a
//! given address, and `readelf`'s output.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::sync::Arc;

use common::{Build, output_of, system_files};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, EhFrame, EndianSlice, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
};
use nanoprobe_arena::layout::{CFA_END, CFA_PLT, CFA_RBP, CFA_RBP_DEREF, CFA_RSP, CFA_SIGNAL, CFA_UNKNOWN, UnwindRow};
use nanoprobe_symbols::{Module, RBP_AT_CFA, RBP_AT_RBP, RBP_UNCHANGED, files, unwind_rows};
use object::{Object, ObjectSection};

struct Rows {
    base: u64,
    rows: Vec<UnwindRow>,
}

impl Rows {
    fn of(module: &Module) -> Self {
        Self {
            base: module.unwind_base().0,
            rows: unwind_rows(module),
        }
    }

    /// The row that the agent would find.
    fn at(&self, address: u64) -> UnwindRow {
        let pc = u32::try_from(address - self.base).unwrap();
        self.rows[self.rows.partition_point(|row| row.pc <= pc) - 1]
    }
}

fn module(path: &Path) -> Module {
    Module::parse(Arc::new(files::read(path).unwrap()), path).unwrap()
}

#[test]
fn rows_are_sorted_and_merged() {
    for path in system_files() {
        let rows = Rows::of(&module(&path)).rows;
        assert_eq!(rows.first().unwrap().pc, 0);
        assert_eq!(rows.last().unwrap().cfa, CFA_UNKNOWN);
        for pair in rows.windows(2) {
            assert!(pair[0].pc < pair[1].pc, "{pair:?}");
            assert_ne!(
                UnwindRow { pc: 0, ..pair[0] },
                UnwindRow { pc: 0, ..pair[1] },
                "{pair:?}"
            );
        }
    }
}

/// Whether `row` agrees with gimli's `rules`.
fn agrees(
    row: &UnwindRow,
    rules: &gimli::UnwindTableRow<usize>,
    section: &EhFrame<EndianSlice<'_, LittleEndian>>,
) -> bool {
    let return_address = rules.register(gimli::X86_64::RA);
    if return_address == Some(RegisterRule::Undefined) {
        return row.cfa == CFA_END;
    }
    if return_address != Some(RegisterRule::Offset(-8)) {
        return row.cfa == CFA_UNKNOWN;
    }
    let cfa_agrees = match rules.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match *register {
            gimli::X86_64::RSP => (row.cfa, i64::from(row.cfa_offset)) == (CFA_RSP, *offset),
            gimli::X86_64::RBP => (row.cfa, i64::from(row.cfa_offset)) == (CFA_RBP, *offset),
            _ => row.cfa == CFA_UNKNOWN,
        },
        CfaRule::Expression(expression) => {
            let mut operations = expression.get(section).unwrap().operations(gimli::Encoding {
                address_size: 8,
                format: gimli::Format::Dwarf32,
                version: 5,
            });
            match operations.next().unwrap() {
                Some(gimli::Operation::RegisterOffset {
                    register: gimli::X86_64::RBP,
                    offset,
                    ..
                }) => {
                    assert!(matches!(operations.next(), Ok(Some(gimli::Operation::Deref { .. }))));
                    (row.cfa, i64::from(row.cfa_offset)) == (CFA_RBP_DEREF, offset)
                }
                Some(gimli::Operation::RegisterOffset {
                    register: gimli::X86_64::RSP,
                    offset: 8,
                    ..
                }) => row.cfa == CFA_PLT || row.cfa == CFA_UNKNOWN,
                _ => row.cfa == CFA_UNKNOWN,
            }
        }
    };
    let rbp_agrees = match rules.register(gimli::X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => row.rbp == RBP_UNCHANGED,
        Some(RegisterRule::Offset(offset)) => (row.rbp, i64::from(row.rbp_offset)) == (RBP_AT_CFA, offset),
        Some(RegisterRule::Expression(_)) => row.rbp == RBP_AT_RBP,
        Some(_) => row.rbp == 2,
    };
    cfa_agrees && (rbp_agrees || row.cfa == CFA_UNKNOWN)
}

#[test]
fn rows_agree_with_gimli_everywhere() {
    for path in system_files() {
        let bytes = files::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let section = file.section_by_name(".eh_frame").unwrap();
        let text = file.section_by_name(".text").unwrap().address();
        let bases = BaseAddresses::default().set_eh_frame(section.address()).set_text(text);
        let frames = EhFrame::new(section.data().unwrap(), LittleEndian);
        let rows = Rows::of(&module(&path));
        let mut context = UnwindContext::new();
        let (mut checked, mut random) = (0, 0x2545_f491_4f6c_dd1d_u64);
        let mut entries = frames.entries(&bases);
        while let Some(entry) = entries.next().unwrap() {
            let CieOrFde::Fde(partial) = entry else { continue };
            let description = partial
                .parse(|section, bases, at| section.cie_from_offset(bases, at))
                .unwrap();
            for _ in 0..4 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let address = description.initial_address() + random % description.len();
                let rules = description
                    .unwind_info_for_address(&frames, &bases, &mut context, address)
                    .unwrap();
                let row = rows.at(address);
                let signal = description.is_signal_trampoline();
                let good = if signal {
                    row.cfa == CFA_SIGNAL
                } else {
                    agrees(&row, rules, &frames)
                };
                assert!(good, "{} at {address:#x}: {row:?} for {rules:?}", path.display());
                checked += 1;
            }
        }
        assert!(checked > 500, "{}: {checked}", path.display());
    }
}

#[test]
fn rows_agree_with_readelf() {
    for path in system_files() {
        let arguments = ["--debug-dump=frames-interp", path.to_str().unwrap()];
        let Some((text, _)) = output_of("readelf", &arguments, Path::new("/")) else {
            return;
        };
        let rows = Rows::of(&module(&path));
        let (mut checked, mut columns, mut in_description) = (0, Vec::new(), false);
        for line in text.lines() {
            // A register is printed as `r10 (r10)`.
            let joined = line.replace(" (", "(");
            let fields: Vec<&str> = joined.split_whitespace().collect();
            if line.contains(" CIE ") || line.contains(" FDE ") {
                in_description = line.contains(" FDE ");
            } else if fields.first() == Some(&"LOC") {
                columns = fields.iter().map(|field| field.to_string()).collect();
            } else if in_description && fields.first().is_some_and(|field| field.len() == 16) {
                let column = |name: &str| columns.iter().position(|column| column == name).map(|at| fields[at]);
                let address = u64::from_str_radix(fields[0], 16).unwrap();
                let row = rows.at(address);
                let expected = match (column("CFA").unwrap(), column("ra").unwrap()) {
                    (_, "u") => row.cfa == CFA_END,
                    (cfa, "c-8") => match cfa.split_once(['+', '-']) {
                        Some(("rsp", offset)) => (row.cfa, row.cfa_offset.to_string().as_str()) == (CFA_RSP, offset),
                        Some(("rbp", offset)) => (row.cfa, row.cfa_offset.to_string().as_str()) == (CFA_RBP, offset),
                        Some(_) => row.cfa == CFA_UNKNOWN,
                        None => [CFA_PLT, CFA_RBP_DEREF, CFA_SIGNAL, CFA_UNKNOWN].contains(&row.cfa),
                    },
                    _ => [CFA_UNKNOWN, CFA_SIGNAL].contains(&row.cfa),
                };
                assert!(expected, "{}: {row:?} for {line}", path.display());
                if [CFA_RSP, CFA_RBP].contains(&row.cfa) {
                    let rbp = match column("rbp") {
                        None | Some("u" | "s") => row.rbp == RBP_UNCHANGED,
                        Some("exp") => row.rbp == RBP_AT_RBP,
                        Some(offset) => row.rbp == RBP_AT_CFA && offset == format!("c{:+}", row.rbp_offset),
                    };
                    assert!(rbp, "{}: {row:?} for {line}", path.display());
                }
                checked += 1;
            }
        }
        assert!(checked > 500, "{}: {checked}", path.display());
    }
}

#[test]
fn stubs_with_other_lengths_get_rows_of_their_own() {
    // With endbr64 before it, a stub pushes after 9 bytes, not after 11.
    let arguments = ["-O1", "-fcf-protection=full", "-Wl,-z,ibtplt,-z,lazy"];
    let source = "#include <stdio.h>\nint main(void) { puts(\"x\"); return 0; }";
    let Some(build) = Build::new("gcc", &arguments, "program.c", source) else {
        return;
    };
    let module = build.module();
    let bytes = std::fs::read(build.path("program")).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let stubs = file.section_by_name(".plt").unwrap();
    let rows = Rows::of(&module);
    let first = stubs.address() + 16;
    for (offset, cfa_offset) in [(0, 8), (8, 8), (9, 16), (15, 16)] {
        let row = rows.at(first + offset);
        assert_eq!((row.cfa, row.cfa_offset), (CFA_RSP, cfa_offset), "at {offset}");
    }
    // The common stub: the index is pushed already, then it pushes the link map.
    assert_eq!(rows.at(stubs.address()).cfa_offset, 16);
    assert_eq!(rows.at(stubs.address() + 6).cfa_offset, 24);
}

#[test]
fn debug_frames_serve_where_there_is_nothing_else() {
    let source = "int f(int *x) { *x = 1; return *x; } int main(void) { int y; return f(&y); }";
    let arguments = [
        "-O0",
        "-g",
        "-fno-asynchronous-unwind-tables",
        "-fno-exceptions",
        "-nostdlib",
        "-Wl,-e,main",
        "-static",
    ];
    let Some(build) = Build::new("gcc", &arguments, "program.c", source) else {
        return;
    };
    let module = build.module();
    let f = common::only(&module, "f");
    let rows = Rows::of(&module);
    assert_eq!(
        (rows.at(f.address.0).cfa, rows.at(f.address.0).cfa_offset),
        (CFA_RSP, 8)
    );
    let body = rows.at(f.address.0 + f.size / 2);
    assert_eq!(
        (body.cfa, body.cfa_offset, body.rbp, body.rbp_offset),
        (CFA_RBP, 16, RBP_AT_CFA, -16)
    );
}
