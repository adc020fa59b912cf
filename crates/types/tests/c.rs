//! A C program with every kind of type that C has: with each version of DWARF, which lies in the program's file or in a
//! separate file. Also tests the ABI.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{compile, compile_text, info, members, signature, structure, typed_c};
use nanoprobe_lang::program::Type;
use nanoprobe_lang::target::{Argument, ArgumentPlace};
use nanoprobe_lang::types;
use nanoprobe_types::{DebugInfo, Kind, Problem, at_entry, at_return};

const REQUEST: &[&str] = &[
    "0 struct request * next",
    "8 int8_t * path",
    "16 enum color color",
    "20 uint32_t kind:0+3",
    "20 int level:3+7",
    "24 uint64_t wide:0+40",
    "28 enum color hue:8+11",
    "32 struct address server",
    "40 struct ",
    "48 union value value",
    "56 double ratio",
    "64 void * compare",
    "72 point_t [3] corners",
    "96 int [0] rest",
    "96 bytes",
];

/// Checks the facts that all builds of the program must give.
fn check(info: &DebugInfo) {
    assert_eq!(structure(info, "request"), REQUEST);
    assert_eq!(
        structure(info, "address"),
        ["0 uint8_t [4] octets", "4 uint16_t port", "6 bytes"]
    );
    assert_eq!(
        structure(info, "value"),
        ["0 int64_t number", "0 double real", "0 int8_t [8] text", "8 bytes"]
    );
    let point = info.type_named(Kind::Named, "point_t").unwrap();
    assert_eq!(members(&point), ["0 int x", "4 int16_t y", "8 bytes"]);
    let color = info.type_named(Kind::Enumeration, "color").unwrap();
    let Type::Foreign(color) = color else {
        panic!("{color:?}");
    };
    assert_eq!(color.enumerator(-2), Some("GREEN"));
    assert_eq!(color.enumerator(700), Some("BLUE"));
    assert_eq!(color.enumerator(0), None);
    assert_eq!(info.enumerator("RED"), Some(3));
    assert_eq!(info.enumerator("PURPLE"), None);
    let counter = info.variable("counter", None).unwrap();
    assert_eq!(counter.value_type, Type::I64);
    assert!(counter.address.is_some());
    assert!(matches!(
        info.type_named(Kind::Structure, "nobody"),
        Err(Problem::Unknown { .. })
    ));
    // A list: the structure points to itself.
    let Type::Structure(request) = info.type_named(Kind::Structure, "request").unwrap() else {
        panic!("no structure");
    };
    let mut here = request.clone();
    for _ in 0..100 {
        let Type::Pointer(Some(next)) = here.member("next").unwrap().member_type else {
            panic!("no pointer");
        };
        let Type::Structure(next) = *next else {
            panic!("no structure");
        };
        here = next;
    }
    assert_eq!(here, request);
    assert_eq!(request.member("second").unwrap().offset, 44);
}

/// `print()` shows C's types with the fewest words, and typedefs by their names.
#[test]
fn members_are_shown_by_the_types_of_their_source() {
    let program = compile("cc", &typed_c(), &["-D_GNU_SOURCE", "-g"]);
    let info = info(&program.path).unwrap();
    let Type::Structure(request) = info.type_named(Kind::Structure, "request").unwrap() else {
        panic!("no structure");
    };
    let shown = |name: &str| types::shown_name(&request.member(name).unwrap().shown.unwrap());
    for (member, wanted) in [
        ("next", "struct request *"),
        ("path", "const char *"),
        ("kind", "unsigned int"),
        ("wide", "unsigned long"),
        ("hue", "enum color"),
        ("bytes", "unsigned char [4]"),
        ("compare", "int (*)()"),
        ("corners", "point_t [3]"),
    ] {
        assert_eq!(shown(member), wanted, "{member}");
    }
}

#[test]
fn each_version_of_dwarf_gives_the_same_types() {
    for flags in [
        &["-g", "-gdwarf-5"][..],
        &["-g", "-gdwarf-4"],
        &["-g", "-gdwarf-3", "-gstrict-dwarf"],
        &["-g", "-gdwarf-5", "-gz=zlib", "-O2"],
        &["-g", "-gdwarf-4", "-fdebug-types-section"],
        &["-g", "-gdwarf-5", "-fdebug-types-section", "-O1"],
    ] {
        let program = compile("cc", &typed_c(), &[&["-D_GNU_SOURCE"], flags].concat());
        check(&info(&program.path).unwrap_or_else(|problem| panic!("{flags:?}: {problem}")));
    }
}

