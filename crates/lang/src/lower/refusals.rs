//! Refusals that several operations share.

use super::Lowered;
use crate::diagnostic::Diagnostic;
use crate::program::{Expression, ExpressionKind, Found, Place, Structure, Type, size_of};
use crate::source::Span;
use crate::types;

/// The error of a part of D that nanoprobe does not support yet.
pub(crate) fn unsupported(tag: &'static str, what: &str, span: Span) -> Diagnostic {
    Diagnostic::new(tag, span, format!("{what} is not supported yet"))
}

/// Refuses a structure without bytes of its own.
pub(crate) fn refuse_whole(found: &Expression) -> Lowered<()> {
    match &found.kind {
        ExpressionKind::Variable(Place::Element { .. } | Place::Scalar { .. })
            if matches!(found.value_type, Type::Structure(_) | Type::Array { .. }) =>
        {
            Err(unsupported(
                "N_STRUCT",
                "the value of a structure or array that is in an associative array or holds strings",
                found.span,
            )
            .with_help("name its members"))
        }
        _ => Ok(()),
    }
}

pub(crate) fn too_large(span: Span) -> Diagnostic {
    unsupported("N_STRUCT", "assigning such a large structure as a whole", span)
}

/// The error of an operand that would have to be evaluated several times.
pub(crate) fn twice(span: Span) -> Diagnostic {
    unsupported(
        "N_STRUCT",
        "this use of a structure, or of its array, that is reached through an expression with effects",
        span,
    )
    .with_help("assign the key or the index to a variable first")
}

/// A member of this name, which must exist.
pub(crate) fn find_member(structure: &Structure, member: &str, span: Span) -> Lowered<Found> {
    let Some(body) = structure.body() else {
        let message = format!(
            "operator -> cannot be applied to a forward declaration: no {} definition is available",
            structure.name()
        );
        return Err(Diagnostic::new("D_OP_INCOMPLETE", span, message));
    };
    structure.member(member).ok_or_else(|| {
        let names: Vec<&str> = body.members.iter().map(|member| member.name.as_str()).collect();
        let message = format!("{member} is not a member of {}", structure.name());
        Diagnostic::new("D_TYPE_MEMBER", span, message).with_help(format!("its members are {}", names.join(", ")))
    })
}

/// Refuses a type that has no size yet.
pub(crate) fn complete(of: &Type, what: &str, span: Span) -> Lowered<()> {
    match size_of(of) {
        Some(_) => Ok(()),
        None => Err(Diagnostic::new(
            "D_DECL_INCOMPLETE",
            span,
            format!("incomplete struct/union/enum {}: {what}", types::name(of)),
        )),
    }
}

/// The error of a type with too many bytes.
pub(crate) fn too_many_bytes(what: &str, span: Span) -> Diagnostic {
    Diagnostic::new("N_SIZE", span, format!("{what} is too large"))
        .with_help("a structure or array may have 1 MiB; a variable of such a type, 64 KiB")
}
