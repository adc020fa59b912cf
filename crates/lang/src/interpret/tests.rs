//! Clauses built by hand, run in a world of maps.

use std::collections::BTreeMap;

use super::*;
use crate::format::Format;
use crate::program::{
    AggregatingFunction, Aggregation, BinaryOperator as Operator, Expression, ExpressionKind as Kind, Function,
    IntegerType, KeyExpression, KeyType, LogicalOperator, Place, RecordAction, Type, UnaryOperator, Variable,
};
use crate::source::Span;

const LIMITS: Limits = Limits {
    strsize: 16,
    ustackframes: 3,
};
const I8: Type = Type::Integer(IntegerType { bytes: 1, signed: true });
const U8: Type = Type::Integer(IntegerType {
    bytes: 1,
    signed: false,
});
const MEMORY: u64 = 0x1000;

#[derive(Default)]
struct TestWorld {
    variables: BTreeMap<(u8, u32, Option<Vec<u8>>), Value>,
    memory: Vec<u8>,
    aggregated: Vec<(u32, Vec<u8>, i64, i64)>,
}

impl World for TestWorld {
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
        match builtin {
            Builtin::Argument(index) => Ok(Value::Integer(100 + i64::from(index))),
            Builtin::Tid => Ok(Value::Integer(-1)),
            Builtin::ExecName => Ok(Value::String(b"looper".to_vec())),
            _ => Err(Fault::new(FaultKind::Illegal)),
        }
    }

    fn register(&mut self, index: i64) -> Result<i64, Fault> {
        Ok(index * 10)
    }

    fn get(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>) -> Option<Value> {
        self.variables
            .get(&(scope as u8, variable.0, key.map(<[u8]>::to_vec)))
            .cloned()
    }

    fn set(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>, value: Option<Value>) {
        let place = (scope as u8, variable.0, key.map(<[u8]>::to_vec));
        match value {
            Some(value) => self.variables.insert(place, value),
            None => self.variables.remove(&place),
        };
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let start = address.checked_sub(MEMORY).ok_or(Fault::bad_address(address))? as usize;
        let found = self
            .memory
            .get(start..start + bytes.len())
            .ok_or(Fault::bad_address(address))?;
        bytes.copy_from_slice(found);
        Ok(())
    }

    fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
        let start = address.checked_sub(MEMORY).ok_or(Fault::bad_address(address))? as usize;
        let found = self.memory.get(start..).ok_or(Fault::bad_address(address))?;
        Ok(found
            .iter()
            .copied()
            .take_while(|byte| *byte != 0)
            .take(limit)
            .collect())
    }

    fn stack(&mut self, _frames: u32) -> Vec<u64> {
        vec![1, 2, 3, 4, 5]
    }

    fn aggregate(&mut self, aggregation: AggregationId, key: &[u8], value: i64, weight: i64) {
        self.aggregated.push((aggregation.0, key.to_vec(), value, weight));
    }

    fn scratch_bytes(&self) -> usize {
        64
    }
}

fn of(kind: Kind, value_type: Type) -> Expression {
    Expression {
        kind,
        value_type,
        span: Span::default(),
    }
}

fn integer(value: i64, value_type: Type) -> Expression {
    of(Kind::Integer(value), value_type)
}

fn string(text: &str) -> Expression {
    of(Kind::String(text.to_owned()), Type::String)
}

fn binary(operator: Operator, left: Expression, right: Expression, result: Type) -> Expression {
    of(
        Kind::Binary {
            operator,
            left: Box::new(left),
            right: Box::new(right),
        },
        result,
    )
}

fn call(function: Function, arguments: Vec<Expression>, result: Type) -> Expression {
    of(Kind::Call { function, arguments }, result)
}

fn cast(operand: Expression, to: Type) -> Expression {
    of(Kind::Cast(Box::new(operand)), to)
}

fn global(variable: u32) -> Place {
    Place::Scalar {
        scope: Scope::Global,
        variable: VariableId(variable),
    }
}

fn element(variable: u32, keys: Vec<Expression>) -> Place {
    Place::Element {
        scope: Scope::Global,
        variable: VariableId(variable),
        keys,
    }
}

fn assign(place: Place, value: Expression) -> Expression {
    let value_type = value.value_type.clone();
    of(
        Kind::Assign {
            place,
            value: Box::new(value),
        },
        value_type,
    )
}

fn clause(statements: Vec<Statement>) -> Clause {
    Clause {
        probes: Vec::new(),
        predicate: None,
        statements,
        span: Span::default(),
    }
}

fn record(kind: RecordKind) -> Statement {
    Statement::Record(RecordAction {
        kind,
        span: Span::default(),
    })
}

