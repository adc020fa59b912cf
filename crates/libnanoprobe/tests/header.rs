//! `nanoprobe.h` agrees with the library: every structure, constant, prototype and exported symbol is compared with the
//! code. Also tests the ways to link the library: the shared library by its soname, and the static library.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::collections::BTreeSet;
use std::fmt::Write;
use std::mem::offset_of;
use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

use common::{Built, text};
use nanoprobe::api::{Info, np_tactic_name, np_version};
use nanoprobe::c::*;
use nanoprobe::engine::Kind;
use nanoprobe::error::Error;
use nanoprobe::hit::PROBES_MAX;
use nanoprobe_patch::{Refusal, TargetAddress};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn header() -> String {
    std::fs::read_to_string(root().join("include/nanoprobe.h")).unwrap()
}

/// `_Static_assert`s, and the names that they check.
#[derive(Default)]
struct Asserted {
    code: String,
    names: BTreeSet<String>,
}

impl Asserted {
    fn value(&mut self, name: &str, value: i64) {
        writeln!(self.code, "_Static_assert({name} == {value}, \"{name}\");").unwrap();
        self.names.insert(name.to_owned());
    }
}

macro_rules! structure {
    ($asserted:ident, $name:literal, $type:ty, [$($field:ident $(as $c:literal)?),* $(,)?]) => {
        let mut end = 0;
        $(
            let c = [stringify!($field) $(, $c)?].last().copied().unwrap_or_default();
            writeln!($asserted.code, "_Static_assert(offsetof({}, {c}) == {}, \"{c}\");", $name, offset_of!($type, $field)).unwrap();
            // No field of the header is left out: each field begins where the one before it ends, apart from
            // alignment.
            writeln!(
                $asserted.code,
                "_Static_assert({} + _Alignof(__typeof__((({} *)0)->{c})) > offsetof({}, {c}), \"in front of {c}\");",
                end, $name, $name
            ).unwrap();
            end = offset_of!($type, $field) + bytes_of(|it: &$type| &raw const it.$field);
        )*
        writeln!($asserted.code, "_Static_assert(sizeof({}) == {}, \"size\");", $name, size_of::<$type>()).unwrap();
        assert!(size_of::<$type>() - end < 8, "the end of {}", $name);
    };
}

fn bytes_of<T, F>(_: impl Fn(&T) -> *const F) -> usize {
    size_of::<F>()
}

/// Every error's code, by the header's name for it.
fn errors() -> Vec<(&'static str, Error)> {
    let at = TargetAddress(0x1000);
    let system = || std::io::Error::from_raw_os_error(libc::EPERM);
    let blocking = nanoprobe::self_process::Blocking {
        tid: 1,
        name: String::new(),
        signals: 0,
        sleeps: true,
    };
    vec![
        ("NP_ERROR_ARGUMENT", Error::Argument("")),
        ("NP_ERROR_SYMBOL", Error::Symbol(String::new())),
        ("NP_ERROR_NOT_CODE", Error::NotCode(at)),
        (
            "NP_ERROR_BOUNDARY",
            Error::Boundary {
                at,
                before: at,
                after: at,
            },
        ),
        ("NP_ERROR_FORBIDDEN", Error::Forbidden(at)),
        ("NP_ERROR_REGISTERED", Error::Registered),
        ("NP_ERROR_NOT_REGISTERED", Error::NotRegistered),
        ("NP_ERROR_UNLOADED", Error::Unloaded),
        ("NP_ERROR_TACTIC", Error::Tactic(at)),
        ("NP_ERROR_BREAKPOINT", Error::Refused(Refusal::Breakpoint { site: at })),
        (
            "NP_ERROR_UNMOVABLE",
            Error::Refused(Refusal::Unmovable {
                address: at,
                reason: "",
            }),
        ),
        ("NP_ERROR_EXITS", Error::Exits(at)),
        ("NP_ERROR_LIMIT", Error::Limit("")),
        (
            "NP_ERROR_SYSTEM",
            Error::System {
                call: "",
                error: system(),
            },
        ),
        ("NP_ERROR_IN_HANDLER", Error::InHandler),
        ("NP_ERROR_NO_WATCHPOINT", Error::NoWatchpoint(1)),
        ("NP_ERROR_UNSUPPORTED", Error::Unsupported("")),
        ("NP_ERROR_BUSY", Error::Busy(at)),
        (
            "NP_ERROR_RETURN_ADDRESS",
            Error::ReturnAddress {
                at,
                because: nanoprobe_text::ReturnRefusal::ShadowStack,
            },
        ),
        ("NP_ERROR_PERMISSION", Error::Permission { error: system() }),
        ("NP_ERROR_BLOCKED", Error::Blocked(blocking)),
        (
            "NP_ERROR_AMBIGUOUS",
            Error::Ambiguous {
                name: String::new(),
                count: 2,
                module: String::new(),
                first: at,
            },
        ),
    ]
}

