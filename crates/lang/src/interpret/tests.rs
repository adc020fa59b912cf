//! Clauses built by hand, run in a world of maps.

mod expressions;
mod places;
mod recorded;

use std::collections::BTreeMap;

use super::*;
use crate::format::Format;
use crate::program::{
    AggregatingFunction, Aggregation, BinaryOperator as Operator, Expression, ExpressionKind as Kind, Function,
    IntegerType, KeyExpression, KeyType, LogicalOperator, Place, RecordAction, Side, Stack, Type, UnaryOperator,
    Variable,
};
use crate::source::Span;

const LIMITS: Limits = Limits {
    strsize: 16,
    ustackframes: 3,
    jstackframes: 3,
    stackframes: 3,
    maxframes: 2048,
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
            Builtin::UserStackDepth => Ok(Value::Integer(5)),
            Builtin::Errno => Ok(Value::Integer(2)),
            Builtin::ExecName => Ok(Value::String(b"looper".to_vec())),
            Builtin::ProcessArguments => Ok(Value::String(b"./looper 7".to_vec())),
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

    fn stack(&mut self, _side: Side, _frames: u32) -> Vec<u64> {
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
    of(Kind::String(text.as_bytes().to_vec()), Type::String)
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
        derived: None,
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
            keys: vec![KeyType::String, KeyType::Stack(Stack::of_program(0))],
            by_processor: false,
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
