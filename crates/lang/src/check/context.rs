//! The checker's knowledge while it goes through a text: the meaning of names, the types, the current clause, the
//! options.

use super::inlines::InlineFunction;
use super::shown::Shown;
use super::translators;
use crate::diagnostic::Diagnostic;
use crate::macros::MacroValues;
use crate::options::{Options, SelfScope};
use crate::program::{AggregationId, Expression, Foreign, IntegerType, Pragma, ProbeDescription, Structure, Type};
use crate::source::Span;
use crate::syntax::{DerivedPlaces, Node, TypeName};
use crate::target::{Argument, Unknown};
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

/// An aggregation, and where it was first assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownAggregation {
    pub(super) id: AggregationId,
    pub(super) span: Span,
}

/// The meaning of names other than those of variables and types.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) aggregations: HashMap<String, KnownAggregation>,
    /// Declared variables of floating point. Nothing can be assigned to such a variable, so its value is 0.
    pub(super) floats: HashMap<String, Foreign>,
    /// The program's variables that the text declares with `extern`, by their names without a backquote.
    pub(super) externals: HashMap<String, Type>,
    pub(super) enumerators: HashMap<String, i128>,
    pub(super) inlines: HashMap<String, Expression>,
    pub(super) inline_functions: HashMap<String, InlineFunction>,
    /// Inlines that are translations: the output type, and the operand.
    pub(super) inline_translations: HashMap<String, (TypeName, Node)>,
    pub(super) translators: Vec<translators::Known>,
    /// The parameters of the inline, or the input of the translator, that is being evaluated.
    pub(super) bound: Vec<(String, Expression)>,
}

/// The types of the text.
#[derive(Default)]
pub(super) struct Types {
    pub(super) named: HashMap<String, Type>,
    /// The alignments of typedefs that have their own.
    pub(super) alignments: HashMap<String, u64>,
    /// Typedefs of function types. In D these are void: only pointers to them are useful.
    pub(super) functions: HashSet<String>,
    /// Enumerations with values that are not an `int`, by their tags.
    pub(super) enumerations: HashMap<String, IntegerType>,
    /// By keyword and tag: `struct s`.
    pub(super) structures: HashMap<String, Structure>,
    /// For a structure without a definition: why the traced program does not provide it.
    pub(super) unknown: HashMap<String, Unknown>,
    /// How `print()` shows the types that the text names.
    pub(super) shown: Shown,
}

/// The clause that is being checked; empty outside of clauses.
#[derive(Default)]
pub(super) struct ClauseContext {
    /// Whether the tracer executes the clause at all of its probes.
    pub(super) in_tracer: bool,
    pub(super) probes: Vec<ProbeDescription>,
    /// The derived probe that the clause belongs to.
    pub(super) derived: Option<Rc<DerivedPlaces>>,
    /// The clause's `args[]`, once they have been looked up.
    pub(super) arguments: Option<Result<Vec<Argument>, Unknown>>,
    /// The error of an operand without a value. It is reported only if nothing else is wrong with the clause
    /// (`void_operand`).
    pub(super) without_value: Option<Diagnostic>,
}

/// The options that change the meaning of a text.
#[derive(Default)]
pub(super) struct Settings {
    /// `version` selects D 1.0.
    pub(super) is_1_0: bool,
    /// `strsize`
    pub(super) string_bytes: u32,
    /// `scratchsize`
    pub(super) scratch_bytes: Option<u64>,
    /// `self`
    pub(super) self_scope: SelfScope,
}

impl Settings {
    /// The options of the text.
    pub(super) fn of(pragmas: &[Pragma], options: &Options) -> Settings {
        let is_1_0 = pragmas.iter().any(|pragma| {
            let version = pragma.value.as_deref().unwrap_or_default();
            pragma.name == "version" && (version == "1.0" || version.starts_with("1.0."))
        });
        Settings {
            is_1_0,
            string_bytes: options.recording.string_bytes,
            scratch_bytes: options.recording.scratch_bytes,
            self_scope: options.tracing.self_scope,
        }
    }

    /// Options that were given outside of the text override options in the text.
    pub(super) fn given(&mut self, macros: &MacroValues) {
        self.string_bytes = macros.options.string_bytes.unwrap_or(self.string_bytes);
        self.scratch_bytes = macros.options.scratch_bytes.or(self.scratch_bytes);
        self.self_scope = macros.options.self_scope.unwrap_or(self.self_scope);
    }
}
