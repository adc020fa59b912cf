//! Modules as linkers, strip and other compilers make them: separate debug files, static and shared programs, frames,
//! Go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::program::{Build as GoBuild, need_program};

use common::{Build, C_SOURCE, named, only, without_ifunc};
use nanoprobe_arena::layout::{CFA_RBP_DEREF, CFA_SIGNAL, CFA_UNKNOWN};
use nanoprobe_symbols::{GoCall, ImageAddress, Libc, Linking, Module, ModuleKind, RBP_AT_RBP, files, unwind_rows};

#[test]
fn debug_files_bring_the_names_back() {
    let Some(build) = Build::new("gcc", &["-O2", "-g"], "program.c", C_SOURCE) else {
        return;
    };
    let whole = build.module();
    build
        .run("objcopy", &["--only-keep-debug", "program", "program.debug"])
        .unwrap();
    build.run("strip", &["-g", "-o", "without-g", "program"]).unwrap();
    assert_eq!(build.open("without-g").functions(), whole.functions());
    build.run("strip", &["-o", "stripped", "program"]).unwrap();
    let stripped = build.open("stripped");
    assert!(named(&stripped, "hidden").is_empty() && files::find_debug_file(&stripped).is_none());
    build
        .run("objcopy", &["--add-gnu-debuglink=program.debug", "stripped"])
        .unwrap();
    let linked = build.open("stripped");
    assert!(linked.has_full_symbols());
    assert_eq!(linked.functions(), whole.functions());

    // A debug file that was changed later is not used.
    let debug = build.path("program.debug");
    let mut bytes = std::fs::read(&debug).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&debug, bytes).unwrap();
    assert!(named(&build.open("stripped"), "hidden").is_empty());
}

#[test]
fn a_debug_file_is_held_for_others_and_searched_late_for_this_process() {
    let Some(build) = Build::new("gcc", &["-O2", "-g"], "program.c", C_SOURCE) else {
        return;
    };
    let whole = build.module();
    let keep_debug = ["--only-keep-debug", "program", "program.debug"];
    build.run("objcopy", &keep_debug).unwrap();
    let add_link = [
        "--strip-all",
        "--add-gnu-debuglink=program.debug",
        "program",
        "stripped",
    ];
    build.run("objcopy", &add_link).unwrap();
    let (debug, elsewhere) = (build.path("program.debug"), build.path("elsewhere"));
    let open_own = || {
        let path = build.path("stripped");
        files::module_of_self(std::fs::File::open(&path).unwrap(), "/".as_ref(), &path).unwrap()
    };

    // A process may end, and its files may go with it, before a name is asked for.
    let others = build.open("stripped");
    let own = open_own();
    std::fs::rename(&debug, &elsewhere).unwrap();
    assert!(others.has_full_symbols());
    assert_eq!(others.functions(), whole.functions());
    assert!(!own.has_full_symbols() && named(&own, "hidden").is_empty());

    let own = open_own();
    std::fs::rename(&elsewhere, &debug).unwrap();
    assert_eq!(own.functions(), whole.functions());
    assert!(own.has_full_symbols());
}

