//! The compiled code and the interpreter agree on random expressions. These are made of arguments,
//! constants, and variables of every width, with assignments, short circuits and faults.
#![allow(clippy::unwrap_used)] // tests
mod support;

use std::collections::BTreeMap;

use nanoprobe_codegen::ProbeKind;
use nanoprobe_lang::interpret::{self, Fault, FaultKind, Value, World, normalise};
use nanoprobe_lang::program::*;
use nanoprobe_lang::types;
use proptest::prelude::*;
use support::build::*;
use support::machine::{LIMITS, Machine, agent, compile};

/// The types of the global variables: every width and sign.
const TYPES: [IntegerType; 8] = {
    const fn of(bytes: u8, signed: bool) -> IntegerType {
        IntegerType { bytes, signed }
    }
    [
        of(8, true),
        of(8, false),
        of(4, true),
        of(4, false),
        of(2, true),
        of(2, false),
        of(1, true),
        of(1, false),
    ]
};

/// The shape of an expression before it has types. Any tree makes a well-typed program.
#[derive(Clone, Debug)]
enum Tree {
    Constant(i64, usize),
    Argument(u8),
    Variable(usize),
    Element(Box<Tree>),
    Unary(UnaryOperator, Box<Tree>),
    Binary(BinaryOperator, Box<Tree>, Box<Tree>),
    Logical(LogicalOperator, Box<Tree>, Box<Tree>),
    Conditional(Box<Tree>, Box<Tree>, Box<Tree>),
    Cast(usize, Box<Tree>),
    Assign(usize, Box<Tree>),
    AssignElement(Box<Tree>, Box<Tree>),
    AssignOperator(usize, BinaryOperator, Box<Tree>),
    Increment(usize, i64, bool),
    Comma(Box<Tree>, Box<Tree>),
    Timestamp,
}

/// Values at which arithmetic is most likely to go wrong.
fn edge() -> impl Strategy<Value = i64> {
    prop_oneof![
        prop::sample::select(vec![
            0,
            1,
            -1,
            2,
            7,
            8,
            31,
            32,
            33,
            63,
            64,
            65,
            127,
            128,
            255,
            256,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            i64::MAX,
            i64::MIN,
            i64::MIN + 1,
        ]),
        any::<i64>(),
    ]
}

fn arithmetic() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    prop::sample::select(vec![
        Add, Subtract, Multiply, Divide, Remainder, And, Or, Xor, ShiftLeft, ShiftRight,
    ])
}

fn operator() -> impl Strategy<Value = BinaryOperator> {
    use BinaryOperator::*;
    let comparisons = prop::sample::select(vec![Equal, NotEqual, Less, LessOrEqual, Greater, GreaterOrEqual]);
    prop_oneof![2 => arithmetic(), 1 => comparisons]
}

fn tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        (edge(), 0..TYPES.len()).prop_map(|(value, of)| Tree::Constant(value, of)),
        (0..6u8).prop_map(Tree::Argument),
        (0..TYPES.len()).prop_map(Tree::Variable),
        (0..TYPES.len(), -2..3i64, any::<bool>()).prop_map(|(of, delta, post)| Tree::Increment(of, delta, post)),
        Just(Tree::Timestamp),
    ];
    leaf.prop_recursive(6, 48, 3, |inner| {
        let inner = inner.prop_map(Box::new);
        let unary = prop::sample::select(vec![
            UnaryOperator::Negate,
            UnaryOperator::Complement,
            UnaryOperator::Not,
        ]);
        let logical = prop::sample::select(vec![LogicalOperator::And, LogicalOperator::Or, LogicalOperator::Xor]);
        prop_oneof![
            6 => (operator(), inner.clone(), inner.clone()).prop_map(|(o, l, r)| Tree::Binary(o, l, r)),
            1 => (unary, inner.clone()).prop_map(|(o, t)| Tree::Unary(o, t)),
            2 => (logical, inner.clone(), inner.clone()).prop_map(|(o, l, r)| Tree::Logical(o, l, r)),
            2 => (inner.clone(), inner.clone(), inner.clone()).prop_map(|(c, t, o)| Tree::Conditional(c, t, o)),
            2 => (0..TYPES.len(), inner.clone()).prop_map(|(of, t)| Tree::Cast(of, t)),
            1 => (0..TYPES.len(), inner.clone()).prop_map(|(of, t)| Tree::Assign(of, t)),
            1 => (0..TYPES.len(), arithmetic(), inner.clone()).prop_map(|(of, o, t)| Tree::AssignOperator(of, o, t)),
            1 => inner.clone().prop_map(Tree::Element),
            1 => (inner.clone(), inner.clone()).prop_map(|(k, v)| Tree::AssignElement(k, v)),
            1 => (inner.clone(), inner).prop_map(|(a, b)| Tree::Comma(a, b)),
        ]
    })
}

