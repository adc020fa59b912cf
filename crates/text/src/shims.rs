//! The places at which a module makes the system calls before which the agent runs: `rt_sigprocmask`, `rt_sigaction`,
//! `rt_sigpending` and `rt_sigtimedwait`, calls that wait under a signal mask of their own, calls that create threads,
//! and calls by which a program puts itself under seccomp. Where programs are followed, also calls that execute another
//! program. Pure.
//!
//! Of the calls by `int 0x80`, those that change the signal mask or a signal's action, where the number is loaded right
//! before.
//!
//! If the number is not known beforehand, as in syscall(3), the agent checks every call. Two kinds of calls are not
//! found: a `syscall` without room for a jump on the straight way to it, and a `syscall` in code that no file
//! describes.

use std::collections::BTreeMap;

use nanoprobe_patch::order::gather;
use nanoprobe_patch::{CallInstruction, CodeView, FunctionExtent, FunctionMap, Replacement, Shift, analyze};
use nanoprobe_symbols::{Bias, ImageAddress, Module, ModuleKind};

/// rt_sigaction, rt_sigprocmask, clone, rt_sigpending, rt_sigtimedwait, prctl, seccomp, clone3.
const CALLS: [u32; 8] = [13, 14, 56, 127, 128, 157, 317, 435];
/// The same, and execve and execveat.
const CALLS_AND_EXECS: [u32; 10] = [13, 14, 56, 59, 127, 128, 157, 317, 322, 435];
/// mprotect, pkey_mprotect.
const PROTECTS: [u32; 2] = [10, 329];
/// Functions larger than this are not analysed.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;
pub(crate) const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How far before a `syscall` the load of its number is searched.
const DISTANCE_MAX: usize = 64;

/// Which calls have shims besides those that every process needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Also {
    /// execve and execveat.
    pub executes: bool,
    /// Those that make memory executable.
    pub protects: bool,
}

/// All places of a module.
pub fn find(module: &Module, also: Also) -> Vec<Replacement> {
    let mut calls = if also.executes {
        CALLS_AND_EXECS.to_vec()
    } else {
        CALLS.to_vec()
    };
    if also.protects {
        calls.extend(PROTECTS);
    }
    let [from, to] = [Module::ANSWERS_BIAS, module.bias()].map(|bias| bias.to_target(ImageAddress(0)));
    // The search takes longer than all else, and each process that maps the file has the same answer.
    let found = module.replacements_once([also.executes, also.protects], || search(module, &calls));
    let shift = Shift::new(from, to);
    found.iter().map(|replacement| replacement.moved(shift)).collect()
}

/// The places, for code with the bias of answers that are kept.
fn search(module: &Module, calls: &[u32]) -> Vec<Replacement> {
    let in_code = |(start, end): (u64, u64)| -> Vec<Replacement> {
        let map = decoded_with(module, Module::ANSWERS_BIAS, ImageAddress(start), ImageAddress(end));
        map.iter().flat_map(|map| Replacement::find(map, calls)).collect()
    };
    candidate_ranges(module, calls).into_iter().flat_map(in_code).collect()
}

/// The code around all places of a module that look like a `syscall` of interest.
fn candidate_ranges(module: &Module, calls: &[u32]) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    if module.kind() == ModuleKind::Vdso {
        return found;
    }
    for range in module.executable_ranges() {
        let size = range.end.0.saturating_sub(range.start.0);
        let Some(text) = module.code_at(range.start, size) else {
            continue;
        };
        let places = candidates(text, calls).into_iter();
        let extents = places.filter_map(|(call, load)| {
            let address = |offset: usize| range.start.0.saturating_add(offset as u64);
            // In most modules, symbols are not needed to answer this, so they are not read.
            let at = ImageAddress(address(call));
            let extent = module.described_at(at).or_else(|| module.extent_at(at));
            // A stripped library without call frame information does not describe its inner functions (musl's).
            extent
                .map(|extent| (extent.start.0, extent.end.0))
                .or_else(|| Some((address(load?), address(call + SYSCALL.len()))))
        });
        found.extend(gather::<BTreeMap<u64, u64>, _>(extents));
    }
    found
}

/// Places that look like a `syscall` of interest, each with the place at which its number is loaded, if that can be
/// found.
fn candidates(text: &[u8], calls: &[u32]) -> Vec<(usize, Option<usize>)> {
    let interrupt = CallInstruction::Interrupt.bytes();
    let pairs = text.array_windows::<2>().enumerate();
    let places = pairs.filter_map(|(offset, pair)| [SYSCALL, interrupt].contains(pair).then_some((offset, *pair)));
    places
        .filter_map(|(call, pair)| {
            let from = call.saturating_sub(DISTANCE_MAX);
            match Replacement::load_in_front(text.get(from..call)?) {
                // By chance, its bytes are in much code.
                load if pair == interrupt => {
                    let (load, _) = load.filter(|(_, number)| Replacement::is_met_by_interrupt(*number))?;
                    Some((call, Some(from + load)))
                }
                Some((_, number)) if !calls.contains(&number) && !Replacement::is_wait(number) => None,
                load => Some((call, load.map(|(load, _)| from + load))),
            }
        })
        .collect()
}

pub(crate) fn decoded(module: &Module, start: ImageAddress, end: ImageAddress) -> Option<FunctionMap> {
    decoded_with(module, module.bias(), start, end)
}

