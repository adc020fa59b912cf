//! `args[]` of static probes, for the compiler.

use nanoprobe_codegen::{Operand, ProbeKind};
use nanoprobe_lang::program::{IntegerType, ProbeDescription, Type};
use nanoprobe_lang::target::{Argument, ArgumentPlace};
use nanoprobe_symbols::Module;

use super::{Statics, names_provider};

/// `arg0` to `arg9`.
const ARGUMENTS: u8 = 10;

/// The process may not exist yet: its number is the one in the description.
fn pid_of(probe: &ProbeDescription) -> i32 {
    let name = probe.provider.trim_end_matches(|last: char| last.is_ascii_digit());
    let digits = probe.provider.get(name.len()..).unwrap_or_default();
    digits.parse().unwrap_or(0)
}

/// Whether a module has static probes of a provider that a description means.
pub fn has_provider(module: &Module, probe: &ProbeDescription) -> bool {
    let mut statics = Statics::default();
    statics.read(std::slice::from_ref(module));
    let mut providers = statics.providers().into_iter();
    providers.any(|provider| names_provider(&probe.provider, provider, pid_of(probe)))
}

/// `args[]` at the sites of the static probes of a module that a description matches: integers, whose size and sign are
/// in the sites' notes.
pub fn arguments_at(module: &Module, probe: &ProbeDescription) -> Vec<(Vec<Argument>, String)> {
    let modules = std::slice::from_ref(module);
    let mut statics = Statics::default();
    statics.read(modules);
    let pid = pid_of(probe);
    let argument = |(word, found): (u8, &Result<Operand, String>)| match found {
        Ok(operand) => Argument {
            name: String::new(),
            value_type: Type::Integer(IntegerType {
                bytes: operand.bytes,
                signed: operand.signed,
            }),
            place: ArgumentPlace::Words(word),
        },
        Err(reason) => Argument {
            name: String::new(),
            value_type: Type::I64,
            place: ArgumentPlace::Unreadable(reason.clone()),
        },
    };
    let matching = statics.matching(probe, modules, 0, pid);
    let sites = matching.flat_map(|(_, known)| known.sites.iter().map(move |site| (known, site)));
    sites
        .filter_map(|(known, site)| {
            let ProbeKind::Static(number) = site.kind else {
                return None;
            };
            let operands = &statics.arguments().get(number as usize)?.list;
            let arguments = (0..ARGUMENTS).zip(operands).map(argument).collect();
            Some((arguments, format!("{}:{}", known.function, known.name)))
        })
        .collect()
}
