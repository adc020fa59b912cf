//! Programs and libraries of distributions, checked against binutils and the running process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use common::{function_symbols_by_readelf, named, only, run, system_files, system_module};
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{
    FileOffset, FunctionKind, ImageAddress, Libc, Linking, Module, ModuleKind, RelocationTarget, files,
};
use nanoprobe_tests::left_out::left_out;

#[test]
fn functions_are_those_that_readelf_lists() {
    for path in system_files() {
        let Some(expected) = function_symbols_by_readelf(&path) else {
            return;
        };
        let module = Module::parse(Arc::new(files::read(&path).unwrap()), &path).unwrap();
        let found: BTreeSet<_> = module
            .functions()
            .iter()
            .flat_map(|function| function.names().map(|name| (function.address, name.to_owned())))
            .collect();
        let missing: Vec<_> = expected.difference(&found).collect();
        let extra: Vec<_> = found.difference(&expected).collect();
        assert!(
            missing.is_empty() && extra.is_empty(),
            "{}: missing {missing:x?}, extra {extra:x?}",
            path.display()
        );
        assert!(found.len() > 20);
    }
}

#[test]
fn an_unstripped_program_has_all_functions_and_fragments() {
    let path = Path::new("/usr/bin/node");
    let Some(module) = system_module("/usr/bin/node") else {
        return;
    };
    assert!(module.has_full_symbols());
    let Some(expected) = function_symbols_by_readelf(path) else {
        return;
    };
    let mut found: BTreeSet<(ImageAddress, &str)> = BTreeSet::new();
    for function in module.functions() {
        found.extend(function.names().map(|name| (function.address, name)));
        found.extend(function.fragments.iter().map(|part| (part.range.start, &*part.name)));
    }
    // A missing symbol must be a label inside of a function, or a fragment whose function is ambiguous.
    let missing: Vec<_> = expected
        .iter()
        .filter(|(address, name)| !found.contains(&(*address, name)))
        .collect();
    let unexplained: Vec<_> = missing
        .iter()
        .filter(|(address, _)| {
            !module.is_cold_fragment(*address) && module.resolve(*address).is_none_or(|(_, at)| at == 0)
        })
        .collect();
    assert!(unexplained.is_empty(), "{unexplained:x?}");
    assert!(
        missing.len() * 100 < expected.len(),
        "{} of {}",
        missing.len(),
        expected.len()
    );
    assert!(
        module
            .functions()
            .iter()
            .map(|function| function.fragments.len())
            .sum::<usize>()
            > 900
    );
}

#[test]
fn extents_lie_in_code_and_end_before_the_next_function() {
    for path in system_files() {
        let module = files::open(&path, &path).unwrap();
        for function in module.functions() {
            let extent = module.function_extent(function);
            assert!(!extent.is_empty(), "{function:?}");
            let inside =
                |range: nanoprobe_symbols::AddressRange| range.start <= extent.start && extent.end <= range.end;
            assert!(module.executable_ranges().any(inside), "{function:?}");
            assert_eq!(
                module.code_at(extent.start, extent.len()).unwrap().len() as u64,
                extent.len()
            );
            assert_eq!(module.extent_at(extent.start).unwrap().start, extent.start);
            let padding = module.padding_after(extent.end);
            let first = module
                .functions()
                .partition_point(|other| other.address < padding.start);
            let next = module.functions().get(first).map(|other| other.address);
            assert!(
                next.is_none_or(|next| padding.end <= next || padding.is_empty()),
                "{function:?} {padding:?}"
            );
        }
    }
}

#[test]
fn padding_is_padding() {
    // bash fits because GCC pads code with nops, and every function of bash has an FDE.
    let Some(module) = system_module("/bin/bash") else {
        return;
    };
    let mut padded = 0;
    for function in module.functions() {
        let padding = module.padding_after(function.extent().end);
        if padding.is_empty() || padding.len() > 15 {
            continue;
        }
        padded += 1;
        let bytes = module.code_at(padding.start, padding.len()).unwrap();
        // Multi-byte nops: 66 prefixes, then 90 or 0F 1F /0, or 2E.
        let starts_like_nop = matches!(bytes, [0x90, ..] | [0x0f, 0x1f, ..] | [0x66, ..]);
        assert!(starts_like_nop, "{function:?}: {bytes:x?}");
    }
    assert!(padded > 500, "{padded}");
}

