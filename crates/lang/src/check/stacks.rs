//! `ustack()`, `jstack()` and `stack()`, which are no values: they can be recorded, printed, or a key.
//!
//! The kernel's stack is known only of threads that the kernel samples. So `stack()` belongs into clauses whose probes
//! are all of that kind.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::layout::JSTACK_FRAMES;
use crate::lower::constant;
use crate::program::{ProbeDescription, Side, Stack};
use crate::source::Span;
use crate::syntax::{Node, NodeKind};

/// The most frames of a stack, as of the options that give their numbers.
const FRAMES_MAX: u32 = 2048;

impl Checker {
    /// `ustack([frames[, strsize]])`, `jstack([frames[, strsize]])`, `stack([frames])`. Without a number of frames an
    /// option gives it.
    pub(super) fn stack(&mut self, name: &str, arguments: &[Node], span: Span) -> Checked<Stack> {
        if name == Side::Kernel.name() {
            self.needs_kernel_samples(span)?;
            return self.kernel_stack(arguments, span);
        }
        if arguments.len() > 2 {
            return Err(too_many(name, "D_USTACK_PROTO", span));
        }
        let mut frames = if name == "jstack" { JSTACK_FRAMES } else { 0 };
        if let Some(node) = arguments.first() {
            frames = self.frames(node)?.ok_or_else(|| {
                let message = format!("{name}( ) argument #1 must be a non-zero positive integer constant");
                Diagnostic::new("D_USTACK_FRAMES", node.span, message)
            })?;
            if frames > FRAMES_MAX {
                let message = format!("{name}( ) argument #1 is too large");
                return Err(Diagnostic::new("D_USTACK_FRAMES", node.span, message)
                    .with_help("at most 2048 frames, as of the option ustackframes"));
            }
        }
        if let Some(node) = arguments.get(1) {
            let value = self.expression(node)?;
            // The second argument is room for the names of an interpreter's frames, which are never recorded here.
            if constant::wide_value(&value).is_none_or(|value| value < 0) {
                return Err(Diagnostic::new(
                    "D_USTACK_STRSIZE",
                    node.span,
                    format!("{name}( ) argument #2 must be a positive integer constant"),
                ));
            }
        }
        Ok(Stack::of_program(frames))
    }

    fn kernel_stack(&mut self, arguments: &[Node], span: Span) -> Checked<Stack> {
        let Some((node, rest)) = arguments.split_first() else {
            return Ok(Stack::of_kernel(0));
        };
        if !rest.is_empty() {
            return Err(too_many("stack", "D_STACK_PROTO", span));
        }
        let refused = || {
            let message = "stack( ) size must be a non-zero positive integral constant expression";
            Diagnostic::new("D_STACK_SIZE", node.span, message)
        };
        let frames = self.frames(node)?.ok_or_else(refused)?;
        if frames > FRAMES_MAX {
            return Err(refused().with_help("at most 2048 frames, as of the option stackframes"));
        }
        Ok(Stack::of_kernel(frames))
    }

    /// A number of frames: `None` if it is no constant above 0.
    fn frames(&mut self, node: &Node) -> Checked<Option<u32>> {
        let value = self.expression(node)?;
        let frames = constant::wide_value(&value).and_then(|value| u32::try_from(value).ok());
        Ok(frames.filter(|frames| *frames > 0))
    }

    /// Refuses the kernel's stack in a clause that fires elsewhere, too.
    fn needs_kernel_samples(&self, span: Span) -> Checked<()> {
        let clause = &self.clause_at_hand;
        if clause.in_tracer && clause.probes.iter().all(is_sampled) {
            return Ok(());
        }
        let message = "stack( ): the kernel's stack is known where the kernel samples a thread: in clauses whose probes \
                       are all profile-N or of sched";
        Err(Diagnostic::new("N_STACK", span, message).with_help("the program's stack is ustack( )"))
    }
}

/// Whether a probe that fires in the tracer only fires for samples of threads.
pub(super) fn is_sampled(probe: &ProbeDescription) -> bool {
    probe.name.starts_with("profile-") || probe.provider == "sched"
}

fn too_many(name: &str, tag: &'static str, span: Span) -> Diagnostic {
    let message = format!("{name}( ) prototype mismatch: too many arguments");
    Diagnostic::new(tag, span, message)
}

/// The name and the arguments of a node that calls `ustack`, `jstack` or `stack`. Such a call in a key is a stack and
/// not a value.
pub(super) fn stack_arguments(node: &Node) -> Option<(&str, &[Node])> {
    match &node.kind {
        NodeKind::Call { function, arguments } => match &function.kind {
            NodeKind::Identifier(name) if matches!(name.as_str(), "ustack" | "jstack" | "stack") => {
                Some((name, arguments))
            }
            _ => None,
        },
        _ => None,
    }
}
