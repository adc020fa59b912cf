//! Every format of output, written down from the definition: the heading and the columns of records, actions, aggregations with
//! and without a format, distributions with their edges, stacks, flow, and the lines between and behind them.

use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::{Form, Tracer};

use super::prints;

const HEADING: &str = "CPU     ID                    FUNCTION:NAME\n";

/// A record of a probe of the tracer's.
fn record(id: u32, name: &str, data: &str) -> String {
    format!("  0 {id:6} {name:>32} {data}\n")
}

/// A line of an aggregation by a string.
fn row(key: &str, value: i64) -> String {
    format!("  {key:<50} {value:16}\n")
}

/// What is printed of a program: with its last new line, in quiet mode.
#[track_caller]
fn quietly(program: &str, expected: &str) {
    prints(&["-q", "-n", program], expected);
}

#[test]
fn records_have_a_heading_columns_and_a_last_line() {
    prints(
        &["-n", "BEGIN { exit(0); } END { trace(\"bye\"); }"],
        &format!(
            "{HEADING}{}{}\n",
            record(1, ":BEGIN", ""),
            record(2, ":END", &format!("  {:<33}", "bye"))
        ),
    );
    // What prints nothing by itself has a line, too; in quiet mode there is but the last one.
    prints(
        &["-n", "BEGIN { x = 1; exit(0); }"],
        &format!("{HEADING}{}\n", record(1, ":BEGIN", "")),
    );
    quietly("BEGIN { x = 1; exit(0); }", "\n");
    quietly("BEGIN { exit(0); } END { trace(\"bye\"); }", "bye\n");
}

#[test]
fn data_follow_each_other_in_their_columns() {
    prints(
        &[
            "-n",
            "BEGIN { trace(1); trace(\"\"); trace(\"text\"); trace('a'); printf(\"%d\", 5); trace(2); exit(0); }",
        ],
        &format!(
            "{HEADING}{}\n",
            record(
                1,
                ":BEGIN",
                "          1                                     text                                      975          2"
            )
        ),
    );
    quietly(
        "BEGIN { trace(1); trace(\"\"); trace(\"text\"); trace(-2); exit(0); }",
        "1text-2\n",
    );
}

#[test]
fn bytes_are_dumped() {
    let dump = "\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n         \
                0: 68 65 6c 6c 6f 00 00 00 00 00 00 00 00 00 00 00  hello...........\n        \
                10: 00 00                                            ..\n";
    let program = "BEGIN { s = (char *)alloca(18); s[0] = 'h'; s[1] = 'e'; s[2] = 'l'; s[3] = 'l'; s[4] = 'o'; tracemem(s, 18); exit(0); }";
    prints(&["-n", program], &format!("{HEADING}{}\n", record(1, ":BEGIN", dump)));
    quietly(program, &format!("{dump}\n"));
    let raw = "\n             0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f  0123456789abcdef\n         \
               0: 68 69 00 00 00 00 00 00                          hi......\n";
    prints(
        &[
            "-q",
            "-x",
            "rawbytes",
            "-x",
            "strsize=8",
            "-n",
            "BEGIN { trace(\"hi\"); exit(0); }",
        ],
        &format!("{raw}\n"),
    );
}

