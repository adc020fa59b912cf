//! Whole outputs, compared byte for byte with the files in `golden/`.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use nanoprobe_lang::format::Format;
use nanoprobe_lang::program::{
    AggregatingFunction as Function, AggregationId, Foreign, ForeignKind, IntegerType, KeyType, RecordKind, Type,
};
use support::*;

const STACK_KEY: KeyType = KeyType::UserStack { frames: 0 };

// ---- the outputs that people know ----------------------------------------------------------------------------------

#[test]
fn one_count() {
    let mut session = Session::new(&[]);
    let count = session.aggregation(Function::Count, &[]);
    let words = [100_000_000];
    assert!(session.snapshot.add(&session.program, count, &[], &words));
    assert_eq!(session.output(), "        100000000\n");
}

#[test]
fn a_count_by_string() {
    let mut session = Session::new(&[]);
    let count = session.aggregation(Function::Count, &[KeyType::String]);
    assert!(
        session
            .snapshot
            .add(&session.program, count, b"hello DTrace\0\0\0\0", &[100_000_000])
    );
    assert_eq!(
        session.output(),
        "  hello DTrace                                              100000000\n"
    );
}

#[test]
fn timestamps_of_two_probes() {
    let mut session = Session::new(&[]);
    session.record((75978, "strlen", "entry"), vec![trace((Type::U64, integer(3_479_933)))]);
    session.record(
        (75977, "strlen", "return"),
        vec![trace((Type::U64, integer(3_482_396)))],
    );
    session.record(
        (75983, "strlen", "b"),
        vec![trace((Type::U64, integer(10_165_584_038_273_856)))],
    );
    assert_eq!(
        session.output(),
        "CPU     ID                    FUNCTION:NAME\n  \
         1  75978                     strlen:entry           3479933\n  \
         1  75977                    strlen:return           3482396\n  \
         1  75983                         strlen:b  10165584038273856\n"
    );
}

#[test]
fn counts_by_function() {
    let mut session = Session::new(&[]);
    let count = session.aggregation(Function::Count, &[KeyType::String]);
    for (function, hits) in [
        ("rl_getc", 108),
        ("check_mail", 1),
        ("internal_malloc", 128),
        ("rl_get_char", 108),
    ] {
        (0..hits).for_each(|_| session.aggregate(count, &[string(function)], 0, 1));
    }
    let expected = [
        ("check_mail", 1),
        ("rl_get_char", 108),
        ("rl_getc", 108),
        ("internal_malloc", 128),
    ];
    let expected: String = expected
        .iter()
        .map(|(name, hits)| format!("  {name:<50} {hits:16}\n"))
        .collect();
    assert_eq!(session.output(), expected);
}

#[test]
fn counts_by_stack() {
    let mut session = Session::new(&[]);
    let count = session.aggregation(Function::Count, &[STACK_KEY]);
    let frames = [
        0x1000, 0x2049, 0x3052, 0x40e1, 0x506f, 0x64b9, 0x7067, 0x8052, 0x90a5, 0xaaff, 0xb083,
    ];
    let key = stack_key(&frames);
    assert!(session.snapshot.add(&session.program, count, &key, &[48]));
    assert_eq!(
        session.output(),
        "\n              bash`readline_internal_char
              bash`readline+0x49
              bash`yy_readline_get+0x52
              bash`shell_getc+0xe1
              bash`read_token+0x6f
              bash`yyparse+0x4b9
              bash`parse_command+0x67
              bash`read_command+0x52
              bash`reader_loop+0xa5
              bash`main+0xaff
              bash`_start+0x83
               48\n"
    );
}

// ---- records -------------------------------------------------------------------------------------------------------

