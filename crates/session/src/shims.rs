//! Shims: the agent in front of the program's `rt_sigprocmask` and `rt_sigaction`, in whatever module makes them.
//!
//! Needed as soon as a signal action of ours is (see [`crate::signals`]): what `agent/shims.c` tells. Each place is a
//! patch like a probe's, written, published, and taken back with them. Only what is a load of the number and then,
//! straight on, a `syscall` is found, which is how compilers and assemblers write it (glibc, musl, Go); a program that
//! computes the number, or hands it to `syscall(3)`, goes past us.

use std::collections::BTreeMap;
use std::ops::Range;

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::{
    CodeView, FunctionExtent, FunctionMap, NearSpace, Obstacle, Refusal, Replacement, Tactic, TargetAddress, analyze,
};
use nanoprobe_symbols::{ImageAddress, Module, ModuleKind};

use crate::placement::{Patch, Placement, Refused, RefusedBecause, without};

/// The system calls, with what stands in front of them.
const SHIMS: [(u32, AgentFunction); 2] = [(13, AgentFunction::ShimSigaction), (14, AgentFunction::ShimSigprocmask)];
/// Functions larger than this are not analysed.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
/// How far behind the load of its number a `syscall` is looked for.
const DISTANCE_MAX: usize = 64;

/// One place.
#[derive(Clone, Debug)]
pub struct Shim {
    /// What to call there.
    pub function: AgentFunction,
    /// How.
    pub replacement: Replacement,
}

/// All places of a module.
pub fn find(module: &Module) -> Vec<Shim> {
    let mut shims = Vec::new();
    let mut maps: BTreeMap<u64, Option<FunctionMap>> = BTreeMap::new();
    if module.kind() == ModuleKind::Vdso {
        return shims;
    }
    for range in module.executable_ranges() {
        let size = range.end.0.saturating_sub(range.start.0);
        let Some(text) = module.code_at(range.start, size) else {
            continue;
        };
        for (offset, function) in candidates(text) {
            let at = ImageAddress(range.start.0.saturating_add(offset as u64));
            let Some(extent) = module.extent_at(at) else { continue };
            let map = maps
                .entry(extent.start.0)
                .or_insert_with(|| decoded(module, extent.start, extent.end));
            let Some(map) = map else { continue };
            let start = module.bias().to_target(at);
            let Some((number, _)) = SHIMS.iter().find(|(_, known)| *known == function) else {
                continue;
            };
            let found = Replacement::find(map, *number)
                .into_iter()
                .find(|found| found.run().start == start);
            shims.extend(found.map(|replacement| Shim { function, replacement }));
        }
    }
    shims
}

/// Where the bytes look like a load of one of the numbers with a `syscall` not far behind.
fn candidates(text: &[u8]) -> Vec<(usize, AgentFunction)> {
    let mut found = Vec::new();
    for (offset, window) in text.windows(5).enumerate() {
        let [0xb8, number, 0, 0, 0] = *window else { continue };
        let Some((_, function)) = SHIMS.iter().find(|(known, _)| *known == u32::from(number)) else {
            continue;
        };
        let rest = text
            .get(offset..text.len().min(offset + DISTANCE_MAX))
            .unwrap_or_default();
        if rest.windows(2).any(|pair| pair == [0x0f, 0x05]) {
            found.push((offset, *function));
        }
    }
    found
}

fn decoded(module: &Module, start: ImageAddress, end: ImageAddress) -> Option<FunctionMap> {
    let size = end.0.checked_sub(start.0).filter(|size| *size <= FUNCTION_BYTES_MAX)?;
    let code = CodeView {
        start: module.bias().to_target(start),
        bytes: module.code_at(start, size)?,
    };
    Some(analyze(
        &code,
        &FunctionExtent {
            start: code.start,
            size,
            fragments: Vec::new(),
        },
    ))
}

