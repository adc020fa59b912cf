//! Programs made on the spot, in all the ways in which compilers and linkers make them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;

use common::{Build, named, only};
use nanoprobe_arena::layout::{CFA_RBP_DEREF, CFA_SIGNAL, CFA_UNKNOWN};
use nanoprobe_symbols::{
    FunctionKind, ImageAddress, Libc, Linking, Module, ModuleKind, RBP_AT_RBP, RelocationTarget, Symbol, SymbolKind,
    files, unwind_rows,
};

const C_SOURCE: &str = r#"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int data_variable = 3;
__thread int thread_variable;

__attribute__((cold, noinline)) void complain(int value) { printf("%d\n", value); data_variable++; }

static __attribute__((noinline)) int hidden(int value) { return value * 3 + data_variable; }

__attribute__((noinline)) int hot(int *values, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        if (__builtin_expect(values[i] < 0, 0)) {
            complain(values[i]);
            sum += hidden(i);
            complain(sum);
            exit(sum);
        }
        sum += hidden(values[i]);
    }
    return sum;
}

int __plain(void) { return hidden(data_variable); }
int plain(void) __attribute__((alias("__plain")));
int _plain(void) __attribute__((weak, alias("__plain")));

static int chosen_one(void) { return 1; }
static int (*choose(void))(void) { return chosen_one; }
int chosen(void) __attribute__((ifunc("choose")));

static void on_signal(int number) { data_variable = number; }

int main(int count, char **arguments)
{
    int values[64] __attribute__((aligned(64)));
    memset(values, 0, sizeof values);
    signal(SIGUSR1, on_signal);
    thread_variable = count;
    return hot(values, count) + chosen() + plain() + thread_variable;
}
"#;

/// The same for musl, which has no IFUNCs.
fn without_ifunc() -> String {
    C_SOURCE.replace(
        "int chosen(void) __attribute__((ifunc(\"choose\")));",
        "int chosen(void) { return choose()(); }",
    )
}

fn start(module: &Module, name: &str) -> ImageAddress {
    only(module, name).address
}

#[test]
fn names_at_one_address_are_one_function() {
    let Some(build) = Build::new("gcc", &["-O2"], "program.c", C_SOURCE) else {
        return;
    };
    let module = build.module();
    let plain = only(&module, "plain");
    assert_eq!(&*plain.name, "plain");
    assert_eq!(
        plain.aliases.iter().map(|alias| &**alias).collect::<Vec<_>>(),
        ["_plain", "__plain"]
    );
    assert!(plain.global);
    assert!(!only(&module, "hidden").global);
    assert_eq!(module.resolve(plain.address), Some(("plain", 0)));
    // Linkers' own functions have neither sizes nor FDEs.
    assert!(only(&module, "frame_dummy").size > 0);
    assert!(only(&module, "_init").size > 0);
    assert_eq!(
        named(&module, "data_variable"),
        Vec::<&nanoprobe_symbols::Function>::new()
    );
    let variable = module.symbol("data_variable").unwrap();
    assert!(
        matches!(
            variable,
            Symbol {
                kind: SymbolKind::Object,
                size: 4,
                ..
            }
        ),
        "{variable:?}"
    );
    assert_eq!(module.symbol("thread_variable").unwrap().kind, SymbolKind::ThreadLocal);
    assert!(module.linkage().thread_local.unwrap().memory_bytes >= 4);
}

#[test]
fn ifuncs_are_known_by_their_resolver() {
    for arguments in [
        &["-O2"][..],
        &["-O2", "-static"],
        &["-O2", "-static-pie"],
        &["-O2", "-no-pie"],
    ] {
        let Some(build) = Build::new("gcc", arguments, "program.c", C_SOURCE) else {
            return;
        };
        let module = build.module();
        let resolver = start(&module, "choose");
        let chosen = only(&module, "chosen");
        assert_eq!(chosen.kind, FunctionKind::Ifunc { resolver });
        let relocations = module.relocations();
        let fills = |target: &RelocationTarget<'_>| match target {
            RelocationTarget::Indirect { resolver: called } => *called == resolver,
            RelocationTarget::Symbol { name, .. } => name == "chosen",
        };
        let slot = relocations
            .iter()
            .find(|relocation| fills(&relocation.target))
            .unwrap()
            .slot;
        assert!(module.image_range().contains(slot), "{arguments:?}");
        assert_eq!(module.code_at(slot, 8), None, "slots are data");
    }
}

