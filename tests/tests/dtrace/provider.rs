//! Static probes the DTrace way: software is built with the header of `-h` and the object of `-G`.
//! Its probes are found, with their arguments, and are enabled while they are traced.

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::{Finished, Running, run};
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::program;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost, nanoprobe};

/// A folder in which a program is built.
struct Built {
    folder: tempfile::TempDir,
}

impl Built {
    fn new() -> Built {
        let folder = tempfile::tempdir().expect("a folder");
        Built { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    #[track_caller]
    fn run(&self, command: &str, words: &[&str]) -> Finished {
        let mut command = Command::new(command);
        run(command.args(words).current_dir(self.folder.path()))
    }

    #[track_caller]
    fn nanoprobe(&self, words: &[&str]) {
        let finished = self.run(&nanoprobe().to_string_lossy(), words).success();
        assert_eq!(
            (finished.stdout.as_str(), finished.stderr.as_str()),
            ("", ""),
            "{words:?}"
        );
    }

    #[track_caller]
    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("writing a file");
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("reading a file")
    }
}

/// The path of one of our sources.
fn source(name: &str) -> String {
    let path = program::sources().join("provider").join(name);
    path.to_string_lossy().into_owned()
}

/// Builds `own` with a compiler and its flags, from two objects and that of `-G`.
#[track_caller]
fn own(compiler: &str, flags: &[&str]) -> Built {
    let built = Built::new();
    built.nanoprobe(&["-h", "-s", &source("own.d"), "-o", "own.h"]);
    for name in ["own", "part"] {
        let mut words = flags.to_vec();
        let (object, from) = (format!("{name}.o"), source(&format!("{name}.c")));
        words.extend(["-I.", "-Wall", "-Wextra", "-Werror", "-c", "-o", &object, &from]);
        built.run(compiler, &words).success();
    }
    built.nanoprobe(&[
        "-G",
        "-64",
        "-s",
        &source("own.d"),
        "-o",
        "provider.o",
        "own.o",
        "part.o",
    ]);
    built
        .run(compiler, &["-o", "own", "own.o", "part.o", "provider.o"])
        .success();
    built
}

/// Every argument of every probe, by its own size and sign, through registers, memory and constants.
#[track_caller]
fn assert_arguments(program: &Path) {
    let many = |name: &str, count: usize| {
        let arguments: Vec<String> = (0..count).map(|index| format!("arg{index}")).collect();
        let (format, arguments) = ("%d ".repeat(count), arguments.join(", "));
        format!("own$target:::{name} {{ printf(\"{name} {format}\\n\", {arguments}); }}")
    };
    let clauses = [
        "own$target:::none { printf(\"none %d\\n\", arg0); }".to_owned(),
        many("one", 1),
        many("two", 2),
        many("three", 3),
        "own$target:::four { printf(\"four %d %u %s %s\\n\", arg0, arg1, copyinstr(arg2), copyinstr(arg3)); }"
            .to_owned(),
        "own$target:::five { printf(\"five %d %d %d %d %d\\n\", arg0, *(int *)copyin(arg1, 4), arg2, arg3, arg4); }"
            .to_owned(),
        many("six", 6),
        many("seven", 7),
        many("eight", 8),
        many("nine", 9),
        many("ten", 10),
        "own$target:::query-start-here { printf(\"query %s\\n\", copyinstr(arg0)); }".to_owned(),
        "other__part$target:::done { printf(\"done %d\\n\", arg0); }".to_owned(),
    ];
    let mut expected = String::new();
    for i in 0..2_i64 {
        let letter = if i == 0 { 'a' } else { 'b' };
        expected += &format!(
            "none 0\none {} \ntwo {} {} \nthree {} {} {} \nfour {} {} constant {letter}rray\nfive {i} {} 21 7 4000000000\n",
            -1 - i,
            -100 - i,
            200 + i,
            -30_000 - i,
            60_000 + i,
            1 - i,
            -5_000_000_000 - i,
            18_000_000_000_000_000_000_u64 + i as u64,
            3 + i,
        );
        for (name, count) in [("six", 6), ("seven", 7), ("eight", 8), ("nine", 9)] {
            let rest: Vec<String> = (2..=count).map(|number: i64| number.to_string()).collect();
            expected += &format!("{name} {i} {} \n", rest.join(" "));
        }
        expected += &format!(
            "ten {i} {} {} {} {} {} {} {} {} {} \nquery {letter}rray\ndone {i}\none {} \n",
            i - 2,
            i + 3,
            i - 4,
            i + 5,
            i - 6,
            i + 7,
            i - 8,
            i + 9,
            i - 10,
            i + 1000,
        );
    }
    let tracer = clauses
        .iter()
        .fold(Tracer::new(Form::Default).argument("-q"), |tracer, clause| {
            tracer.clause(clause)
        });
    let mut target = Running::start(&mut Command::new(program));
    target.wait_for("ready");
    let tracing = tracer.trace(target.pid());
    target.write("2\n");
    target.wait_for("prepared");
    let traced = tracing.interrupt();
    assert_nothing_lost(&traced.finished.stderr);
    assert_eq!(traced.results.trim_end(), expected.trim_end());
}

/// A probe is enabled only while it is traced, and the program prepares no other probe's arguments.
#[track_caller]
fn assert_enabled_while_traced(program: &Path) {
    let mut target = Running::start(&mut Command::new(program));
    let says = |target: &mut Running, rounds: &str, expected: &str| {
        let before = target.stdout().lines().count();
        target.write(&format!("{rounds}\n"));
        target.wait_until("its answer", |target| target.stdout().lines().count() > before);
        assert_eq!(target.stdout().lines().last(), Some(expected));
    };
    target.wait_for("ready");
    says(&mut target, "3", "none 0 one 0 query 0 other 0 prepared 0");
    for traced in 1..=2 {
        let tracing = Tracer::new(Form::Default)
            .argument("-q")
            .clause("own$target:::query-start-here { @ = count(); }")
            .clause("other__part$target:::done { @done = sum(arg0); }")
            .trace(target.pid());
        says(
            &mut target,
            "100",
            &format!("none 0 one 0 query 1 other 1 prepared {}", traced * 100),
        );
        let traced = tracing.interrupt();
        assert_nothing_lost(&traced.finished.stderr);
        let counts: Vec<&str> = traced.results.split_whitespace().collect();
        assert_eq!(counts, ["100", "4950"]);
    }
    says(&mut target, "3", "none 0 one 0 query 0 other 0 prepared 200");
}

#[test]
fn a_program_in_c_has_its_probes_arguments_and_semaphores() {
    for flags in [&["-O2"][..], &["-O0", "-fPIC", "-std=c99", "-pedantic"]] {
        let built = own("cc", flags);
        assert_arguments(&built.path("own"));
        assert_enabled_while_traced(&built.path("own"));
    }
}

#[test]
fn a_program_in_c_plus_plus_has_them_too() {
    if need_command("probes of C++", "g++").is_none() {
        return;
    }
    for flags in [
        &["-x", "c++", "-O2", "-std=c++17"][..],
        &["-x", "c++", "-O0", "-std=gnu++98"],
        &["-x", "c++", "-O1", "-std=c++20", "-fPIC"],
    ] {
        let built = own("g++", flags);
        assert_arguments(&built.path("own"));
    }
    let built = own("g++", &["-x", "c++", "-O2"]);
    assert_enabled_while_traced(&built.path("own"));
}

/// As in its makefile: the preprocessor runs, the header has its own name, and macros are renamed.
#[test]
fn a_database_server_s_definitions_make_its_probes() {
    let built = Built::new();
    built.nanoprobe(&["-h", "-C", "-s", &source("postgres.d"), "-o", "probes.h.tmp"]);
    let header = built.read("probes.h.tmp").replace("POSTGRESQL_", "TRACE_POSTGRESQL_");
    built.write("probes.h", &header);
    built
        .run(
            "cc",
            &[
                "-O2",
                "-Wall",
                "-Werror",
                "-I.",
                "-c",
                "-o",
                "server.o",
                &source("postgres.c"),
            ],
        )
        .success();
    built.nanoprobe(&[
        "-C",
        "-G",
        "-xnolibs",
        "-s",
        &source("postgres.d"),
        "server.o",
        "-o",
        "probes.o",
    ]);
    built.run("cc", &["-o", "server", "server.o", "probes.o"]).success();
    let traced = Tracer::new(Form::Default)
        .argument("-q")
        .clause("postgresql$target:::query-start { @queries[copyinstr(arg0)] = count(); }")
        .clause("postgresql$target:::lwlock-acquire { @locks[copyinstr(arg0), arg1] = count(); }")
        .clause("postgresql$target:::buffer-read-done { @read[arg2, arg4, arg5, arg7] = count(); }")
        .clause("postgresql$target:::checkpoint-done { @sum = sum(arg0 + 10 * arg1 + 100 * arg2 + 1000 * arg3 + 10000 * arg4); }")
        .clause("END { printa(\"%s %@d\\n\", @queries); printa(\"%s %d %@d\\n\", @locks); printa(\"%d %d %d %d %@d\\n\", @read); printa(\"%@d\\n\", @sum); }")
        .argument("-xaggsortkey")
        .command(&built.path("server"), "")
        .run();
    assert_nothing_lost(&traced.finished.stderr);
    assert_eq!(
        traced.results.trim_end(),
        "SELECT 1; 4\nBufferMapping 1 4\n1663 16384 -1 1 1\n1663 16385 -1 0 1\n1663 16386 -1 1 1\n1663 16387 -1 0 1\n54321"
    );
    let listed = built.run(
        &nanoprobe().to_string_lossy(),
        &["-l", "-P", "postgresql*", "-c", "./server"],
    );
    for name in ["query-start", "transaction-commit", "buffer-read-start"] {
        assert!(
            listed.stdout.lines().any(|line| line.ends_with(&format!(" {name}"))),
            "{listed:?}"
        );
    }
}

#[test]
fn an_interpreter_s_definitions_make_its_probes() {
    let built = Built::new();
    // The server's configure script finds out in this way whether probes must be linked.
    built.write("conftest.d", "BEGIN{}");
    built
        .run(
            &nanoprobe().to_string_lossy(),
            &["-G", "-s", "conftest.d", "-o", "conftest.o"],
        )
        .success();
    built
        .run("cc", &["-shared", "-o", "conftest.so", "conftest.o"])
        .success();
    built.nanoprobe(&["-o", "pydtrace_probes.h", "-h", "-s", &source("python.d")]);
    let header = built.read("pydtrace_probes.h");
    // The first word of each line.
    let header: Vec<String> = header
        .lines()
        .map(|line| line.replacen("PYTHON_", "PyDTrace_", 1))
        .collect();
    built.write("pydtrace_probes.h", &(header.join("\n") + "\n"));
    built
        .run(
            "cc",
            &[
                "-O2",
                "-Wall",
                "-Werror",
                "-I.",
                "-c",
                "-o",
                "python.o",
                &source("python.c"),
            ],
        )
        .success();
    built.nanoprobe(&["-o", "pydtrace.o", "-G", "-s", &source("python.d"), "python.o"]);
    built.run("cc", &["-o", "python", "python.o", "pydtrace.o"]).success();
    let traced = Tracer::new(Form::Default)
        .argument("-q")
        .clause(
            "python*:::function-entry { printf(\"> %s %s %d\\n\", basename(copyinstr(arg0)), copyinstr(arg1), arg2); }",
        )
        .clause("python*:::gc-start { printf(\"gc %d\\n\", arg0); }")
        .clause("python*:::gc-done { @done[arg0] = count(); }")
        .clause("python*:::audit /arg1 == 0/ { @audit[copyinstr(arg0)] = count(); }")
        .clause("END { printa(\"%d %@d\\n\", @done); printa(\"%s %@d\\n\", @audit); }")
        .command(&built.path("python"), "")
        .run();
    assert_nothing_lost(&traced.finished.stderr);
    assert_eq!(
        traced.results.trim_end(),
        "> a.py outer 10\n> a.py inner 11\n> a.py inner 12\n> a.py inner 13\ngc 2\n-7 4\nexec 4"
    );
}

/// The product has the script's name, in the folder of the script; several scripts make one header.
#[test]
fn the_command_line_is_that_of_dtrace() {
    let built = Built::new();
    built.write("first.d", "provider first { probe one(); };");
    built.write("second.d", "provider second { probe two(int); }");
    built.nanoprobe(&["-h", "-s", "first.d"]);
    built.nanoprobe(&["-G", "-s", "second.d", "-fPIC"]);
    built.nanoprobe(&["-hs", "first.d", "-s", "second.d", "-o", "both.h"]);
    assert!(built.read("first.h").contains("#define FIRST_ONE() "));
    assert!(built.read("both.h").contains("#define SECOND_TWO(arg0) "));
    let symbols = built.run("nm", &["second.o"]).success().stdout;
    assert_eq!(symbols.trim_end(), "0000000000000000 D second_two_semaphore");
    for (words, status, says) in [
        (&["-h"][..], 2, "-h requires one or more scripts"),
        (&["-G"], 2, "-G requires one or more scripts"),
        (&["-h", "-G", "-s", "first.d"], 2, "cannot be used with"),
        (&["-h", "-s", "first.d", "-s", "second.d"], 2, "requires an output file"),
        (&["-h", "-s", "/dev/null"], 1, "requires an output file"),
        (&["-G", "-s", "nowhere.d"], 1, "failed to open nowhere.d"),
        (&["-G", "-x", "nosuch", "-s", "first.d"], 1, "failed to set -x nosuch"),
        (
            &["-h", "-s", "first.d", "-o", "/nowhere/at/all"],
            1,
            "failed to create header file",
        ),
    ] {
        let finished = built.run(&nanoprobe().to_string_lossy(), words);
        assert_eq!(finished.code(), status, "{words:?} {finished:?}");
        assert!(finished.stderr.contains(says), "{words:?} {finished:?}");
    }
    built.write("wrong.d", "provider wrong {\n\tprobe one(int;\n};\n");
    let finished = built.run(&nanoprobe().to_string_lossy(), &["-h", "-s", "wrong.d"]);
    assert_eq!(finished.code(), 1);
    assert!(finished.stderr.contains("[D_SYNTAX] line 2:"), "{finished:?}");
    assert!(!built.path("wrong.h").exists());
}
