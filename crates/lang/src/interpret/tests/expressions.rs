//! Operators, casts, logic and faults.

use super::*;

#[test]
fn integers_wrap_and_are_normalised() {
    let operate = |operator, left, right, operands: Type, result: Type| {
        value(&binary(
            operator,
            integer(left, operands.clone()),
            integer(right, operands),
            result,
        ))
    };
    assert_eq!(operate(Operator::Add, i64::MAX, 1, Type::I64, Type::I64), i64::MIN);
    assert_eq!(
        operate(Operator::Add, i64::from(i32::MAX), 1, Type::I32, Type::I32),
        i64::from(i32::MIN)
    );
    assert_eq!(operate(Operator::Subtract, 0, 1, Type::U32, Type::U32), 0xffff_ffff);
    assert_eq!(operate(Operator::Multiply, 0x1_0000, 0x1_0000, Type::I32, Type::I32), 0);
    assert_eq!(operate(Operator::Divide, i64::MIN, -1, Type::I64, Type::I64), i64::MIN);
    assert_eq!(operate(Operator::Remainder, i64::MIN, -1, Type::I64, Type::I64), 0);
    assert_eq!(
        operate(Operator::Divide, i64::from(i32::MIN), -1, Type::I32, Type::I32),
        i64::from(i32::MIN)
    );
    assert_eq!(operate(Operator::Divide, -7, 2, Type::I64, Type::I64), -3);
    assert_eq!(operate(Operator::Remainder, -7, 2, Type::I64, Type::I64), -1);
    assert_eq!(operate(Operator::Divide, -1, 2, Type::U64, Type::U64), i64::MAX);
    assert_eq!(operate(Operator::Less, -1, 1, Type::I64, Type::I32), 1);
    assert_eq!(operate(Operator::Less, -1, 1, Type::U64, Type::I32), 0);
    // shifts: six bits of the count, five for 32-bit types; arithmetic for signed operands
    assert_eq!(operate(Operator::ShiftLeft, 1, 65, Type::I64, Type::I64), 2);
    assert_eq!(operate(Operator::ShiftLeft, 1, 33, Type::I32, Type::I32), 2);
    assert_eq!(operate(Operator::ShiftRight, -8, 1, Type::I64, Type::I64), -4);
    assert_eq!(operate(Operator::ShiftRight, -8, 1, Type::U64, Type::U64), i64::MAX - 3);
}

#[test]
fn casts_truncate_then_extend() {
    assert_eq!(value(&cast(integer(0x1ff, Type::I64), U8)), 0xff);
    assert_eq!(value(&cast(integer(0x1ff, Type::I64), I8)), -1);
    assert_eq!(value(&cast(integer(-1, I8), Type::U32)), 0xffff_ffff);
    // a built-in variable has the width of its type, whatever the world yields
    assert_eq!(value(&of(Kind::Builtin(Builtin::Tid), Type::U32)), 0xffff_ffff);
    assert_eq!(
        value(&of(
            Kind::Unary {
                operator: UnaryOperator::Complement,
                operand: Box::new(integer(0, Type::U32))
            },
            Type::U32
        )),
        0xffff_ffff
    );
}

#[test]
fn division_by_zero_is_a_fault_of_its_action() {
    let by_zero = binary(
        Operator::Divide,
        integer(1, Type::I64),
        integer(0, Type::I64),
        Type::I64,
    );
    let stored = assign(global(0), integer(7, Type::I64));
    let tested = clause(vec![
        Statement::Expression(stored),
        record(RecordKind::Trace(integer(1, Type::I64))),
        Statement::Expression(by_zero.clone()),
        Statement::Expression(assign(global(0), integer(8, Type::I64))),
    ]);
    let mut world = TestWorld::default();
    let fault = run_clause(&tested, &program(), LIMITS, &mut world).unwrap_err();
    assert_eq!(
        fault,
        ClauseFault {
            fault: Fault::new(FaultKind::Divide),
            action: 3
        }
    );
    assert_eq!(world.variables.values().collect::<Vec<_>>(), [&Value::Integer(7)]);

    let predicate = Clause {
        predicate: Some(by_zero),
        ..clause(Vec::new())
    };
    assert_eq!(
        run_clause(&predicate, &program(), LIMITS, &mut world)
            .unwrap_err()
            .action,
        0
    );
}

#[test]
fn logic_stops_early() {
    let by_zero = || {
        Box::new(binary(
            Operator::Remainder,
            integer(1, Type::I64),
            integer(0, Type::I64),
            Type::I64,
        ))
    };
    let logical = |operator, left: i64, right| {
        evaluate(&of(
            Kind::Logical {
                operator,
                left: Box::new(integer(left, Type::I64)),
                right,
            },
            Type::I32,
        ))
    };
    assert_eq!(logical(LogicalOperator::And, 0, by_zero()), Ok(Value::Integer(0)));
    assert_eq!(logical(LogicalOperator::Or, 5, by_zero()), Ok(Value::Integer(1)));
    assert!(logical(LogicalOperator::And, 5, by_zero()).is_err());
    assert!(logical(LogicalOperator::Xor, 0, by_zero()).is_err());
    assert_eq!(
        logical(LogicalOperator::Xor, 5, Box::new(integer(9, Type::I64))),
        Ok(Value::Integer(0))
    );
    let chosen = of(
        Kind::Conditional {
            condition: Box::new(string("")),
            then: by_zero(),
            otherwise: Box::new(integer(3, Type::I64)),
        },
        Type::I64,
    );
    assert_eq!(value(&chosen), 3);
}

#[test]
fn strings_compare_by_bytes_up_to_their_nul() {
    let compare = |operator, left: &str, right: &str| value(&binary(operator, string(left), string(right), Type::I32));
    assert_eq!(compare(Operator::Equal, "abc", "abc"), 1);
    assert_eq!(compare(Operator::Equal, "abc\0x", "abc\0y"), 1);
    assert_eq!(compare(Operator::Less, "ab", "abc"), 1);
    assert_eq!(compare(Operator::Greater, "é", "z"), 1); // bytes are unsigned
    // after strsize bytes, the NUL among them, nothing is looked at
    assert_eq!(compare(Operator::Equal, "0123456789abcdeX", "0123456789abcdeY"), 1);
    assert_eq!(compare(Operator::Equal, "0123456789abcdX", "0123456789abcdY"), 0);
    let not = of(
        Kind::Unary {
            operator: UnaryOperator::Not,
            operand: Box::new(string("")),
        },
        Type::I32,
    );
    assert_eq!(value(&not), 1);
    assert_eq!(
        value(&call(Function::StringLength, vec![string("looper")], Type::U64)),
        6
    );
}
