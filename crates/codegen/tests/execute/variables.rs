//! Variables: their places, their values, elements of associative arrays.

use crate::support::build::*;
use crate::support::machine::{Machine, TID, agent, calls, compile};
use crate::{ARGUMENTS, value};
use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::program::*;

#[test]
fn variables_are_where_storage_says_and_narrow_ones_wrap() {
    let byte = integer_type(1, true);
    let statements = vec![
        assign(scalar(Scope::Global, 0), cast(arg(0), byte.clone())),
        Statement::Expression(increment(scalar(Scope::Global, 0), byte.clone(), 1, false)),
        assign(
            scalar(Scope::Global, 1),
            increment(scalar(Scope::Global, 0), byte.clone(), 1, true),
        ),
        assign(scalar(Scope::ThreadLocal, 0), arg(1)),
        Statement::Expression(assign_operator(
            scalar(Scope::ThreadLocal, 0),
            LONG,
            BinaryOperator::Multiply,
            long(3),
        )),
        Statement::Expression(assign_operator(
            scalar(Scope::Global, 2),
            INT,
            BinaryOperator::ShiftLeft,
            long(33),
        )),
    ];
    let program = program(None, statements)
        .global(byte.clone())
        .global(byte)
        .global(INT)
        .thread_local(LONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.set_global(2, 3);
    machine.run([126, 20, 0, 0, 0, 0]);
    assert_eq!(machine.global(1), 127, "the old value");
    assert_eq!(machine.global(0), -128i64 as u64, "wrapped and sign-extended");
    assert_eq!(machine.locals[0], 60);
    assert_eq!(machine.global(2), 0, "shifted by 33 in 64 bits, then cut to 32");
}

#[test]
fn strings_are_copied_into_variables_and_compared() {
    let word = |text: &[u8; 8]| u64::from_le_bytes(*text);
    let statements = vec![
        assign(scalar(Scope::Global, 0), text("hello")),
        assign(
            scalar(Scope::ClauseLocal, 0),
            read(scalar(Scope::Global, 0), Type::String),
        ),
        assign(
            scalar(Scope::ClauseLocal, 1),
            call(Function::StringLength, vec![probefunc()], ULONG),
        ),
        assign(scalar(Scope::ClauseLocal, 2), unary(UnaryOperator::Not, text(""))),
        assign(scalar(Scope::ClauseLocal, 3), unary(UnaryOperator::Not, probefunc())),
        assign(
            scalar(Scope::ClauseLocal, 4),
            binary(BinaryOperator::Less, text("a"), text("b")),
        ),
        assign(
            scalar(Scope::ClauseLocal, 5),
            binary(BinaryOperator::GreaterOrEqual, text("a"), text("b")),
        ),
    ];
    let mut program = program(None, statements)
        .global(Type::String)
        .clause_local(Type::String)
        .clause_local(ULONG);
    for _ in 0..4 {
        program = program.clause_local(INT);
    }
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.arena.fill(u64::MAX);
    machine.run(ARGUMENTS);
    assert_eq!(machine.global(0), word(b"hello\0\0\0"));
    assert_eq!(machine.global(7), 0, "the rest is zeroed");
    assert_eq!(machine.global(8), 0, "it is not NULL");
    assert_eq!(machine.global(9), u64::MAX, "and no more than that");
    assert_eq!(
        machine.clause_locals[..9],
        [word(b"hello\0\0\0"), 0, 0, 0, 0, 0, 0, 0, 0]
    );
    assert_eq!(machine.clause_locals[9..14], [4, 1, 0, 1, 0]);
}

#[test]
fn thread_locals_are_checked_for_a_new_thread() {
    let place = || scalar(Scope::ThreadLocal, 0);
    let program = program(Some(read(place(), LONG)), vec![assign(place(), arg(0))]).thread_local(LONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(calls(), Vec::<String>::new());
    *machine.tid = 5000;
    machine.run(ARGUMENTS);
    assert_eq!(calls(), ["thread_changed"]);
    machine.run(ARGUMENTS);
    assert_eq!(calls().len(), 1, "once");
    assert_eq!(value(builtin(Builtin::Tid, INT)), u64::from(TID));
}

#[test]
fn associative_arrays_keep_what_they_are_given() {
    let keys = || vec![arg(0), text("key")];
    let place = |scope, keys| element(scope, 0, keys);
    let numbers = vec![LONG, Type::String];
    let statements = vec![
        Statement::Expression(assign_operator(
            place(Scope::Global, keys()),
            LONG,
            BinaryOperator::Add,
            arg(1),
        )),
        Statement::Expression(increment(place(Scope::ThreadLocal, vec![arg(2)]), LONG, 1, true)),
        assign(scalar(Scope::ClauseLocal, 0), read(place(Scope::Global, keys()), LONG)),
        assign(
            scalar(Scope::ClauseLocal, 1),
            read(place(Scope::Global, vec![long(1), text("none")]), LONG),
        ),
    ];
    let program = program(None, statements)
        .global_array(LONG, numbers)
        .thread_local_array(LONG, vec![LONG])
        .clause_local(LONG)
        .clause_local(LONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[..2], [40, 0]);
    let global = [10u64.to_le_bytes(), *b"key\0\0\0\0\0"].concat();
    let local = [u64::from(TID).to_le_bytes(), 30u64.to_le_bytes()].concat();
    agent(|state| {
        assert_eq!(state.dynamic.len(), 2);
        assert_eq!(*state.dynamic[&(0, global)], [40]);
        assert_eq!(*state.dynamic[&(1 << 31, local)], [2], "the thread's id comes first");
    });
}

#[test]
fn string_elements_are_copied_and_null_deletes_them() {
    let place = |keys| element(Scope::Global, 0, keys);
    let array = |statements| {
        program(None, statements)
            .global_array(Type::String, vec![LONG])
            .clause_local(INT)
    };
    let stored = binary(
        BinaryOperator::Equal,
        read(place(vec![arg(0)]), Type::String),
        text("stored"),
    );
    let absent = binary(BinaryOperator::Equal, read(place(vec![arg(0)]), Type::String), text(""));
    let store = array(vec![
        assign(place(vec![arg(0)]), text("stored")),
        assign(scalar(Scope::ClauseLocal, 0), stored),
    ]);
    let mut machine = Machine::new(&compile(&store, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 1);
    let delete = array(vec![
        assign(place(vec![arg(0)]), text("stored")),
        assign(place(vec![arg(0)]), number(0, Type::String)),
        assign(scalar(Scope::ClauseLocal, 0), absent),
    ]);
    let mut machine = Machine::new(&compile(&delete, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 1);
    assert!(agent(|state| state.dynamic.is_empty()));
}

#[test]
fn an_element_indexed_by_an_element_does_not_mix_up_their_keys() {
    // x[x[1]] = x[2], with x[1] = 5 and x[2] = 6. There is only one key buffer.
    let place = |key| element(Scope::Global, 0, vec![key]);
    let statements = vec![
        assign(place(long(1)), long(5)),
        assign(place(long(2)), long(6)),
        assign(place(read(place(long(1)), LONG)), read(place(long(2)), LONG)),
    ];
    let program = program(None, statements).global_array(LONG, vec![LONG]);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    machine.run(ARGUMENTS);
    agent(|state| assert_eq!(*state.dynamic[&(0, 5u64.to_le_bytes().to_vec())], [6]));
}