#[test]
fn a_separate_file_is_found_by_its_link() {
    let program = compile("cc", &typed_c(), &["-D_GNU_SOURCE", "-g", "-Wl,--build-id=none"]);
    let debug = program.folder.path().join("program.debug");
    let objcopy = || Command::new("objcopy");
    common::run(objcopy().arg("--only-keep-debug").arg(&program.path).arg(&debug));
    common::run(objcopy().arg("--strip-debug").arg(&program.path));
    assert!(matches!(info(&program.path), Err(Problem::None { .. })));
    let link = format!("--add-gnu-debuglink={}", debug.display());
    common::run(objcopy().arg(link).arg(&program.path));
    check(&info(&program.path).unwrap());
    // Another file with that name is rejected, because its CRC differs.
    let mut bytes = std::fs::read(&debug).unwrap();
    bytes.push(0);
    std::fs::write(&debug, bytes).unwrap();
    assert!(matches!(info(&program.path), Err(Problem::None { .. })));
}

#[test]
fn split_dwarf_is_refused_by_name() {
    let text = "struct s { int a; }; struct s s; int f(struct s *p) { return p->a; } int main(void) { return f(&s); }";
    let program = compile_text("cc", "c", text, &["-g", "-gsplit-dwarf"]);
    let info = info(&program.path).unwrap();
    let problem = signature(&program.path, &info, "f").unwrap_err();
    assert!(
        matches!(&problem, Problem::Split { file, .. } if file.ends_with(".dwo")),
        "{problem}"
    );
    assert!(problem.help().unwrap().contains("-gsplit-dwarf"));
    assert!(matches!(
        info.type_named(Kind::Structure, "s"),
        Err(Problem::Split { .. })
    ));
}

#[test]
fn without_debug_information_there_is_a_reason() {
    let program = compile("cc", &typed_c(), &["-D_GNU_SOURCE"]);
    let Err(problem) = info(&program.path) else {
        panic!("there is debug information");
    };
    assert_eq!(problem.to_string(), "program has no debug information");
    assert!(problem.help().unwrap().contains("-g"));
}

fn shown(arguments: &[Argument]) -> Vec<String> {
    let line = |argument: &Argument| {
        let of = types::name(&argument.value_type);
        let place = match &argument.place {
            ArgumentPlace::Words(word) => format!("word {word}"),
            ArgumentPlace::Behind(word) => format!("behind {word}"),
            ArgumentPlace::Stack(offset) => format!("stack {offset}"),
            ArgumentPlace::Unreadable(_) => "unreadable".to_owned(),
        };
        format!("{of} {}: {place}", argument.name)
    };
    arguments.iter().map(line).collect()
}

fn places(path: &Path, function: &str) -> (Vec<String>, Vec<String>) {
    let info = info(path).unwrap();
    let signature = signature(path, &info, function).unwrap();
    (shown(&at_entry(&signature)), shown(&at_return(&signature)))
}

#[test]
fn arguments_are_where_the_abi_has_them() {
    for optimise in ["-O0", "-O2"] {
        let program = compile("cc", &typed_c(), &["-D_GNU_SOURCE", "-g", optimise]);
        let (entry, exit) = places(&program.path, "serve");
        assert_eq!(
            entry,
            [
                "struct request * request: word 0",
                "int8_t * name: word 1",
                "int16_t count: word 2",
                "uint8_t flag: word 3"
            ]
        );
        assert_eq!(exit, ["uint64_t : word 0", "int64_t : word 1"]);
        let (entry, exit) = places(&program.path, "paint");
        assert_eq!(
            entry,
            [
                "enum color color: word 0",
                "double weight: unreadable",
                "int64_t after: word 1"
            ]
        );
        assert_eq!(exit[1], "enum color : word 1");
        let (entry, exit) = places(&program.path, "both");
        assert_eq!(entry, ["struct pair pair: word 0", "int8_t letter: word 2"]);
        assert_eq!(exit[1], "struct pair : word 1");
        let (entry, exit) = places(&program.path, "many");
        // The address of the result is the first of six words. The structure is in memory, and so are the
        // arguments without a register.
        assert_eq!(entry[..2], ["int one: word 1", "struct large large: stack 0"]);
        assert_eq!(
            entry[5..],
            ["int64_t d: word 5", "int64_t e: stack 48", "int16_t tail: stack 56"]
        );
        assert_eq!(exit[1], "struct large : behind 1");
        let (entry, exit) = places(&program.path, "follow");
        assert_eq!(
            entry,
            [
                "struct opaque * opaque: word 0",
                "point_t point: word 1",
                "uint64_t * out: word 2"
            ]
        );
        assert_eq!(exit[1], "struct request * : word 1");
    }
}

