//! Programs built by hand. The constructors are short, so that a test reads like the D text for which it stands.

use nanoprobe_lang::Span;
use nanoprobe_lang::program::*;

pub const INT: Type = Type::I32;
pub const LONG: Type = Type::I64;
pub const ULONG: Type = Type::U64;

pub const fn integer_type(bytes: u8, signed: bool) -> Type {
    Type::Integer(IntegerType { bytes, signed })
}

pub fn expression(kind: ExpressionKind, value_type: Type) -> Expression {
    Expression {
        kind,
        value_type,
        span: Span::default(),
    }
}

pub fn number(value: i64, value_type: Type) -> Expression {
    expression(ExpressionKind::Integer(value), value_type)
}

pub fn long(value: i64) -> Expression {
    number(value, LONG)
}

pub fn int(value: i32) -> Expression {
    number(value.into(), INT)
}

pub fn text(text: &str) -> Expression {
    expression(ExpressionKind::String(text.as_bytes().to_vec()), Type::String)
}

pub fn arg(index: u8) -> Expression {
    builtin(Builtin::Argument(index), LONG)
}

pub fn builtin(which: Builtin, value_type: Type) -> Expression {
    expression(ExpressionKind::Builtin(which), value_type)
}

pub fn probefunc() -> Expression {
    builtin(Builtin::ProbeFunction, Type::String)
}

pub fn timestamp() -> Expression {
    builtin(Builtin::Timestamp, ULONG)
}

pub fn uregs(index: Expression) -> Expression {
    expression(ExpressionKind::Register(Box::new(index)), ULONG)
}

/// An operation on operands of one type; comparisons yield `int`.
pub fn binary(operator: BinaryOperator, left: Expression, right: Expression) -> Expression {
    let value_type = match operator {
        BinaryOperator::Equal
        | BinaryOperator::NotEqual
        | BinaryOperator::Less
        | BinaryOperator::LessOrEqual
        | BinaryOperator::Greater
        | BinaryOperator::GreaterOrEqual => INT,
        _ => left.value_type.clone(),
    };
    expression(
        ExpressionKind::Binary {
            operator,
            left: Box::new(left),
            right: Box::new(right),
        },
        value_type,
    )
}

pub fn logical(operator: LogicalOperator, left: Expression, right: Expression) -> Expression {
    expression(
        ExpressionKind::Logical {
            operator,
            left: Box::new(left),
            right: Box::new(right),
        },
        INT,
    )
}

pub fn unary(operator: UnaryOperator, operand: Expression) -> Expression {
    let value_type = if operator == UnaryOperator::Not {
        INT
    } else {
        operand.value_type.clone()
    };
    expression(
        ExpressionKind::Unary {
            operator,
            operand: Box::new(operand),
        },
        value_type,
    )
}

pub fn conditional(condition: Expression, then: Expression, otherwise: Expression) -> Expression {
    let value_type = then.value_type.clone();
    expression(
        ExpressionKind::Conditional {
            condition: Box::new(condition),
            then: Box::new(then),
            otherwise: Box::new(otherwise),
        },
        value_type,
    )
}

pub fn cast(operand: Expression, value_type: Type) -> Expression {
    expression(ExpressionKind::Cast(Box::new(operand)), value_type)
}

pub fn load(address: Expression, value_type: Type) -> Expression {
    expression(ExpressionKind::Load(Box::new(address)), value_type)
}

pub fn call(function: Function, arguments: Vec<Expression>, value_type: Type) -> Expression {
    expression(ExpressionKind::Call { function, arguments }, value_type)
}

pub fn copyinstr(address: Expression) -> Expression {
    call(Function::CopyInString, vec![address], Type::String)
}

pub fn copyin(address: Expression, size: u32) -> Expression {
    call(
        Function::CopyIn,
        vec![address, long(size.into())],
        Type::Bytes { size: Some(size) },
    )
}

pub fn scalar(scope: Scope, variable: u32) -> Place {
    Place::Scalar {
        scope,
        variable: VariableId(variable),
    }
}