#[test]
fn all_ways_of_linking_are_told_apart() {
    let musl = without_ifunc();
    for (tool, arguments, source, linking, libc, interpreter) in [
        (
            "gcc",
            &["-O2"][..],
            C_SOURCE,
            Linking::Dynamic,
            Libc::Glibc,
            Some("/lib64/ld-linux-x86-64.so.2"),
        ),
        (
            "gcc",
            &["-O2", "-no-pie"],
            C_SOURCE,
            Linking::Dynamic,
            Libc::Glibc,
            Some("/lib64/ld-linux-x86-64.so.2"),
        ),
        ("gcc", &["-O2", "-static"], C_SOURCE, Linking::Static, Libc::Glibc, None),
        (
            "gcc",
            &["-O2", "-static-pie"],
            C_SOURCE,
            Linking::StaticPie,
            Libc::Glibc,
            None,
        ),
        (
            "musl-gcc",
            &["-O2"],
            &musl,
            Linking::Dynamic,
            Libc::Musl,
            Some("/lib/ld-musl-x86_64.so.1"),
        ),
        (
            "musl-gcc",
            &["-O2", "-static"],
            &musl,
            Linking::Static,
            Libc::Unknown,
            None,
        ),
    ] {
        let Some(build) = Build::new(tool, arguments, "program.c", source) else {
            continue;
        };
        let module = build.module();
        let linkage = module.linkage();
        assert_eq!((linkage.linking, linkage.libc), (linking, libc), "{tool} {arguments:?}");
        assert_eq!(linkage.interpreter.as_deref(), interpreter);
        assert_eq!(
            linkage.debug_slot.is_some(),
            linking != Linking::Static,
            "{tool} {arguments:?}"
        );
        assert_eq!(module.kind(), ModuleKind::Executable, "{tool} {arguments:?}");
        assert_eq!(module.resolve(linkage.entry), Some(("_start", 0)));
        assert!(module.module_matches(|name| name == "a.out"));
        assert!(named(&module, "main").len() == 1 && named(&module, "hot").len() == 1);
    }
    let Some(build) = Build::new(
        "gcc",
        &["-shared", "-fPIC", "-Wl,-soname,libx.so.3"],
        "x.c",
        "int f(void) { return 1; }",
    ) else {
        return;
    };
    let library = build.module();
    assert_eq!(library.kind(), ModuleKind::Library);
    assert!(library.module_matches(|name| name == "libx"));
}

#[test]
fn signal_frames_are_found_with_and_without_an_fde() {
    let musl = without_ifunc();
    for (tool, source) in [("gcc", C_SOURCE), ("musl-gcc", &musl)] {
        let Some(build) = Build::new(tool, &["-O2", "-static"], "program.c", source) else {
            continue;
        };
        let module = build.module();
        let address = only(&module, "__restore_rt").address.0 - module.unwind_base().0;
        let rows = unwind_rows(&module);
        // The address to which the handler returns, and the byte before this address, which unwinders look up.
        for pc in [address, address - 1] {
            let row = &rows[rows.partition_point(|row| u64::from(row.pc) <= pc) - 1];
            assert_eq!(row.cfa, CFA_SIGNAL, "{tool}: {row:?}");
        }
    }
}

#[test]
fn realigned_stacks_have_rows() {
    let source = r#"
        void use(void *);
        __attribute__((noinline)) int aligned(int count, int b, int c, int d, int e, int f, int g, int h)
        {
            char big[256] __attribute__((aligned(128)));
            char *more = __builtin_alloca(count);
            use(big); use(more);
            return big[count] + h;
        }
        void use(void *p) { *(char *)p = 0; }
        int main(int count, char **v) { return aligned(count, 1, 2, 3, 4, 5, 6, 7); }
    "#;
    let Some(build) = Build::new("gcc", &["-O1", "-fno-inline", "-mforce-drap"], "program.c", source) else {
        return;
    };
    let module = build.module();
    let aligned = only(&module, "aligned").extent();
    let base = module.unwind_base().0;
    let inside = |pc: u32| aligned.contains(ImageAddress(base + u64::from(pc)));
    let rows = unwind_rows(&module);
    let row = rows
        .iter()
        .find(|row| inside(row.pc) && row.cfa == CFA_RBP_DEREF)
        .unwrap();
    assert_eq!((row.rbp, row.rbp_offset), (RBP_AT_RBP, 0));
}

