//! `args[0]` and `args[1]` of the provider `sched`: another thread and its process, member by member.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::program::{Builtin, Expression, ExpressionKind, OtherPart, ProbeDescription};
use crate::source::Span;
use crate::syntax::Node;

/// The probes that have these arguments.
const PROBES: [&str; 3] = ["wakeup", "off-cpu", "signal-discard"];

impl Checker {
    /// Whether all probes of the clause have another thread.
    fn has_other_thread(&self) -> bool {
        let probes = &self.clause_at_hand.probes;
        let is_one = |probe: &ProbeDescription| probe.provider == "sched" && PROBES.contains(&probe.name.as_str());
        !probes.is_empty() && probes.iter().all(is_one)
    }

    /// `args[0]->member`. `None`: the clause has no such arguments.
    pub(super) fn scheduled_member(&self, base: &Node, member: &str, span: Span) -> Checked<Option<Expression>> {
        let Some(number) = crate::derived::typed(base).filter(|_| self.has_other_thread()) else {
            return Ok(None);
        };
        let members = OtherPart::of_argument(number);
        if members.is_empty() {
            return Ok(None);
        }
        let Some(part) = members.iter().find(|part| part.member() == member) else {
            let names: Vec<&str> = members.iter().map(|part| part.member()).collect();
            let message = format!("translator does not define conversion for member: {member}");
            let help = format!("args[{number}] has {}", names.join(", "));
            return Err(Diagnostic::new("D_XLATE_NOCONV", span, message).with_help(help));
        };
        Ok(Some(Expression {
            kind: ExpressionKind::Builtin(Builtin::Other(*part)),
            value_type: part.value_type(),
            span,
        }))
    }

    /// Refuses `args[0]` as a whole, which has no type in a program.
    pub(super) fn scheduled_whole(&self, number: i128, span: Span) -> Checked<()> {
        let number = u8::try_from(number).unwrap_or(u8::MAX);
        let members: Vec<&str> = OtherPart::of_argument(number)
            .iter()
            .map(|part| part.member())
            .collect();
        if members.is_empty() || !self.has_other_thread() {
            return Ok(());
        }
        let message = "expression cannot evaluate to result of a translated type";
        let help = format!("take a member, args[{number}]->{}", members.join(", "));
        Err(Diagnostic::new("D_CG_DYN", span, message).with_help(help))
    }
}