fn some_records(options: &[&str]) -> String {
    let mut session = Session::new(options);
    let byte_type = |size| Type::Bytes { size: Some(size) };
    session.record((1, "", "BEGIN"), vec![]);
    session.record(
        (2, "func", "entry"),
        vec![
            trace((Type::I64, integer(-5))),
            trace((Type::I32, integer(-5))),
            trace((I16, integer(-5))),
            trace((I8, integer(-5))),
            trace((Type::U32, integer(0xffff_fffb))),
            trace((Type::Pointer(None), integer(0x1234))),
        ],
    );
    session.record(
        (2, "func", "entry"),
        vec![trace((Type::String, string("hello"))), trace((Type::I64, integer(1)))],
    );
    session.record((2, "func", "entry"), vec![trace((Type::String, string("")))]);
    session.record((2, "func", "entry"), vec![trace((Type::String, string("grüße")))]);
    session.record((2, "func", "entry"), vec![trace((byte_type(5), bytes(b"hello")))]);
    session.record(
        (2, "func", "entry"),
        vec![trace((byte_type(9), bytes(b"hi\0\0\0\0\0\0\0")))],
    );
    session.record(
        (2, "func", "entry"),
        vec![trace((
            byte_type(18),
            bytes(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0"),
        ))],
    );
    session.record(
        (2, "func", "entry"),
        vec![ustack(&[0x1000, 0x2049, 0x7fff_1234]), trace((Type::I64, integer(7)))],
    );
    session.record(
        (3, "_ZN3std2io5stdio6_print17h0123456789abcdefE", "return"),
        vec![printf(
            "%d is %s\n",
            vec![(Type::I32, integer(42)), (Type::String, string("the answer"))],
        )],
    );
    session.record((4, "", "END"), vec![exit(3)]);
    session.output()
}

#[test]
fn records() {
    golden("records", &some_records(&[]));
}

#[test]
fn records_quiet() {
    golden("records-quiet", &some_records(&["quiet"]));
}

#[test]
fn records_raw() {
    golden(
        "records-raw",
        &some_records(&["rawbytes", "strsize=32", "stackindent=4"]),
    );
}

#[test]
fn flow() {
    let mut session = Session::new(&["flowindent"]);
    for (id, function, name) in [
        (1, "main", "entry"),
        (2, "func", "entry"),
        (3, "func", "4"),
        (4, "func", "return"),
        (5, "main", "return"),
    ] {
        session.record((id, function, name), vec![trace((Type::I64, integer(i64::from(id))))]);
    }
    golden("flow", &session.output());
}

#[test]
fn conversions() {
    let mut session = Session::new(&["quiet"]);
    let i64_ = |value| (Type::I64, integer(value));
    let text = |text| (Type::String, string(text));
    let mut line = |format: &str, values: Vec<Typed>| {
        session.record(
            (1, "f", "entry"),
            vec![printf(
                &format!("{format}: [{format}]\n").replacen('%', "%%", 1),
                values,
            )],
        );
    };
    line("%d", vec![i64_(-42)]);
    line("%i", vec![(Type::U64, integer(-1))]);
    line("%u", vec![(Type::I32, integer(-1))]);
    line("%u", vec![(I16, integer(-1))]);
    line("%x", vec![(I8, integer(-1))]);
    line("%X", vec![i64_(-1)]);
    line("%o", vec![i64_(8)]);
    line("%#x", vec![i64_(255)]);
    line("%#o", vec![i64_(8)]);
    line("%+d", vec![i64_(42)]);
    line("% d", vec![i64_(42)]);
    line("%'d", vec![i64_(1_234_567)]);
    line("%8d", vec![i64_(-42)]);
    line("%-8d", vec![i64_(-42)]);
    line("%08d", vec![i64_(-42)]);
    line("%8.4d", vec![i64_(-42)]);
    line("%ld", vec![(Type::U64, integer(-1))]);
    line("%lu", vec![i64_(-1)]);
    line("%llx", vec![i64_(-1)]);
    line(
        "%hd",
        vec![(
            Type::Integer(IntegerType {
                bytes: 2,
                signed: false,
            }),
            integer(0xffff),
        )],
    );
    line("%c", vec![(Type::I32, integer(65))]);
    line("%3c", vec![(Type::I32, integer(65))]);
    line("%C", vec![(Type::I32, integer(10))]);
    line("%wc", vec![(Type::I32, integer(0x20ac))]);
    line("%s", vec![text("hello")]);
    line("%10s", vec![text("hello")]);
    line("%-10s", vec![text("hello")]);
    line("%.3s", vec![text("hello")]);
    line("%.0s", vec![text("hello")]);
    line("%S", vec![text("tab\tquote\"")]);
    line("%s", vec![(Type::Bytes { size: Some(5) }, bytes(b"hello"))]);
    line(
        "%ws",
        vec![(Type::Bytes { size: Some(12) }, bytes(b"h\0\0\0i\0\0\0\0\0\0\0"))],
    );
    line("%p", vec![(Type::Pointer(None), integer(0x7fff_0000_1234))]);
    line("%?p", vec![(Type::Pointer(None), integer(0x1234))]);
    line("%a", vec![(Type::Pointer(None), integer(0x2049))]);
    line("%-24A", vec![(Type::Pointer(None), integer(0xffff))]);
    line("%Y", vec![i64_(1_297_987_200_000_000_000)]);
    line("%T", vec![i64_(1_297_987_200_000_000_000)]);
    line("%*d", vec![(Type::I32, integer(8)), i64_(-42)]);
    line("%*d", vec![(Type::I32, integer(-8)), i64_(-42)]);
    line(
        "%*.*s",
        vec![(Type::I32, integer(6)), (Type::I32, integer(2)), text("hello")],
    );
    line("%.*s", vec![(Type::I32, integer(-1)), text("hello")]);
    session.record((1, "f", "entry"), vec![printf("100%%\n", vec![])]);
    golden("conversions", &session.output());
}

// ---- aggregations --------------------------------------------------------------------------------------------------

/// Every function, over the same values.
fn every_function(session: &mut Session, keys: &[KeyType]) -> Vec<u32> {
    [
        Function::Count,
        Function::Sum,
        Function::Average,
        Function::Minimum,
        Function::Maximum,
        Function::StandardDeviation,
        Function::Quantize,
        Function::LinearQuantize {
            base: -10,
            limit: 30,
            step: 10,
        },
        Function::LogLinearQuantize {
            factor: 10,
            low: 0,
            high: 2,
            steps: 10,
        },
    ]
    .into_iter()
    .map(|function| session.aggregation(function, keys))
    .collect()
}

#[test]
fn every_function_without_a_key() {
    let mut session = Session::new(&[]);
    for id in every_function(&mut session, &[]) {
        session.values(id, &[], &[-12, -1, 0, 3, 5, 8, 29, 30, 1000]);
    }
    golden("functions", &session.output());
}

#[test]
fn every_function_with_keys() {
    let mut session = Session::new(&[]);
    for id in every_function(&mut session, &[KeyType::String, INT_KEY, INTEGER_KEY]) {
        session.values(id, &[string("one"), integer(-1), integer(10)], &[7, 9]);
        session.values(id, &[string("two"), integer(2), integer(-20)], &[1]);
    }
    golden("functions-keys", &session.output());
}

#[test]
fn normalised() {
    let mut session = Session::new(&["quiet"]);
    let ids = every_function(&mut session, &[]);
    for id in &ids {
        session.values(*id, &[], &[-4000, 1000, 2000, 8000]);
        session.record((1, "", "END"), vec![normalize(*id, 100), printa(None, &[*id])]);
    }
    session.record(
        (1, "", "END"),
        vec![
            plain(RecordKind::Denormalize(AggregationId(ids[1]))),
            printa(None, &[ids[1]]),
        ],
    );
    golden("normalised", &session.output());
}

#[test]
fn distributions() {
    let mut session = Session::new(&[]);
    let quantize = |session: &mut Session, weights: &[(i64, i64)]| {
        let id = session.aggregation(Function::Quantize, &[]);
        weights
            .iter()
            .for_each(|(value, weight)| session.aggregate(id, &[], *value, *weight));
    };
    quantize(&mut session, &[(i64::MIN, 1), (i64::MAX, 1)]);
    quantize(&mut session, &[(0, 1), (1, 2), (4, 3)]);
    quantize(&mut session, &[(1, -1), (2, -3)]);
    quantize(&mut session, &[(-5, 2), (1, -1), (2, 3)]);
    quantize(&mut session, &[(1, 1), (1, -1)]);
    let linear = session.aggregation(
        Function::LinearQuantize {
            base: 0,
            limit: 100,
            step: 10,
        },
        &[],
    );
    session.values(linear, &[], &[-1, 5, 55, 99, 100, 7000]);
    let empty = session.aggregation(
        Function::LinearQuantize {
            base: 0,
            limit: 100,
            step: 10,
        },
        &[],
    );
    session.aggregate(empty, &[], 5, 0);
    let log = session.aggregation(
        Function::LogLinearQuantize {
            factor: 10,
            low: 3,
            high: 5,
            steps: 10,
        },
        &[],
    );
    session.values(log, &[], &[10, 1000, 1999, 2000, 99_999, 100_000, 999_999, 1_000_000]);
    let coarse = session.aggregation(
        Function::LogLinearQuantize {
            factor: 2,
            low: 0,
            high: 6,
            steps: 4,
        },
        &[],
    );
    session.values(coarse, &[], &[0, 1, 2, 3, 4, 5, 6, 7, 9, 31, 32, 100]);
    golden("distributions", &session.output());
}

fn sorted(options: &[&str]) -> String {
    let mut session = Session::new(options);
    let first = session.aggregation(Function::Sum, &[KeyType::String, INT_KEY]);
    let second = session.aggregation(Function::Count, &[INTEGER_KEY]);
    for (text, number, value) in [("b", 1, 5), ("a", 2, 5), ("a", -1, 5), ("c", 0, -7), ("d", 3, 100)] {
        session.aggregate(first, &[string(text), integer(number)], value, 1);
    }
    for key in [3, 1, 2, 1] {
        session.aggregate(second, &[integer(key)], 0, 1);
    }
    session.output()
}

#[test]
fn order() {
    let mut all = String::new();
    for options in [
        &[][..],
        &["aggsortrev"],
        &["aggsortkey"],
        &["aggsortkey", "aggsortkeypos=1"],
        &["aggsortkey", "aggsortrev", "aggsortkeypos=7"],
        &["aggsortkeypos=1"],
    ] {
        all.push_str(&format!("{}:\n{}\n", options.join(" "), sorted(options)));
    }
    golden("order", &all);
}

fn three_by_key(options: &[&str], format: Option<&str>) -> String {
    let mut session = Session::new(options);
    let count = session.aggregation(Function::Count, &[KeyType::String]);
    let sum = session.aggregation(Function::Sum, &[KeyType::String]);
    let average = session.aggregation(Function::Average, &[KeyType::String]);
    let unused = session.aggregation(Function::Maximum, &[KeyType::String]);
    for (key, values) in [("read", &[10, 20][..]), ("write", &[5]), ("open", &[1, 1, 1])] {
        session.values(count, &[string(key)], values);
        session.values(average, &[string(key)], values);
        if key != "write" {
            session.values(sum, &[string(key)], values);
        }
    }
    session.record((1, "", "END"), vec![printa(format, &[count, sum, average, unused])]);
    session.output()
}

#[test]
fn several_aggregations_in_one_printa() {
    let mut all = three_by_key(&[], None);
    for options in [&["aggsortpos=1"][..], &["aggsortkey"], &["aggsortrev", "aggsortpos=9"]] {
        all.push_str(&format!(
            "\n{}:\n{}",
            options.join(" "),
            three_by_key(options, Some("%-8s %@4d %@4x %@4u %@d %@d\n"))
        ));
    }
    golden("printa-joined", &all);
}

#[test]
fn printa_with_formats() {
    let mut session = Session::new(&["quiet"]);
    let stacks = session.aggregation(Function::Count, &[STACK_KEY, INTEGER_KEY]);
    let quantize = session.aggregation(Function::Quantize, &[KeyType::String]);
    let deviation = session.aggregation(Function::StandardDeviation, &[]);
    session.aggregate(
        stacks,
        &[
            nanoprobe_lang::interpret::Value::Stack(vec![0x1000, 0x2049]),
            integer(7),
        ],
        0,
        1,
    );
    session.values(quantize, &[string("read")], &[1, 2]);
    session.values(deviation, &[], &[1, 5, 9]);
    for format in [
        "%k%d %@d\n",
        "%-4k%d %@d\n",
        "%30k%@5x\n",
        "only text\n",
        "%@d of %@d\n",
    ] {
        session.record((1, "", "END"), vec![printa(Some(format), &[stacks])]);
    }
    session.record(
        (1, "", "END"),
        vec![
            printa(Some("<%10s>%@d\n"), &[quantize]),
            printa(Some("%@d\n"), &[deviation]),
        ],
    );
    golden("printa-formats", &session.output());
}

#[test]
fn clear_and_truncate() {
    let mut session = Session::new(&["quiet"]);
    let sum = session.aggregation(Function::Sum, &[KeyType::String]);
    let shrink = |session: &mut Session, action| {
        session.record((1, "", "tick-1s"), vec![action, printa(Some("%s %@d\n"), &[sum])]);
        session.output()
    };
    for (key, value) in [("a", 4), ("b", 3), ("c", 2), ("d", 1)] {
        session.aggregate(sum, &[string(key)], value, 1);
    }
    assert_eq!(shrink(&mut session, truncate(sum, Some(3))), "c 2\nb 3\na 4\n");
    assert_eq!(shrink(&mut session, truncate(sum, Some(-2))), "c 2\nb 3\n");
    // what is gone comes back when it is updated again, and begins anew
    session.aggregate(sum, &[string("d")], 10, 1);
    assert_eq!(
        shrink(&mut session, plain(RecordKind::Clear(AggregationId(sum)))),
        "b 0\nc 0\nd 0\n"
    );
    session.aggregate(sum, &[string("d")], 5, 1);
    assert_eq!(shrink(&mut session, truncate(sum, Some(99))), "b 0\nc 0\nd 5\n");
    assert_eq!(shrink(&mut session, truncate(sum, None)), "");
    session.aggregate(sum, &[string("a")], 0, 1); // a sum of nothing is an update all the same
    assert_eq!(shrink(&mut session, normalize(sum, 0)), "a 0\n");
}

#[test]
fn what_is_printed_is_not_printed_again() {
    let mut session = Session::new(&["quiet"]);
    let first = session.aggregation(Function::Count, &[]);
    let second = session.aggregation(Function::Count, &[]);
    session.aggregate(first, &[], 0, 1);
    session.aggregate(second, &[], 0, 5);
    session.record((1, "", "END"), vec![printa(Some("first %@d\n"), &[first])]);
    assert_eq!(session.output(), "first 1\n                1\n");
}

// ---- enumerations of the program's ------------------------------------------------------------------------------------

fn color() -> Foreign {
    let integer = IntegerType { bytes: 4, signed: true };
    let names = vec![("RED".to_owned(), 3), ("GREEN".to_owned(), -2)];
    Foreign::new("enum color".to_owned(), ForeignKind::Enumeration { integer, names })
}

/// A session with a value that has a name and one that has none: traced, formatted, and as keys.
fn of_colors(options: &[&str]) -> Session {
    let mut session = Session::new(options);
    let count = session.aggregation(Function::Count, &[KeyType::Enumeration(color()), INT_KEY]);
    session.aggregate(count, &[integer(-2), integer(7)], 0, 5);
    session.aggregate(count, &[integer(1), integer(7)], 0, 2);
    let int = Type::Integer(IntegerType { bytes: 4, signed: true });
    for value in [3, 4] {
        session.record((1, "paint", "entry"), vec![trace_name(&color(), value)]);
    }
    let (mut kind, values) = printf("<%6d|%d>", vec![(int.clone(), integer(-2)), (int, integer(-2))]);
    if let RecordKind::Printf { format, .. } = &mut kind {
        *format = Format::parse("<%6s|%d>").unwrap();
        format.names = vec![Some(color()), Some(color())];
    }
    session.record((1, "paint", "entry"), vec![(kind, values)]);
    session.record((1, "paint", "entry"), vec![printa(Some("%-6s %d %@d\n"), &[0])]);
    session.record((1, "paint", "entry"), vec![printa(None, &[0])]);
    session
}

#[test]
fn values_of_enumerations_have_names() {
    golden("enumerations", &of_colors(&[]).output());
    golden("enumerations-quiet", &of_colors(&["quiet"]).output());
    golden("enumerations-charts", &of_colors(&["quiet", "agghist"]).output());
    golden("enumerations-json", &of_colors(&[]).json());
}
