//! Handlers run: what they compute, write and call, and that the target's registers survive them.
//!
//! Each test compiles one clause, places it in memory, enters it with every register set, and looks at what changed.
#![allow(clippy::unwrap_used)] // tests
mod support;

use nanoprobe_codegen::{Error, MAX_EXPRESSION_DEPTH, ProbeKind, inline_counts};
use nanoprobe_lang::program::*;
use support::agent::STATE;
use support::build::*;
use support::machine::{self, Machine, TID, agent, calls, compile, try_compile};

const ARGUMENTS: [u64; 6] = [10, 20, 30, 40, 50, 60];

/// The value of an expression at a probe of this kind, by way of `this->x = expression`.
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

/// The fault that an expression ends in: (enum np_fault, action, address).
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

#[test]
fn arguments_at_an_entry_come_from_registers_then_from_the_stack() {
    for (index, expected) in [(0, 10), (1, 20), (2, 30), (3, 40), (4, 50), (5, 60)] {
        assert_eq!(value(arg(index)), expected, "arg{index}");
    }
    // The machine's stack holds 0x5000, 0x5001, ...: the return address first.
    for (index, expected) in [(6, 0x5001), (7, 0x5002), (9, 0x5004)] {
        assert_eq!(value(arg(index)), expected, "arg{index}");
        assert_eq!(
            value_at(ProbeKind::Offset, arg(index), ARGUMENTS),
            expected,
            "arg{index}"
        );
    }
}

#[test]
fn arguments_at_a_return_are_the_offset_and_the_value() {
    let at = |index| value_at(ProbeKind::Return, arg(index), ARGUMENTS);
    assert_eq!(at(0), 0x2a);
    // The frame's words are 0xf000 + index; rax is the third of struct np_frame.
    assert_eq!(at(1), 0xf000 + 15);
    assert_eq!(at(2), 30);
    for index in 3..10 {
        assert_eq!(at(index), 0);
    }
}

#[test]
fn registers_are_numbered_as_illumos_numbers_them() {
    let frame = |index: u64| 0xf000 + index;
    let expected = [
        (0, frame(14)), // r15
        (1, frame(0)),  // r14
        (2, frame(1)),
        (3, frame(2)),
        (4, frame(3)),
        (5, frame(4)),
        (6, frame(5)),   // r9
        (7, frame(6)),   // r8
        (8, frame(8)),   // rdi
        (9, frame(9)),   // rsi
        (10, frame(7)),  // rbp
        (11, frame(12)), // rbx
        (12, frame(10)), // rdx
        (13, frame(11)), // rcx
        (14, frame(15)), // rax
        (15, 0),
        (17, 0x40_1234), // rip
        (18, 0x33),
        (21, 0x2b),
        (26, 0x7f00_0000_1000), // fsbase
        (27, 0),
    ];
    for (number, expected) in expected {
        assert_eq!(value(uregs(int(number))), expected, "constant {number}");
        assert_eq!(
            value_at(ProbeKind::Entry, uregs(arg(0)), [number as u64, 0, 0, 0, 0, 0]),
            expected,
            "{number}"
        );
    }
    for bad in [-1, 28, i32::MAX] {
        assert_eq!(fault(uregs(int(bad))), (6, 1, 0));
        assert_eq!(
            fault(uregs(binary(
                BinaryOperator::Subtract,
                arg(0),
                long(10 - i64::from(bad))
            ))),
            (6, 1, 0)
        );
    }
}

#[test]
fn the_flags_register_is_put_together_from_lahf_and_seto() {
    let program = program(None, vec![assign(scalar(Scope::ClauseLocal, 0), uregs(int(19)))]).clause_local(ULONG);
    let handler = compile(&program, ProbeKind::Offset);
    assert!(handler.full_frame);
    let mut machine = Machine::new(&handler);
    // ah: SF and CF and bit 1; al: OF. Above ax: whatever rax held.
    machine.frame[13] = 0xdead_beef_0000_0000 | 0x83 << 8 | 1;
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 0x83 | 1 << 11 | 1 << 9);
    let program = support::build::program(None, vec![assign(scalar(Scope::ClauseLocal, 0), uregs(int(20)))]);
    let mut machine = Machine::new(&compile(&program.clause_local(ULONG), ProbeKind::Offset));
    machine.run(ARGUMENTS);
    assert_eq!(
        machine.clause_locals[0],
        machine.stack.as_ptr() as u64,
        "rsp is the one at the site"
    );
}

