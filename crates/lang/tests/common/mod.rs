//! The properties of every program that the front end accepts, whatever the text was. The users of
//! programs rely on these properties and do not check them.

use nanoprobe_lang::program::*;

/// Panics if a program breaks the promises of `nanoprobe_lang::program`.
pub fn check(program: &Program) {
    for clause in &program.clauses {
        if let Some(predicate) = &clause.predicate {
            assert!(is_scalar(&predicate.value_type), "predicate {predicate:?}");
            expression(program, predicate);
        }
        clause.statements.iter().for_each(|s| statement(program, s));
    }
}

fn statement(program: &Program, of: &Statement) {
    match of {
        Statement::Expression(e) => expression(program, e),
        Statement::Aggregate {
            aggregation,
            keys,
            value,
            weight,
            ..
        } => {
            let aggregation = &program.aggregations[aggregation.0 as usize];
            assert_eq!(aggregation.keys.len(), keys.len());
            assert_eq!(value.is_none(), aggregation.function == AggregatingFunction::Count);
            for (key, key_type) in keys.iter().zip(&aggregation.keys) {
                match (key, key_type) {
                    (KeyExpression::Stack(frames), KeyType::Stack(same)) => {
                        assert_eq!(frames.side, same.side)
                    }
                    (KeyExpression::Value(value), key_type) => {
                        expression(program, value);
                        match (&value.value_type, key_type) {
                            (Type::Integer(integer), KeyType::Integer(known)) => assert!(known.bytes >= integer.bytes),
                            (Type::Integer(integer), KeyType::Enumeration(of)) => {
                                assert_eq!(Some(*integer), of.integer())
                            }
                            (Type::Integer(integer), KeyType::Symbol(_)) => assert_eq!(integer.bytes, 8),
                            (Type::String, KeyType::String) => {}
                            (Type::String, KeyType::Function) => assert!(value.is_function_name()),
                            other => panic!("key {other:?}"),
                        }
                    }
                    other => panic!("key {other:?}"),
                }
            }
            for value in value.iter().chain(weight) {
                assert!(matches!(value.value_type, Type::Integer(_)), "{value:?}");
                expression(program, value);
            }
        }
        Statement::Record(action) => record(program, &action.kind),
    }
}

fn record(program: &Program, of: &RecordKind) {
    match of {
        RecordKind::Trace(value) => {
            assert!(!matches!(value.value_type, Type::Void | Type::Bytes { size: None }));
            expression(program, value);
        }
        RecordKind::TraceName { value, of } => {
            assert_eq!(of.integer().map(Type::Integer), Some(value.value_type.clone()));
            expression(program, value);
        }
        RecordKind::TraceMemory(values) => {
            assert!(matches!(values[0].value_type, Type::Bytes { size: Some(1..) }));
            assert!(values[1..].iter().all(|shown| shown.value_type == Type::I64));
            values.iter().for_each(|value| expression(program, value));
        }
        RecordKind::Printf { arguments, .. } => arguments.iter().for_each(|a| expression(program, a)),
        RecordKind::Symbol { address, .. } => {
            assert_eq!(address.value_type, Type::U64);
            expression(program, address);
        }
        RecordKind::Exit(status) => {
            assert_eq!(status.value_type, Type::I32);
            expression(program, status);
        }
        RecordKind::Truncate { count: Some(value), .. } | RecordKind::Normalize { factor: value, .. } => {
            assert_eq!(value.value_type, Type::I64);
            expression(program, value);
        }
        RecordKind::Printa { aggregations, .. } => {
            assert!(
                aggregations
                    .iter()
                    .all(|id| (id.0 as usize) < program.aggregations.len())
            );
        }
        RecordKind::Clear(id) | RecordKind::Denormalize(id) | RecordKind::Truncate { aggregation: id, .. } => {
            assert!((id.0 as usize) < program.aggregations.len());
        }
        RecordKind::System { arguments, .. } | RecordKind::Reopen { arguments, .. } => {
            arguments.iter().for_each(|a| expression(program, a));
        }
        RecordKind::SetOption(arguments) => {
            assert!(matches!(arguments.len(), 1 | 2));
            for argument in arguments {
                assert_eq!(argument.value_type, Type::String);
                expression(program, argument);
            }
        }
        RecordKind::PrintAt { values, .. } => {
            assert!(matches!(values[0].value_type, Type::Pointer(_)));
            values.iter().for_each(|value| expression(program, value));
        }
        RecordKind::Print { value, .. } => {
            assert!(!matches!(value.value_type, Type::Void | Type::Bytes { size: None }));
            expression(program, value);
        }
        RecordKind::Raise(value)
        | RecordKind::Speculate(value)
        | RecordKind::CommitSpeculation(value)
        | RecordKind::DiscardSpeculation(value) => {
            assert_eq!(value.value_type, Type::I32);
            expression(program, value);
        }
        RecordKind::Stack(_) | RecordKind::TruncateOutput | RecordKind::Stop => {}
    }
}

