//! Handlers run: their results, stores and calls, and that the target's registers do not change.
//!
//! Each test compiles one clause, places it in memory, enters it with every register set, and checks the changes.
#![allow(clippy::unwrap_used)] // tests

mod aggregations;
mod control;
mod records;
mod refusals;
mod statics;
#[path = "../support/mod.rs"]
mod support;
mod values;
mod variables;

use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::program::*;
use support::build::*;
use support::machine::{Machine, agent, compile};

const ARGUMENTS: [u64; 6] = [10, 20, 30, 40, 50, 60];

/// The value of an expression at a probe of this kind, found by `this->x = expression`.
fn value_at(kind: ProbeKind, value: Expression, arguments: [u64; 6]) -> u64 {
    let value_type = value.value_type.clone();
    let program = program(None, vec![assign(scalar(Scope::ClauseLocal, 0), value)]).clause_local(value_type);
    let mut machine = Machine::new(&compile(&program, kind));
    machine.run(arguments);
    machine.clause_locals[0]
}

fn value(value: Expression) -> u64 {
    value_at(ProbeKind::Entry, value, ARGUMENTS)
}

/// The fault of an expression: (enum np_fault, action, address).
fn fault(value: Expression) -> (u64, u64, u64) {
    let value_type = value.value_type.clone();
    let statements = vec![assign(scalar(Scope::ClauseLocal, 0), value), trace(int(1))];
    let program = program(None, statements).clause_local(value_type);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.clause_locals[0] = 0x5555;
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 0x5555, "a failed statement has no effect");
    agent(|state| {
        assert!(state.committed.is_empty(), "a failed clause commits nothing");
        assert_eq!(state.errors.len(), 1);
        state.errors[0]
    })
}