#[test]
fn arguments_of_unusual_types_are_where_the_abi_has_them() {
    let text = r#"
        struct mixed { double d; long l; };
        struct floats { float a, b, c; };
        struct __attribute__((packed)) packed { char c; long l; };
        struct three { char bytes[3]; };
        typedef int quad __attribute__((vector_size(16)));
        void f(struct mixed m, long a, struct floats f, struct packed p, long double ld, struct three t, __int128 w,
               _Complex double z, int last) {}
        long double g(void) { return 1; }
        struct floats h(void) { struct floats f = {1, 2, 3}; return f; }
        struct mixed i(long a) { struct mixed m = {1, a}; return m; }
        void v(int a, quad q, int b) {}
        int main(void) { return 0; }
    "#;
    let program = compile_text("cc", "c", text, &["-g"]);
    let path = &program.path;
    let (entry, _) = places(path, "f");
    assert_eq!(
        entry,
        [
            "struct mixed m: unreadable",
            "int64_t a: word 1",
            "struct floats f: unreadable",
            "struct packed p: stack 0",
            "long double ld: stack 16",
            "struct three t: word 2",
            "__int128 w: word 3",
            // A type that is passed in an uncertain way is refused, and so is everything after it.
            "complex double z: unreadable",
            "int last: unreadable"
        ]
    );
    assert_eq!(places(path, "g").1[1], "long double : unreadable");
    assert_eq!(places(path, "h").1[1], "struct floats : unreadable");
    assert_eq!(
        places(path, "i"),
        (
            vec!["int64_t a: word 0".to_owned()],
            vec!["uint64_t : word 0".to_owned(), "struct mixed : unreadable".to_owned()]
        )
    );
    let (entry, _) = places(path, "v");
    assert_eq!(entry[0], "int a: word 0");
    assert_eq!(entry[2], "int b: unreadable");
}

#[test]
fn a_bit_field_of_a_packed_structure_has_a_unit_inside_of_it() {
    let text = "struct __attribute__((packed)) tight { int low : 3; int next : 12; };
        struct tight tight; int main(void) { return tight.low; }";
    let program = compile_text("cc", "c", text, &["-g"]);
    let info = info(&program.path).unwrap();
    // The structure has two bytes, which are too few for an int.
    assert_eq!(
        structure(&info, "tight"),
        ["0 int8_t low:0+3", "0 int16_t next:3+12", "2 bytes"]
    );
}

/// Up to DWARF 4, bits count from the unit's most significant one. The number is below 0 if a packed field goes beyond.
#[test]
fn a_bit_field_that_lies_across_its_unit_s_end_is_the_same_in_each_version() {
    let text = "struct __attribute__((packed)) bits { unsigned a : 5; unsigned b : 30; long c : 41; _Bool d : 1; long e : 51; };
        struct bits bits; int main(void) { return bits.a; }";
    for version in ["-gdwarf-2", "-gdwarf-4", "-gdwarf-5"] {
        let program = compile_text("cc", "c", text, &["-g", version]);
        let info = info(&program.path).unwrap();
        let expected = [
            "0 uint32_t a:0+5",
            "0 uint64_t b:5+30",
            "4 int64_t c:3+41",
            "9 uint8_t d:4+1",
            "8 int64_t e:13+51",
            "16 bytes",
        ];
        assert_eq!(structure(&info, "bits"), expected, "{version}");
    }
}

#[test]
fn a_structure_that_one_unit_declares_is_the_one_that_another_defines() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let first = file(
        "a.c",
        "struct s; static int same = 1; int *p1 = &same; int f(struct s *s); int g(struct s *s) { return f(s); }",
    );
    let second = file(
        "b.c",
        "struct s { int a; int b; }; static long same = 2; long *p2 = &same; int f(struct s *s) { return s->b; } int main(void) { return 0; }",
    );
    let path = folder.path().join("program");
    let mut cc = Command::new("cc");
    common::run(cc.arg("-g").arg("-o").arg(&path).arg(first).arg(second));
    let info = info(&path).unwrap();
    let of = |function: &str| {
        let signature = signature(&path, &info, function).unwrap();
        signature.parameters.first().unwrap().value_type.clone()
    };
    let Type::Pointer(Some(declared)) = of("g") else {
        panic!("no pointer");
    };
    assert_eq!(members(&declared), ["0 int a", "4 int b", "8 bytes"]);
    assert_eq!(of("g"), of("f"));
    // Two variables of one name are distinguished by their addresses.
    let module = common::module(&path);
    let mut sizes = Vec::new();
    for pointer in ["p1", "p2"] {
        let signature = info.variable(pointer, None).unwrap();
        assert_eq!(signature.address, module.symbol(pointer).map(|symbol| symbol.address.0));
        let Type::Pointer(Some(to)) = signature.value_type else {
            panic!("no pointer");
        };
        sizes.push(types::size_of(&to).unwrap());
    }
    assert_eq!(sizes, [4, 8]);
}
