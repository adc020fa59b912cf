//! Which aggregations are static, where their words lie, and which key the tracer uses for them.
#![allow(clippy::unwrap_used)] // tests
mod support;

use nanoprobe_codegen::{ProbeKind, ProbeNames, static_key, static_slots, value_words};
use nanoprobe_lang::layout::Limits;
use nanoprobe_lang::program::*;
use support::build::*;
use support::machine::{LIMITS, Machine, agent, compile};

fn names() -> ProbeNames {
    let text = str::to_owned;
    ProbeNames {
        provider: text("pid100"),
        module: text("a.out"),
        function: text("func"),
        name: text("entry"),
        epid: 7,
        probe_id: 8,
        pid: 100,
        target_pid: 100,
    }
}

fn count(keys: Vec<Expression>) -> Program {
    program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count)
}

/// Keys of every static kind, alone and together.
fn static_keys() -> Vec<Expression> {
    vec![
        long(-5),
        text("literal"),
        cast(builtin(Builtin::Pid, INT), LONG),
        builtin(Builtin::TargetPid, INT),
        builtin(Builtin::EnabledProbeId, Type::U32),
        builtin(Builtin::ProbeId, Type::U32),
        builtin(Builtin::ProbeProvider, Type::String),
        builtin(Builtin::ProbeModule, Type::String),
        probefunc(),
        builtin(Builtin::ProbeName, Type::String),
        cast(int(300), integer_type(1, true)),
    ]
}

#[test]
fn value_words_are_the_contracts() {
    use AggregatingFunction::*;
    assert_eq!(value_words(Count), 1);
    for two in [Sum, Average] {
        assert_eq!(value_words(two), 2);
    }
    for four in [Minimum, Maximum, StandardDeviation] {
        assert_eq!(value_words(four), 4);
    }
    assert_eq!(value_words(Quantize), 128);
    assert_eq!(
        value_words(LinearQuantize {
            base: 0,
            limit: 100,
            step: 10
        }),
        12
    );
    // Bucket 0 around zero; 1-9 in steps of 1 (9 buckets), 10-99 in steps of 5 (18), 100-999 in steps of 50 (18), one
    // bucket above; and as many for negative values.
    assert_eq!(
        value_words(LogLinearQuantize {
            factor: 10,
            low: 0,
            high: 2,
            steps: 20
        }),
        1 + 2 * (9 + 18 + 18 + 1)
    );
}

#[test]
fn slots_follow_each_other_in_the_order_of_statements() {
    use AggregatingFunction::*;
    let statements = vec![
        aggregate(0, vec![], None),
        trace(arg(0)),
        aggregate(1, vec![arg(0)], Some(arg(1))),
        aggregate(2, static_keys(), Some(arg(1))),
        aggregate(1, vec![], Some(arg(1))),
        aggregate_keys(0, vec![KeyExpression::Stack(Stack::of_program(3))], None, None),
        aggregate(0, vec![builtin(Builtin::Tid, INT)], None),
        aggregate(0, vec![copyinstr(arg(0))], None),
    ];
    let program = program(None, statements)
        .aggregation(Count)
        .aggregation(Sum)
        .aggregation(Quantize);
    let slots = static_slots(&program, 0);
    let none = None;
    assert_eq!(
        slots.statements,
        [
            Some((0, 1)),
            none,
            none,
            Some((8, 128)),
            Some((8 * 129, 2)),
            none,
            none,
            none
        ]
    );
    assert_eq!(slots.bytes, 8 * 131);
    assert_eq!(static_slots(&program, 1), Default::default());
    for index in 0..8 {
        let key = static_key(&program, 0, index, &names(), LIMITS);
        assert_eq!(key.is_some(), slots.statements[index].is_some(), "statement {index}");
    }
}

/// The same aggregation may get one key from a static slot and another from the hash table, so the bytes must agree.
#[test]
fn a_static_key_is_what_the_agent_would_have_built() {
    for key in static_keys()
        .into_iter()
        .map(|key| vec![key])
        .chain([static_keys(), static_keys().into_iter().rev().collect()])
    {
        // If one element of a key is not static, the agent builds the whole key.
        let mut dynamic = key.clone();
        dynamic.push(arg(0));
        let mut machine = Machine::new(&compile(&count(dynamic), ProbeKind::Entry));
        machine.run([0x1234; 6]);
        let (_, built) = agent(|state| state.aggregates.keys().next().cloned()).unwrap();
        let expected = [
            static_key(&count(key), 0, 0, &names(), LIMITS).unwrap(),
            0x1234u64.to_le_bytes().to_vec(),
        ];
        assert_eq!(built, expected.concat());
    }
}

#[test]
fn static_strings_are_cut_where_the_agent_cuts_them() {
    let limits = Limits {
        strsize: 8,
        ustackframes: 1,
        jstackframes: 1,
        stackframes: 3,
        maxframes: 1,
    };
    let key = |text: &str| static_key(&count(vec![support::build::text(text)]), 0, 0, &names(), limits).unwrap();
    assert_eq!(key("1234567"), *b"1234567\0");
    assert_eq!(key("123456789"), *b"1234567\0");
    assert_eq!(key("12\x00345"), *b"12\0\0\0\0\0\0");
    assert_eq!(key(""), [0; 8]);
}