#[test]
fn builtins_come_from_session_context_and_enabling() {
    let of = |which| value(builtin(which, ULONG));
    assert_eq!(of(Builtin::Pid), 100);
    assert_eq!(of(Builtin::TargetPid), 100);
    assert_eq!(of(Builtin::Ppid), 99);
    assert_eq!(of(Builtin::Uid), 1000);
    assert_eq!(of(Builtin::Gid), 1001);
    assert_eq!(of(Builtin::Tid), u64::from(TID));
    assert_eq!(of(Builtin::Cpu), 3);
    assert_eq!(of(Builtin::EnabledProbeId), 7);
    assert_eq!(of(Builtin::ProbeId), 8);
    assert_eq!(of(Builtin::UserCaller), 0xca11);
    for (which, name) in [
        (Builtin::ProbeProvider, "pid100"),
        (Builtin::ProbeModule, "a.out"),
        (Builtin::ProbeFunction, "func"),
        (Builtin::ProbeName, "entry"),
        (Builtin::ExecName, "looper"),
    ] {
        let compared = binary(BinaryOperator::Equal, builtin(which, Type::String), text(name));
        assert_eq!(value(compared), 1, "{name}");
    }
}

#[test]
fn division_by_zero_is_a_fault_and_overflow_wraps() {
    let minimum = || long(i64::MIN);
    let minus_one = || binary(BinaryOperator::Subtract, arg(0), long(11));
    assert_eq!(
        value(binary(BinaryOperator::Divide, minimum(), minus_one())),
        i64::MIN as u64
    );
    assert_eq!(
        value(binary(BinaryOperator::Divide, minimum(), long(-1))),
        i64::MIN as u64
    );
    assert_eq!(value(binary(BinaryOperator::Remainder, minimum(), minus_one())), 0);
    assert_eq!(value(binary(BinaryOperator::Remainder, minimum(), long(-1))), 0);
    assert_eq!(value(binary(BinaryOperator::Divide, arg(4), arg(1))), 2);
    assert_eq!(
        value(binary(
            BinaryOperator::Divide,
            unary(UnaryOperator::Negate, arg(4)),
            arg(1)
        )),
        -2i64 as u64
    );
    let zero = || binary(BinaryOperator::Subtract, arg(0), long(10));
    for operator in [BinaryOperator::Divide, BinaryOperator::Remainder] {
        assert_eq!(fault(binary(operator, arg(1), zero())), (2, 1, 0));
        assert_eq!(fault(binary(operator, arg(1), long(0))), (2, 1, 0));
        assert_eq!(
            fault(binary(operator, cast(arg(1), ULONG), cast(zero(), ULONG))),
            (2, 1, 0)
        );
        assert_eq!(fault(binary(operator, cast(arg(1), INT), cast(zero(), INT))), (2, 1, 0));
    }
}

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
fn logic_is_evaluated_no_further_than_needed() {
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
    assert_eq!(machine.global(2), 6, "a 32-bit shift by 33 is one by 1");
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
    assert_eq!(machine.global(8), u64::MAX, "and no more than that");
    assert_eq!(machine.clause_locals[..8], [word(b"hello\0\0\0"), 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(machine.clause_locals[8..13], [4, 1, 0, 1, 0]);
}

#[test]
fn memory_of_the_target_is_read_through_the_agent() {
    let target = std::ffi::CString::new("from the target").unwrap();
    let words: [u32; 2] = [0xffff_fffe, 7];
    let addresses = [target.as_ptr() as u64, words.as_ptr() as u64, 8, 0, 0, 0];
    let equal = binary(BinaryOperator::Equal, copyinstr(arg(0)), text("from the target"));
    assert_eq!(value_at(ProbeKind::Entry, equal, addresses), 1);
    let first_four = call(Function::CopyInString, vec![arg(0), long(5)], Type::String);
    let equal = binary(BinaryOperator::Equal, first_four, text("from"));
    assert_eq!(value_at(ProbeKind::Entry, equal, addresses), 1);
    let of_bytes = binary(
        BinaryOperator::Equal,
        cast(copyin(arg(0), 8), Type::String),
        text("from the"),
    );
    assert_eq!(value_at(ProbeKind::Entry, of_bytes, addresses), 1);
    let of_pointer = binary(
        BinaryOperator::Equal,
        cast(arg(0), Type::String),
        text("from the target"),
    );
    assert_eq!(value_at(ProbeKind::Entry, of_pointer, addresses), 1);
    assert_eq!(value_at(ProbeKind::Entry, load(arg(1), INT), addresses), -2i64 as u64);
    assert_eq!(
        value_at(ProbeKind::Entry, load(arg(1), Type::U32), addresses),
        0xffff_fffe
    );
    assert_eq!(
        value_at(ProbeKind::Entry, load(arg(1), integer_type(1, true)), addresses),
        -2i64 as u64
    );
    assert_eq!(
        value_at(ProbeKind::Entry, load(arg(1), ULONG), addresses),
        0x7_ffff_fffe
    );
    // arg0 is 10: no address.
    assert_eq!(fault(load(arg(0), INT)), (1, 1, 10));
    assert_eq!(
        fault(call(Function::StringLength, vec![copyinstr(arg(1))], ULONG)),
        (1, 1, 20)
    );
    assert_eq!(fault(load(copyin(arg(2), 4), INT)), (1, 1, 30));
}

#[test]
fn scratch_memory_starts_empty_in_every_clause() {
    let target = [0x41u8; 600];
    let program = program(None, vec![Statement::Expression(copyin(arg(0), 512))]);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    for _ in 0..3 {
        machine.run([target.as_ptr() as u64, 0, 0, 0, 0, 0]);
    }
    assert_eq!(agent(|state| state.errors.clone()), []);
    assert_eq!(calls(), ["copyin"; 3]);
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
fn a_clock_behind_logic_is_read_only_when_reached() {
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
fn thread_locals_of_a_new_thread_are_asked_for() {
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
    // x[x[1]] = x[2], with x[1] = 5 and x[2] = 6: there is one key buffer.
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
    assert_eq!(handler.slot_bytes, 8 * 9);
    assert_eq!(handler.relocations, []);
    let mut machine = Machine::new(&handler);
    let slots = |machine: &Machine| std::array::from_fn::<u64, 9, _>(|index| machine.slot(8 * index));
    let minus = |value: i64| -value as u64;
    machine.run([minus(5), 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine), [1, minus(5), 1, minus(5), 1, minus(5), 1, 1, minus(5)]);
    machine.run([8, 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine), [2, 3, 2, minus(5), 2, 8, 2, 2, 3]);
    machine.run([minus(9), 0, 0, 0, 0, 0]);
    assert_eq!(slots(&machine), [3, minus(6), 3, minus(9), 3, 8, 3, 3, minus(6)]);
}

#[test]
fn keyed_aggregations_are_found_by_the_agent() {
    let keys = vec![
        KeyExpression::Value(cast(arg(0), INT)),
        KeyExpression::Value(probefunc()),
        KeyExpression::Value(builtin(Builtin::Tid, INT)),
        KeyExpression::UserStack { frames: 0 },
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
    let program = support::build::program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count);
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
    // The stub counts updates in the first word: so each went to its own place.
    let offsets = [0, 128 * 8, (128 + 12) * 8, handler.slot_bytes as usize - 4 * 8];
    assert_eq!(offsets.map(|offset| machine.slot(offset)), [1; 4]);
}

#[test]
fn records_carry_their_fields_in_place() {
    let target = [1u8, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13];
    let long_target = [0x41u8; 83];
    let statements = vec![
        trace(cast(arg(2), integer_type(1, true))),
        trace(probefunc()),
        record(RecordKind::UserStack { frames: 4 }),
        trace(copyin(arg(0), 13)),
        trace(copyin(arg(1), 83)),
        record(RecordKind::Exit(int(3))),
    ];
    let program = program(None, statements);
    let handler = compile(&program, ProbeKind::Entry);
    assert!(handler.full_frame);
    let mut machine = Machine::new(&handler);
    machine.run([target.as_ptr() as u64, long_target.as_ptr() as u64, 0xff, 0, 0, 0]);
    assert_eq!(
        calls(),
        ["reserve", "strcpy", "ustack 4", "copyin", "copyin", "commit", "exit"],
        "the record is complete before the session ends"
    );
    agent(|state| {
        assert_eq!(state.exits, [3]);
        let record = &state.committed[0];
        let layout = nanoprobe_lang::layout::record_layout(&program.clauses[0], machine::LIMITS);
        assert_eq!(record.len(), layout.bytes as usize);
        assert_eq!(
            record[..8],
            [7, 0, 0, 0, layout.bytes as u8, (layout.bytes >> 8) as u8, 0, 0]
        );
        let field = |index: usize| {
            let field = &layout.fields[index];
            &record[field.offset as usize..][..field.bytes as usize]
        };
        assert_eq!(field(0), (-1i64).to_le_bytes());
        assert_eq!(&field(1)[..5], b"func\0");
        assert_eq!(
            field(2)[..24],
            [2u64.to_le_bytes(), 0xaaau64.to_le_bytes(), 0xbbbu64.to_le_bytes()].concat()
        );
        assert_eq!(field(3), target);
        assert_eq!(field(4), long_target);
        assert_eq!(field(5), 3i64.to_le_bytes());
    });
}

#[test]
fn a_clause_without_room_for_its_record_does_nothing() {
    let statements = vec![
        assign(scalar(Scope::Global, 0), long(1)),
        trace(arg(0)),
        record(RecordKind::Exit(int(0))),
    ];
    let program = program(None, statements).global(LONG);
    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    STATE.with_borrow_mut(|state| state.full = true);
    machine.run(ARGUMENTS);
    assert_eq!(calls(), ["reserve"]);
    assert_eq!(machine.global(0), 0);
}

#[test]
fn an_empty_clause_records_its_header_only() {
    let mut machine = Machine::new(&compile(&program(None, vec![]), ProbeKind::Entry));
    machine.run(ARGUMENTS);
    assert_eq!(
        agent(|state| state.committed.clone()),
        [[[7, 0, 0, 0, 24, 0, 0, 0], [0xee; 8], [0xee; 8]].concat()]
    );
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

#[test]
fn light_frames_suffice_for_most_clauses() {
    let light = program(None, vec![trace(arg(0)), trace(arg(7)), trace(timestamp())]);
    assert!(!compile(&light, ProbeKind::Entry).full_frame);
    let caller = program(None, vec![trace(builtin(Builtin::UserCaller, ULONG))]);
    assert!(compile(&caller, ProbeKind::Entry).full_frame);
    // The frame's rax is in the light part.
    assert!(!compile(&light, ProbeKind::Return).full_frame);
}

#[test]
fn what_cannot_be_compiled_is_refused() {
    let storage = nanoprobe_lang::layout::Storage::default();
    let empty = Program::default();
    let mut compiler = nanoprobe_codegen::Compiler::new().unwrap();
    let refused = compiler.compile(
        &empty,
        0,
        ProbeKind::Entry,
        &storage,
        machine::LIMITS,
        &machine::arena_layout(),
    );
    assert_eq!(refused, Err(Error::NoSuchClause { clause: 0, count: 0 }));

    let deep = |levels: usize| (0..levels).fold(arg(0), |inner, _| unary(UnaryOperator::Complement, inner));
    let refused = try_compile(
        &program(None, vec![trace(deep(MAX_EXPRESSION_DEPTH))]),
        ProbeKind::Entry,
    );
    assert!(matches!(refused, Err(Error::TooDeep { .. })), "{refused:?}");
    assert!(
        try_compile(
            &program(None, vec![trace(deep(MAX_EXPRESSION_DEPTH - 1))]),
            ProbeKind::Entry
        )
        .is_ok()
    );

    let undeclared = program(None, vec![assign(scalar(Scope::Global, 3), long(1))]);
    assert!(matches!(
        try_compile(&undeclared, ProbeKind::Entry),
        Err(Error::Malformed { .. })
    ));
    let undeclared = program(None, vec![aggregate(0, vec![], None)]);
    assert!(matches!(
        try_compile(&undeclared, ProbeKind::Entry),
        Err(Error::Malformed { .. })
    ));

    // A hundred values that are all alive at once need a hundred words of stack.
    let live = |count: u32| {
        let keys = (0..count)
            .map(|index| binary(BinaryOperator::Add, arg(0), long(index.into())))
            .collect();
        try_compile(
            &program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count),
            ProbeKind::Entry,
        )
    };
    assert!(live(100).is_ok_and(|handler| handler.stack_bytes < 2048));
}

#[test]
fn a_compiler_is_as_good_as_new_after_an_error() {
    let mut compiler = nanoprobe_codegen::Compiler::new().unwrap();
    let mut compile = |program: &Program| {
        let storage = nanoprobe_lang::layout::Storage::new(program, machine::LIMITS);
        compiler.compile(
            program,
            0,
            ProbeKind::Entry,
            &storage,
            machine::LIMITS,
            &machine::arena_layout(),
        )
    };
    let good = program(None, vec![trace(binary(BinaryOperator::Divide, arg(0), arg(1)))]);
    let first = compile(&good).unwrap();
    // Fails in the middle of a statement, with blocks and values open.
    let broken = conditional(arg(0), read(scalar(Scope::Global, 9), LONG), long(1));
    assert!(compile(&program(None, vec![trace(broken)])).is_err());
    assert_eq!(compile(&good).unwrap(), first);
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
