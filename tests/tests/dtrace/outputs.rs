//! Every format of output, written down from the definition: the heading and the columns of
//! records, actions, aggregations with and without a format, distributions with their edges,
//! stacks, flow, and the lines between and after them.

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

/// The output of a program in quiet mode, with its last newline.
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
    // A clause that prints nothing has a line, too; in quiet mode only the last newline remains.
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

/// A user who ends the tracing by a signal has typed `^C` on the line, so a newline follows it, in quiet mode, too.
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

/// The newline between the traced output and the final aggregations is there in quiet mode, too.
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
    // Several aggregations follow each other without an empty line between them.
    quietly(
        "BEGIN { @c = count(); @s = sum(-5); @n[\"k\"] = min(3); @x = max(4); @a = avg(7); @d = stddev(2); exit(0); }",
        &format!("\n{:17}\n{:17}\n{}{:17}\n{:17}\n{:17}\n", 1, -5, row("k", 3), 4, 7, 0),
    );
    // Aggregations that printa has printed are not printed again.
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
    // Several aggregations are joined by their keys, with 0 for a missing value, in the order of the first one.
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
    // A format may leave a value out; a format without values is printed once for each key.
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

/// The rows at the edges, and those next to the filled ones.
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
    // With both signs a bar is half as long, on either side of the middle line.
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
    // The rows are sorted by the values of the second aggregation.
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

/// `-F`: another heading; a probe that is neither entry nor return has a bar before its name.
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