#[test]
fn go_programs_are_recognised() {
    let source =
        "package main\nfunc main() { println(double(21)) }\n//go:noinline\nfunc double(x int) int { return x * 2 }\n";
    // The Go tool needs a cache folder of its own where HOME is not set.
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("program.go"), source).unwrap();
    let cache = format!("GOCACHE={}", folder.path().join("cache").display());
    let arguments = [
        &*cache,
        "GOFLAGS=-mod=mod",
        "go",
        "build",
        "-o",
        "program",
        "program.go",
    ];
    if std::process::Command::new("go")
        .arg("version")
        .output_in_time()
        .is_err()
    {
        return left_out("symbols of a Go program", "go is not installed");
    }
    common::run("env", &arguments, folder.path()).unwrap();
    let path = folder.path().join("program");
    let module = files::open(&path, &path).unwrap();
    let linkage = module.linkage();
    assert!(linkage.go);
    assert_eq!((linkage.linking, linkage.libc), (Linking::Static, Libc::Unknown));
    let double = only(&module, "main.double");
    assert_eq!(
        module.resolve(ImageAddress(double.address.0 + 1)),
        Some(("main.double", 1))
    );
    let address = only(&module, "runtime.sigreturn__sigaction.abi0").address.0 - module.unwind_base().0;
    let rows = unwind_rows(&module);
    for (pc, cfa) in [
        (address - 2, CFA_UNKNOWN),
        (address - 1, CFA_SIGNAL),
        (address + 7, CFA_SIGNAL),
        (address + 9, CFA_UNKNOWN),
    ] {
        assert_eq!(
            rows[rows.partition_point(|row| u64::from(row.pc) <= pc) - 1].cfa,
            cfa,
            "{pc:#x}"
        );
    }
}

#[test]
fn a_file_without_sections_is_read_by_its_segments() {
    let source = "int f(int x) { return x; } int g(int x) { return f(x) + 1; } int __h(void) { return 3; }";
    for hash in ["-Wl,--hash-style=gnu", "-Wl,--hash-style=sysv"] {
        let Some(build) = Build::new("gcc", &["-O1", "-shared", "-fPIC", hash], "x.c", source) else {
            return;
        };
        build.run("strip", &["program"]).unwrap();
        let with = build.module();
        let mut bytes = std::fs::read(build.path("program")).unwrap();
        bytes[0x28..0x30].fill(0); // e_shoff
        bytes[0x3c..0x40].fill(0); // e_shnum, e_shstrndx
        let without = Module::parse(Arc::new(bytes), "x.so").unwrap();
        for name in ["f", "g", "__h"] {
            assert_eq!(only(&with, name), only(&without, name), "{hash}");
        }
        assert_eq!(with.linkage().soname, without.linkage().soname);
        assert_eq!(with.relocations(), without.relocations());
        assert_eq!(unwind_rows(&with), unwind_rows(&without));
    }
}

/// A Go program without symbols names its functions, and says how they are called.
#[test]
fn stripped_programs_of_go_name_their_functions() {
    for (build, slot) in [
        (GoBuild::Go, None),
        (GoBuild::GoStripped, Some(-8)),
        (GoBuild::GoPieStripped, Some(-8)),
    ] {
        let Some(path) = need_program("goargs", build) else {
            return;
        };
        let module = files::open(&path, &path).unwrap();
        let call = |name: &str| module.go_call(only(&module, name).address);
        assert_eq!(call("main.integers"), Some(GoCall::Registers), "{build:?}");
        assert_eq!(call("main.thing.shown"), Some(GoCall::Registers));
        assert_eq!(call("main.add.abi0"), Some(GoCall::Stack), "{build:?}");
        assert_eq!(call("runtime.memmove"), Some(GoCall::Registers));
        let is_stripped = build != GoBuild::Go;
        assert_eq!(module.has_full_symbols(), !is_stripped);
        assert_eq!(module.goroutine_slot(), slot.or(Some(-8)));
        assert!(module.go_version().is_some_and(|version| version >= (1, 18)));
    }
    // In a program of C and Go, the C functions are not taken for Go functions.
    if let Some(path) = need_program("cgo.go", GoBuild::Go) {
        let module = files::open(&path, &path).unwrap();
        assert_eq!(module.go_call(only(&module, "c_leaf").address), None);
        assert_eq!(
            module.go_call(only(&module, "main.turn").address),
            Some(GoCall::Registers)
        );
    }
}
