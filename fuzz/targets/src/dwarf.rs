//! Debug information in an ELF file.

use std::sync::Arc;

use nanoprobe_lang::program::Type;
use nanoprobe_symbols::Module;
use nanoprobe_types::{DebugInfo, Kind, at_entry, at_return};

/// How many functions are looked up.
const FUNCTIONS_MAX: usize = 8;
/// How deep types are followed.
const DEPTH_MAX: usize = 6;

/// An ELF file with DWARF.
pub fn dwarf(data: &[u8]) {
    let Ok(module) = Module::parse(Arc::new(data.to_vec()), "program") else {
        return;
    };
    let Ok(info) = DebugInfo::of(&module) else { return };
    let mut left = 500;
    for function in module.functions().iter().take(FUNCTIONS_MAX) {
        if let Ok(signature) = info.function(function.address.0) {
            for argument in at_entry(&signature).iter().chain(&at_return(&signature)) {
                look(&argument.value_type, DEPTH_MAX, &mut left);
            }
        }
    }
    for (kind, name) in [
        (Kind::Structure, "request"),
        (Kind::Named, "point_t"),
        (Kind::Enumeration, "color"),
        (Kind::Structure, "nobody"),
    ] {
        if let Ok(of) = info.type_named(kind, name) {
            look(&of, DEPTH_MAX, &mut left);
        }
    }
    for name in ["counter", "table", "nobody"] {
        if let Ok(variable) = info.variable(name, None) {
            look(&variable.value_type, DEPTH_MAX, &mut left);
        }
    }
    for line in [1, 20, 100_000] {
        let _line = info.line("small.c", line);
    }
    let _copies = info.inlined("twice", |name| Some(name.to_owned()));
    let _enumerator = info.enumerator("RED");
}

/// Follows a type as far as the budget goes.
fn look(of: &Type, depth: usize, left: &mut u32) {
    let Type::Structure(structure) = of else { return };
    if depth == 0 || *left == 0 {
        return;
    }
    let Some(body) = structure.body() else { return };
    for member in &body.members {
        *left = left.saturating_sub(1);
        look(&member.member_type, depth - 1, left);
    }
}
