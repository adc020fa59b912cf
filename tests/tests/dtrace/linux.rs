//! The features of DTrace for Linux (options, `print()` of pointers), and the values that the tracer's own clauses
//! lack.

use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::{Form, Tracer};

use super::prints;

/// The output of a program in quiet mode.
#[track_caller]
fn quietly(program: &str, expected: &str) {
    prints(&["-q", "-n", program], expected);
}

/// `noresolve`: a frame is shown as its place in the mapping of its module.
#[test]
fn frames_are_addresses_where_no_names_are_wanted() {
    let path = program("signs.c");
    let module = path.file_name().expect("a name").to_string_lossy().into_owned();
    for (clause, count) in [
        ("pid$target:a.out:numbers:entry { ustack(1); }", 3),
        ("pid$target:a.out:numbers:entry { printf(\"%k\", ustack(1)); }", 3),
        ("pid$target:a.out:numbers:entry { @[ustack(1)] = count(); }", 1),
    ] {
        let tracer = Tracer::new(Form::Default)
            .argument("-q")
            .argument("-xnoresolve")
            .clause(clause);
        let found = tracer.command(&path, "").run().complete().results;
        let frames: Vec<&str> = found
            .lines()
            .map(str::trim)
            .filter(|line| line.contains(&module))
            .collect();
        assert_eq!(frames.len(), count, "{found}");
        for frame in frames {
            let place = frame.strip_prefix(&format!("{module}:0x")).expect(frame);
            assert!(
                u64::from_str_radix(place, 16).is_ok_and(|place| place < 1 << 20),
                "{frame}"
            );
        }
    }
}

/// Values that only a thread of the target has are 0 or empty in the tracer's own clauses.
#[test]
fn the_tracer_has_no_stack_and_no_registers() {
    quietly(
        "BEGIN { ustack(); trace(ucaller); trace(ustackdepth); trace(uregs[R_RIP]); exit(0); }",
        "\n000\n",
    );
    quietly(
        "BEGIN { printf(\"%k%d\\n\", ustack(3), uregs[R_RSP]); exit(0); }",
        "\n0\n\n",
    );
    quietly("BEGIN { usym(ucaller); exit(0); }", &format!("  {:<50}\n", "0x0"));
    quietly(
        "tick-1ms /!done++/ { @[ustack(5)] = count(); exit(0); }",
        &format!("\n\n {:16}\n", 1),
    );
    quietly("BEGIN { exit(0); } END { x = ucaller; printf(\"%d\\n\", x); }", "0\n\n");
}

/// `cpu`: only events on that processor count; `cpu` in the tracer's clauses is that processor, too.
#[test]
fn a_processor_s_events_alone_are_recorded() {
    let last = super::processor();
    prints(
        &[
            "-q",
            "-x",
            &format!("cpu={last}"),
            "-n",
            "BEGIN { trace(cpu); exit(0); }",
        ],
        &format!("{last}\n"),
    );
    prints(
        &[
            "-q",
            "-n",
            &format!("#pragma D option cpu={last}\ntick-10ms {{ trace(cpu); exit(0); }}"),
        ],
        &format!("{last}\n"),
    );
    let refused = super::command(&["-q", "-x", "cpu=65000", "-n", "BEGIN { exit(0); }"]);
    assert_eq!(refused.code(), 1);
    assert!(
        refused
            .stderr
            .contains("failed to set -x cpu: there is no processor 65000"),
        "{}",
        refused.stderr
    );
}

/// `aggpercpu`: each value is followed by the values of all processors, including those without one.
#[test]
fn aggregations_are_printed_by_processor() {
    let cpu = super::processor() as u32;
    // SAFETY: asks for a number.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as u32;
    let parts = |here: i64, else_where: i64| -> String {
        let value = |number: u32| if number == cpu { here } else { else_where };
        (0..all)
            .map(|number| format!("\n    [CPU {number}] {:16}", value(number)))
            .collect()
    };
    let of =
        |key: &str, whole: i64, here: i64, else_where: i64| format!("{key} {whole:16}{}\n", parts(here, else_where));
    let program =
        "BEGIN { @c = count(); @c = count(); @s = sum(7); @a = avg(4); @a = avg(6); @i = min(5); @x = max(-5);
        @k[\"key\"] = sum(3); exit(0); }";
    prints(
        &["-q", "-x", "aggpercpu", "-n", program],
        &format!(
            "\n{}{}{}{}{}{}",
            of("", 2, 2, 0),
            of("", 7, 7, 0),
            of("", 5, 5, 0),
            of("", 5, 5, i64::MAX),
            of("", -5, -5, i64::MIN),
            of(&format!("  {:<50}", "key"), 3, 3, 0)
        ),
    );
    // A format prints only the total; a clear applies to all processors.
    let program = "#pragma D option aggpercpu\nBEGIN { @c[1] = count(); printa(\"%d %@d\\n\", @c); clear(@c); printa(@c); trunc(@c); exit(0); }";
    prints(
        &["-q", "-n", program],
        &format!("1 1\n\n{}\n", of(&format!(" {:8}", 1), 0, 0, 0)),
    );
}

/// All hits of a target that runs on one processor belong to it, and none to another.
#[test]
fn hits_on_other_processors_are_none() {
    let path = program("signs.c");
    let command = path.to_string_lossy();
    let counted = |cpu: usize| {
        let (option, clause) = (format!("cpu={cpu}"), "pid$target:a.out:numbers:entry { @ = count(); }");
        let found = super::command(&["-q", "-x", &option, "-n", clause, "-c", &command]).success();
        found
            .stdout
            .split_whitespace()
            .last()
            .and_then(|last| last.parse::<u64>().ok())
    };
    let here = super::processor();
    assert_eq!(counted(here), Some(3));
    // SAFETY: asks for a number.
    let all = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) } as usize;
    if let Some(other) = (0..all).find(|number| *number != here) {
        assert_eq!(counted(other), None);
    }
}