fn of(expression: &Expression) -> IntegerType {
    let Type::Integer(integer) = expression.value_type else {
        panic!("an integer")
    };
    integer
}

/// Operators work on 32 bits or more: the front end gives them 64.
fn promoted(integer: IntegerType) -> IntegerType {
    let int = IntegerType { bytes: 4, signed: true };
    if integer.bytes < int.bytes { int } else { integer }
}

fn to(expression: Expression, integer: IntegerType) -> Expression {
    if of(&expression) == integer {
        expression
    } else {
        cast(expression, Type::Integer(integer))
    }
}

/// The associative array after the scalars, keyed and valued by `int64_t`.
fn array(key: Expression) -> Place {
    element(Scope::Global, TYPES.len() as u32, vec![to(key, TYPES[0])])
}

/// Determines the types as the front end does.
fn typed(tree: &Tree) -> Expression {
    let place = |index: &usize| scalar(Scope::Global, *index as u32);
    match tree {
        Tree::Constant(value, of) => number(normalise(*value, TYPES[*of]), Type::Integer(TYPES[*of])),
        Tree::Argument(index) => arg(*index),
        Tree::Variable(index) => read(place(index), Type::Integer(TYPES[*index])),
        Tree::Element(key) => read(array(typed(key)), LONG),
        Tree::Unary(operator, operand) => {
            let operand = typed(operand);
            let integer = promoted(of(&operand));
            unary(*operator, to(operand, integer))
        }
        Tree::Binary(operator, left, right) => {
            let (left, right) = (typed(left), typed(right));
            if matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight) {
                let integer = promoted(of(&left));
                return binary(*operator, to(left, integer), right);
            }
            let common = types::common(promoted(of(&left)), promoted(of(&right)));
            binary(*operator, to(left, common), to(right, common))
        }
        Tree::Logical(operator, left, right) => logical(*operator, typed(left), typed(right)),
        Tree::Conditional(condition, then, otherwise) => {
            let (then, otherwise) = (typed(then), typed(otherwise));
            let common = types::common(promoted(of(&then)), promoted(of(&otherwise)));
            conditional(typed(condition), to(then, common), to(otherwise, common))
        }
        Tree::Cast(of, operand) => cast(typed(operand), Type::Integer(TYPES[*of])),
        Tree::Assign(index, value) => assignment(place(index), to(typed(value), TYPES[*index])),
        Tree::AssignElement(key, value) => assignment(array(typed(key)), to(typed(value), TYPES[0])),
        Tree::AssignOperator(index, operator, value) => {
            assign_operator(place(index), Type::Integer(TYPES[*index]), *operator, typed(value))
        }
        Tree::Increment(index, delta, post) => increment(place(index), Type::Integer(TYPES[*index]), *delta, *post),
        Tree::Comma(first, second) => {
            let (first, second) = (typed(first), typed(second));
            let value_type = second.value_type.clone();
            expression(
                ExpressionKind::Comma {
                    first: Box::new(first),
                    second: Box::new(second),
                },
                value_type,
            )
        }
        Tree::Timestamp => timestamp(),
    }
}

/// The interpreter's world, with the same arguments, variables and clock as the machine.
#[derive(Default)]
struct Model {
    arguments: [u64; 6],
    globals: Vec<i64>,
    elements: BTreeMap<Vec<u8>, i64>,
    clock: Option<i64>,
}

impl World for Model {
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
        match builtin {
            Builtin::Argument(index) => Ok(Value::Integer(self.arguments[usize::from(index)] as i64)),
            // The clock has the same value throughout the clause.
            Builtin::Timestamp => Ok(Value::Integer(*self.clock.get_or_insert(1000))),
            _ => Err(Fault::new(FaultKind::Illegal)),
        }
    }
    fn register(&mut self, _: i64) -> Result<i64, Fault> {
        Err(Fault::new(FaultKind::Illegal))
    }
    fn get(&mut self, _: Scope, variable: VariableId, key: Option<&[u8]>) -> Option<Value> {
        match key {
            None => Some(Value::Integer(self.globals[variable.0 as usize])),
            Some(key) => self.elements.get(key).map(|value| Value::Integer(*value)),
        }
    }
    fn set(&mut self, _: Scope, variable: VariableId, key: Option<&[u8]>, value: Option<Value>) {
        match (key, value) {
            (None, value) => self.globals[variable.0 as usize] = value.map_or(0, |value| value.as_integer()),
            (Some(key), None) => drop(self.elements.remove(key)),
            (Some(key), Some(value)) => drop(self.elements.insert(key.to_vec(), value.as_integer())),
        }
    }
    fn read(&mut self, address: u64, _: &mut [u8]) -> Result<(), Fault> {
        Err(Fault::bad_address(address))
    }
    fn read_string(&mut self, address: u64, _: usize) -> Result<Vec<u8>, Fault> {
        Err(Fault::bad_address(address))
    }
    fn stack(&mut self, _: Side, _: u32) -> Vec<u64> {
        Vec::new()
    }
    fn aggregate(&mut self, _: AggregationId, _: &[u8], _: i64, _: i64) {}
}