fn is_scalar(of: &Type) -> bool {
    matches!(of, Type::Integer(_) | Type::Pointer(_))
}

fn expression(program: &Program, of: &Expression) {
    let to = &of.value_type;
    match &of.kind {
        ExpressionKind::Integer(value) => {
            let integer = match to {
                Type::Integer(integer) => integer,
                Type::String if *value == 0 => return,
                _ => panic!("{of:?}"),
            };
            assert_eq!(nanoprobe_lang::types::normalise(*value, *integer), *value, "{of:?}");
        }
        ExpressionKind::String(_) => assert_eq!(*to, Type::String),
        ExpressionKind::Builtin(_) => {}
        ExpressionKind::Register(index) => {
            assert_eq!((to, &index.value_type), (&Type::U64, &Type::I64));
            expression(program, index);
        }
        // The type of a variable does not limit what may be read at its address.
        ExpressionKind::Variable(target) => {
            let held = place(program, target);
            assert!(
                held == to || matches!((held, to), (Type::Bytes { .. }, Type::Bytes { size: None })),
                "{of:?}"
            );
        }
        ExpressionKind::Unary { operator, operand } => {
            match operator {
                UnaryOperator::Not => assert!(*to == Type::I32 && is_scalar(&operand.value_type)),
                _ => assert!(*to == operand.value_type && matches!(to, Type::Integer(_))),
            }
            expression(program, operand);
        }
        ExpressionKind::Binary { operator, left, right } => {
            use BinaryOperator as B;
            let same = left.value_type == right.value_type;
            match operator {
                B::ShiftLeft | B::ShiftRight => {
                    assert!(
                        left.value_type == *to && matches!(right.value_type, Type::Integer(_)),
                        "{of:?}"
                    );
                }
                B::Equal | B::NotEqual | B::Less | B::LessOrEqual | B::Greater | B::GreaterOrEqual => {
                    assert!(same && *to == Type::I32, "{of:?}");
                    assert!(matches!(left.value_type, Type::Integer(_) | Type::String), "{of:?}");
                }
                _ => assert!(
                    same && left.value_type == *to && matches!(to, Type::Integer(_)),
                    "{of:?}"
                ),
            }
            expression(program, left);
            expression(program, right);
        }
        ExpressionKind::Logical { left, right, .. } => {
            assert!(*to == Type::I32 && is_scalar(&left.value_type) && is_scalar(&right.value_type));
            expression(program, left);
            expression(program, right);
        }
        ExpressionKind::Conditional {
            condition,
            then,
            otherwise,
        } => {
            assert!(is_scalar(&condition.value_type));
            assert!(
                then.value_type == *to && otherwise.value_type == *to && *to != Type::Void,
                "{of:?}"
            );
            [condition, then, otherwise]
                .into_iter()
                .for_each(|e| expression(program, e));
        }
        ExpressionKind::Cast(operand) => {
            let from = &operand.value_type;
            match to {
                // The cast of a string to an integer is the address of its bytes.
                Type::Integer(_) if *from == Type::String => assert_eq!(*to, Type::U64, "{of:?}"),
                Type::Integer(_) | Type::Pointer(_) => assert!(!matches!(from, Type::String | Type::Void), "{of:?}"),
                Type::String => assert!(!matches!(from, Type::Void), "{of:?}"),
                Type::Void => {}
                Type::Bytes { .. } | Type::Structure(_) | Type::Array { .. } | Type::Foreign(_) => panic!("{of:?}"),
            }
            expression(program, operand);
        }
        ExpressionKind::Narrow(value) => {
            let (Type::Integer(to), Type::Integer(from)) = (to, &value.value_type) else {
                panic!("{of:?}")
            };
            assert!(to.bytes < from.bytes, "{of:?}");
            expression(program, value);
        }
        ExpressionKind::Assign { place: target, value } => {
            assert_eq!(place(program, target), to);
            assert_eq!(&value.value_type, to, "{of:?}");
            expression(program, value);
        }
        ExpressionKind::AssignOperator {
            place: target, value, ..
        } => {
            assert_eq!(place(program, target), to);
            assert!(
                is_scalar(to) && matches!(value.value_type, Type::Integer(i) if i.bytes >= 4),
                "{of:?}"
            );
            expression(program, value);
        }
        ExpressionKind::Increment {
            place: target, delta, ..
        } => {
            assert!(place(program, target) == to && is_scalar(to) && *delta != 0);
        }
        ExpressionKind::Comma { first, second } => {
            assert_eq!(second.value_type, *to);
            expression(program, first);
            expression(program, second);
        }
        ExpressionKind::Call { function, arguments } => {
            let (parameters, least) = function.parameters();
            assert!((least..=parameters.len()).contains(&arguments.len()), "{of:?}");
            for (argument, parameter) in arguments.iter().zip(parameters) {
                let wanted = match parameter {
                    Parameter::Text => Type::String,
                    Parameter::Number => Type::I64,
                    Parameter::Address => Type::U64,
                };
                assert_eq!(argument.value_type, wanted, "{of:?}");
            }
            assert_eq!(function.yields_string(), *to == Type::String, "{of:?}");
            arguments.iter().for_each(|a| expression(program, a));
        }
        ExpressionKind::Load(address) => {
            assert!(
                matches!(to, Type::Integer(_)) && is_scalar(&address.value_type),
                "{of:?}"
            );
            expression(program, address);
        }
    }
}

