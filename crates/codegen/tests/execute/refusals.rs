//! What is not compiled, and that the compiler survives it.

use crate::support::build::*;
use crate::support::machine::{self, try_compile};
use nanoprobe_codegen::{Error, MAX_EXPRESSION_DEPTH, MAX_STACK_BYTES, ProbeKind};
use nanoprobe_lang::program::*;

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

    // Values read from memory, all alive at once, need a word of stack each, once the registers are full.
    let live = |count: i64| {
        let keys = (0..count)
            .map(|index| load(binary(BinaryOperator::Add, arg(0), long(8 * index)), LONG))
            .collect();
        let program = program(None, vec![aggregate(0, keys, None)]).aggregation(AggregatingFunction::Count);
        try_compile(&program, ProbeKind::Entry).map(|handler| handler.stack_bytes)
    };
    assert!(live(60).is_ok_and(|bytes| bytes <= MAX_STACK_BYTES));
    let refused = live(300);
    assert!(
        matches!(
            refused,
            Err(Error::TooMuchStack {
                bytes: 1025..,
                limit: 1024
            })
        ),
        "{refused:?}"
    );
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