fn constants(asserted: &mut Asserted) {
    asserted.value("NP_OK", 0);
    for (name, error) in errors() {
        asserted.value(name, i64::from(error.code()));
    }
    let flags = [
        ("NP_PROBE_DISABLED", PROBE_DISABLED),
        ("NP_PROBE_NO_SIMD", PROBE_NO_SIMD),
        ("NP_PROBE_TRAP", PROBE_TRAP),
        ("NP_PROBE_JUMP_ONLY", PROBE_JUMP_ONLY),
    ];
    flags
        .iter()
        .for_each(|(name, flag)| asserted.value(name, i64::from(*flag)));
    for (value, name) in ["NONE", "JUMP", "RUN", "PUN", "EVICT", "TRAP"].into_iter().enumerate() {
        asserted.value(&format!("NP_TACTIC_{name}"), value as i64);
        // SAFETY: a string that is never freed.
        let told = unsafe { std::ffi::CStr::from_ptr(np_tactic_name(value as i32)) };
        assert_eq!(told.to_str().unwrap(), name.to_lowercase());
    }
    let forms = [
        ("NP_RETPROBE_AUTO", RETPROBE_AUTO),
        ("NP_RETPROBE_EXITS", RETPROBE_EXITS),
        ("NP_RETPROBE_ADDRESS", RETPROBE_ADDRESS),
    ];
    forms
        .iter()
        .for_each(|(name, form)| asserted.value(name, i64::from(*form)));
    let kinds = [
        ("NP_KIND_PROBE", Kind::Probe),
        ("NP_KIND_JPROBE", Kind::Jumper),
        ("NP_KIND_RETPROBE", Kind::Retprobe),
        ("NP_KIND_HOOK", Kind::Hook),
    ];
    kinds.iter().for_each(|(name, kind)| asserted.value(name, *kind as i64));
    asserted.value("NP_KIND_WATCHPOINT", i64::from(b'w'));
    // The kernel's HW_BREAKPOINT_*.
    asserted.value("NP_WATCH_WRITE", 2);
    asserted.value("NP_WATCH_READ_WRITE", 3);
    asserted.value("NP_WATCH_EXECUTE", i64::from(nanoprobe::self_process::EXECUTE));
    let limits = [
        ("NP_PROBES_MAX", PROBES_MAX as i64),
        ("NP_RETPROBE_DATA_MAX", RETPROBE_DATA_MAX as i64),
        ("NP_RETPROBE_MAXACTIVE", RETPROBE_MAXACTIVE as i64),
        ("NP_RETPROBE_MAXACTIVE_MAX", RETPROBE_MAXACTIVE_MAX as i64),
        ("NP_VERSION_MAJOR", i64::from(np_version() >> 16)),
        ("NP_VERSION_MINOR", i64::from(np_version() & 0xffff)),
    ];
    limits.iter().for_each(|(name, limit)| asserted.value(name, *limit));
}

/// The names in the header that stand for values: enumerators, and macros that are numbers.
fn values_of(header: &str) -> BTreeSet<String> {
    let name = |text: &str| -> String {
        let is_part = |letter: &char| letter.is_ascii_uppercase() || *letter == '_' || letter.is_ascii_digit();
        text.chars().take_while(is_part).collect()
    };
    let mut names = BTreeSet::new();
    for line in header.lines() {
        let is_number = |rest: &&str| rest.split(' ').nth(1).is_some_and(|value| value.parse::<u64>().is_ok());
        if let Some(rest) = line.strip_prefix("#define ").filter(is_number) {
            names.insert(name(rest));
        }
        let code = line.split("/*").next().unwrap();
        for (at, _) in code
            .match_indices("NP_")
            .filter(|_| !line.starts_with('#') && !line.starts_with(" *"))
        {
            let found = name(&code[at..]);
            if code[at + found.len()..].starts_with(" = ") {
                names.insert(found);
            }
        }
    }
    names
}