fn decoded_with(module: &Module, bias: Bias, start: ImageAddress, end: ImageAddress) -> Option<FunctionMap> {
    let size = end.0.checked_sub(start.0).filter(|size| *size <= FUNCTION_BYTES_MAX)?;
    let code = CodeView {
        start: bias.to_target(start),
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

#[cfg(test)]
mod tests {
    use super::*;
    use nanoprobe_symbols::files;

    const EXECUTES: Also = Also {
        executes: true,
        protects: false,
    };

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

    const MUSL: &str = "/usr/lib/x86_64-linux-musl/libc.so";

    fn disassembled(module: &Module) -> String {
        let output = std::process::Command::new("objdump")
            .args(["-d", "--no-show-raw-insn", "-w"])
            .arg(module.path())
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// Checks every library of this process, and sanitizers if they are installed. According to the disassembler, the
    /// displaced bytes are whole instructions, and between them and the `syscall` no instruction leaves the straight
    /// way.
    #[test]
    fn whole_instructions_are_displaced() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mapped = maps.split_whitespace().filter(|word| word.contains(".so"));
        let mut paths: Vec<String> = mapped.map(str::to_owned).collect();
        let sanitizers = ["libtsan.so.2", "libasan.so.8", "libubsan.so.1"];
        paths.extend(sanitizers.map(|name| format!("/lib/x86_64-linux-gnu/{name}")));
        paths.push(MUSL.to_owned());
        paths.sort_unstable();
        paths.dedup();
        let mut places = 0;
        for path in paths.iter().filter(|path| std::path::Path::new(path).exists()) {
            let bytes = std::sync::Arc::new(files::read(std::path::Path::new(path)).unwrap());
            let module = Module::parse(bytes, path).unwrap();
            let text = disassembled(&module);
            let instructions: BTreeMap<u64, &str> = text
                .lines()
                .filter_map(|line| {
                    let (address, instruction) = line.split_once(":\t")?;
                    Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction))
                })
                .collect();
            for shim in find(&module, EXECUTES) {
                places += 1;
                let (start, call) = (shim.run().start.0, shim.syscall().0);
                for displaced in &shim.run().instructions {
                    assert!(
                        instructions.contains_key(&displaced.address.0),
                        "{path}: {:x?}",
                        shim.run()
                    );
                }
                assert_eq!(
                    instructions.get(&call).map(|text| text.trim()),
                    Some("syscall"),
                    "{path}: {call:x}"
                );
                let between: Vec<&&str> = instructions.range(start..call).map(|(_, text)| text).collect();
                let leaves =
                    |text: &&&str| text.starts_with('j') || text.starts_with("call") || text.starts_with("ret");
                assert!(
                    !between.is_empty() && !between.iter().any(leaves),
                    "{path}: {between:?}"
                );
            }
        }
        assert!(places >= 20, "{places}");
    }

    /// What is kept of a file, and moved to where a process maps it, is what is found there.
    #[test]
    fn places_that_are_kept_are_those_of_each_process() {
        let first = libc();
        let mut places = 0;
        for bias in [0, 0x40_0000, 0x5555_5555_4000, 0x7fff_f000_0000] {
            let module = libc().with_bias(Bias(bias));
            let known = first.clone().with_bias(Bias(bias));
            for (executes, calls) in [(false, CALLS.as_slice()), (true, CALLS_AND_EXECS.as_slice())] {
                let in_code = |(start, end): (u64, u64)| -> Vec<Replacement> {
                    let map = decoded(&module, ImageAddress(start), ImageAddress(end));
                    map.iter().flat_map(|map| Replacement::find(map, calls)).collect()
                };
                let also = Also {
                    executes,
                    protects: false,
                };
                let expected: Vec<Replacement> =
                    candidate_ranges(&module, calls).into_iter().flat_map(in_code).collect();
                assert_eq!(
                    format!("{:?}", find(&known, also)),
                    format!("{expected:?}"),
                    "{bias:#x}"
                );
                places += expected.len();
            }
        }
        assert!(places >= 200, "{places}");
    }

    /// Every load of one of the numbers that is followed by a system call, according to the disassembler, has a shim,
    /// and syscall(3) has one, too. The test includes musl, whose inner functions have neither symbols nor call frame
    /// information.
    #[test]
    fn all_of_the_c_librarys_calls_are_found() {
        check_calls(&libc());
        if let Ok(bytes) = files::read(std::path::Path::new(MUSL)) {
            check_calls(&Module::parse(std::sync::Arc::new(bytes), MUSL).unwrap());
        }
    }

    fn check_calls(module: &Module) {
        let found: Vec<u64> = find(module, EXECUTES).iter().map(|shim| shim.syscall().0).collect();
        let text = disassembled(module);
        let lines: Vec<&str> = text.lines().collect();
        let mut expected = Vec::new();
        for (index, line) in lines.iter().enumerate() {
            let words = line.split('\t').nth(1).map(|text| text.split_whitespace());
            let words: Vec<&str> = words.into_iter().flatten().collect();
            if !matches!(
                *words,
                [
                    "mov",
                    "$0xe,%eax" | "$0xd,%eax" | "$0x9d,%eax" | "$0x7f,%eax" | "$0x80,%eax" | "$0x3b,%eax"
                ]
            ) {
                continue;
            }
            let behind = lines.iter().skip(index + 1).take(8);
            let mut straight =
                behind.take_while(|line| !line.contains("\tj") && !line.contains("\tcall") && !line.is_empty());
            if let Some(call) = straight.find(|line| line.contains("syscall")) {
                expected.push(u64::from_str_radix(call.trim().split(':').next().unwrap(), 16).unwrap());
            }
        }
        assert!(expected.len() >= 5, "{expected:x?}");
        assert_eq!(
            expected.iter().filter(|call| !found.contains(call)).count(),
            0,
            "{expected:x?}, {found:x?}"
        );
        let any = module.symbol("syscall").unwrap().address.0;
        assert!(found.iter().any(|call| (any..any + 128).contains(call)));
        // Only a few of the hundreds of other calls get a shim.
        assert!(found.len() < 100, "{}", found.len());
    }
}
