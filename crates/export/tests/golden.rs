//! Whole outputs, compared byte for byte with the files in `golden/`.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use nanoprobe_lang::format::Format;
use nanoprobe_lang::program::{
    AggregatingFunction as Function, Foreign, ForeignKind, IntegerType, KeyType, RecordKind, Type,
};
use support::*;

// ---- common outputs ------------------------------------------------------------------------------------------------

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
         1  75978                     strlen:entry               3479933\n  \
         1  75977                    strlen:return               3482396\n  \
         1  75983                         strlen:b     10165584038273856\n"
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

// ---- enumerations of the program's ----------------------------------------------------------------------------------

fn color() -> Foreign {
    let integer = IntegerType { bytes: 4, signed: true };
    let names = vec![("RED".to_owned(), 3), ("GREEN".to_owned(), -2)];
    Foreign::new("enum color".to_owned(), ForeignKind::Enumeration { integer, names })
}

/// A session with two values of an enumeration, one with a name and one without: traced, formatted, and as keys.
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