pub fn element(scope: Scope, variable: u32, keys: Vec<Expression>) -> Place {
    Place::Element {
        scope,
        variable: VariableId(variable),
        keys,
    }
}

pub fn read(place: Place, value_type: Type) -> Expression {
    expression(ExpressionKind::Variable(place), value_type)
}

pub fn assign(place: Place, value: Expression) -> Statement {
    Statement::Expression(assignment(place, value))
}

pub fn assignment(place: Place, value: Expression) -> Expression {
    let value_type = value.value_type.clone();
    expression(
        ExpressionKind::Assign {
            place,
            value: Box::new(value),
        },
        value_type,
    )
}

pub fn assign_operator(place: Place, value_type: Type, operator: BinaryOperator, value: Expression) -> Expression {
    expression(
        ExpressionKind::AssignOperator {
            place,
            operator,
            value: Box::new(value),
        },
        value_type,
    )
}

pub fn increment(place: Place, value_type: Type, delta: i64, post: bool) -> Expression {
    expression(ExpressionKind::Increment { place, delta, post }, value_type)
}

pub fn trace(value: Expression) -> Statement {
    record(RecordKind::Trace(value))
}

pub fn record(kind: RecordKind) -> Statement {
    Statement::Record(RecordAction {
        kind,
        span: Span::default(),
    })
}

/// `@number[keys] = function(value)`, with the function of that aggregation.
pub fn aggregate(number: u32, keys: Vec<Expression>, value: Option<Expression>) -> Statement {
    aggregate_keys(
        number,
        keys.into_iter().map(KeyExpression::Value).collect(),
        value,
        None,
    )
}

pub fn aggregate_keys(
    number: u32,
    keys: Vec<KeyExpression>,
    value: Option<Expression>,
    weight: Option<Expression>,
) -> Statement {
    Statement::Aggregate {
        aggregation: AggregationId(number),
        keys,
        value,
        weight,
        span: Span::default(),
    }
}

/// A program of one clause, to which declarations are added.
pub fn program(predicate: Option<Expression>, statements: Vec<Statement>) -> Program {
    Program {
        clauses: vec![Clause {
            probes: Vec::new(),
            predicate,
            statements,
            span: Span::default(),
            derived: None,
        }],
        ..Program::default()
    }
}

/// Adds declarations to a program, by chaining.
pub trait Declare {
    fn global(self, value_type: Type) -> Self;
    fn global_array(self, value_type: Type, keys: Vec<Type>) -> Self;
    fn thread_local(self, value_type: Type) -> Self;
    fn thread_local_array(self, value_type: Type, keys: Vec<Type>) -> Self;
    fn clause_local(self, value_type: Type) -> Self;
    fn aggregation(self, function: AggregatingFunction) -> Self;
}

fn variable(value_type: Type, keys: Option<Vec<Type>>) -> Variable {
    Variable {
        name: "variable".to_owned(),
        value_type,
        keys,
    }
}

impl Declare for Program {
    fn global(mut self, value_type: Type) -> Self {
        self.globals.push(variable(value_type, None));
        self
    }
    fn global_array(mut self, value_type: Type, keys: Vec<Type>) -> Self {
        self.globals.push(variable(value_type, Some(keys)));
        self
    }
    fn thread_local(mut self, value_type: Type) -> Self {
        self.thread_locals.push(variable(value_type, None));
        self
    }
    fn thread_local_array(mut self, value_type: Type, keys: Vec<Type>) -> Self {
        self.thread_locals.push(variable(value_type, Some(keys)));
        self
    }
    fn clause_local(mut self, value_type: Type) -> Self {
        self.clause_locals.push(variable(value_type, None));
        self
    }
    fn aggregation(mut self, function: AggregatingFunction) -> Self {
        self.aggregations.push(Aggregation {
            name: "@".to_owned(),
            function,
            keys: Vec::new(),
            by_processor: false,
        });
        self
    }
}