/// Adds the shims of some modules to a placement. Where a probe wants the same instructions the shim has precedence: a
/// probe that is missing is told, a signal mask that goes past us may kill the program.
pub fn add<'a>(
    placement: &mut Placement,
    modules: impl Iterator<Item = &'a Module>,
    near: &mut NearSpace,
    agent: impl Fn(AgentFunction) -> TargetAddress,
) {
    let known = near.regions();
    for module in modules {
        for shim in find(module) {
            let run = shim.replacement.run();
            let refuse = |reason| Refused {
                site: Some(run.start),
                function: format!("{}`(signal mask)", module.name()),
                reason: RefusedBecause::Patch(reason),
            };
            let Some(detour) = near.place(run, run.detour_length) else {
                let refusal = Refusal::TacticUnavailable {
                    site: run.start,
                    tactic: Tactic::Jump,
                    obstacle: Some(Obstacle::Address),
                };
                placement.refused.push(refuse(refusal));
                continue;
            };
            match shim.replacement.build(agent(shim.function), detour) {
                Ok(built) => {
                    give_way(
                        placement,
                        run.start..TargetAddress(shim.replacement.syscall().0.saturating_add(2)),
                    );
                    let function = run.start;
                    placement.patches.push(Patch {
                        obstacle: None,
                        tactic: Tactic::Jump,
                        detour,
                        built,
                        sites: Vec::new(),
                        entered: Vec::new(),
                        function,
                        shim: true,
                        takes_return: false,
                        guards_returns: false,
                    });
                }
                Err(refusal) => placement.refused.push(refuse(refusal)),
            }
        }
    }
    placement
        .regions
        .extend(near.regions().into_iter().flat_map(|region| without(region, &known)));
}

/// Takes back the patches that touch a range.
fn give_way(placement: &mut Placement, range: Range<TargetAddress>) {
    let touches = |patch: &Patch| {
        let start = patch.built.address;
        let moves = patch.built.moves.iter().map(|entry| entry.original);
        let end = TargetAddress(start.0.saturating_add(patch.built.original.len() as u64));
        (start < range.end && range.start < end) || moves.into_iter().any(|address| range.contains(&address))
    };
    let (gone, kept): (Vec<Patch>, Vec<Patch>) = std::mem::take(&mut placement.patches)
        .into_iter()
        .partition(|patch| touches(patch));
    placement.patches = kept;
    for site in gone.iter().flat_map(|patch| &patch.sites) {
        placement.refused.push(Refused {
            site: Some(*site),
            function: String::new(),
            reason: RefusedBecause::Shim,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nanoprobe_symbols::files;

    fn libc() -> Module {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps
            .split_whitespace()
            .find(|word| word.contains("/libc.so") || word.contains("/libc-"))
            .unwrap();
        Module::parse(
            std::sync::Arc::new(files::read(std::path::Path::new(path)).unwrap()),
            path,
        )
        .unwrap()
    }

    /// Every load of one of the numbers that is followed by a system call, as the disassembler sees it, has its shim.
    #[test]
    fn all_of_the_c_librarys_calls_are_found() {
        let module = libc();
        let found: Vec<(u64, AgentFunction)> = find(&module)
            .iter()
            .map(|shim| (shim.replacement.run().start.0, shim.function))
            .collect();
        let output = std::process::Command::new("objdump")
            .arg("-d")
            .arg("--no-show-raw-insn")
            .arg(module.path())
            .output();
        let text = String::from_utf8(output.unwrap().stdout).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        let mut expected = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let function = match line
                .split('\t')
                .nth(1)
                .map(|text| text.split_whitespace().collect::<Vec<_>>())
            {
                Some(words) if words == ["mov", "$0xe,%eax"] => AgentFunction::ShimSigprocmask,
                Some(words) if words == ["mov", "$0xd,%eax"] => AgentFunction::ShimSigaction,
                _ => continue,
            };
            let behind = lines.iter().skip(index + 1).take(8);
            let straight =
                behind.take_while(|line| !line.contains("\tj") && !line.contains("\tcall") && !line.is_empty());
            if straight.into_iter().any(|line| line.contains("syscall")) {
                let address = line.trim().split(':').next().unwrap();
                expected.push((u64::from_str_radix(address, 16).unwrap(), function));
            }
        }
        assert!(expected.len() >= 4, "{expected:x?}");
        assert_eq!(found, expected);
    }
}
