//! Programs that are refused, and the compiler's state afterwards.

use crate::support::build::*;
use crate::support::machine::{self, try_compile};
use nanoprobe_codegen::{Error, MAX_EXPRESSION_DEPTH, MAX_STACK_BYTES, ProbeKind};
use nanoprobe_lang::program::*;
use nanoprobe_lang::{MacroValues, Source};

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

    // Values that are read from memory and all alive at once need a word of stack each, once the registers are full.
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
fn a_compiler_still_works_after_an_error() {
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

/// The front end makes none of these programs. In each, a handler would follow a number as an address.
#[test]
fn a_program_form_that_would_follow_wild_addresses_is_refused() {
    let bytes = |size| Type::Bytes { size: Some(size) };
    let string = || scalar(Scope::Global, 0);
    let buffer = || scalar(Scope::Global, 1);
    let number = || scalar(Scope::Global, 2);
    let as_type = |mut value: Expression, value_type: Type| {
        value.value_type = value_type;
        value
    };
    let wild = vec![
        as_type(arg(0), Type::String),
        as_type(arg(0), bytes(8)),
        as_type(load(arg(0), LONG), Type::String),
        as_type(read(number(), LONG), Type::String),
        as_type(uregs(int(0)), bytes(8)),
        assignment(string(), arg(0)),
        assignment(buffer(), arg(0)),
        assignment(buffer(), copyin(arg(0), 4)),
        as_type(assignment(number(), arg(0)), Type::String),
        cast(arg(0), bytes(8)),
        cast(copyin(arg(0), 4), bytes(8)),
        as_type(copyin(arg(0), 4), bytes(8)),
        call(Function::CopyIn, vec![arg(0), arg(1)], bytes(8)),
        call(Function::StringLength, vec![arg(0)], ULONG),
        call(Function::StringLength, vec![], ULONG),
        binary(BinaryOperator::Equal, text("a"), arg(0)),
        binary(BinaryOperator::Add, text("a"), text("b")),
        as_type(conditional(arg(0), arg(1), arg(2)), Type::String),
        conditional(arg(0), text("a"), arg(1)),
        increment(string(), Type::String, 1, false),
        assign_operator(buffer(), bytes(8), BinaryOperator::Add, arg(0)),
        read(element(Scope::Global, 0, vec![arg(0)]), Type::String),
    ];
    for value in wild {
        let program = program(None, vec![trace(value.clone())])
            .global(Type::String)
            .global(bytes(8))
            .global(LONG);
        let refused = try_compile(&program, ProbeKind::Entry);
        assert!(
            matches!(refused, Err(Error::Malformed { .. })),
            "{value:?}: {refused:?}"
        );
    }
}

#[test]
fn what_the_front_end_accepts_compiles() {
    let clauses = [
        "{ @[arg0 ? probefunc : \"none\"] = count(); }",
        "{ this->s = stringof(copyin(arg1, arg2)); trace(this->s); printf(\"%s %d\\n\", this->s, strlen(this->s)); }",
        "{ this->s = arg0 ? copyinstr(arg0) : \"<null>\"; @[this->s, tid, execname] = sum(arg1); }",
        "{ self->p = (char *)arg0; trace(stringof(self->p)); trace(*(int *)arg0); trace(*((char *)arg0 + 1)); }",
        "{ this->b = copyin(arg0, 16); trace(*(uint64_t *)this->b); trace(copyin(arg0, 100)); }",
        "{ trace(copyin(arg0, 24)); trace(*(short *)copyin(arg0, 2)); }",
        "{ n[probefunc] = copyinstr(arg0); @[n[probefunc]] = count(); }",
        "{ self->t[arg0] = timestamp; @ = avg(timestamp - self->t[arg0]); self->t[arg0] = 0; }",
        "{ x = arg0; x++; ++x; x += 2; x <<= 3; x %= 7; trace(x++ + --x); }",
        "{ @q[ustack(5)] = lquantize(arg0, -10, 10, 2, arg1); @l = llquantize(arg0, 10, 0, 6, 20); @s = stddev(arg1); }",
        "{ trace(uregs[R_RIP]); trace(uregs[arg0]); exit(ucaller == 0 ? 1 : 0); }",
        "{ exit(arg0 > 1 && arg1 < 2 || !arg3 ^^ arg4); }",
        "{ trace(pid); trace($target); trace(ppid); trace(uid); trace(gid); trace(cpu); trace(epid); trace(id); }",
        "{ trace(vtimestamp); trace(walltimestamp); ustack(); @c = count(); clear(@c); trunc(@c, 5); normalize(@c, arg0); }",
        "/execname == \"x\" && probeprov != probemod/ { @ = min(-arg0); @m = max(~arg0); }",
        "{}",
    ];
    for clause in clauses {
        let text = format!("pid$target::f:entry {clause}");
        let macros = MacroValues {
            target: Some(1),
            ..MacroValues::default()
        };
        let program = nanoprobe_lang::compile(&[Source::new("test", text)], &macros).unwrap();
        for kind in [ProbeKind::Entry, ProbeKind::Return, ProbeKind::Offset] {
            let result = try_compile(&program, kind);
            assert!(result.is_ok(), "{clause}: {result:?}");
        }
    }
}
