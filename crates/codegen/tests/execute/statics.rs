//! Arguments of static probes: every kind of place, and every size.

use nanoprobe_codegen::{
    Argument, Compiler, Error, Handler, Location, Operand, ProbeKind, RSP, Register, StaticArguments,
};
use nanoprobe_lang::layout::Storage;
use nanoprobe_lang::program::*;

use crate::ARGUMENTS;
use crate::support::build::*;
use crate::support::machine::{LIMITS, Machine, agent, arena_layout};

fn try_compile(argument: Argument, index: u8) -> Result<Handler, Error> {
    let statements = vec![assign(scalar(Scope::ClauseLocal, 0), arg(index))];
    let program = program(None, statements).clause_local(LONG);
    let mut layout = arena_layout();
    layout.static_arguments = vec![StaticArguments::default(), StaticArguments { list: vec![argument] }];
    let storage = Storage::new(&program, LIMITS);
    Compiler::new()?.compile(&program, 0, ProbeKind::Static(1), &storage, LIMITS, &layout)
}

fn value(location: Location, bytes: u8, signed: bool) -> u64 {
    let operand = Operand {
        location,
        bytes,
        signed,
    };
    let mut machine = Machine::new(&try_compile(Ok(operand), 0).unwrap());
    machine.run([0x8877_6655_4433_22f1, 20, 30, 40, 50, 60]);
    machine.clause_locals[0]
}

fn register(number: u8) -> Location {
    Location::Register {
        register: Register(number),
        shift: 0,
    }
}

#[test]
fn every_register_is_found() {
    // The frame's words are 0xf000 + index: rbx is the 13th, rax the 16th; parameters come in registers.
    let frame = |index: u64| 0xf000 + index;
    let expected = [
        (0, frame(15)),
        (1, 40),
        (2, 30),
        (3, frame(12)),
        (5, frame(7)),
        (6, 20),
        (8, 50),
        (9, 60),
        (10, frame(5 - 1)),
        (11, frame(3)),
        (12, frame(2)),
        (13, frame(1)),
        (14, frame(0)),
        (15, frame(14)),
    ];
    for (number, expected) in expected {
        assert_eq!(value(register(number), 8, false), expected, "register {number}");
    }
}

#[test]
fn values_have_their_size_and_sign() {
    let rdi = register(7);
    assert_eq!(value(rdi, 8, false), 0x8877_6655_4433_22f1);
    assert_eq!(value(rdi, 4, false), 0x4433_22f1);
    assert_eq!(value(rdi, 2, false), 0x22f1);
    assert_eq!(value(rdi, 1, false), 0xf1);
    assert_eq!(value(rdi, 1, true), 0xf1u8 as i8 as u64);
    assert_eq!(value(rdi, 2, true), 0x22f1);
    let high = Location::Register {
        register: Register(7),
        shift: 8,
    };
    assert_eq!(value(high, 1, false), 0x22);
    assert_eq!(value(Location::Constant(-5), 4, true), -5i64 as u64);
    assert_eq!(value(Location::Constant(-5), 4, false), 0xffff_fffb);
}

#[test]
fn memory_is_read_through_the_agent() {
    // The machine's stack holds 0x5000, 0x5001, ...
    let at = |base, index, displacement| Location::Memory {
        base,
        index,
        displacement,
    };
    assert_eq!(value(at(Some(RSP), None, 8), 8, false), 0x5001);
    assert_eq!(value(at(Some(RSP), None, 9), 1, false), 0x50);
    // rsi is 20: 20 * 2 - 24 = 16.
    assert_eq!(value(at(Some(RSP), Some((Register(6), 2)), -24), 8, false), 0x5002);
    assert_eq!(value(at(Some(RSP), Some((Register(6), 8)), -160), 4, true), 0x5000);
}

#[test]
fn a_missing_argument_is_zero_and_an_unreadable_one_an_error() {
    let constant = Operand {
        location: Location::Constant(7),
        bytes: 8,
        signed: true,
    };
    let mut machine = Machine::new(&try_compile(Ok(constant), 1).unwrap());
    machine.clause_locals[0] = 5;
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 0);
    let error = try_compile(Err("it is in xmm0".to_owned()), 0).unwrap_err();
    assert_eq!(error.to_string(), "arg0 cannot be read here: it is in xmm0");
    // Another argument of the same probe can be read.
    assert!(try_compile(Err("it is in xmm0".to_owned()), 1).is_ok());
}

#[test]
fn a_fault_ends_the_clause() {
    let bad = Location::Memory {
        base: None,
        index: None,
        displacement: 0x10,
    };
    let operand = Operand {
        location: bad,
        bytes: 8,
        signed: true,
    };
    let mut machine = Machine::new(&try_compile(Ok(operand), 0).unwrap());
    machine.clause_locals[0] = 0x5555;
    machine.run(ARGUMENTS);
    assert_eq!(machine.clause_locals[0], 0x5555);
    agent(|state| assert_eq!(state.errors.len(), 1));
}

#[test]
fn a_full_frame_is_used_where_it_is_needed() {
    let full = |location| {
        let operand = Operand {
            location,
            bytes: 8,
            signed: true,
        };
        try_compile(Ok(operand), 0).unwrap().full_frame
    };
    for light in [0, 1, 2, 4, 6, 7, 8, 9, 15] {
        assert!(!full(register(light)), "{light}");
    }
    for other in [3, 5, 10, 11, 12, 13, 14] {
        assert!(full(register(other)), "{other}");
    }
    assert!(full(Location::Memory {
        base: Some(RSP),
        index: Some((Register(3), 8)),
        displacement: 0,
    }));
}

fn try_compile_go(kind: ProbeKind, index: u8) -> Result<Handler, Error> {
    let statements = vec![assign(scalar(Scope::ClauseLocal, 0), arg(index))];
    let program = program(None, statements).clause_local(LONG);
    let storage = Storage::new(&program, LIMITS);
    Compiler::new()?.compile(&program, 0, kind, &storage, LIMITS, &arena_layout())
}

#[test]
fn arguments_of_go_are_in_the_registers_of_its_convention() {
    let value = |kind, index| {
        let mut machine = Machine::new(&try_compile_go(kind, index).unwrap());
        machine.run([10, 20, 30, 40, 50, 60]);
        machine.clause_locals[0]
    };
    let frame = |index: u64| 0xf000 + index;
    // rax rbx rcx rdi rsi r8 r9 r10 r11
    let registers = [frame(15), frame(12), 40, 10, 20, 50, 60, frame(4), frame(3)];
    for (index, expected) in (0..).zip(registers) {
        assert_eq!(value(ProbeKind::Go, index), expected, "arg{index}");
        assert_eq!(value(ProbeKind::GoReturn, index + 1), expected, "result {index}");
    }
    // The machine's stack holds 0x5000, 0x5001, ...
    assert_eq!(value(ProbeKind::Go, 9), 0x5001);
    assert_eq!(value(ProbeKind::GoStack, 0), 0x5001);
    assert_eq!(value(ProbeKind::GoStack, 9), 0x500a);
    for (kind, index) in [(ProbeKind::GoStackReturn, 1), (ProbeKind::GoUnknown, 0)] {
        assert!(matches!(try_compile_go(kind, index), Err(Error::StaticArgument { .. })));
    }
    assert_eq!(value(ProbeKind::GoReturn, 0), value(ProbeKind::Return, 0));
}
