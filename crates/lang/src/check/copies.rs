//! `bcopy(source, destination, size)`: `copyinto(source, size, destination)`, but for the order of its arguments.

use super::Resolver;
use crate::lower::effects::has_effects;
use crate::lower::{characters, constant};
use crate::program::{Expression, ExpressionKind, Function, Place, Type};
use crate::source::Span;

impl Resolver {
    /// The call, its arguments converted. They are computed in their order, which is seen where they have effects.
    ///
    /// A string is laid into scratch memory to be copied from there, behind what `alloca` gave: the destination is looked
    /// at before that, or the end of what was allocated would not be found. What `alloca` gives there is in front of it.
    pub(super) fn block_copy(&mut self, arguments: Vec<Expression>, span: Span) -> Expression {
        let Ok([source, destination, size]) = <[Expression; 3]>::try_from(arguments) else {
            // The signature has three.
            return constant::integer(0, constant::LONG, span);
        };
        let text = matches!(&source.kind, ExpressionKind::Cast(inner) if inner.value_type == Type::String);
        if !text && !has_effects(&destination) && !has_effects(&size) {
            return copy([source, size, destination], span);
        }
        let mut steps = Vec::with_capacity(5);
        let source = match source.kind {
            ExpressionKind::Cast(string) if text && !has_effects(&string) => characters::address(*string),
            ExpressionKind::Cast(string) if text => {
                let held = self.held("%bcopy text", Type::String, *string, &mut steps);
                characters::address(held)
            }
            kind => {
                let source = Expression { kind, ..source };
                self.held("%bcopy source", Type::U64, source, &mut steps)
            }
        };
        let destination = self.held("%bcopy destination", Type::U64, destination, &mut steps);
        let size = self.held("%bcopy size", Type::I64, size, &mut steps);
        if text {
            // Onto itself: nothing changes but that it must be scratch memory.
            steps.push(copy([destination.clone(), size.clone(), destination.clone()], span));
        }
        let last = copy([source, size, destination], span);
        steps.into_iter().rev().fold(last, |then, first| Expression {
            kind: ExpressionKind::Comma {
                first: Box::new(first),
                second: Box::new(then),
            },
            value_type: Type::Void,
            span,
        })
    }

    /// A value that is computed once, by a step in front; it is read as often as wanted.
    fn held(&mut self, name: &str, value_type: Type, value: Expression, steps: &mut Vec<Expression>) -> Expression {
        let span = value.span;
        let place: Place = self.unnamed(name, value_type.clone(), span);
        steps.push(Expression {
            kind: ExpressionKind::Assign {
                place: place.clone(),
                value: Box::new(value),
            },
            value_type: value_type.clone(),
            span,
        });
        Expression {
            kind: ExpressionKind::Variable(place),
            value_type,
            span,
        }
    }
}

fn copy(arguments: [Expression; 3], span: Span) -> Expression {
    Expression {
        kind: ExpressionKind::Call {
            function: Function::CopyInTo,
            arguments: arguments.into(),
        },
        value_type: Type::Void,
        span,
    }
}
