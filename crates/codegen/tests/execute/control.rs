//! Which parts of a clause are evaluated: predicates, short circuits, clocks that are read once, clauses that a fault
//! ends.

use crate::ARGUMENTS;
use crate::support::build::*;
use crate::support::machine::{Machine, agent, calls, compile};
use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::program::*;

#[test]
fn a_predicate_decides_before_anything_else_happens() {
    let greater = binary(BinaryOperator::Greater, arg(0), long(9));
    let program = program(Some(greater), vec![trace(arg(0))]);
    let handler = compile(&program, ProbeKind::Entry);
    let mut machine = Machine::new(&handler);
    machine.run([9, 0, 0, 0, 0, 0]);
    assert_eq!(calls(), Vec::<String>::new());
    machine.run([10, 0, 0, 0, 0, 0]);
    assert_eq!(calls(), ["reserve", "commit"]);
    machine.run([-1i64 as u64, 0, 0, 0, 0, 0]);
    assert_eq!(calls().len(), 2, "the comparison is signed");
}

#[test]
fn a_fault_in_the_predicate_is_reported_as_action_0() {
    let predicate = binary(BinaryOperator::Divide, long(1), arg(0));
    let program = program(Some(predicate), vec![trace(arg(1))]);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run([0; 6]);
    assert_eq!(agent(|state| state.errors.clone()), [(2, 0, 0)]);
    assert_eq!(calls(), ["error"]);
}

#[test]
fn an_operand_that_cannot_change_the_result_is_not_evaluated() {
    // Each operand leaves a trace in its own variable.
    let mark = |variable: u32, value: i64| assignment(scalar(Scope::ClauseLocal, variable), long(value));
    let run = |value: Expression| {
        let program = program(None, vec![assign(scalar(Scope::ClauseLocal, 0), cast(value, LONG))])
            .clause_local(LONG)
            .clause_local(LONG)
            .clause_local(LONG);
        let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
        machine.clause_locals[..3].fill(0x99);
        machine.run(ARGUMENTS);
        [
            machine.clause_locals[0],
            machine.clause_locals[1],
            machine.clause_locals[2],
        ]
    };
    let both = |operator, left, right| run(logical(operator, mark(1, left), mark(2, right)));
    assert_eq!(both(LogicalOperator::And, 0, 5), [0, 0, 0x99]);
    assert_eq!(both(LogicalOperator::And, 4, 0), [0, 4, 0]);
    assert_eq!(both(LogicalOperator::And, 4, 5), [1, 4, 5]);
    assert_eq!(both(LogicalOperator::Or, 4, 5), [1, 4, 0x99]);
    assert_eq!(both(LogicalOperator::Or, 0, 5), [1, 0, 5]);
    assert_eq!(both(LogicalOperator::Or, 0, 0), [0, 0, 0]);
    assert_eq!(both(LogicalOperator::Xor, 4, 5), [0, 4, 5]);
    assert_eq!(both(LogicalOperator::Xor, 0, 5), [1, 0, 5]);
    assert_eq!(
        run(unary(
            UnaryOperator::Not,
            logical(LogicalOperator::And, mark(1, 4), mark(2, 0))
        )),
        [1, 4, 0]
    );
    assert_eq!(run(conditional(mark(1, 1), mark(2, 7), long(8))), [7, 1, 7]);
    assert_eq!(run(conditional(mark(1, 0), mark(2, 7), long(8))), [8, 0, 0x99]);
}

#[test]
fn a_clock_is_read_once_in_a_clause_whatever_the_path() {
    // this->x = arg0 ? timestamp : 0; this->y = timestamp; this->z = timestamp;
    let statements = vec![
        assign(
            scalar(Scope::ClauseLocal, 0),
            conditional(arg(0), timestamp(), number(0, ULONG)),
        ),
        assign(scalar(Scope::ClauseLocal, 1), timestamp()),
        assign(scalar(Scope::ClauseLocal, 2), timestamp()),
    ];
    let program = program(None, statements)
        .clause_local(ULONG)
        .clause_local(ULONG)
        .clause_local(ULONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run([1, 0, 0, 0, 0, 0]);
    assert_eq!(machine.clause_locals[..3], [1000, 1000, 1000]);
    machine.run([0; 6]);
    assert_eq!(machine.clause_locals[..3], [0, 2000, 2000]);
    assert_eq!(calls(), ["timestamp", "timestamp"]);
}

#[test]
fn a_clock_in_a_skipped_operand_is_not_read() {
    let later = |operator| {
        let reached = binary(BinaryOperator::Greater, timestamp(), number(0, ULONG));
        let program = program(
            Some(logical(operator, arg(0), reached)),
            vec![assign(scalar(Scope::ClauseLocal, 0), timestamp())],
        )
        .clause_local(ULONG);
        let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
        [0, 1].map(|argument| {
            machine.clause_locals[0] = 0;
            machine.run([argument, 0, 0, 0, 0, 0]);
            (machine.clause_locals[0], calls().len())
        })
    };
    assert_eq!(later(LogicalOperator::And), [(0, 0), (1000, 1)]);
    assert_eq!(later(LogicalOperator::Or), [(1000, 1), (2000, 2)]);
}

#[test]
fn a_fault_ends_the_clause_and_names_its_action() {
    let statements = vec![
        aggregate(0, vec![], None),
        trace(arg(1)),
        trace(load(arg(0), INT)),
        aggregate(0, vec![], None),
    ];
    let program = program(None, statements).aggregation(AggregatingFunction::Count);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(calls(), ["reserve", "load", "error"]);
    assert_eq!(agent(|state| state.errors.clone()), [(1, 3, 10)]);
    assert_eq!(
        (machine.slot(0), machine.slot(8)),
        (1, 0),
        "what came before stays, nothing comes after"
    );
}
