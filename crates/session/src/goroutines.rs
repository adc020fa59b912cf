//! Where Go's runtime keeps the goroutine that a thread executes: by the program's debug information, else by its
//! version.

use nanoprobe_lang::program::{Goroutines, Type};
use nanoprobe_lang::target::Unknown;
use nanoprobe_symbols::{Module, ModuleKind};
use nanoprobe_types::Kind;

use crate::debug::debug_info;

/// The offset of `m` in a `g`. It is compiled into the C parts of the tool chain, so it never changes.
const M: u16 = 48;

/// Where a thread's goroutine is kept, according to the first Go module; `None`: no module is Go's.
///
/// # Errors
/// The reason why it is not known.
pub fn of(modules: &[Module]) -> Result<Option<Goroutines>, Unknown> {
    let Some(module) = modules.iter().find(|module| module.has_go_runtime()) else {
        return Ok(None);
    };
    let unknown = |why: &str| {
        let message = format!("where {} keeps its goroutines is not known: {why}", module.name());
        Unknown::new("N_GOROUTINE", message)
    };
    // The place of a library's thread-local variables cannot be read from its file.
    if module.kind() != ModuleKind::Executable {
        return Err(unknown("it is a library"));
    }
    let slot = module
        .goroutine_slot()
        .ok_or_else(|| unknown("none of its functions shows where a thread keeps them"))?;
    let found = described(module).or_else(|| {
        let (number, current) = by_version(module.go_version()?)?;
        Some((M, current, number))
    });
    match found {
        Some((m, current, number)) => Ok(Some(Goroutines {
            slot,
            m,
            current,
            number,
        })),
        None => Err(
            unknown("it has no debug information, and this version of Go is not known here")
                .with_help("build it without -ldflags=-w and -s"),
        ),
    }
}

/// The offsets from debug information: m in g, curg in m, goid in g.
fn described(module: &Module) -> Option<(u16, u16, u16)> {
    let info = debug_info(module).ok()?;
    let offset = |of: &str, member: &str| {
        let Ok(Type::Structure(structure)) = info.type_named(Kind::Structure, of) else {
            return None;
        };
        u16::try_from(structure.member(member)?.offset).ok()
    };
    Some((
        offset("runtime.g", "m")?,
        offset("runtime.m", "curg")?,
        offset("runtime.g", "goid")?,
    ))
}

/// The offset of the number in a `g`, and that of the current `g` in an `m`.
fn by_version((major, minor): (u32, u32)) -> Option<(u16, u16)> {
    Some(match (major, minor) {
        (1, 18..=22) => (152, 192),
        // These versions have a new field, g.syscallbp.
        (1, 23..=24) => (160, 192),
        // These versions have no gobuf.ret, which lay before both fields.
        (1, 25..=26) => (152, 184),
        _ => return None,
    })
}
