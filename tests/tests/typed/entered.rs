//! Arguments at the entry, where optimising compilers have them. D reads the same values that the program itself
//! prints, or refuses to read them.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::tracer::{Form, Tracer};

/// Functions of which LLVM sees all callers. It leaves out the text's pointer of `slices` and the first parameter of
/// `unused`. To `through` it passes the value in place of the reference.
const RUST: &str = r#"
use std::hint::black_box;
#[derive(Clone, Copy)] pub struct Pair { a: u32, b: u32 }
pub mod inner { pub struct Thing { pub value: i64 } impl Thing {
    #[inline(never)] pub fn put(&mut self, x: i64, y: i16) -> i64 { println!("put {x} {y}"); self.value += x; self.value } } }
#[inline(never)] fn plain(a: i8, b: u16, c: u64) -> u64 { println!("plain {a} {b} {c}"); c }
#[inline(never)] fn slices(s: &str, v: &[u32], last: i16) -> usize { println!("slices {} {} {}", v.len(), v[0], last); s.len() + v.len() }
#[inline(never)] fn say(name: &str, number: u32) { println!("{name} {number}"); }
#[inline(never)] fn unused(_a: u32, b: u32) -> u32 { say("unused", b); b }
#[derive(Clone)] pub struct Large { n: [u64; 8] }
#[inline(never)] fn large(l: Large, i: usize) -> u64 { println!("large {} {}", l.n[i], i); l.n[i] }
#[inline(never)] fn pair(p: Pair, x: u32) -> u32 { println!("pair {x}"); p.a + p.b + x }
#[inline(never)] fn through(p: &u32, x: u32) -> u32 { println!("through {} {}", *p, x); *p + x }
fn main() {
    for i in 0..3u32 {
        black_box(plain(black_box(-5), black_box(65535), black_box(u64::from(i) << 40)));
        black_box(slices(black_box("hello"), black_box(&[7 + i, 8, 9]), black_box(-3)));
        black_box(unused(black_box(1), black_box(20 + i)));
        black_box(large(black_box(Large { n: [u64::from(i) + 9; 8] }), black_box(5)));
        black_box(pair(black_box(Pair { a: 1, b: 2 }), black_box(i)));
        black_box(through(&black_box(40 + i), black_box(i)));
        let mut thing = inner::Thing { value: 1 };
        black_box(thing.put(black_box(i64::from(i) + 3), black_box(-2)));
    }
}
"#;

/// Bit-fields, pointers to members of both kinds (8 and 16 bytes), and a name with an ABI tag.
const CPP: &str = r#"
#include <cstdio>
#include <string>
#define PROBED __attribute__((noinline))
struct Point { int x, y; };
struct Flags { unsigned a : 3; int b : 5; unsigned long long c : 40; bool d : 1; signed char e : 4; unsigned : 0; unsigned g : 31; };
struct Mixed { char x; int y : 7; int z : 9; short w; unsigned long long big : 64; };
template <class T, int N> struct Ring { T item[N]; int at; T put(T t); };
template <class T, int N> PROBED T Ring<T, N>::put(T t) { printf("put %d %d\n", (int)t, at); item[at++ % N] = t; return item[0]; }
template struct Ring<short, 4>;
PROBED int flags(Flags *f, int n) { printf("flags %u %d %llu %d %d %u %d\n", f->a, f->b, (unsigned long long)f->c, f->d, f->e, f->g, n); return n; }
PROBED int mixed(const Mixed &m) { printf("mixed %d %d %d %d %llu\n", m.x, m.y, m.z, m.w, (unsigned long long)m.big); return m.y; }
PROBED int members(int Point::*m, int (Point::*f)(int), int n) { printf("members %d\n", n); return n; }
PROBED std::string named(int n) { printf("named %d\n", n); return std::string(n, 'x'); }
int main() {
    for (int i = 0; i < 3; i++) {
        Flags f = {5, -7, 0xabcdef1234ULL, true, -3, 0x7ffffff0}; flags(&f, i);
        Mixed m = {'a', -60, -200, -5, 0x8000000000000001ULL}; mixed(m);
        members(&Point::y, nullptr, i); named(i + 1);
        static Ring<short, 4> ring; ring.put(i - 30);
    }
}
"#;

/// The program; if this machine cannot make it, reports the reason and returns `None`.
fn compile(folder: &Path, compiler: &str, source: (&str, &str), flags: &[&str]) -> Option<PathBuf> {
    let (name, text) = source;
    std::fs::write(folder.join(name), text).expect("the source");
    let found = need_command("arguments at the entry", compiler)?;
    let program = folder.join(format!("made-by-{compiler}{}", flags.concat().replace('=', "-")));
    let mut command = Command::new(found);
    command.args(flags).arg("-g").arg("-o").arg(&program).arg(name);
    let compiled = run(command.current_dir(folder));
    if !compiled.status.success() {
        left_out(
            &format!("arguments at the entry by {compiler} {flags:?}"),
            &compiled.stderr,
        );
        return None;
    }
    Some(program)
}

/// Whether D and the program print the same for `values` at the entry; `None` if D refuses to read it.
fn same(program: &Path, function: &str, values: &[&str]) -> Option<bool> {
    let name = function.rsplit("::").next().expect("a name");
    let format: String = values.iter().map(|_| " %d").collect();
    let clause = format!(
        r#"pid$target:a.out:{function}:entry {{ printf("{name}{format}\n", {}); }}"#,
        values.join(", ")
    );
    let traced = Tracer::new(Form::Default)
        .argument("-q")
        .clause(&clause)
        .command(program, "")
        .run();
    if traced.finished.code() == 1 {
        let refused = &traced.finished.stderr;
        assert!(refused.contains("[D_ARGS_TYPE]"), "{clause}: {refused}");
        return None;
    }
    let traced = traced.success();
    let lines = |text: &str| -> Vec<String> {
        let of = |line: &&str| line.split(' ').next() == Some(name);
        text.lines().filter(of).map(str::to_owned).collect()
    };
    let (told, found) = (lines(&traced.finished.stdout), lines(&traced.results));
    assert_eq!(told.len(), 3, "{told:?}");
    if told != found {
        eprintln!("{clause}\n{found:?} is not {told:?}");
    }
    Some(told == found)
}

#[test]
fn arguments_that_rust_changes_are_read_in_place_or_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for flags in [
        &["-O"][..],
        &["-Copt-level=3", "-Ccodegen-units=1"],
        &["-Copt-level=1"],
        &["-Copt-level=0"],
    ] {
        let Some(program) = compile(folder.path(), "rustc", ("program.rs", RUST), flags) else {
            continue;
        };
        for (function, values, may_be_refused) in [
            ("*::plain", &["args[0]", "args[1]", "args[2]"][..], false),
            ("*::slices", &["args[1].length", "*args[1].data_ptr", "args[2]"], true),
            ("*::unused", &["args[1]"], true),
            ("*::large", &["args[0].n[args[1]]", "args[1]"], false),
            ("*::pair", &["args[1]"], true),
            ("*::through", &["*args[0]", "args[1]"], true),
            ("*::Thing::put", &["args[1]", "args[2]"], false),
        ] {
            let found = same(&program, function, values);
            assert!(found.unwrap_or(may_be_refused), "{flags:?} {function}: {found:?}");
        }
        // One argument is left out, and this argument moves to its place, as the debug information says.
        assert_eq!(same(&program, "*::unused", &["args[1]"]), Some(true), "{flags:?}");
    }
}

#[test]
fn fields_of_bits_and_pointers_to_members_of_cpp() {
    let folder = tempfile::tempdir().expect("a folder");
    for (compiler, flags) in [("g++", &["-O2"][..]), ("g++", &["-O0"]), ("clang++", &["-O2"])] {
        let Some(program) = compile(folder.path(), compiler, ("program.cpp", CPP), flags) else {
            continue;
        };
        for (function, values) in [
            (
                "flags",
                &[
                    "args[0]->a",
                    "args[0]->b",
                    "args[0]->c",
                    "args[0]->d",
                    "args[0]->e",
                    "args[0]->g",
                    "args[1]",
                ][..],
            ),
            (
                "mixed",
                &["args[0]->x", "args[0]->y", "args[0]->z", "args[0]->w", "args[0]->big"],
            ),
            ("members", &["args[2]"]),
            ("named", &["args[0]"]),
            ("Ring*::put", &["args[1]", "args[0]->at"]),
        ] {
            assert_eq!(
                same(&program, function, values),
                Some(true),
                "{compiler} {flags:?} {function}"
            );
        }
    }
}