/// Who ends the tracing by a signal has typed `^C`: it gets a line of its own, in quiet mode, too.
#[test]
fn an_interrupt_ends_a_line() {
    let mut tracing = Tracer::new(Form::Default)
        .argument("-q")
        .clause("tick-10ms /!told/ { told = 1; printf(\"up\"); @[\"a\"] = count(); }")
        .start();
    let start = std::time::Instant::now();
    while tracing.results() != "up" {
        assert!(
            tracing.running.is_running() && start.elapsed() < nanoprobe_tests::LIMIT,
            "{}",
            tracing.results()
        );
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(tracing.interrupt().results, format!("up\n\n{}", row("a", 1)));
}

/// The new line that separates the final aggregations from what was traced is there in quiet mode, too.
#[test]
fn final_aggregations_begin_a_line() {
    quietly(
        "BEGIN { printf(\"total:\"); @[\"a\"] = count(); exit(0); }",
        &format!("total:\n{}", row("a", 1)),
    );
    prints(
        &["-n", "BEGIN { @[\"a\"] = count(); exit(0); }"],
        &format!("{HEADING}{}\n{}", record(1, ":BEGIN", ""), row("a", 1)),
    );
    // One behind the other, without a line between them.
    quietly(
        "BEGIN { @c = count(); @s = sum(-5); @n[\"k\"] = min(3); @x = max(4); @a = avg(7); @d = stddev(2); exit(0); }",
        &format!("\n{:17}\n{:17}\n{}{:17}\n{:17}\n{:17}\n", 1, -5, row("k", 3), 4, 7, 0),
    );
    // What printa has printed is not printed again.
    quietly("BEGIN { @a = count(); printa(\"%@d\\n\", @a); exit(0); }", "1\n\n");
}

#[test]
fn printa_without_a_format() {
    quietly(
        "BEGIN { @[\"a\"] = sum(2); @[\"b\"] = sum(1); printa(@); exit(0); }",
        &format!("\n{}{}\n", row("b", 1), row("a", 2)),
    );
    prints(
        &["-n", "BEGIN { @[\"a\"] = sum(2); printa(@); exit(0); }"],
        &format!("{HEADING}{}\n", record(1, ":BEGIN", &format!("\n{}", row("a", 2)))),
    );
    // Several: joined by their keys, 0 where one has none, in the order of the first.
    let joined = |key: &str, first: i64, second: i64| format!("  {key:<50} {first:16} {second:16}\n");
    quietly(
        "BEGIN { @a[\"x\"] = sum(5); @b[\"x\"] = sum(6); @b[\"y\"] = sum(9); printa(@a, @b); exit(0); }",
        &format!("\n{}{}\n", joined("y", 0, 9), joined("x", 5, 6)),
    );
}

#[test]
fn printa_with_a_format() {
    quietly(
        "BEGIN { @[\"a\", 1] = sum(2); @[\"b\", 22] = sum(300); printa(\"%-5s|%5d|%@8u|\\n\", @); exit(0); }",
        "a    |    1|       2|\nb    |   22|     300|\n\n",
    );
    quietly(
        "BEGIN { @a[\"x\"] = sum(5); @b[\"x\"] = avg(6); printa(\"%s %@d %@d\\n\", @a, @b); exit(0); }",
        "x 5 6\n\n",
    );
    // A value may be left out, and a format without one is printed once a key.
    quietly(
        "BEGIN { @[\"a\"] = count(); @[\"b\"] = count(); printa(\"%s \", @); exit(0); }",
        "a b \n",
    );
}

const VALUE: &str = "\n           value  ------------- Distribution ------------- count    \n";

/// A row of a distribution whose weights are positive.
fn bar(label: &str, length: usize, count: u32) -> String {
    format!("{label:>16} |{:<40} {count:<9}\n", "@".repeat(length))
}

#[test]
fn distributions_by_powers_of_two() {
    quietly(
        "BEGIN { @ = quantize(1); @ = quantize(2); @ = quantize(3); @ = quantize(0); exit(0); }",
        &format!(
            "\n{VALUE}{}{}{}{}{}\n",
            bar("-1", 0, 0),
            bar("0", 10, 1),
            bar("1", 10, 1),
            bar("2", 20, 2),
            bar("4", 0, 0)
        ),
    );
    quietly(
        "BEGIN { @[\"k\"] = quantize(-5); exit(0); }",
        &format!(
            "\n  {:<50}{VALUE}{}{}{}\n",
            "k",
            bar("-8", 0, 0),
            bar("-4", 40, 1),
            bar("-2", 0, 0)
        ),
    );
}

/// The rows at the edges, and those on either side of what is filled.
#[test]
fn linear_distributions_have_edges() {
    quietly(
        "BEGIN { @ = lquantize(-1, 0, 20, 10); @ = lquantize(0, 0, 20, 10); @ = lquantize(20, 0, 20, 10); @ = lquantize(99, 0, 20, 10); exit(0); }",
        &format!(
            "\n{VALUE}{}{}{}{}\n",
            bar("< 0", 10, 1),
            bar("0", 10, 1),
            bar("10", 0, 0),
            bar(">= 20", 20, 2)
        ),
    );
    quietly(
        "BEGIN { @ = lquantize(15, 0, 40, 10); exit(0); }",
        &format!("\n{VALUE}{}{}{}\n", bar("0", 0, 0), bar("10", 40, 1), bar("20", 0, 0)),
    );
    // Of both signs a bar is half as long, on either side of its line.
    quietly(
        "BEGIN { @ = lquantize(5, 0, 20, 10); @ = lquantize(15, 0, 20, 10, -1); exit(0); }",
        &format!(
            "\n{VALUE}{:>16} {:20}|{:20} {:<9}\n{:>16} {:20}|{:<20} {:<9}\n{:>16} {:>20}|{:20} {:<9}\n{:>16} {:20}|{:20} {:<9}\n\n",
            "< 0", "", "", 0, 0, "", "@@@@@@@@@@", 1, 10, "@@@@@@@@@@", "", -1, ">= 20", "", "", 0
        ),
    );
}

#[test]
fn aggregations_are_sorted_as_the_options_say() {
    let program = "BEGIN { @[\"a\"] = sum(3); @[\"b\"] = sum(1); @[\"c\"] = sum(2); exit(0); }";
    let (a, b, c) = (row("a", 3), row("b", 1), row("c", 2));
    for (options, right) in [
        (&[][..], [&b, &c, &a]),
        (&["-x", "aggsortrev"], [&a, &c, &b]),
        (&["-x", "aggsortkey"], [&a, &b, &c]),
        (&["-x", "aggsortkey", "-x", "aggsortrev"], [&c, &b, &a]),
    ] {
        let arguments = [&["-q"], options, &["-n", program]].concat();
        prints(&arguments, &format!("\n{}{}{}", right[0], right[1], right[2]));
    }
    // By the second one's values.
    prints(
        &[
            "-q",
            "-x",
            "aggsortpos=1",
            "-n",
            "BEGIN { @a[\"x\"] = sum(1); @b[\"x\"] = sum(9); @a[\"y\"] = sum(2); @b[\"y\"] = sum(8); printa(\"%s %@d %@d\\n\", @a, @b); exit(0); }",
        ],
        "y 2 8\nx 1 9\n\n",
    );
    prints(
        &[
            "-q",
            "-x",
            "aggsortkey",
            "-x",
            "aggsortkeypos=1",
            "-n",
            "BEGIN { @[\"a\", 2] = count(); @[\"b\", 1] = count(); printa(\"%s %d\\n\", @); exit(0); }",
        ],
        "b 1\na 2\n\n",
    );
}

#[test]
fn normalised_values_are_divided() {
    quietly(
        "BEGIN { @[\"a\"] = sum(1000); normalize(@, 3); printa(@); denormalize(@); printa(@); exit(0); }",
        &format!("\n{}\n{}\n", row("a", 333), row("a", 1000)),
    );
    quietly(
        "BEGIN { @[\"a\"] = sum(5); @[\"b\"] = sum(1); trunc(@, -1); exit(0); }",
        &format!("\n{}", row("b", 1)),
    );
}

/// `-F`: another heading; what neither enters nor leaves stands behind a bar, with its name.
#[test]
fn flow_has_columns_of_its_own() {
    let line = |text: &str, data: &str| format!("  0 {text:<41} {data}\n");
    let heading = format!("CPU {:<41}\n", "FUNCTION");
    prints(
        &["-F", "-n", "BEGIN { trace(1); exit(0); } END { trace(\"x\"); }"],
        &format!(
            "{heading}{}{}\n",
            line("| :BEGIN", "          1"),
            line("| :END", &format!("  {:<33}", "x"))
        ),
    );
}

#[test]
fn stacks_are_indented() {
    let path = program("signs.c");
    let module = path.file_name().expect("a name").to_string_lossy().into_owned();
    for (options, indent) in [(&[][..], 14), (&["-x", "stackindent=4"], 4)] {
        let frame = format!("\n{:indent$}{module}`numbers\n", "");
        let of = |clause: &str| {
            let tracer = options
                .iter()
                .fold(Tracer::new(Form::Default).argument("-q"), |tracer, option| {
                    tracer.argument(*option)
                });
            tracer.clause(clause).command(&path, "").run().complete().results
        };
        let found = of("pid$target:a.out:numbers:entry { ustack(1); }");
        assert_eq!(found, format!("{}\n", frame.repeat(3)));
        let found = of("pid$target:a.out:numbers:entry { @[ustack(1)] = count(); }");
        assert_eq!(found, format!("\n{frame}{:17}\n", 3));
    }
}

/// `noresolve`: a frame is its place in the mapping of its module.
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

/// What only a thread of the target has is nothing in the tracer's own clauses.
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

/// `cpu`: what happens on that processor only; clauses of the tracer's say that they are there.
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

/// `aggpercpu`: behind each value those of the processors, also of those that had none.
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
    // A format knows the whole only; what is cleared is so of all.
    let program = "#pragma D option aggpercpu\nBEGIN { @c[1] = count(); printa(\"%d %@d\\n\", @c); clear(@c); printa(@c); trunc(@c); exit(0); }";
    prints(
        &["-q", "-n", program],
        &format!("1 1\n\n{}\n", of(&format!(" {:8}", 1), 0, 0, 0)),
    );
}

/// Hits of a target that runs on one processor are all its, and none another's.
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

/// As DTrace for Linux has it in tst.print.local, .trunc and .zeroed of its own tests, which are these programs.
#[test]
fn a_pointer_is_printed_with_what_lies_there() {
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
            // The indentation of all, without which this text is narrower.
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
    // A size that makes no sense is the default's; steps are eight bytes.
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
    // Nothing lies there; and what is no pointer is a value.
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
