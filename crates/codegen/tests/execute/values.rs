//! The values of expressions: arguments, registers, built-in variables, arithmetic, memory of the target.

use crate::support::build;
use crate::support::build::*;
use crate::support::machine::{Machine, TID, agent, calls, compile};
use crate::{ARGUMENTS, fault, value, value_at};
use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::program::*;

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
fn arguments_at_a_system_call_are_the_kernel_s() {
    let at = |index| value_at(ProbeKind::CallEntry, arg(index), ARGUMENTS);
    for (index, argument) in (0..).zip(ARGUMENTS) {
        assert_eq!(at(index), argument, "arg{index}");
    }
    for index in 6..10 {
        assert_eq!(at(index), 0, "arg{index}");
    }
}

#[test]
fn a_system_call_that_fails_yields_minus_one_and_its_error() {
    let at = |value: Expression, rax: i64| {
        let value_type = value.value_type.clone();
        let statements = vec![assign(scalar(Scope::ClauseLocal, 0), value)];
        let program = program(None, statements).clause_local(value_type);
        let mut machine = Machine::new(&compile(&program, ProbeKind::CallReturn));
        machine.frame[15] = rax as u64;
        machine.run(ARGUMENTS);
        machine.clause_locals[0] as i64
    };
    for (rax, result, error) in [
        (0, 0, 0),
        (7, 7, 0),
        (i64::MIN, i64::MIN, 0),
        (-4096, -4096, 0),
        (-4095, -1, 4095),
        (-2, -1, 2),
        (-1, -1, 1),
    ] {
        assert_eq!((at(arg(0), rax), at(arg(1), rax)), (result, result), "{rax}");
        assert_eq!(at(builtin(Builtin::Errno, INT), rax) as i32, error, "{rax}");
        assert_eq!((at(arg(2), rax), at(arg(9), rax)), (0, 0));
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
    let program = build::program(None, vec![assign(scalar(Scope::ClauseLocal, 0), uregs(int(20)))]);
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
        (Builtin::ProcessArguments, "./looper 7"),
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
fn a_string_made_of_bytes_of_unknown_size_ends_with_them() {
    // stringof(copyin(arg0, arg1)): the usual way to read a buffer with a length.
    let target = [0x41u8; 64];
    for (size, expected) in [(3, "AAA"), (8, "AAAAAAAA"), (0, "")] {
        let buffer = |size| call(Function::CopyIn, vec![arg(0), size], Type::Bytes { size: None });
        let statements = vec![
            // The scratch memory after the bytes is not zero.
            Statement::Expression(buffer(long(64))),
            assign(scalar(Scope::ClauseLocal, 0), buffer(arg(1))),
            assign(scalar(Scope::ClauseLocal, 1), buffer(long(16))),
            assign(
                scalar(Scope::ClauseLocal, 2),
                cast(
                    read(scalar(Scope::ClauseLocal, 0), Type::Bytes { size: None }),
                    Type::String,
                ),
            ),
        ];
        let unknown = Type::Bytes { size: None };
        let program = program(None, statements)
            .clause_local(unknown.clone())
            .clause_local(unknown)
            .clause_local(Type::String);
        let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
        machine.run([target.as_ptr() as u64, size, 0, 0, 0, 0]);
        let text: Vec<u8> = machine.clause_locals[2..10]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let end = text.iter().position(|byte| *byte == 0).unwrap();
        assert_eq!(String::from_utf8_lossy(&text[..end]), expected);
    }
}
