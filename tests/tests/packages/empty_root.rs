//! The command in a root that has nothing else: no C library, no shell, as in a container from scratch.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::{left_out, need_command};

use crate::{dist, file, run, unshared};

/// A folder with the command and a static program, and namespaces in which it is a root.
struct Root {
    folder: tempfile::TempDir,
}

impl Root {
    /// Copies both, or says why the test is left out.
    fn new(what: &str, program: &str) -> Option<Root> {
        Root::compiled(what, program, Path::new("cc"), &["-static"])
    }

    /// The same, with a program that a compiler makes.
    fn compiled(what: &str, program: &str, compiler: &Path, flags: &[&str]) -> Option<Root> {
        let dist = dist(what)?;
        need_command(what, "unshare")?;
        let root = Root {
            folder: tempfile::tempdir().unwrap(),
        };
        let possible = root.unshared("true").status_in_time().unwrap().success();
        if !possible {
            left_out(what, "namespaces of users, mounts and processes cannot be made here");
            return None;
        }
        // Another process makes the copy, so no thread of ours has a file open for writing that is then executed.
        let command = file(&dist, "nanoprobe-", "-x86_64");
        run(Command::new("cp").arg(command).arg(root.path().join("nanoprobe")));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/packages")
            .join(program);
        let mut compile = Command::new(compiler);
        compile
            .arg("-O2")
            .args(flags)
            .arg("-o")
            .arg(root.path().join("program"));
        run(compile.arg(source));
        for folder in ["proc", "tmp"] {
            std::fs::create_dir(root.path().join(folder)).unwrap();
        }
        Some(root)
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A script of the shell outside of the root, with /proc mounted in the root.
    fn unshared(&self, script: &str) -> Command {
        unshared(self.path(), &["--map-root-user"], script)
    }
}

#[test]
fn every_call_of_a_static_program_is_counted_in_an_empty_root() {
    let Some(root) = Root::new("a trace in an empty root", "called.c") else {
        return;
    };
    let trace = "chroot . /nanoprobe -q -n 'pid$target:a.out:called:entry { @ = count(); }' -c /program";
    let printed = run(&mut root.unshared(trace));
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(words, ["14999850000", "100000"]);
    let printed = run(&mut root.unshared("chroot . /nanoprobe tool funccount -c /program 'a.out:called'"));
    assert!(printed.contains("100000  program`called"), "{printed}");
    let printed = run(&mut root.unshared("chroot . /nanoprobe tools"));
    assert!(printed.contains("funclatency - "), "{printed}");
    let printed = run(&mut root.unshared("chroot . /nanoprobe manual /tmp"));
    assert!(printed.contains("pages in /tmp"), "{printed}");
    // The command needs no list of users, no locale, and no module that glibc would load at run time.
    let printed = run(
        &mut root.unshared("chroot . /nanoprobe -q -n 'BEGIN { printf(\"%Y %d\", walltimestamp, uid); exit(0); }'")
    );
    assert!(printed.trim_end().ends_with(" 0"), "{printed}");
}

const MUSL_LOADER: &str = "lib/ld-musl-x86_64.so.1";

/// Alpine's C library is musl. Its loader and library are one file.
#[test]
fn every_call_of_a_program_of_musl_is_counted_in_a_root_of_musl() {
    let what = "a trace in a root of musl";
    let Some(compiler) = need_command(what, "musl-gcc") else {
        return;
    };
    let Some(root) = Root::compiled(what, "called.c", &compiler, &[]) else {
        return;
    };
    let Ok(loader) = std::fs::canonicalize(Path::new("/").join(MUSL_LOADER)) else {
        return left_out(what, "there is no /lib/ld-musl-x86_64.so.1");
    };
    std::fs::create_dir(root.path().join("lib")).unwrap();
    run(Command::new("cp").arg(loader).arg(root.path().join(MUSL_LOADER)));
    let trace = "chroot . /nanoprobe -q -n 'pid$target:a.out:called:entry { @[probefunc] = count(); } \
                 pid$target:ld-musl*:printf:entry { @[probefunc] = count(); }' -c /program";
    let printed = run(&mut root.unshared(trace));
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(words, ["14999850000", "printf", "1", "called", "100000"]);
}

#[test]
fn a_program_whose_tracer_was_killed_is_restored_in_an_empty_root() {
    let Some(root) = Root::new("restore in an empty root", "served.c") else {
        return;
    };
    let script = "\
        chroot . /program > printed & program=$!
        until grep -q ready printed; do sleep 0.1; done
        chroot . /nanoprobe -q -n 'pid$target:a.out:served:entry { trace(\"hit\"); }' -p $program > traced & tracer=$!
        until grep -q hit traced; do kill -0 $tracer; sleep 0.1; done
        kill -9 $tracer
        chroot . /nanoprobe restore $program
        touch stop
        wait $program";
    run(&mut root.unshared(script));
    let printed = std::fs::read_to_string(root.path().join("printed")).unwrap();
    assert_eq!(printed, "ready\nas before\n");
}