#[test]
fn cold_parts_belong_to_their_functions() {
    let Some(build) = Build::new("gcc", &["-O2"], "program.c", C_SOURCE) else {
        return;
    };
    let module = build.module();
    let hot = only(&module, "hot");
    assert_eq!(
        hot.fragments.iter().map(|part| &*part.name).collect::<Vec<_>>(),
        ["hot.cold"]
    );
    let cold = hot.fragments[0].range;
    assert!(!hot.extent().contains(cold.start) && !cold.is_empty());
    assert_eq!(module.resolve(cold.start), Some(("hot.cold", 0)));
    assert_eq!(module.cold_fragment_at(cold.start), Some(cold));
    assert_eq!(module.function_at(cold.start), Some(hot));
    assert_eq!(module.function_at(ImageAddress(hot.extent().end.0 - 1)), Some(hot));
    assert!(!module.is_cold_fragment(hot.address));
    assert!(named(&module, "hot.cold").is_empty());

    // Without symbols the frame that is already built at its start gives it away.
    build.run("strip", &["program"]).unwrap();
    let stripped = build.module();
    assert!(!stripped.has_full_symbols());
    assert_eq!(stripped.cold_fragment_at(cold.start), Some(cold));
    assert_eq!(stripped.cold_fragment_at(ImageAddress(cold.end.0 - 1)), Some(cold));
    for name in ["hot", "hidden", "main", "complain", "_start", "chosen_one"] {
        assert!(!stripped.is_cold_fragment(start(&module, name)), "{name}");
    }
    assert_eq!(stripped.extent_at(hot.address), Some(hot.extent()));
    let hidden = only(&module, "hidden");
    assert_eq!(stripped.extent_at(hidden.address), Some(hidden.extent()));
    assert_eq!(stripped.resolve(hidden.address), None);
}

#[test]
fn one_of_several_namesakes_owns_a_fragment() {
    let part = C_SOURCE
        .split("__attribute__((noinline)) int hot")
        .nth(1)
        .unwrap()
        .split("int __plain")
        .next()
        .unwrap();
    let unit = format!(
        "#include <stdlib.h>\nvoid complain(int) __attribute__((cold)); int hidden(int);\n\
         static __attribute__((noinline)) int hot{part}\nint CALLER(int *v, int c) {{ return hot(v, c) + 1; }}\n"
    );
    let main = "void complain(int v) {} int hidden(int v) { return v; } int one(int *, int); int two(int *, int);\n\
                int main(int c, char **v) { int z[4] = {c}; return one(z, c) + two(z, c); }";
    let Some(build) = Build::new("gcc", &["-O2", "-c"], "main.c", main) else {
        return;
    };
    std::fs::rename(build.path("program"), build.path("main.o")).unwrap();
    std::fs::write(build.path("unit.c"), unit).unwrap();
    build
        .run("gcc", &["-O2", "-c", "-DCALLER=one", "-o", "one.o", "unit.c"])
        .unwrap();
    build
        .run("gcc", &["-O2", "-c", "-DCALLER=two", "-o", "two.o", "unit.c"])
        .unwrap();
    build
        .run("gcc", &["-o", "program", "main.o", "one.o", "two.o"])
        .unwrap();
    let module = build.module();
    let hot = named(&module, "hot");
    assert_eq!(hot.len(), 2);
    for function in hot {
        assert_eq!(function.fragments.len(), 1, "{function:?}");
        let cold = function.fragments[0].range.start.0;
        // jcc rel32 (0F 8x) into the fragment.
        let code = module.code_at(function.address, function.size).unwrap();
        let jumps = code.windows(6).zip(function.address.0..).any(|(bytes, at)| {
            let displacement = i32::from_le_bytes([bytes[2], bytes[3], bytes[4], bytes[5]]);
            bytes[0] == 0x0f && bytes[1] & 0xf0 == 0x80 && at.wrapping_add_signed(i64::from(displacement) + 6) == cold
        });
        assert!(jumps, "{function:?}");
    }
}