#[test]
fn libc_is_understood() {
    let Some(module) = system_module("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    assert_eq!(module.kind(), ModuleKind::Library);
    assert!(module.module_matches(|name| name == "libc"));
    assert!(!module.module_matches(|name| name == "a.out"));
    let linkage = module.linkage();
    assert_eq!((linkage.linking, linkage.libc), (Linking::Dynamic, Libc::Glibc));
    assert_eq!(linkage.soname.as_deref(), Some("libc.so.6"));
    assert!(linkage.thread_local.is_some() && linkage.build_id.is_some() && !linkage.go);

    let malloc = only(&module, "malloc");
    assert_eq!(
        (&*malloc.name, malloc.kind, malloc.global),
        ("malloc", FunctionKind::Code, true)
    );
    assert!(malloc.aliases.iter().any(|alias| &**alias == "__libc_malloc") || malloc.aliases.is_empty());
    assert_eq!(module.resolve(ImageAddress(malloc.address.0 + 5)), Some(("malloc", 5)));

    // The default memcpy is chosen at run time; an older version of it is memmove.
    let default = module.symbol("memcpy").unwrap();
    assert!(default.global && default.default_version);
    assert_eq!(default.kind, nanoprobe_symbols::SymbolKind::Ifunc);
    let chosen = FunctionKind::Ifunc {
        resolver: default.address,
    };
    let memcpy = named(&module, "memcpy");
    let default = memcpy
        .iter()
        .find(|function| function.address == default.address)
        .unwrap();
    assert_eq!(default.kind, chosen);

    let resolvers: BTreeSet<ImageAddress> = module
        .functions()
        .iter()
        .filter_map(|function| match function.kind {
            FunctionKind::Ifunc { resolver } => Some(resolver),
            FunctionKind::Code => None,
        })
        .collect();
    let relocations = module.relocations();
    let called: Vec<ImageAddress> = relocations
        .iter()
        .filter_map(|relocation| match relocation.target {
            RelocationTarget::Indirect { resolver } => Some(resolver),
            RelocationTarget::Symbol { .. } => None,
        })
        .collect();
    assert!(called.len() > 10 && called.iter().filter(|resolver| resolvers.contains(resolver)).count() > 10);
    let imports = |wanted: &str| {
        relocations
            .iter()
            .any(|relocation| matches!(&relocation.target, RelocationTarget::Symbol { name, .. } if name == wanted))
    };
    assert!(imports("_rtld_global") && !imports("no_such_symbol"));
}

#[test]
fn programs_and_linkers_are_recognised() {
    let Some(bash) = system_module("/bin/bash") else { return };
    assert_eq!(bash.kind(), ModuleKind::Executable);
    assert!(bash.module_matches(|name| name == "a.out") && bash.module_matches(|name| name == "bash"));
    let linkage = bash.linkage();
    assert_eq!(linkage.interpreter.as_deref(), Some("/lib64/ld-linux-x86-64.so.2"));
    assert!(linkage.needed.iter().any(|name| name == "libc.so.6"));
    assert!(linkage.debug_slot.is_some() && linkage.libc == Libc::Glibc);
    assert!(bash.executable_ranges().any(|range| range.contains(linkage.entry)));
    let Some(linker) = system_module("/lib64/ld-linux-x86-64.so.2") else {
        return;
    };
    assert_eq!(
        (linker.kind(), linker.linkage().libc),
        (ModuleKind::Linker, Libc::Glibc)
    );
    assert!(linker.symbol("_dl_debug_state").is_some());
    assert_eq!(
        linker.symbol("_r_debug").unwrap().kind,
        nanoprobe_symbols::SymbolKind::Object
    );
    assert_eq!(linker.symbol("malloc_of_nobody"), None);
}

#[test]
fn unnamed_functions_are_not_given_their_neighbours_names() {
    let Some(module) = system_module("/bin/bash") else {
        return;
    };
    if module.has_full_symbols() {
        return left_out("functions without names", "bash has all of its symbols here");
    }
    let (mut named, mut unnamed) = (0, 0);
    for function in module.functions() {
        assert_eq!(module.resolve(function.address), Some((&*function.name, 0)));
        assert!(function.is_named || *function.name == *function.address.to_string());
        let behind = module.padding_after(function.extent().end).end;
        let is_unnamed =
            |name: &str| *name == *behind.to_string() || name.ends_with(".cold") || name.ends_with(".part");
        match module.resolve(behind) {
            Some((name, 0)) if is_unnamed(name) => unnamed += 1,
            Some((name, 0)) => named += usize::from(name != &*function.name),
            Some((name, offset)) => panic!("{behind} behind {} is {name}+{offset}", function.name),
            None => {}
        }
    }
    assert!(named > 100 && unnamed > 100, "{named} {unnamed}");
}

/// Start and offset of this process' mapping of a file that has `flags`.
fn mapping(file: &str, flags: &str) -> Option<(TargetAddress, TargetAddress, FileOffset)> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.ends_with(file) && line.contains(flags))?;
    let mut fields = line.split_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let offset = fields.nth(1)?;
    let number = |text| u64::from_str_radix(text, 16).unwrap();
    Some((
        TargetAddress(number(start)),
        TargetAddress(number(end)),
        FileOffset(number(offset)),
    ))
}