/// Globals 0: int64_t, 1: string, 2: int64_t[...], 3: string[...], 4: int8_t, 5: char[5].
fn program() -> Program {
    let variable = |value_type: Type, keys: Option<Vec<Type>>| Variable {
        name: String::new(),
        value_type,
        keys,
    };
    Program {
        globals: vec![
            variable(Type::I64, None),
            variable(Type::String, None),
            variable(Type::I64, Some(vec![Type::String])),
            variable(Type::String, Some(vec![Type::I64])),
            variable(I8, None),
            variable(Type::Bytes { size: Some(5) }, None),
        ],
        aggregations: vec![Aggregation {
            name: "@".to_owned(),
            function: AggregatingFunction::Quantize,
            keys: vec![KeyType::String, KeyType::UserStack { frames: 0 }],
        }],
        ..Program::default()
    }
}

fn evaluate_in(world: &mut TestWorld, expression: &Expression) -> Result<Value, Fault> {
    Evaluator::new(&program(), LIMITS, world).value(expression)
}

fn evaluate(expression: &Expression) -> Result<Value, Fault> {
    evaluate_in(&mut TestWorld::default(), expression)
}

fn value(expression: &Expression) -> i64 {
    match evaluate(expression).unwrap() {
        Value::Integer(value) => value,
        other => panic!("{other:?}"),
    }
}

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
    // a built-in variable has its type's width whatever the world says
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
    // beyond strsize nothing is looked at
    assert_eq!(compare(Operator::Equal, "0123456789abcdefX", "0123456789abcdefY"), 1);
    assert_eq!(compare(Operator::Equal, "0123456789abcdeX", "0123456789abcdeY"), 0);
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

#[test]
fn a_variable_cuts_a_string() {
    let mut world = TestWorld::default();
    let long = assign(global(1), string("0123456789abcdefghij"));
    assert_eq!(
        evaluate_in(&mut world, &long),
        Ok(Value::String(b"0123456789abcde".to_vec()))
    );
    let read = of(Kind::Variable(global(1)), Type::String);
    assert_eq!(
        evaluate_in(&mut world, &read),
        Ok(Value::String(b"0123456789abcde".to_vec()))
    );
}

#[test]
fn zero_deletes_an_element() {
    let mut world = TestWorld::default();
    let key = || vec![string("k")];
    evaluate_in(&mut world, &assign(element(2, key()), integer(5, Type::I64))).unwrap();
    let read = of(Kind::Variable(element(2, key())), Type::I64);
    assert_eq!(evaluate_in(&mut world, &read), Ok(Value::Integer(5)));
    evaluate_in(&mut world, &assign(element(2, key()), integer(0, Type::I64))).unwrap();
    assert!(world.variables.is_empty());
    assert_eq!(evaluate_in(&mut world, &read), Ok(Value::Integer(0)));
    // the empty string is kept, NULL deletes
    let at = || vec![integer(1, Type::I64)];
    evaluate_in(&mut world, &assign(element(3, at()), string(""))).unwrap();
    assert_eq!(world.variables.len(), 1);
    evaluate_in(
        &mut world,
        &assign(element(3, at()), cast(integer(0, Type::I64), Type::String)),
    )
    .unwrap_err();
    evaluate_in(&mut world, &assign(element(3, at()), integer(0, Type::String))).unwrap();
    assert!(world.variables.is_empty());
}

#[test]
fn compound_assignment_computes_in_the_common_type() {
    let mut world = TestWorld::default();
    let operate = |world: &mut TestWorld, operator, value: Expression| {
        let place = global(4);
        evaluate_in(
            world,
            &of(
                Kind::AssignOperator {
                    place,
                    operator,
                    value: Box::new(value),
                },
                I8,
            ),
        )
        .unwrap()
    };
    evaluate_in(&mut world, &assign(global(4), integer(-2, I8))).unwrap();
    // -2 as uint32_t is 4294967294; / 2 is 0x7fffffff, whose low byte is -1
    assert_eq!(
        operate(&mut world, Operator::Divide, integer(2, Type::U32)),
        Value::Integer(-1)
    );
    assert_eq!(
        operate(&mut world, Operator::Add, integer(128, Type::I32)),
        Value::Integer(127)
    );
    let step = |post| {
        of(
            Kind::Increment {
                place: global(4),
                delta: 1,
                post,
            },
            I8,
        )
    };
    assert_eq!(evaluate_in(&mut world, &step(true)), Ok(Value::Integer(127)));
    assert_eq!(evaluate_in(&mut world, &step(false)), Ok(Value::Integer(-127)));
}

