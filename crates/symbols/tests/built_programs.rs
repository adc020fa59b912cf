//! The functions and names of test programs that are compiled in all usual ways.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Build, C_SOURCE, named, only};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Module, RelocationTarget, Symbol, SymbolKind};

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
    // Functions from the linker have neither sizes nor FDEs.
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

    // The stripped file has no symbols. A frame that is already built at the start of the code shows that the code is a
    // fragment.
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
    // The function is named after its address.
    let by_address = hidden.address.to_string();
    assert_eq!(stripped.resolve(hidden.address), Some((&*by_address, 0)));
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
        label:   ret
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
    // The function extends up to the data after it, which has a symbol.
    assert_eq!(size("typed_unsized"), 2);
    assert_eq!((size("sized"), size("second")), (3, 1));
    for absent in ["inner", "again", "table", "not_code"] {
        assert_eq!(named(&module, absent).len(), 0, "{absent}");
    }
    let inside = ImageAddress(start(&module, "sized").0 + 1);
    assert_eq!(module.resolve(inside), Some(("sized", 1)));
    let label = ImageAddress(start(&module, "second").0 + 1);
    assert_eq!(
        module.resolve(label),
        None,
        "the code of a local label is not the function's before it"
    );
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
    // The complete and the base object constructor are the same code with two names.
    let constructor = only(&module, "_ZN6shapes3BoxIdEC1Ed");
    assert!(constructor.names().any(|name| name == "_ZN6shapes3BoxIdEC2Ed"));
    assert_eq!(only(&module, "main").demangled(), None);
}

/// Hand-written assembly: labels at a function's start, global and first in the alphabet.
#[test]
fn a_label_without_a_size_does_not_name_a_function_that_has_one() {
    let source = r#"
        __asm__(".globl alabel\n.type alabel, @notype\nalabel:\n"
                ".globl aunsized\n.type aunsized, @function\naunsized:\n"
                ".type zfun, @function\nzfun: nop\nret\n.size zfun, . - zfun\n");
        int main(void) { return 0; }
    "#;
    let Some(build) = Build::new("gcc", &["-O1"], "program.c", source) else {
        return;
    };
    let module = build.module();
    let function = only(&module, "zfun");
    assert_eq!(&*function.name, "zfun");
    assert_eq!(function.size, 2);
    assert!(function.global, "two of its names are");
    assert_eq!(function.names().collect::<Vec<_>>(), ["zfun", "alabel", "aunsized"]);
    assert_eq!(module.resolve(function.address), Some(("zfun", 0)));
}

/// Three sequences: a section describes one, that section's array points to another, and only its signature shows the
/// last.
const SEQUENCES: &str = r#"
__asm__(".macro sequence name section\n"
        "	.text\n"
        "\\name:\n"
        "	movq %rax, %fs:8\n"
        "1:	incq (%rdi)\n"
        "2:	ret\n"
        "	.byte 0x0f, 0xb9, 0x3d\n"
        "	.long 0x53053053\n"
        "\\name\\()_abort:\n"
        "	jmp \\name\n"
        "	.pushsection \\section, \"aw\"\n"
        "	.balign 32\n"
        "5:	.long 0, 0\n"
        "	.quad 1b, 2b - 1b, \\name\\()_abort\n"
        "	.popsection\n"
        ".endm\n"
        "sequence in_section __rseq_cs\n"
        "sequence in_array .data.descriptors\n"
        "	.pushsection __rseq_cs_ptr_array, \"aw\"\n"
        "	.quad 5b\n"
        "	.popsection\n"
        "sequence by_signature .data.others\n");
int main(void) { return 0; }
"#;

#[test]
fn restartable_sequences_are_found_in_every_kind_of_image() {
    let kinds: [&[&str]; 5] = [
        &["-no-pie"],
        &["-pie", "-fPIE"],
        &["-shared", "-fPIC"],
        &["-pie", "-fPIE", "-Wl,-z,pack-relative-relocs"],
        &["-static", "-s"],
    ];
    let linker = common::output_of("ld", &["--help"], std::path::Path::new("/")).unwrap_or_default();
    let packs = linker.0.contains("pack-relative-relocs");
    for kind in kinds.into_iter().filter(|kind| packs || kind.len() < 3) {
        let Some(build) = Build::new("gcc", kind, "program.c", SEQUENCES) else {
            return;
        };
        let module = build.module();
        let all: Vec<_> = module
            .executable_ranges()
            .flat_map(|range| module.restartable_in(range))
            .collect();
        assert_eq!(all.len(), 3, "{kind:?}: {all:?}");
        for sequence in all {
            assert_eq!(sequence.end.0 - sequence.start.0, 3);
            let signature = module.code_at(ImageAddress(sequence.abort.0 - 4), 4).unwrap();
            assert_eq!(signature, 0x5305_3053_u32.to_le_bytes());
            // Each sequence is found by an address in it, by the byte before it, and by its signature.
            for address in [sequence.start.0, sequence.abort.0 - 1] {
                let near = nanoprobe_symbols::AddressRange::new(address, address + 1);
                assert!(module.restartable_in(near).contains(&sequence), "{kind:?}");
            }
        }
    }
}