#[test]
fn biases_lead_to_this_process_functions() {
    let Some((start, _, offset)) = mapping("/libc.so.6", "r-xp") else {
        return left_out("the bias of the C library", "this process has no /libc.so.6");
    };
    let Some(module) = system_module("/lib/x86_64-linux-gnu/libc.so.6") else {
        return;
    };
    let module_bias = module.bias_of_mapping(start, offset).unwrap();
    let module = module.with_bias(module_bias);
    let address = libc::malloc as *const () as u64;
    assert_eq!(
        module.resolve(module.bias().to_image(TargetAddress(address))),
        Some(("malloc", 0))
    );
    assert_eq!(
        module.bias().to_target(only(&module, "malloc").address),
        TargetAddress(address)
    );
    assert_eq!(module.bias_of_mapping(start, FileOffset(1 << 40)), None);
    let text = module.image_address(offset).unwrap();
    assert_eq!(module.bias().to_target(text), start);
}

#[test]
fn the_vdso_is_read_from_memory() {
    let Some((start, end, _)) = mapping("[vdso]", "r-xp") else {
        return left_out("the vDSO", "this process has none");
    };
    let mut memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut image = vec![0; usize::try_from(end.0 - start.0).unwrap()];
    memory.seek(SeekFrom::Start(start.0)).unwrap();
    memory.read_exact(&mut image).unwrap();
    let module = Module::parse_vdso(Arc::new(image)).unwrap();
    assert_eq!((module.kind(), module.name()), (ModuleKind::Vdso, "linux-vdso.so.1"));
    let clock = only(&module, "__vdso_clock_gettime");
    assert!(clock.names().any(|name| name == "clock_gettime"));
    let bias = module.bias_of_mapping(start, FileOffset(0)).unwrap();
    assert!((start..end).contains(&bias.to_target(clock.address)));
}

#[test]
fn installed_debug_files_name_the_choices_of_ifuncs() {
    let path = Path::new("/lib/x86_64-linux-gnu/libc.so.6");
    let Some(module) = system_module(path.to_str().unwrap()) else {
        return;
    };
    if !module.has_full_symbols() {
        return left_out("names of what IFUNCs choose", "no debug file for libc is installed");
    }
    let stripped = Module::parse(Arc::new(files::read(path).unwrap()), path).unwrap();
    let chosen = only(&module, "__memmove_avx_unaligned_erms");
    assert!(!chosen.global && named(&stripped, &chosen.name).is_empty());
    assert_eq!(stripped.resolve(chosen.address), None);
    // FDEs alone give nearly every function the extent that its symbol states.
    let sized: Vec<_> = module
        .functions()
        .iter()
        .filter(|function| function.kind == FunctionKind::Code)
        .collect();
    let same = sized
        .iter()
        .filter(|function| stripped.extent_at(function.address) == Some(function.extent()))
        .count();
    assert!(same * 100 >= sized.len() * 98, "{same} of {}", sized.len());
    // And the initial CFA distinguishes nearly every cold part from a function.
    let fragments: Vec<_> = module
        .functions()
        .iter()
        .flat_map(|function| &function.fragments)
        .collect();
    let told = fragments
        .iter()
        .filter(|part| stripped.is_cold_fragment(part.range.start))
        .count();
    assert!(
        told * 100 >= fragments.len() * 90 && told > 0,
        "{told} of {}",
        fragments.len()
    );
    let mistaken: Vec<_> = sized
        .iter()
        .filter(|function| stripped.is_cold_fragment(function.address))
        .collect();
    assert!(mistaken.len() * 500 <= sized.len(), "{mistaken:?}");
}

/// Compares the notes of this machine's programs with binutils' reading of them.
#[test]
fn static_probes_are_those_that_readelf_sees() {
    for path in [
        "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        "/usr/lib/x86_64-linux-gnu/libpython3.11.so.1.0",
        "/usr/local/bin/postgres",
        "/lib/x86_64-linux-gnu/libc.so.6",
    ] {
        let Some(module) = system_module(path) else { continue };
        let Some(text) = run("readelf", &["-n", path], Path::new("/")) else {
            return;
        };
        let fields = |key: &str| -> Vec<String> {
            let lines = text.lines().filter_map(|line| line.trim().strip_prefix(key));
            lines.map(|rest| rest.trim().to_owned()).collect()
        };
        let locations: Vec<String> = fields("Location:");
        let probes = module.static_probes();
        assert_eq!(probes.len(), locations.len(), "{path}");
        let (providers, names, arguments) = (fields("Provider:"), fields("Name:"), fields("Arguments:"));
        for (index, probe) in probes.iter().enumerate() {
            let semaphore = probe.semaphore.map_or(0, |semaphore| semaphore.0);
            let expected = format!("{:#018x},", probe.address.0);
            assert!(
                locations[index].starts_with(&expected),
                "{path} {probe:?} {}",
                locations[index]
            );
            assert!(
                locations[index].ends_with(&format!("{semaphore:#018x}")),
                "{path} {probe:?}"
            );
            assert_eq!(
                (&probe.provider, &probe.name),
                (&providers[index], &names[index]),
                "{path}"
            );
        }
        let all: Vec<&str> = probes
            .iter()
            .map(|probe| &*probe.arguments)
            .filter(|text| !text.is_empty())
            .collect();
        assert_eq!(
            all,
            arguments
                .iter()
                .map(String::as_str)
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
        );
    }
}
