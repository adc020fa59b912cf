//! The rules of a program's form that keep a handler from touching memory that is not there (I4).
//!
//! Generated code follows two kinds of addresses without asking the agent. These are addresses of
//! strings (except the operand of `copyinstr`) and of bytes of a known size. So only an expression
//! whose value is such an address may have such a type. All other addresses are numbers, which only
//! the agent's guarded functions follow. The front end obeys these rules. This file checks them node
//! by node, because a mistake would crash the target and not the tracer.

use nanoprobe_lang::program::{
    BinaryOperator, Builtin, Expression, ExpressionKind, Function, Parameter, Place, Program, Scope, Type, VariableId,
};

use crate::error::Error;
use crate::facts::{is_comparison, literal};

/// Checks one node against its direct operands.
pub(crate) fn check(program: &Program, expression: &Expression) -> Result<(), Error> {
    match problem(program, expression) {
        None => Ok(()),
        Some(what) => Err(Error::Malformed {
            what,
            span: expression.span,
        }),
    }
}

/// Whether a value of one type may stand where another type is expected, as far as memory is concerned.
fn fits(value: &Type, wanted: &Type) -> bool {
    match (value, wanted) {
        (_, Type::String) => *value == Type::String,
        (Type::Bytes { size: Some(has) }, Type::Bytes { size: Some(needs) }) => has >= needs,
        (_, Type::Bytes { size: Some(_) }) => false,
        _ => true,
    }
}

/// Whether a value of this type is a mere number: generated code never uses it as an address without the agent.
fn is_number(value_type: &Type) -> bool {
    !matches!(value_type, Type::String | Type::Bytes { size: Some(_) })
}

fn problem(program: &Program, expression: &Expression) -> Option<&'static str> {
    let yields = &expression.value_type;
    let unless = |good: bool, what: &'static str| if good { None } else { Some(what) };
    match &expression.kind {
        ExpressionKind::Integer(_) | ExpressionKind::String(_) => unless(
            is_number(yields) || *yields == Type::String,
            "a literal of an impossible type",
        ),
        ExpressionKind::Builtin(builtin) => unless(
            is_number(yields) || (*yields == Type::String && is_string(*builtin)),
            "a built-in variable of an impossible type",
        ),
        ExpressionKind::Register(_)
        | ExpressionKind::Unary { .. }
        | ExpressionKind::Logical { .. }
        | ExpressionKind::Load(_) => unless(is_number(yields), "an operation that does not yield a number"),
        ExpressionKind::Binary { operator, left, right } => {
            let strings = (left.value_type == Type::String, right.value_type == Type::String);
            let good = match strings {
                (false, false) => true,
                (true, true) => is_comparison(*operator),
                _ => false,
            };
            unless(good && is_number(yields), "an operation on a string")
        }
        ExpressionKind::Conditional { then, otherwise, .. } => unless(
            fits(&then.value_type, yields) && fits(&otherwise.value_type, yields),
            "a condition whose branches do not fit its type",
        ),
        ExpressionKind::Comma { second, .. } => unless(fits(&second.value_type, yields), "a comma of another type"),
        ExpressionKind::Narrow(operand) => unless(
            is_number(yields) && is_number(&operand.value_type),
            "an operation that does not yield a number",
        ),
        ExpressionKind::Cast(operand) => unless(
            *yields == Type::String || fits(&operand.value_type, yields),
            "a cast of a number to bytes",
        ),
        ExpressionKind::Variable(place) => match place_type(program, place) {
            None => Some("a variable that is not declared"),
            Some(holds) => unless(fits(holds, yields), "a variable read as another type"),
        },
        ExpressionKind::Assign { place, value } => match place_type(program, place) {
            None => Some("a variable that is not declared"),
            Some(holds) => unless(
                fits(&value.value_type, holds) && fits(holds, yields),
                "an assignment of another type",
            ),
        },
        ExpressionKind::AssignOperator { place, operator, value } => match place_type(program, place) {
            None => Some("a variable that is not declared"),
            Some(holds) => unless(
                is_number(holds) && is_number(yields) && is_number(&value.value_type) && is_arithmetic(*operator),
                "an assignment operator on what is no number",
            ),
        },
        ExpressionKind::Increment { place, .. } => match place_type(program, place) {
            None => Some("a variable that is not declared"),
            Some(holds) => unless(
                is_number(holds) && is_number(yields),
                "an increment of what is no number",
            ),
        },
        ExpressionKind::Call { function, arguments } => call_problem(*function, arguments, yields),
    }
}

fn call_problem(function: Function, arguments: &[Expression], yields: &Type) -> Option<&'static str> {
    let (parameters, least) = function.parameters();
    let fit = (least..=parameters.len()).contains(&arguments.len())
        && arguments
            .iter()
            .zip(parameters)
            .all(|(argument, parameter)| match parameter {
                Parameter::Text => argument.value_type == Type::String,
                Parameter::Number | Parameter::Address => is_number(&argument.value_type),
            });
    let good = match (function, arguments) {
        (Function::CopyIn, [_, size]) => match yields {
            Type::Bytes { size: Some(known) } => literal(size) == Some(i64::from(*known)),
            other => is_number(other),
        },
        // The subroutine writes the variable.
        (Function::StringToken, [state, _]) => {
            matches!(state.kind, ExpressionKind::Variable(Place::Scalar { .. })) && *yields == Type::String
        }
        _ => is_number(yields) || (function.yields_string() && *yields == Type::String),
    } && fit;
    if good {
        None
    } else {
        Some("a call that does not fit its function")
    }
}

fn place_type<'a>(program: &'a Program, place: &'a Place) -> Option<&'a Type> {
    let (scope, variable, is_element) = match place {
        Place::Scalar { scope, variable } => (scope, variable, false),
        Place::Element { scope, variable, .. } => (scope, variable, true),
        Place::Memory { value_type, .. } => return is_number(value_type).then_some(value_type),
        Place::Field {
            scope,
            variable,
            value_type,
            ..
        } => {
            let held = variable_type(program, *scope, *variable, false)?;
            let good = matches!(held, Type::Bytes { size: Some(_) }) && is_number(value_type);
            return good.then_some(value_type);
        }
    };
    variable_type(program, *scope, *variable, is_element)
}

fn variable_type(program: &Program, scope: Scope, variable: VariableId, is_element: bool) -> Option<&Type> {
    let list = match scope {
        Scope::Global => &program.globals,
        Scope::ThreadLocal => &program.thread_locals,
        Scope::ClauseLocal => &program.clause_locals,
    };
    let found = list.get(variable.0 as usize)?;
    (found.keys.is_some() == is_element).then_some(&found.value_type)
}

fn is_arithmetic(operator: BinaryOperator) -> bool {
    !is_comparison(operator)
}

fn is_string(builtin: Builtin) -> bool {
    matches!(
        builtin,
        Builtin::ExecName
            | Builtin::ProcessArguments
            | Builtin::ProbeProvider
            | Builtin::ProbeModule
            | Builtin::ProbeFunction
            | Builtin::ProbeName
    ) || matches!(builtin, Builtin::Other(part) if part.is_text())
}
