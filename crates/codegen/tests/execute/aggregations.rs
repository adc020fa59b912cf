//! Aggregations: static aggregations are updated in place, others through the agent.

use crate::ARGUMENTS;
use crate::support::agent::STATE;
use crate::support::build;
use crate::support::build::*;
use crate::support::machine::{Machine, TID, agent, calls, compile};
use nanoprobe_codegen::{ProbeKind, inline_counts};
use nanoprobe_lang::program::*;

#[test]
fn static_aggregations_are_updated_in_place_without_a_call() {
    use AggregatingFunction::*;
    let value = || Some(arg(0));
    let statements = vec![
        aggregate(0, vec![], None),
        aggregate(1, vec![probefunc()], value()),
        aggregate(2, vec![], value()),
        aggregate(3, vec![], value()),
        aggregate(4, vec![int(1), text("x")], value()),
    ];
    let mut program = program(None, statements);
    for function in [Count, Sum, Minimum, Maximum, Average] {
        program = program.aggregation(function);
    }
    let handler = compile(&program, ProbeKind::Entry);
    assert_eq!(handler.slot_bytes, 8 * 13);
    assert_eq!(handler.relocations, []);
    let mut machine = Machine::new(&handler);
    let slots = |machine: &Machine| std::array::from_fn::<u64, 13, _>(|index| machine.slot(8 * index));
    let minus = |value: i64| -value as u64;
    let right = |count: u64, sum: i64, least: i64, greatest: i64| {
        let (sum, least, greatest) = (sum as u64, least as u64, greatest as u64);
        let extreme = |value: u64| [value, count, 0, 0];
        let all = [
            vec![count, sum, count],
            extreme(least).to_vec(),
            extreme(greatest).to_vec(),
            vec![count, sum],
        ];
        all.concat()
    };
    machine.run([minus(5), 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine).to_vec(), right(1, -5, -5, -5));
    machine.run([8, 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine).to_vec(), right(2, 3, -5, 8));
    machine.run([minus(9), 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine).to_vec(), right(3, -6, -9, 8));
}

/// The tracer has raised the wanted epoch. Then the next value is stored in any case; later ones are compared again.
#[test]
fn an_extreme_begins_anew_with_its_epoch() {
    let statements = vec![aggregate(0, vec![], Some(arg(0)))];
    let program = program(None, statements).aggregation(AggregatingFunction::Maximum);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    let slots = |machine: &Machine| std::array::from_fn::<u64, 4, _>(|index| machine.slot(8 * index));
    machine.run([9, 0, 0, 0, 0, 0]);
    machine.set_slot(24, 5);
    machine.run([4, 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine), [4, 2, 5, 5]);
    machine.run([3, 0, 0, 0, 0, 0]);
    machine.run([6, 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine), [6, 4, 5, 5]);
}

#[test]
fn keyed_aggregations_are_found_by_the_agent() {
    let keys = vec![
        KeyExpression::Value(cast(arg(0), INT)),
        KeyExpression::Value(probefunc()),
        KeyExpression::Value(builtin(Builtin::Tid, INT)),
        KeyExpression::Stack(Stack::of_program(0)),
    ];
    let program =
        program(None, vec![aggregate_keys(0, keys, Some(arg(1)), None)]).aggregation(AggregatingFunction::Sum);
    let handler = compile(&program, ProbeKind::Entry);
    assert!(handler.full_frame);
    assert_eq!(handler.slot_bytes, 0);
    let mut machine = Machine::new(&handler);
    machine.run([-1i64 as u64, 20, 0, 0, 0, 0]);
    machine.run([-1i64 as u64, 22, 0, 0, 0, 0]);
    machine.run([1, 1, 0, 0, 0, 0]);
    assert_eq!(calls()[..4], ["key_string", "key_integer", "key_stack 20", "aggregate"]);
    let tail = [
        b"func\0\0\0\0".to_vec(),
        u64::from(TID).to_le_bytes().to_vec(),
        [2u64.to_le_bytes(), 0xaaau64.to_le_bytes(), 0xbbbu64.to_le_bytes()].concat(),
    ]
    .concat();
    let key = |first: i64| (0, [&first.to_le_bytes()[..], &tail].concat());
    agent(|state| {
        assert_eq!(state.aggregates.len(), 2);
        assert_eq!(*state.aggregates[&key(-1)], [42, 2]);
        assert_eq!(*state.aggregates[&key(1)], [1, 1]);
    });
    STATE.with_borrow_mut(|state| state.full = true);
    machine.run([1, 1, 0, 0, 0, 0]);
    agent(|state| assert_eq!(state.errors, [], "no room is a drop, not a fault"));
}

#[test]
fn a_key_that_is_too_long_is_a_fault() {
    let keys = (0..33).map(|_| arg(0)).collect();
    let program = program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(agent(|state| state.errors.clone()), [(4, 1, 0)]);
    let keys = (0..32).map(|_| arg(0)).chain([text("x")]).collect();
    let program = build::program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(agent(|state| state.errors.clone()), [(4, 1, 0)]);
    assert_eq!(calls(), ["key_string", "error"]);
}

#[test]
fn distributions_are_updated_by_the_agent() {
    use AggregatingFunction::*;
    let weighted = |number, weight| aggregate_keys(number, vec![], Some(arg(0)), weight);
    let statements = vec![
        weighted(0, None),
        weighted(1, Some(arg(1))),
        weighted(2, Some(long(3))),
        aggregate(3, vec![], Some(arg(0))),
    ];
    let program = program(None, statements)
        .aggregation(Quantize)
        .aggregation(LinearQuantize {
            base: -10,
            limit: 90,
            step: 10,
        })
        .aggregation(LogLinearQuantize {
            factor: 10,
            low: 0,
            high: 6,
            steps: 20,
        })
        .aggregation(StandardDeviation);
    let handler = compile(&program, ProbeKind::Entry);
    let mut machine = Machine::new(&handler);
    machine.run(ARGUMENTS);
    assert_eq!(
        calls(),
        [
            "quantize [a, 1]",
            "lquantize [a, 14, a000afffffff6]",
            "llquantize [a, 3, a000000060014]",
            "stddev [a]",
        ]
    );
    // The stub counts updates in the first word. So each aggregation was updated at its own place.
    let offsets = [0, 128 * 8, (128 + 12) * 8, handler.slot_bytes as usize - 4 * 8];
    assert_eq!(offsets.map(|offset| machine.slot(offset)), [1; 4]);
}

#[test]
fn counts_alone_need_no_handler() {
    use AggregatingFunction::{Count, Sum};
    let counts = |statements| {
        program(None, statements)
            .aggregation(Count)
            .aggregation(Count)
            .aggregation(Sum)
    };
    let both = || vec![aggregate(0, vec![], None), aggregate(1, vec![probefunc()], None)];
    assert_eq!(inline_counts(&counts(both()), 0), Some(vec![0, 8]));
    assert_eq!(inline_counts(&counts(vec![]), 0), None, "an empty clause records");
    assert_eq!(inline_counts(&counts(both()), 1), None);
    let with = |statement| {
        let mut statements = both();
        statements.push(statement);
        inline_counts(&counts(statements), 0)
    };
    assert_eq!(with(aggregate(2, vec![], Some(arg(0)))), None);
    assert_eq!(with(aggregate(0, vec![arg(0)], None)), None);
    assert_eq!(with(trace(int(1))), None);
    let mut conditional = counts(both());
    conditional.clauses[0].predicate = Some(arg(0));
    assert_eq!(inline_counts(&conditional, 0), None);
}
