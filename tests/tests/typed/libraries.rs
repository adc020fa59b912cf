//! Types of the libraries of a command, which are not mapped when its program is compiled.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::command::run;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::tracer::{Tracer, nanoprobe};

const LIBRARY: &str = "struct shelf { int books; const char *label; };\n\
    enum kind { PAPER = 4, BOUND = 9 };\n\
    int shelf_count = 3;\n\
    __attribute__((noipa)) int shelf_add(struct shelf *shelf, enum kind kind) { return shelf->books += kind; }\n";
const PROGRAM: &str = "struct shelf { int books; const char *label; }; enum kind { OTHER };\n\
    int shelf_add(struct shelf *, enum kind);\n\
    int main(void) { struct shelf own = { 1, \"attic\" }; shelf_add(&own, 4); return shelf_add(&own, 9) == 14 ? 0 : 1; }\n";

fn compile(folder: &Path, output: &str, text: &str, flags: &[&str]) {
    let source = folder.join(format!("{output}.c"));
    std::fs::write(&source, text).expect("the source");
    run(Command::new("cc")
        .args(nanoprobe_tests::compiler::flags("cc"))
        .arg("-o")
        .arg(folder.join(output))
        .arg(&source)
        .args(flags)
        .current_dir(folder))
    .success();
}

/// A program without debug information, and its library with debug information. The program finds the library by its
/// run path.
fn build(folder: &Path) -> std::path::PathBuf {
    let library = folder.join("lib");
    std::fs::create_dir(&library).expect("a folder");
    compile(
        &library,
        "libshelf.so.2",
        LIBRARY,
        &["-O2", "-g", "-shared", "-fPIC", "-Wl,-soname,libshelf.so.2"],
    );
    compile(
        folder,
        "reader",
        PROGRAM,
        &["-O2", "lib/libshelf.so.2", "-Wl,-rpath,$ORIGIN/lib"],
    );
    folder.join("reader")
}

live_tests! {
    fn arguments_and_types_of_a_command_s_library_are_known(form) {
        let folder = tempfile::tempdir().expect("a folder");
        let program = build(folder.path());
        let traced = Tracer::new(form).argument("-q")
            .clause("pid$target:libshelf:shelf_add:entry { print(args[1]); printf(\" %s %d\\n\", stringof(args[0]->label), args[0]->books); }")
            .clause("pid$target:libshelf.so.2:shelf_add:return /args[1] > BOUND/ { printf(\"%d %d\\n\", args[1], sizeof (struct libshelf`shelf)); }")
            .command(&program, "").run().success();
        let lines: Vec<&str> = traced.results.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, ["enum kind PAPER", "attic 1", "enum kind BOUND", "attic 5", "14 16"]);
    }
}

/// A variable of the library that the loader copies into the program. The program's copy is used, whichever name is
/// given, and the library describes its type.
const COPIED: &str = "extern struct point { int x; short y; } origin;\n\
    int origin_x(void);\n\
    __attribute__((noipa)) int moved(int by) { origin.x += by; return origin_x(); }\n\
    int main(void) { moved(5); return moved(7) == 13 ? 0 : 1; }\n";
const COPIED_FROM: &str = "struct point { int x; short y; } origin = { 1, -2 };\n\
    __attribute__((noipa)) int origin_x(void) { return origin.x; }\n";

live_tests! {
    fn a_variable_that_was_copied_is_read_where_it_lives(form) {
        let folder = tempfile::tempdir().expect("a folder");
        compile(folder.path(), "liborigin.so", COPIED_FROM, &["-O2", "-g", "-shared", "-fPIC", "-Wl,-soname,liborigin.so"]);
        compile(folder.path(), "mover", COPIED, &["-O2", "-no-pie", "-fno-pie", "./liborigin.so", "-Wl,-rpath,$ORIGIN"]);
        let traced = Tracer::new(form).argument("-q")
            .clause("pid$target:a.out:moved:return { printf(\"%d %d\\n\", a.out`origin.x, `origin.y); }")
            .command(&folder.path().join("mover"), "").run().success();
        let lines: Vec<&str> = traced.results.lines().filter(|line| !line.is_empty()).collect();
        assert_eq!(lines, ["6 -2", "13 -2"]);
    }
}

#[test]
fn a_variable_of_a_command_s_library_has_no_address_yet() {
    let folder = tempfile::tempdir().expect("a folder");
    let finished = run(Command::new(nanoprobe())
        .args(["-n", "BEGIN { trace(libshelf`shelf_count); exit(0); }", "-c"])
        .arg(build(folder.path())));
    assert_ne!(finished.status.code(), Some(0));
    assert!(
        finished.stderr.contains("[D_IDENT_UNDEF]") && finished.stderr.contains("-p"),
        "{}",
        finished.stderr
    );
}