#[test]
fn memory_of_the_target_and_scratch_memory_are_both_loadable() {
    let mut world = TestWorld {
        memory: b"\xfe\xff\xff\xffhello\0world\0".to_vec(),
        ..TestWorld::default()
    };
    let load = |address: Expression, value_type: Type| of(Kind::Load(Box::new(address)), value_type);
    let at = |offset: i64| integer(MEMORY as i64 + offset, Type::U64);
    assert_eq!(evaluate_in(&mut world, &load(at(0), Type::I32)), Ok(Value::Integer(-2)));
    assert_eq!(evaluate_in(&mut world, &load(at(0), U8)), Ok(Value::Integer(254)));
    assert_eq!(
        evaluate_in(&mut world, &load(at(999), U8)),
        Err(Fault::bad_address(MEMORY + 999))
    );

    // *(int *)copyin(a, 4), and past what was copied
    let copied = |bytes| {
        call(
            Function::CopyIn,
            vec![at(0), integer(bytes, Type::U64)],
            Type::Bytes { size: None },
        )
    };
    let pointer = |bytes| cast(copied(bytes), Type::Pointer(None));
    assert_eq!(
        evaluate_in(&mut world, &load(pointer(4), Type::I32)),
        Ok(Value::Integer(-2))
    );
    assert_eq!(
        evaluate_in(&mut world, &load(pointer(4), Type::I64)).map_err(|fault| fault.kind),
        Ok(Value::Integer(0xffff_fffe))
    );
    let beyond = binary(Operator::Add, pointer(4), integer(32, Type::U64), Type::Pointer(None));
    assert_eq!(
        evaluate_in(&mut world, &load(beyond, Type::I32)),
        Err(Fault::bad_address(SCRATCH_ADDRESS + 32))
    );
    // 64 bytes of scratch memory
    assert_eq!(
        evaluate_in(&mut world, &copied(65)),
        Err(Fault::new(FaultKind::Scratch))
    );
    assert_eq!(
        evaluate_in(&mut world, &copied(-1)),
        Err(Fault::new(FaultKind::Scratch))
    );

    let text = |arguments| call(Function::CopyInString, arguments, Type::String);
    assert_eq!(
        evaluate_in(&mut world, &text(vec![at(4)])),
        Ok(Value::String(b"hello".to_vec()))
    );
    assert_eq!(
        evaluate_in(&mut world, &text(vec![at(4), integer(3, Type::U64)])),
        Ok(Value::String(b"he".to_vec()))
    );
    assert_eq!(
        evaluate_in(&mut world, &cast(at(10), Type::String)),
        Ok(Value::String(b"world".to_vec()))
    );
    let stringof = cast(
        call(
            Function::CopyIn,
            vec![at(4), integer(7, Type::U64)],
            Type::Bytes { size: Some(7) },
        ),
        Type::String,
    );
    assert_eq!(evaluate_in(&mut world, &stringof), Ok(Value::String(b"hello".to_vec())));
}

#[test]
fn an_aggregation_gets_its_key_value_and_weight() {
    let statement = Statement::Aggregate {
        aggregation: AggregationId(0),
        keys: vec![
            KeyExpression::Value(of(Kind::Builtin(Builtin::ExecName), Type::String)),
            KeyExpression::UserStack { frames: 0 },
        ],
        value: Some(of(Kind::Builtin(Builtin::Argument(3)), Type::I64)),
        weight: Some(integer(-2, Type::I32)),
        span: Span::default(),
    };
    let mut world = TestWorld::default();
    let outcome = run_clause(&clause(vec![statement]), &program(), LIMITS, &mut world).unwrap();
    assert_eq!(
        outcome,
        Outcome {
            fired: true,
            payload: None,
            exit: None
        }
    );
    let (_, key, value, weight) = &world.aggregated[0];
    assert_eq!((*value, *weight), (103, -2));
    assert_eq!(&key[..8], b"looper\0\0");
    assert_eq!(
        key::read_key(&program().aggregations[0].keys, key),
        Some(vec![Value::String(b"looper".to_vec()), Value::Stack(vec![1, 2, 3])])
    );
}