#[test]
fn called_code_of_a_cold_name_is_a_function() {
    let source = r#"
        .globl outer
        .type outer, @function
        outer: call outer.cold.1
               ret
        .size outer, . - outer
        .type outer.cold.1, @function
        outer.cold.1: ret
        .size outer.cold.1, . - outer.cold.1
        .globl main
        .type main, @function
        main: call outer
              ret
        .size main, . - main
    "#;
    let Some(build) = Build::new("gcc", &[], "program.s", source) else {
        return;
    };
    let module = build.module();
    assert_eq!(only(&module, "outer.cold.1").size, 1);
    assert!(only(&module, "outer").fragments.is_empty());
}

#[test]
fn assembly_code_without_types_or_sizes() {
    let source = r#"
        .text
        .globl main, untyped, typed_unsized, second
        .p2align 4
        main: call untyped
              call typed_unsized
              xor %eax, %eax
        again: ret
        .p2align 4
        untyped: nop
                 ret
        .p2align 4
        .type typed_unsized, @function
        typed_unsized: nop
                 ret
        .type table, @object
        table:   .quad 0x9090909090909090, 1
        .size table, . - table
        .p2align 4
        .type sized, @function
        .type inner, @function
        sized:   nop
        inner:   nop
                 ret
        .size sized, . - sized
        .type second, @function
        second:  ret
        .size second, . - second
        .data
        .globl not_code
        .type not_code, @function
        not_code: .quad 0
    "#;
    let Some(build) = Build::new("gcc", &[], "program.s", source) else {
        return;
    };
    let module = build.module();
    let size = |name| only(&module, name).size;
    assert_eq!(size("main"), 16);
    assert_eq!(size("untyped"), 16);
    // Up to the data behind it, which has a symbol.
    assert_eq!(size("typed_unsized"), 2);
    assert_eq!((size("sized"), size("second")), (3, 1));
    for absent in ["inner", "again", "table", "not_code"] {
        assert_eq!(named(&module, absent).len(), 0, "{absent}");
    }
    let inside = ImageAddress(start(&module, "sized").0 + 1);
    assert_eq!(module.resolve(inside), Some(("sized", 1)));
    let behind = only(&module, "typed_unsized").extent().end;
    assert!(module.padding_after(behind).is_empty(), "data is not padding");
}

#[test]
fn cpp_names_are_demangled() {
    let source = r#"
        #include <vector>
        #include <string>
        namespace shapes {
            template <typename T> struct Box { T value; Box(T v); int area(int times) const; };
            template <typename T> Box<T>::Box(T v) : value(v) {}
            template <typename T> int Box<T>::area(int times) const { return times * int(value); }
            template struct Box<double>;
        }
        int main(int count, char **) { shapes::Box<double> box(count); return box.area(3); }
    "#;
    let Some(build) = Build::new("g++", &["-O0"], "program.cc", source) else {
        return;
    };
    let module = build.module();
    let area = only(&module, "_ZNK6shapes3BoxIdE4areaEi").demangled().unwrap();
    assert_eq!(&*area.full, "shapes::Box<double>::area(int) const");
    assert_eq!(
        &*area.short,
        "shapes::Box<double>::area const".trim_end_matches(" const")
    );
    // The complete and the base object constructor are the same code under two names.
    let constructor = only(&module, "_ZN6shapes3BoxIdEC1Ed");
    assert!(constructor.names().any(|name| name == "_ZN6shapes3BoxIdEC2Ed"));
    assert_eq!(only(&module, "main").demangled(), None);
}

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

    // One that has been changed since is not used.
    let debug = build.path("program.debug");
    let mut bytes = std::fs::read(&debug).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&debug, bytes).unwrap();
    assert!(named(&build.open("stripped"), "hidden").is_empty());
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
        // Where the handler returns to, and the byte before, which is where unwinders look.
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
    if std::process::Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped: no go");
        return;
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