#[test]
fn structures_and_constants_are_those_of_the_code() {
    let mut asserted = Asserted::default();
    writeln!(asserted.code, "#include <nanoprobe.h>").unwrap();
    structure!(
        asserted,
        "struct np_regs",
        Registers,
        [
            r15, r14, r13, r12, rbp, rbx, r11, r10, r9, r8, rax, rcx, rdx, rsi, rdi, rip, rflags, rsp,
        ]
    );
    structure!(
        asserted,
        "struct np_probe",
        Probe,
        [
            size,
            addr,
            symbol,
            offset,
            pre_handler,
            post_handler,
            fault_handler,
            flags,
            user,
            reserved,
        ]
    );
    structure!(asserted, "struct np_jprobe", JumperProbe, [probe, entry]);
    structure!(
        asserted,
        "struct np_retprobe_instance",
        ReturnInstance,
        [retprobe, return_address, frame, data]
    );
    structure!(
        asserted,
        "struct np_retprobe",
        ReturnProbe,
        [probe, handler, entry_handler, data_size, maxactive, form,]
    );
    structure!(asserted, "struct np_watchpoint", Watchpoint, [
        size, addr, length, kind as "type", flags, handler, user, reserved,
    ]);
    structure!(
        asserted,
        "struct np_info",
        Info,
        [size, addr, kind, tactic, enabled, hits, nmissed, module, symbol, offset,]
    );
    constants(&mut asserted);
    // This name is used by the C code of the hit path, which includes the header itself.
    asserted.names.insert("NP_JPROBE_STACK".to_owned());
    asserted.names.insert("NP_HOOK_STACK".to_owned());
    assert_eq!(
        asserted.names,
        values_of(&header()),
        "what is asserted, and what there is"
    );
    let built = Built::new();
    let file = built.folder.path().join("asserted.c");
    std::fs::write(&file, asserted.code).unwrap();
    built.compile_with("cc", file.to_str().unwrap(), "asserted.o", &["-c"]);
}

/// A prototype without the names of arguments, and with each type spelled in only one way.
fn plain(text: &str) -> String {
    let words = text
        .replace('*', " * ")
        .replace("enum np_tactic", "int")
        .replace("enum np_retprobe_form", "int");
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// `name: result(arguments)` of every function that the header declares.
fn declared() -> BTreeSet<String> {
    let header = header();
    let mut functions = BTreeSet::new();
    for (at, _) in header.match_indices("\nNP_API ") {
        let declaration = header[at + 8..]
            .split(';')
            .next()
            .unwrap()
            .replace(" __attribute__((noreturn))", "");
        let (head, arguments) = declaration.split_once('(').unwrap();
        let arguments = arguments.strip_suffix(')').unwrap();
        let name = head.rsplit([' ', '*']).next().unwrap();
        let result = plain(head.strip_suffix(name).unwrap());
        let mut types = Vec::new();
        // A pointer to a function is the one type that has commas and names in it.
        let rest = match arguments.split_once("(*") {
            Some((front, function)) => {
                let (_, behind) = function.split_once(')').unwrap();
                let (inner, rest) = behind[1..].split_once(')').unwrap();
                let named = front.rsplit_once(',').map_or("", |(before, _)| before);
                types.extend(named.split(',').filter(|one| !one.is_empty()).map(without_name));
                let inner = inner.split(',').map(without_name).collect::<Vec<_>>().join(", ");
                let result = plain(front.rsplit(',').next().unwrap());
                types.push(format!("{result} (*)({inner})"));
                rest
            }
            None => arguments,
        };
        let rest = rest
            .split(',')
            .map(str::trim)
            .filter(|one| !one.is_empty() && *one != "void");
        types.extend(rest.map(without_name));
        functions.insert(format!("{name}: {result}({})", types.join(", ")));
    }
    functions
}

fn without_name(argument: &str) -> String {
    let argument = argument.trim();
    let name = argument.rsplit([' ', '*']).next().unwrap();
    plain(argument.strip_suffix(name).unwrap())
}

/// `name: result(arguments)` of every function that the code exports, with types in C.
fn exported() -> BTreeSet<String> {
    let mut functions = BTreeSet::new();
    let folder = std::fs::read_dir(root().join("src/api")).unwrap();
    let mut files: Vec<_> = folder.map(|entry| entry.unwrap().path()).collect();
    files.push(root().join("src/error.rs"));
    for file in files {
        let source = std::fs::read_to_string(file).unwrap();
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let signature = part.split('{').next().unwrap();
            let (_, signature) = signature.split_once("extern \"C\" fn ").unwrap();
            let (name, rest) = signature.split_once('(').unwrap();
            let (arguments, result) = rest.rsplit_once(')').unwrap();
            let result = result.trim().strip_prefix("-> ").map_or("void".to_owned(), c_type);
            let types = arguments
                .split(',')
                .filter_map(|one| Some(c_type(one.split_once(':')?.1)));
            functions.insert(format!("{name}: {result}({})", types.collect::<Vec<_>>().join(", ")));
        }
    }
    functions
}