#[test]
fn a_key_that_is_too_long_is_a_fault() {
    struct Tiny(TestWorld);
    impl World for Tiny {
        fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
            self.0.builtin(builtin)
        }
        fn register(&mut self, index: i64) -> Result<i64, Fault> {
            self.0.register(index)
        }
        fn get(&mut self, _: Scope, _: VariableId, _: Option<&[u8]>) -> Option<Value> {
            None
        }
        fn set(&mut self, _: Scope, _: VariableId, _: Option<&[u8]>, _: Option<Value>) {}
        fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
            self.0.read(address, bytes)
        }
        fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
            self.0.read_string(address, limit)
        }
        fn stack(&mut self, frames: u32) -> Vec<u64> {
            self.0.stack(frames)
        }
        fn aggregate(&mut self, _: AggregationId, _: &[u8], _: i64, _: i64) {}
        fn key_bytes_max(&self) -> usize {
            8
        }
    }
    let program = program();
    let read = of(Kind::Variable(element(2, vec![string("eightest")])), Type::I64);
    let mut tiny = Tiny(TestWorld::default());
    let result = Evaluator::new(&program, LIMITS, &mut tiny).value(&read);
    assert_eq!(result, Err(Fault::new(FaultKind::KeyTooLong)));
}

#[test]
fn a_record_holds_what_the_layout_says() {
    let tested = clause(vec![
        record(RecordKind::Printf {
            format: Format::parse("%d %s").unwrap(),
            arguments: vec![integer(-2, Type::I32), string("0123456789abcdefghij")],
        }),
        record(RecordKind::UserStack { frames: 2 }),
        record(RecordKind::Trace(call(
            Function::CopyIn,
            vec![integer(MEMORY as i64, Type::U64), integer(5, Type::U64)],
            Type::Bytes { size: Some(5) },
        ))),
        record(RecordKind::Exit(integer(3, Type::I32))),
    ]);
    let mut world = TestWorld {
        memory: b"hello".to_vec(),
        ..TestWorld::default()
    };
    let outcome = run_clause(&tested, &program(), LIMITS, &mut world).unwrap();
    assert_eq!(outcome.exit, Some(3));
    let payload = outcome.payload.unwrap();
    let layout = record_layout(&tested, LIMITS);
    assert_eq!(payload.len() as u32, layout.bytes - RECORD_HEADER_BYTES);
    let whole = [vec![0xaa; RECORD_HEADER_BYTES as usize], payload].concat();
    let values: Vec<Value> = layout
        .fields
        .iter()
        .map(|field| read_field(&whole, field).unwrap())
        .collect();
    assert_eq!(
        values,
        [
            Value::Integer(-2),
            Value::String(b"0123456789abcde".to_vec()),
            Value::Stack(vec![1, 2]),
            Value::Bytes {
                address: 0,
                bytes: b"hello".to_vec()
            },
            Value::Integer(3),
        ]
    );
}

#[test]
fn hostile_records_and_keys_are_read_without_harm() {
    let tested = clause(vec![
        record(RecordKind::UserStack { frames: 2 }),
        record(RecordKind::Trace(string(""))),
        record(RecordKind::Trace(integer(0, I8))),
    ]);
    let layout = record_layout(&tested, LIMITS);
    let ones = vec![0xff; layout.bytes as usize];
    let values: Vec<Value> = layout
        .fields
        .iter()
        .map(|field| read_field(&ones, field).unwrap())
        .collect();
    assert_eq!(
        values,
        [
            Value::Stack(vec![u64::MAX, u64::MAX]),
            Value::String(vec![0xff; 16]),
            Value::Integer(-1)
        ]
    );
    assert_eq!(read_field(&ones[..40], &layout.fields[1]), None);

    let types = [KeyType::String, KeyType::UserStack { frames: 0 }];
    assert_eq!(key::read_key(&types, &[0xff; 64]), None); // no NUL
    assert_eq!(key::read_key(&types, &[&[0u8; 8][..], &[0xff; 16]].concat()), None); // more frames than bytes
    assert_eq!(key::read_key(&types, &[0; 8]), None);
    assert_eq!(
        key::read_key(&types, &[0; 16]),
        Some(vec![Value::String(Vec::new()), Value::Stack(Vec::new())])
    );
}

#[test]
fn bytes_are_kept_by_their_variable() {
    let mut world = TestWorld {
        memory: b"hello".to_vec(),
        ..TestWorld::default()
    };
    let bytes = Type::Bytes { size: Some(5) };
    let copied = call(
        Function::CopyIn,
        vec![integer(MEMORY as i64, Type::U64), integer(5, Type::U64)],
        bytes.clone(),
    );
    evaluate_in(&mut world, &assign(global(5), copied)).unwrap();
    let read = of(Kind::Variable(global(5)), bytes);
    assert_eq!(evaluate_in(&mut world, &read).unwrap().as_bytes(), b"hello");
    let first = of(Kind::Load(Box::new(cast(read, Type::Pointer(None)))), U8);
    assert_eq!(evaluate_in(&mut world, &first), Ok(Value::Integer(i64::from(b'h'))));
}
