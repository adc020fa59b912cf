//! The parameters of `lquantize` and `llquantize`: constants, within the same bounds as in DTrace.

use super::subroutines::{count_mismatch, incompatible_argument};
use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::program::{AggregatingFunction, Type};
use crate::source::Span;
use crate::syntax::Node;

impl Checker {
    /// A constant parameter; `None`: the parameter is not an integer constant.
    fn parameter(&mut self, node: &Node) -> Checked<Option<i128>> {
        Ok(constant::wide_value(&self.expression(node)?))
    }

    /// Checks that a parameter is an integer, as DTrace's prototype demands. DTrace makes this check
    /// before all others.
    pub(super) fn integer_parameter(&mut self, name: &str, arguments: &[Node], index: usize) -> Checked<()> {
        let Some(node) = arguments.get(index) else {
            return Ok(());
        };
        match self.expression(node)?.value_type {
            Type::Integer(_) => Ok(()),
            ref other => Err(incompatible_argument(name, index, "int32_t", other, node.span)),
        }
    }

    /// `lquantize(value, base, limit[, step[, weight]])`. DTrace's messages count the arguments from the base.
    pub(super) fn linear(&mut self, arguments: &[Node], span: Span) -> Checked<AggregatingFunction> {
        let [_, base_node, limit_node, ..] = arguments else {
            return Err(count_mismatch("lquantize", arguments.len(), "at least 3", span));
        };
        let error = |tag, span, text: &str| Diagnostic::new(tag, span, format!("lquantize( ) {text}"));
        let Some(base) = self.parameter(base_node)? else {
            return Err(error(
                "D_LQUANT_BASETYPE",
                base_node.span,
                "argument #1 must be an integer constant",
            ));
        };
        let Ok(base) = i32::try_from(base) else {
            return Err(error(
                "D_LQUANT_BASEVAL",
                base_node.span,
                "argument #1 must be a 32-bit quantity",
            ));
        };
        let Some(limit) = self.parameter(limit_node)? else {
            return Err(error(
                "D_LQUANT_LIMTYPE",
                limit_node.span,
                "argument #2 must be an integer constant",
            ));
        };
        let Ok(limit) = i32::try_from(limit) else {
            return Err(error(
                "D_LQUANT_LIMVAL",
                limit_node.span,
                "argument #2 must be a 32-bit quantity",
            ));
        };
        if limit <= base {
            let text = "base (argument #1) must be less than limit (argument #2)";
            return Err(error("D_LQUANT_MISMATCH", span, text));
        }
        let mut step = 1;
        if let Some(node) = arguments.get(3) {
            step = match self.parameter(node)? {
                Some(step) if step > 0 => u16::try_from(step)
                    .map_err(|_| error("D_LQUANT_STEPVAL", node.span, "argument #3 must be a 16-bit quantity"))?,
                _ => {
                    let text = "argument #3 must be a non-zero positive integer constant";
                    return Err(error("D_LQUANT_STEPTYPE", node.span, text));
                }
            };
        }
        let levels = (i64::from(limit) - i64::from(base)) / i64::from(step);
        if levels == 0 {
            let text = "step (argument #3) too large: must have at least one quantization level";
            return Err(error("D_LQUANT_STEPLARGE", span, text));
        }
        if levels > i64::from(u16::MAX) {
            let text = "step (argument #3) too small: number of quantization levels must be a 16-bit quantity";
            return Err(error("D_LQUANT_STEPSMALL", span, text));
        }
        Ok(AggregatingFunction::LinearQuantize { base, limit, step })
    }

    /// `llquantize(value, factor, low, high, steps[, weight])`.
    pub(super) fn log_linear(&mut self, arguments: &[Node], span: Span) -> Checked<AggregatingFunction> {
        const PARAMETERS: [(&str, &str, &str); 4] = [
            ("factor", "D_LLQUANT_FACTORTYPE", "D_LLQUANT_FACTORVAL"),
            ("low magnitude", "D_LLQUANT_LOWTYPE", "D_LLQUANT_LOWVAL"),
            ("high magnitude", "D_LLQUANT_HIGHTYPE", "D_LLQUANT_HIGHVAL"),
            (
                "linear steps per magnitude",
                "D_LLQUANT_NSTEPTYPE",
                "D_LLQUANT_NSTEPVAL",
            ),
        ];
        let mut values = [0_u16; 4];
        for ((value, (what, bad_type, bad_value)), (index, node)) in values
            .iter_mut()
            .zip(PARAMETERS)
            .zip(arguments.iter().enumerate().skip(1))
        {
            let Some(parameter) = self.parameter(node)? else {
                let text = format!("llquantize( ) argument #{index} ({what}) must be an integer constant");
                return Err(Diagnostic::new(bad_type, node.span, text));
            };
            *value = u16::try_from(parameter).map_err(|_| {
                let text = format!("llquantize( ) argument #{index} ({what}) must be an unsigned 16-bit quantity");
                Diagnostic::new(bad_value, node.span, text)
            })?;
        }
        let [factor, low, high, steps] = values;
        let error = |tag, text: &str| Err(Diagnostic::new(tag, span, format!("llquantize( ) {text}")));
        if factor < 2 {
            return error("D_LLQUANT_FACTORSMALL", "factor (argument #1) must be two or more");
        }
        if low >= high {
            let text = "high magnitude (argument #3) must be greater than low magnitude (argument #2)";
            return error("D_LLQUANT_MAGRANGE", text);
        }
        if steps < factor {
            let text = "factor (argument #1) must be less than or equal to the number of linear steps per magnitude \
                        (argument #4)";
            return error("D_LLQUANT_FACTORNSTEPS", text);
        }
        let mut power = u64::from(factor);
        while power < u64::from(steps) {
            power *= u64::from(factor);
        }
        if steps % factor != 0 || power % u64::from(steps) != 0 {
            let text = "factor (argument #1) must evenly divide the number of steps per magnitude (argument #4), and \
                        the number of steps per magnitude must evenly divide a power of the factor";
            return error("D_LLQUANT_FACTOREVEN", text);
        }
        // The last bucket begins at the next power.
        if i64::from(factor).checked_pow(u32::from(high) + 1).is_none() {
            let text = format!("factor ({factor}) raised to power of high magnitude ({high}) plus 1 overflows 64-bits");
            return error("D_LLQUANT_MAGTOOBIG", &text);
        }
        Ok(AggregatingFunction::LogLinearQuantize {
            factor,
            low,
            high,
            steps,
        })
    }
}