/// The type of a place.
fn place<'p>(program: &'p Program, of: &'p Place) -> &'p Type {
    let (scope, id, keys) = match of {
        Place::Scalar { scope, variable } => (scope, variable, None),
        Place::Element { scope, variable, keys } => (scope, variable, Some(keys)),
        Place::Field {
            scope,
            variable,
            offset,
            value_type,
        } => {
            let whole = match scope {
                Scope::Global => &program.globals[variable.0 as usize],
                Scope::ThreadLocal => &program.thread_locals[variable.0 as usize],
                Scope::ClauseLocal => &program.clause_locals[variable.0 as usize],
            };
            assert!(matches!(whole.value_type, Type::Bytes { size: Some(_) }), "{of:?}");
            assert!(offset.value_type == Type::U64 && is_scalar(value_type), "{of:?}");
            expression(program, offset);
            return value_type;
        }
        Place::Memory { address, value_type } => {
            assert!(address.value_type == Type::U64 && is_scalar(value_type), "{of:?}");
            expression(program, address);
            return value_type;
        }
    };
    let variable = match scope {
        Scope::Global => &program.globals[id.0 as usize],
        Scope::ThreadLocal => &program.thread_locals[id.0 as usize],
        Scope::ClauseLocal => &program.clause_locals[id.0 as usize],
    };
    let held = &variable.value_type;
    assert!(
        !matches!(
            held,
            Type::Void | Type::Bytes { size: None } | Type::Structure(_) | Type::Array { .. }
        ),
        "{variable:?}"
    );
    match (keys, &variable.keys) {
        (None, None) => {}
        (Some(keys), Some(types)) => {
            assert_eq!(keys.len(), types.len());
            for (key, key_type) in keys.iter().zip(types) {
                let integers = matches!((&key.value_type, key_type), (Type::Integer(_), Type::Integer(_)));
                assert!(integers || key.value_type == *key_type, "{key:?}");
                expression(program, key);
            }
        }
        other => panic!("{other:?}"),
    }
    &variable.value_type
}
