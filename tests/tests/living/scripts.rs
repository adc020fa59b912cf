//! Scripts from practice: things that their authors rely on besides the language.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::said;
use nanoprobe_tests::tracer::{Form, Tracer, nanoprobe};

live_tests! {
    /// A trace of every instruction ends with the return, which comes after the returning instruction, in any order of
    /// the clauses.
    fn the_return_is_the_last_of_its_instruction(form) {
        let clause = "pid$target:a.out:func:return { printf(\"%s\\n\", probename); }
                      pid$target:a.out:func: /probename != \"return\"/ { printf(\"%s\\n\", probename); }";
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("looper.c"), "3").run().complete();
        let names: Vec<&str> = traced.results.lines().filter(|line| !line.is_empty()).collect();
        let calls: Vec<&[&str]> = names.split_inclusive(|name| *name == "return").collect();
        assert_eq!(calls.len(), 3, "{names:?}");
        for call in calls {
            let [first, offsets @ .., last] = call else { panic!("{call:?}") };
            assert_eq!((*first, *last), ("entry", "return"), "{call:?}");
            let offsets: Vec<u64> = offsets.iter().map(|name| u64::from_str_radix(name, 16).expect("an offset")).collect();
            assert!(offsets.first() == Some(&0) && offsets.is_sorted() && offsets.len() > 2, "{call:?}");
        }
    }

    /// The speculation of a call is committed at its return, and contains the last instruction.
    fn an_errorpath_has_the_last_instruction(form) {
        let clause = "pid$target:a.out:func:entry { self->spec = speculation(); }
                      pid$target:a.out:func: /self->spec/ { speculate(self->spec); printf(\"%s\\n\", probename); }
                      pid$target:a.out:func:return /self->spec/ { commit(self->spec); self->spec = 0; }";
        let tracer = Tracer::new(form).argument("-q").argument("-x").argument("nspec=4").clause(clause);
        let traced = tracer.command(&program("looper.c"), "1").run().complete();
        let names: Vec<&str> = traced.results.lines().filter(|line| !line.is_empty()).collect();
        let [.., before, last] = names.as_slice() else { panic!("{names:?}") };
        assert_eq!(*last, "return");
        assert!(u64::from_str_radix(before, 16).is_ok(), "{names:?}");
    }

    /// `start = 0` makes an int, which nevertheless holds a time in every clause that assigns or reads it.
    fn a_variable_that_begins_as_0_takes_a_time(form) {
        let clause = "BEGIN { start = 0; }
                      pid$target:a.out:func:entry { self->last = 0; }
                      pid$target:a.out:func:entry /!start/ { start = walltimestamp; }
                      pid$target:a.out:func:entry { self->last = walltimestamp; @[self->last >= start] = count(); }
                      END { printf(\"hours %d\\n\", (walltimestamp - start) / 3600000000000); printa(\"since %d: %@d\\n\", @); }";
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("looper.c"), "10").run().complete();
        assert_eq!(traced.results.trim(), "hours 0\nsince 1: 10");
    }

    /// Scripts put a NUL after copied bytes.
    fn a_nul_may_be_stored_after_copied_bytes(form) {
        let clause = "pid$target:a.out:func:entry {
                          this->text = (char *)copyin(arg0, 8);
                          this->text[8] = 0;
                          this->rest = (char *)copyin(arg0 + 8, 4);
                          printf(\"%s %s\\n\", stringof(this->text), stringof(this->rest));
                      }";
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("looper.c"), "3").run().complete();
        assert_eq!(traced.results.trim(), ["hello DT race"; 3].join("\n"));
    }

    /// The DTraceToolkit's way to subtract the time of called functions, by depth: the sum of all own times is the
    /// total time.
    fn own_times_add_up(form) {
        let clause = r#"
            self int depth;
            pid$target:a.out:stack_outer:entry, pid$target:a.out:stack_compare:entry, pid$target:a.out:stack_inner:entry {
                self->depth++; self->inside[self->depth] = 0; self->start[self->depth] = timestamp;
            }
            pid$target:a.out:stack_outer:return, pid$target:a.out:stack_compare:return, pid$target:a.out:stack_inner:return
            /self->start[self->depth]/ {
                this->whole = timestamp - self->start[self->depth];
                @own = sum(this->whole - self->inside[self->depth]);
                self->start[self->depth] = 0; self->inside[self->depth] = 0;
                self->depth--;
                self->inside[self->depth] += this->whole;
            }
            pid$target:a.out:stack_outer:return { @whole = sum(this->whole); @calls = count(); }
            END { printa("own %@d\n", @own); printa("whole %@d\n", @whole); printa("calls %@d\n", @calls); }"#;
        let tracer = Tracer::new(form).argument("-q").clause(clause);
        let traced = tracer.command(&program("stacks.c"), "10").run().complete();
        assert_eq!(said(&traced.results, "calls"), 10);
        assert_eq!(said(&traced.results, "own"), said(&traced.results, "whole"));
    }
}

/// A missing name is refused with the name to use instead.
#[test]
fn a_refusal_says_what_to_write() {
    for (clause, word) in [
        ("pid$target:a.out:nosuch*:entry", "no function there has such a name"),
        ("pid$target::nosuchfunction:entry", "no function there has such a name"),
        ("plockstat$target:::mutex-spins", "mutex-acquire"),
        ("pid$target:a.out:main:pause", "no instruction pause"),
        ("nosuch$target:::request-start", "static probes"),
        ("pid$target:malloc", "all four"),
        ("pid:libc:malloc:entry", "write pid$target"),
        ("malloc:entry", "pid$target:module"),
        ("BEGIN { stack(); }", "ustack( )"),
        ("BEGIN { trace(fds[0].fi_oflags); }", "fi_pathname"),
    ] {
        let tracer = Tracer::new(Form::Default).clause(clause);
        let refused = tracer.command(&program("looper.c"), "1").run().finished;
        assert_eq!(refused.code(), 1, "{clause}");
        assert!(refused.stderr.contains(word), "{clause}: {}", refused.stderr);
    }
}

/// A script for every process of a system (`postgresql*:::`) gets a hint to name one process.
#[test]
fn a_provider_without_a_process_gets_a_hint() {
    let refused = |clause: &str| {
        let ran = Command::new(nanoprobe()).args(["-n", clause]).output_in_time();
        let ran = ran.expect("the command runs");
        assert!(!ran.status.success(), "{clause}");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    for clause in ["postgresql*:::query-start", "nosuch:::request-start"] {
        let said = refused(clause);
        assert!(
            said.contains("D_PDESC_ZERO") && said.contains("-p PID"),
            "{clause}: {said}"
        );
    }
    let said = refused("dtrace:::NOSUCH");
    assert!(said.contains("D_PDESC_ZERO") && !said.contains("-p PID"), "{said}");
}

/// An old script with a name in Latin-1 prints its bytes unchanged; so does a clause with an argument of any bytes.
#[test]
fn a_script_need_not_be_utf_8() {
    let script = program("looper.c").with_file_name(format!("latin.{}.d", std::process::id()));
    let text = b"/* caf\xe9 */ BEGIN { printf(\"caf\xe9 %s %d\\n\", $$1, strlen(\"\xe9\")); exit(0); }";
    std::fs::write(&script, text).expect("the script is written");
    let ran = Command::new(nanoprobe())
        .args([OsStr::new("-qs"), script.as_os_str(), OsStr::from_bytes(b"a\xe9b")])
        .output_in_time();
    std::fs::remove_file(&script).expect("the script was there");
    let ran = ran.expect("the command runs");
    assert_eq!(
        ran.stdout,
        b"caf\xe9 a\xe9b 1\n\n",
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
}

/// Libraries of two directories: the program knows their declarations, whatever the order of the file names.
#[test]
fn libraries_are_read_in_the_order_of_their_dependencies() {
    let folder = program("looper.c").with_file_name(format!("libraries.{}", std::process::id()));
    let other = folder.join("other");
    std::fs::create_dir_all(&other).expect("a folder");
    for (file, text) in [
        ("a.d", "#pragma D depends_on library b.d\ninline int four = two * 2;\n"),
        ("b.d", "inline int two = 2;\nBEGIN { printf(\"never\"); }\n"),
        (
            "kernel.d",
            "#pragma D depends_on provider fbt\ninline int entered = NO_SUCH_CONSTANT;\n",
        ),
        ("README", "no library"),
        ("other/a.d", "inline int four = 5;\n"),
        ("other/c.d", "struct pair { int first; int second; };\n"),
    ] {
        std::fs::write(folder.join(file), text).expect("a library");
    }
    let traced = |clause: &str| {
        let [first, second] = [&folder, &other].map(|path| path.to_str().expect("a path of characters"));
        let arguments = [
            "-L",
            first,
            "-L/no/such/folder",
            "-x",
            &format!("libdir={second}"),
            "-qn",
            clause,
        ];
        let ran = Command::new(nanoprobe())
            .args(arguments)
            .output_in_time()
            .expect("the command runs");
        String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr)
    };
    let found = traced("BEGIN { printf(\"%d %d\", four, sizeof (struct pair)); exit(0); }");
    std::fs::write(folder.join("b.d"), "#pragma D depends_on library a.d\n").expect("a library");
    let circle = traced("BEGIN { exit(0); }");
    std::fs::write(folder.join("b.d"), "inline int two = one;\n").expect("a library");
    let wrong = traced("BEGIN { exit(0); }");
    std::fs::remove_dir_all(&folder).expect("the folder was there");
    assert_eq!(found, "4 8\n");
    assert!(circle.contains("depends on itself"), "{circle}");
    assert!(wrong.contains("b.d") && wrong.contains("D_IDENT_UNDEF"), "{wrong}");
}
