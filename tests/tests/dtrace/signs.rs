//! Numbers of every width and sign: recorded, as keys, formatted and printed with their type. This covers the tracer's
//! clauses and a program, as text and as JSON.

use nanoprobe_tests::program::program;
use nanoprobe_tests::tracer::{Form, Tracer};

use super::prints;

/// The casts, with the widths of the columns of a record and of a key.
const TYPES: [(&str, usize, usize); 8] = [
    ("int8_t", 3, 3),
    ("int16_t", 5, 5),
    ("int32_t", 10, 8),
    ("int64_t", 19, 16),
    ("uint8_t", 3, 3),
    ("uint16_t", 5, 5),
    ("uint32_t", 10, 8),
    ("uint64_t", 20, 16),
];

/// -7, a number near the greatest one of the type, and 0: signs.c calls its function with these.
const CALLS: [[&str; 8]; 3] = [
    [
        "-7",
        "-7",
        "-7",
        "-7",
        "249",
        "65529",
        "4000000000",
        "18446744073709551609",
    ],
    [
        "100",
        "30000",
        "2000000000",
        "9000000000000000000",
        "100",
        "30000",
        "2000000000",
        "9000000000000000000",
    ],
    ["0"; 8],
];

/// The same numbers as D writes them.
fn casts(call: usize) -> Vec<String> {
    TYPES
        .iter()
        .zip(CALLS[call])
        .map(|((of, ..), value)| format!("({of}){value}"))
        .collect()
}

#[test]
fn a_record_shows_a_number_by_its_type() {
    for (call, values) in CALLS.iter().enumerate() {
        let traces: Vec<String> = casts(call).iter().map(|value| format!("trace({value});")).collect();
        let program = format!("BEGIN {{ {} exit(0); }}", traces.concat());
        let columns: Vec<String> = TYPES
            .iter()
            .zip(values)
            .map(|((_, width, _), value)| format!(" {value:>width$}"))
            .collect();
        let expected = format!(
            "CPU     ID                    FUNCTION:NAME\n  0      1                           :BEGIN {}\n\n",
            columns.concat()
        );
        prints(&["-n", &program], &expected);
        prints(&["-q", "-n", &program], &format!("{}\n", values.concat()));
    }
}

#[test]
fn a_key_is_shown_by_its_type() {
    for (call, values) in CALLS.iter().enumerate() {
        let program = format!("BEGIN {{ @[{}] = count(); exit(0); }}", casts(call).join(","));
        let columns: Vec<String> = TYPES
            .iter()
            .zip(values)
            .map(|((_, _, width), value)| format!(" {value:>width$}"))
            .collect();
        prints(
            &["-q", "-n", &program],
            &format!("\n{}                1\n", columns.concat()),
        );
    }
}

/// Sorted by the printed values, in both directions; keys decide between equal values.
#[test]
fn keys_are_sorted_as_they_are_shown() {
    for ((of, _, width), values) in TYPES.iter().zip(0..) {
        let mut of_type: Vec<&str> = CALLS.iter().map(|call| call[values]).collect();
        of_type.sort_by_key(|value| value.parse::<i128>().expect("a number"));
        let row = |value: &&str| format!(" {value:>width$}                1\n");
        let up: String = of_type.iter().map(row).collect();
        let down: String = of_type.iter().rev().map(row).collect();
        let counted: Vec<String> = CALLS
            .iter()
            .map(|call| format!("@[({of}){}] = count();", call[values]))
            .collect();
        let program = format!("BEGIN {{ {} exit(0); }}", counted.concat());
        prints(&["-q", "-n", &program], &format!("\n{up}"));
        prints(&["-q", "-x", "aggsortkey", "-n", &program], &format!("\n{up}"));
        prints(
            &["-q", "-x", "aggsortkey", "-x", "aggsortrev", "-n", &program],
            &format!("\n{down}"),
        );
    }
}

