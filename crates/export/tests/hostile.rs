//! Whatever the target has overwritten, the result is text or an error.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use nanoprobe_export::{AggregateTable, Error, Event, Printer, ProbeName, Snapshot, Text};
use nanoprobe_lang::layout::record_layout;
use nanoprobe_lang::program::{
    AggregatingFunction as Function, AggregationId, Clause, KeyType, RecordAction, Statement, Type,
};
use nanoprobe_lang::source::Span;
use proptest::prelude::*;
use support::*;

const FUNCTIONS: [Function; 9] = [
    Function::Count,
    Function::Sum,
    Function::Average,
    Function::Minimum,
    Function::Maximum,
    Function::StandardDeviation,
    Function::Quantize,
    Function::LinearQuantize {
        base: i32::MAX - 1,
        limit: i32::MAX,
        step: 1,
    },
    Function::LogLinearQuantize {
        factor: 10,
        low: 0,
        high: 18,
        steps: 10,
    },
];

/// A clause with one action of every kind.
fn clause() -> Clause {
    let values = vec![
        (Type::I32, integer(0)),
        (Type::I32, integer(0)),
        (Type::I64, integer(0)),
        (Type::String, string("")),
        (Type::I64, integer(0)),
        (Type::Pointer(None), integer(0)),
        (Type::I32, integer(0)),
    ];
    let kinds = [
        trace((Type::I64, integer(0))).0,
        trace((I8, integer(0))).0,
        trace((Type::String, string(""))).0,
        trace((Type::Bytes { size: Some(33) }, bytes(&[]))).0,
        ustack(&[]).0,
        printf("%*.*d %S %Y %a %wc\n", values).0,
        normalize(0, 0).0,
        truncate(0, Some(0)).0,
        printa(None, &[0, 1, 9]).0,
        exit(0).0,
    ];
    let statements = kinds.into_iter().map(|kind| {
        Statement::Record(RecordAction {
            kind,
            span: Span::default(),
        })
    });
    Clause {
        probes: Vec::new(),
        predicate: None,
        statements: statements.collect(),
        span: Span::default(),
        derived: None,
    }
}

/// Prints a record of these bytes; yields the output or the error.
fn print(record: &[u8], options: &[&str]) -> Result<String, Error> {
    let mut session = Session::new(options);
    session.aggregation(Function::Sum, &[KeyType::String]);
    session.aggregation(Function::Quantize, &[KeyType::String]);
    session.aggregate(0, &[string("key")], -5, 1);
    session.aggregate(1, &[string("other")], -5, i64::MIN);
    session.table.add(&session.program, session.snapshot.clone());
    let clause = clause();
    let layout = record_layout(&clause, session.limits());
    let probe = ProbeName {
        function: "f".to_owned(),
        name: "entry".to_owned(),
        ..ProbeName::default()
    };
    let event = Event {
        epid: 7,
        probe: &probe,
        clause: &clause,
        layout: &layout,
        cpu: 0,
        thread: 0,
        record,
        next: None,
    };
    let mut out = Vec::new();
    let mut printer = Printer::new(
        &session.program,
        &session.options,
        Box::new(Text::new(&session.options, false)),
    );
    printer.record(&mut out, &event, &mut session.table, &mut Names)?;
    printer.finish(&mut out, &session.table, &mut Names)?;
    Ok(String::from_utf8_lossy(&out).into_owned())
}

fn record_bytes() -> usize {
    record_layout(&clause(), Session::new(&[]).limits()).bytes as usize
}

#[test]
fn a_short_record_is_reported_and_not_printed() {
    let error = print(&vec![0; record_bytes() - 1], &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "record of enabled probe 7 is damaged: it has {} bytes, its clause writes {}",
            record_bytes() - 1,
            record_bytes()
        )
    );
}

#[test]
fn a_snapshot_refuses_malformed_keys() {
    let mut session = Session::new(&[]);
    let id = session.aggregation(Function::Count, &[KeyType::String]);
    let mut snapshot = Snapshot::new();
    assert!(!snapshot.add(&session.program, id + 1, b"\0\0\0\0\0\0\0\0", &[1]));
    assert!(!snapshot.add(&session.program, id, b"no NUL..", &[1]));
    assert!(!snapshot.update(&session.program, AggregationId(9), &[], 1, 1));
    let mut table = AggregateTable::new();
    table.add(&session.program, snapshot);
    assert!(table.rows(&session.program, AggregationId(id)).is_empty());
}

proptest! {
    #[test]
    fn any_record_is_printed(
        seed in proptest::collection::vec(any::<u8>(), 64),
        quiet in any::<bool>(),
        flow in any::<bool>(),
    ) {
        let record: Vec<u8> = seed.iter().copied().cycle().take(record_bytes()).collect();
        let mut options = vec!["strsize=256"];
        options.extend(quiet.then_some("quiet"));
        options.extend(flow.then_some("flowindent"));
        let printed = print(&record, &options).unwrap();
        prop_assert!(printed.len() < 1 << 20, "{} bytes", printed.len());
    }

    #[test]
    fn any_words_are_printed(words in proptest::collection::vec(any::<u64>(), 0..200), normal in any::<i64>()) {
        for function in FUNCTIONS {
            let mut session = Session::new(&["quiet"]);
            let id = session.aggregation(function, &[]);
            prop_assert!(session.snapshot.add(&session.program, id, &[], &words));
            prop_assert!(session.snapshot.add(&session.program, id, &[], &words));
            session.record((1, "f", "entry"), vec![normalize(id, normal), printa(Some("%@d"), &[id])]);
            session.record((1, "f", "entry"), vec![truncate(id, Some(normal)), printa(None, &[id, id])]);
            let printed = session.output();
            prop_assert!(!printed.is_empty());
        }
    }
}