/// Runs `/predicate/ { x[0] = first; trace(second); }` both ways and compares everything that can be observed.
fn check(predicate: &Tree, first: &Tree, second: &Tree, arguments: [u64; 6], start: [i64; 8]) {
    let statements = vec![
        assign(scalar(Scope::Global, 0), to(typed(first), TYPES[0])),
        trace(typed(second)),
    ];
    let mut program = program(Some(typed(predicate)), statements);
    for integer in TYPES {
        program = program.global(Type::Integer(integer));
    }
    program = program.global_array(LONG, vec![LONG]);
    let start: Vec<i64> = start
        .iter()
        .zip(TYPES)
        .map(|(value, of)| normalise(*value, of))
        .collect();

    let mut model = Model {
        arguments,
        globals: start.clone(),
        ..Model::default()
    };
    let outcome = interpret::run_clause(&program.clauses[0], &program, LIMITS, &mut model);

    let mut machine = Machine::new(&compile(&program, ProbeKind::Entry));
    for (index, value) in start.iter().enumerate() {
        machine.set_global(index, *value as u64);
    }
    machine.run(arguments);

    let globals: Vec<i64> = (0..TYPES.len()).map(|index| machine.global(index) as i64).collect();
    assert_eq!(globals, model.globals, "variables");
    agent(|state| {
        let elements: BTreeMap<Vec<u8>, i64> = state
            .dynamic
            .iter()
            .map(|((_, key), value)| (key.clone(), value[0] as i64))
            .collect();
        assert_eq!(elements, model.elements, "elements");
        match outcome {
            Ok(outcome) => {
                assert_eq!(state.errors, []);
                let payload = state.committed.first().map(|record| record[24..].to_vec());
                assert_eq!(payload, outcome.payload);
            }
            Err(fault) => {
                let expected = (
                    u64::from(fault.fault.kind.code()),
                    u64::from(fault.action),
                    fault.fault.value,
                );
                assert_eq!(state.errors, [expected]);
                assert!(state.committed.is_empty());
            }
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn compiled_equals_interpreted(
        predicate in prop_oneof![1 => tree(), 2 => Just(Tree::Constant(1, 0))],
        first in tree(),
        second in tree(),
        arguments in prop::array::uniform6(edge()),
        start in prop::array::uniform8(edge()),
    ) {
        check(&predicate, &first, &second, arguments.map(|value| value as u64), start);
    }
}

/// Tests every operator on every pair of types and edge values, not only a random choice.
#[test]
fn every_operator_on_every_type() {
    use BinaryOperator::*;
    let values = [0, 1, -1, 7, 33, 64, 0x80, 0x8000, 0x8000_0000, i64::MIN, i64::MAX];
    let operators = [
        Add,
        Subtract,
        Multiply,
        Divide,
        Remainder,
        And,
        Or,
        Xor,
        ShiftLeft,
        ShiftRight,
        Equal,
        Less,
        GreaterOrEqual,
    ];
    let done = Box::new(Tree::Constant(1, 2));
    for operator in operators {
        for index in 0..TYPES.len() {
            // The operands are variables, so the compiler does not know their values.
            let both = Tree::Binary(
                operator,
                Box::new(Tree::Variable(index)),
                Box::new(Tree::Variable(7 - index)),
            );
            let same = Tree::Binary(
                operator,
                Box::new(Tree::Variable(index)),
                Box::new(Tree::Cast(index, Box::new(Tree::Argument(0)))),
            );
            for left in values {
                for right in [0, 1, -1, 33, i64::MIN] {
                    let mut start = [right; 8];
                    start[index] = left;
                    check(&done, &both, &same, [right as u64; 6], start);
                }
            }
        }
    }
}
