//! `bcopy(source, destination, size)`: `copyinto(source, size, destination)`, with the arguments
//! in another order.

use super::effects::has_effects;
use super::sequence::{assigned_to, reading};
use super::variables::{Purpose, Variables};
use super::{characters, constant};
use crate::program::{Expression, ExpressionKind, Function, Type};
use crate::source::Span;

impl Variables {
    /// The call, with its arguments converted. The arguments are computed in the written order, which
    /// matters if they have effects.
    ///
    /// A string is first copied to scratch memory, after the memory that `alloca` reserved. The
    /// destination is checked before that, because afterwards the end of the reserved memory is unknown.
    pub(crate) fn block_copy(&mut self, arguments: Vec<Expression>, span: Span) -> Expression {
        let Ok([source, destination, size]) = <[Expression; 3]>::try_from(arguments) else {
            // This cannot happen: the signature ensures that there are three arguments.
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
                let held = self.held(Purpose::CopyText, Type::String, *string, &mut steps);
                characters::address(held)
            }
            kind => {
                let source = Expression { kind, ..source };
                self.held(Purpose::CopySource, Type::U64, source, &mut steps)
            }
        };
        let destination = self.held(Purpose::CopyDestination, Type::U64, destination, &mut steps);
        let size = self.held(Purpose::CopySize, Type::I64, size, &mut steps);
        if text {
            // A copy onto itself changes nothing, but fails unless the place is in scratch memory.
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

    /// A value that an earlier step computes once, so that it can be read several times.
    fn held(
        &mut self,
        purpose: Purpose,
        value_type: Type,
        value: Expression,
        steps: &mut Vec<Expression>,
    ) -> Expression {
        let span = value.span;
        let place = self.shared(purpose, value_type.clone());
        steps.push(Expression {
            value_type: value_type.clone(),
            ..assigned_to(place.clone(), value, span)
        });
        reading(place, value_type, span)
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
