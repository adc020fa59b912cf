//! `?:` with a constant condition: only the chosen operand is compiled, and the other one is not
//! checked at all.
//!
//! DTrace does the same, and scripts with options depend on it. In any other conditional, an action cannot be an
//! operand.
//!
//! ```text
//! inline int OPT_time = 0;
//! OPT_time ? printf("%d ", timestamp) : 1;
//! ```

use super::{Checked, Checker};
use crate::lower::constant;
use crate::syntax::{Node, NodeKind, PrefixOperator};

impl Checker {
    /// For a conditional with a constant condition, the operand that it chooses; any other node is returned unchanged.
    pub(super) fn chosen<'n>(&mut self, node: &'n Node) -> Checked<&'n Node> {
        let mut node = node;
        while let NodeKind::Conditional {
            condition,
            then,
            otherwise,
        } = &node.kind
            && let Some(holds) = self.constant_condition(condition)?
        {
            node = if holds { then } else { otherwise };
        }
        Ok(node)
    }

    /// Whether a constant condition holds; `None` for any other condition, which is
    /// not resolved here.
    fn constant_condition(&mut self, condition: &Node) -> Checked<Option<bool>> {
        if !self.is_constant(condition) {
            return Ok(None);
        }
        let value = self.expression(condition)?;
        Ok(constant::wide_value(&value).map(|value| value != 0))
    }

    /// Whether an expression consists of integer constants, and of inlines of such expressions.
    fn is_constant(&self, node: &Node) -> bool {
        match &node.kind {
            NodeKind::Integer(_) => true,
            NodeKind::Identifier(name) => self
                .scope
                .inlines
                .get(name)
                .is_some_and(|value| constant::wide_value(value).is_some()),
            NodeKind::Unary { operator, operand } => {
                !matches!(operator, PrefixOperator::Dereference | PrefixOperator::AddressOf)
                    && self.is_constant(operand)
            }
            NodeKind::Cast { operand, .. } => self.is_constant(operand),
            NodeKind::Binary { left, right, .. } | NodeKind::Logical { left, right, .. } => {
                self.is_constant(left) && self.is_constant(right)
            }
            NodeKind::Conditional {
                condition,
                then,
                otherwise,
            } => [condition, then, otherwise]
                .into_iter()
                .all(|part| self.is_constant(part)),
            _ => false,
        }
    }
}
