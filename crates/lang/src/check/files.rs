//! `fds[ ]`: the open files of the process.

use super::names::OfFile;
use super::{Checked, Checker, names};
use crate::diagnostic::Diagnostic;
use crate::lower::{constant, convert};
use crate::program::{Expression, ExpressionKind, Function, Type};
use crate::source::Span;
use crate::syntax::Node;
use crate::types;

impl Checker {
    /// `fds[n].member`: the kernel's data about an open file.
    pub(super) fn file(&mut self, indices: &[Node], member: &str, span: Span) -> Checked<Expression> {
        let [index] = indices else {
            return Err(Diagnostic::new("D_PROTO_LEN", span, "fds[ ] has one index"));
        };
        let at = index.span;
        let index = self.expression(index)?;
        if !matches!(index.value_type, Type::Integer(_)) {
            let message = format!(
                "index of fds[ ] is a \"{}\", not an integer",
                types::name(&index.value_type)
            );
            return Err(Diagnostic::new("D_PROTO_ARG", at, message));
        }
        let Some(part) = names::of_file(member) else {
            let message = format!("translator does not define conversion for member: {member}");
            let help = names::missing_variable("fds").unwrap_or_default();
            return Err(Diagnostic::new("D_XLATE_NOCONV", span, message).with_help(help));
        };
        let call = |function, arguments| Expression {
            kind: ExpressionKind::Call { function, arguments },
            value_type: Type::String,
            span,
        };
        // A negative number means a directory, and is not a descriptor of the program.
        let index = convert::to_integer(convert::to_integer(index, names::UNSIGNED), constant::LONG);
        Ok(match part {
            OfFile::Path(None) => call(Function::Path, vec![index]),
            OfFile::Path(Some(part)) => call(part, vec![call(Function::Path, vec![index])]),
            OfFile::FileSystem(part) => {
                let part = constant::integer(part, constant::LONG, span);
                call(Function::FileSystem, vec![index, part])
            }
        })
    }
}