#[test]
fn formats_take_a_number_by_its_type() {
    for (call, values) in CALLS.iter().enumerate() {
        let casts = casts(call);
        let program = format!(
            "BEGIN {{ printf(\"%d %d %d %d %d %d %d %d\\n\", {0}); @[{0}] = count();
              printa(\"%d %d %d %d %d %d %d %d %@d\\n\", @); exit(0); }}",
            casts.join(",")
        );
        let line = values.join(" ");
        prints(&["-q", "-n", &program], &format!("{line}\n{line} 1\n\n"));
    }
}

/// `print()` shows the bits of the type, in hexadecimal digits, as DTrace does.
#[test]
fn print_shows_a_number_by_its_type() {
    for (of, shown) in [
        ("short", "0xfff9"),
        ("int32_t", "0xfffffff9"),
        ("int64_t", "0xfffffffffffffff9"),
        ("uint8_t", "0xf9"),
        ("uint16_t", "0xfff9"),
        ("uint32_t", "0xfffffff9"),
        ("uint64_t", "0xfffffffffffffff9"),
    ] {
        prints(
            &["-q", "-n", &format!("BEGIN {{ print(({of})-7); exit(0); }}")],
            &format!("{of} {shown}\n\n"),
        );
    }
}

/// The program's own types, by its debug information, recorded by a clause that runs in the program.
fn traced(clause: &str, arguments: &[&str]) -> String {
    let mut tracer = Tracer::new(Form::Default);
    for argument in arguments {
        tracer = tracer.argument(*argument);
    }
    let traced = tracer.clause(clause).command(&program("signs.c"), "").run();
    traced.complete().results
}

fn arguments() -> String {
    let arguments: Vec<String> = (0..8).map(|number| format!("args[{number}]")).collect();
    arguments.join(",")
}

#[test]
fn a_program_s_numbers_are_shown_by_their_types() {
    let traces: Vec<String> = (0..8).map(|number| format!("trace(args[{number}]);")).collect();
    let clause = format!(
        "pid$target:a.out:numbers:entry {{ {} trace(\"\\n\"); }}",
        traces.concat()
    );
    let lines: String = CALLS.iter().map(|values| values.concat() + "\n").collect();
    assert_eq!(traced(&clause, &["-q"]), lines + "\n");

    let clause = format!("pid$target:a.out:numbers:entry {{ @[{}] = count(); }}", arguments());
    // The rows are sorted by the first element: -7, 0, 100.
    let row = |values: &[&str; 8]| -> String {
        let columns = TYPES.iter().zip(values);
        let columns: String = columns
            .map(|((_, _, width), value)| format!(" {value:>width$}"))
            .collect();
        columns + "                1\n"
    };
    let rows: String = [0, 2, 1].map(|call| row(&CALLS[call])).concat();
    assert_eq!(traced(&clause, &["-q"]), format!("\n{rows}"));
}

/// All numbers of a member, in their order.
fn members(json: &str, name: &str) -> Vec<String> {
    let marks = json.match_indices(name).map(|(at, _)| at + name.len());
    let number = |at: usize| -> String {
        let digits = json[at..].chars();
        digits
            .take_while(|digit| digit.is_ascii_digit() || *digit == '-')
            .collect()
    };
    marks.map(number).collect()
}

#[test]
fn text_and_json_say_the_same() {
    let traces: Vec<String> = (0..8).map(|number| format!("trace(args[{number}]);")).collect();
    let clause = format!(
        "pid$target:a.out:numbers:entry {{ {} printf(\"%d %d %d %d %d %d %d %d\", {}); }}",
        traces.concat(),
        arguments()
    );
    let json = traced(&clause, &["--format", "json"]);
    assert_eq!(members(&json, "\"value\":"), CALLS.concat());
    for values in CALLS {
        assert!(json.contains(&format!("\"text\":\"{}\"", values.join(" "))), "{json}");
        assert!(json.contains(&format!("\"values\":[{}]", values.join(","))), "{json}");
    }
    let clause = format!("pid$target:a.out:numbers:entry {{ @[{}] = count(); }}", arguments());
    let json = traced(&clause, &["--format", "json"]);
    for values in CALLS {
        assert!(json.contains(&format!("\"key\":[{}]", values.join(","))), "{json}");
    }
}