/// The output of DTrace for Linux for its own tests tst.print.local, .trunc and .zeroed, whose programs these are.
#[test]
fn a_pointer_is_printed_with_the_value_there() {
    let members = "enum eh { FIRSTVAL = 1, SECONDVAL = 2 };
        struct test_struct { int a; char b[5]; union { __u8 c; __u64 d; } u; struct { void *e; uint64_t f; } s; bool g; enum eh h; };
        BEGIN { t = (struct test_struct *)alloca(sizeof (struct test_struct)); ";
    let all = "t->a = 1; t->b[0] = 't'; t->b[1] = 'e'; t->b[2] = 's'; t->b[3] = 't'; t->u.d = 12345678;
        t->s.e = (void *)0xfeedfacefeedface; t->s.f = 100; t->g = 1; t->h = FIRSTVAL; ";
    let shown = |options: &[&str], statements: &str| {
        let program = format!("{members}{statements} exit(0); }}");
        let words: Vec<&str> = ["-q"]
            .into_iter()
            .chain(options.iter().copied())
            .chain(["-n", &program])
            .collect();
        let found = super::command(&words).success().stdout;
        let lines = found.lines().map(|line| match line.split_once(" = *") {
            Some((address, "")) if address.starts_with("0x") => "{ptr} = *",
            // Without the common indentation, this text is narrower.
            _ => line.strip_prefix(&" ".repeat(44)).unwrap_or(line),
        });
        lines.collect::<Vec<&str>>().join("\n")
    };
    let text = " .a = (int)1,\n .b = (char [5]) [\n  (char)'t',\n  (char)'e',\n  (char)'s',\n  (char)'t',\n ],\n";
    let union = " .u = (union) {\n  .c = (__u8)78,\n  .d = (__u64)12345678,\n";
    let head = "{ptr} = *\n(struct test_struct) {\n";
    assert_eq!(
        shown(&[], &format!("{all} print(t);")),
        format!(
            "{head}{text}{union} }},\n .s = (struct) {{\n  .e = (void *)0xfeedfacefeedface,\n  .f = (uint64_t)100,\n }},\n \
             .g = (bool)1,\n .h = (enum eh)FIRSTVAL,\n}}\n"
        )
    );
    let eight = format!("{head}{text} ...\n}}\n");
    assert_eq!(
        shown(
            &["-x", "printsize=8"],
            &format!("{all} print(t); setopt(\"printsize\", \"24\"); print(t);")
        ),
        format!("{eight}{head}{text}{union} ...\n }},\n}}\n")
    );
    // An invalid size means the default; steps are eight bytes.
    assert_eq!(shown(&["-x", "printsize=5"], &format!("{all} print(t);")), eight);
    assert_eq!(
        shown(&["-x", "printsize=0"], &format!("{all} print(&t->a);")),
        "{ptr} = *\n(int)1,\n"
    );
    assert_eq!(shown(&[], "print(t);"), format!("{head}}}\n"));
    assert_eq!(
        shown(&[], "t->b[1] = 'x'; t->g = 1; t->h = FIRSTVAL; print(t);"),
        format!("{head} .b = (char [5]) [\n ],\n .g = (bool)1,\n .h = (enum eh)FIRSTVAL,\n}}\n")
    );
    // An address without memory, and a value that is no pointer.
    let failed = super::command(&[
        "-q",
        "-n",
        "BEGIN { print((int *)8); } ERROR { printf(\"%x\\n\", arg5); exit(0); }",
    ]);
    assert_eq!(failed.stdout, "8\n\n");
    quietly(
        "BEGIN { print(5); print((void *)16); exit(0); }",
        "int 0x5\nvoid * 0x10\n\n",
    );
}