fn c_type(rust: &str) -> String {
    let rust = rust.trim();
    if let Some(to) = rust.strip_prefix("*const *mut ") {
        return format!("{} * const *", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*mut ") {
        return format!("{} *", c_type(to));
    }
    if let Some(to) = rust.strip_prefix("*const ") {
        return format!("const {} *", c_type(to));
    }
    let known = match rust {
        "Probe" => "struct np_probe",
        "JumperProbe" => "struct np_jprobe",
        "ReturnProbe" => "struct np_retprobe",
        "Watchpoint" => "struct np_watchpoint",
        "Option<Done>" => "void (*)(struct np_probe *)",
        "Visit" => "int (*)(const struct np_info *, void *)",
        "c_int" => "int",
        "c_char" => "char",
        "c_void" | "!" => "void",
        "usize" => "size_t",
        "u32" => "uint32_t",
        "u64" => "uint64_t",
        other => panic!("{other}"),
    };
    known.to_owned()
}

#[test]
fn prototypes_are_those_of_the_code() {
    assert_eq!(declared(), exported());
    assert!(declared().len() > 30);
    assert!(declared().contains("np_hook: int(void *, void *, void * *)"));
}

fn shared_library(built: &Built) -> std::path::PathBuf {
    std::fs::canonicalize(built.folder.path().join("libnanoprobe.so")).unwrap()
}

#[test]
fn the_shared_library_exports_the_headers_functions_and_nothing_else() {
    let built = Built::new();
    let symbols = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(shared_library(&built))
        .output_in_time()
        .unwrap();
    let there: BTreeSet<String> = text(&symbols)
        .lines()
        .filter_map(|line| Some(line.split(' ').nth(2)?.to_owned()))
        .collect();
    let declared: BTreeSet<String> = declared()
        .iter()
        .map(|one| one.split(':').next().unwrap().to_owned())
        .collect();
    assert_eq!(there, declared);
    let dynamic = Command::new("readelf")
        .arg("-d")
        .arg(shared_library(&built))
        .output_in_time()
        .unwrap();
    assert!(text(&dynamic).contains("Library soname: [libnanoprobe.so.0]"));
}

const FIRST: &str = "2 good NULL placed\ngood -7\n";

#[test]
fn the_static_library_is_linked_as_well() {
    let built = Built::new();
    let library = shared_library(&built).with_file_name("libnanoprobe.a");
    let program = built.folder.path().join("static");
    let output = Command::new("cc")
        .args(["-O2", "-o"])
        .arg(&program)
        .arg(root().join("tests/c/first.c"))
        .arg("-I")
        .arg(root().join("include"))
        .arg(library)
        .args(["-lpthread", "-ldl", "-lm", "-lgcc_s"])
        .output_in_time()
        .unwrap();
    text(&output);
    let needed = Command::new("readelf")
        .arg("-d")
        .arg(&program)
        .output_in_time()
        .unwrap();
    assert!(!text(&needed).contains("libnanoprobe"));
    assert_eq!(text(&Command::new(&program).output_in_time().unwrap()), FIRST);
}

/// There is no header older than 0.1. Structures of newer headers are larger.
#[test]
fn structures_of_other_versions_are_told_by_their_size() {
    let built = Built::new();
    let program = built.compile("cc", "versions.c");
    assert_eq!(
        built.run(&program),
        "smaller: -1 -1 -1\nlarger: 0 0 0\nlarger and set: -1 -1 -1\nno size: -1 -1 -1\n"
    );
}
