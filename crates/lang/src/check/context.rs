//! What is known while a text is gone through: what its names mean, its types, the clause at hand, its options.

use super::inlines::InlineFunction;
use super::shown::Shown;
use super::translators;
use crate::diagnostic::Diagnostic;
use crate::macros::MacroValues;
use crate::options::{Options, SelfScope};
use crate::program::{AggregationId, Expression, Foreign, IntegerType, Pragma, ProbeDescription, Structure, Type};
use crate::source::Span;
use crate::syntax::{Node, TypeName};
use crate::target::{Argument, Unknown};
use std::collections::{HashMap, HashSet};

/// An aggregation, and where it was first assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct KnownAggregation {
    pub(super) id: AggregationId,
    pub(super) span: Span,
}

/// What names stand for, but for variables and types.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) aggregations: HashMap<String, KnownAggregation>,
    /// Declared variables of floating point, which nothing can be assigned to.
    pub(super) floats: HashMap<String, Foreign>,
    /// What `extern` declares: the program's variables, by their names alone.
    pub(super) externals: HashMap<String, Type>,
    pub(super) enumerators: HashMap<String, i128>,
    pub(super) inlines: HashMap<String, Expression>,
    pub(super) inline_functions: HashMap<String, InlineFunction>,
    /// Inlines that are translations: what they translate to and from.
    pub(super) inline_translations: HashMap<String, (TypeName, Node)>,
    pub(super) translators: Vec<translators::Known>,
    /// The parameters of the inline, or the input of the translator, whose value is at hand.
    pub(super) bound: Vec<(String, Expression)>,
}

/// The types of the text.
#[derive(Default)]
pub(super) struct Types {
    /// Typedefs.
    pub(super) named: HashMap<String, Type>,
    /// Of typedefs that have an alignment of their own.
    pub(super) alignments: HashMap<String, u64>,
    /// Typedefs of function types, which are void to D: only pointers to them are of use.
    pub(super) functions: HashSet<String>,
    /// By their tags, enumerations whose values are not an `int`.
    pub(super) enumerations: HashMap<String, IntegerType>,
    /// By keyword and tag: `struct s`.
    pub(super) structures: HashMap<String, Structure>,
    /// Why structures that were only named are not known.
    pub(super) unknown: HashMap<String, Unknown>,
    /// What `print()` shows of the types that the text names.
    pub(super) shown: Shown,
}

/// The clause that is checked; outside of clauses nothing.
#[derive(Default)]
pub(super) struct ClauseContext {
    /// It is carried out by the tracer, at every one of its probes.
    pub(super) in_tracer: bool,
    pub(super) probes: Vec<ProbeDescription>,
    /// Its `args[]`, once they were asked for.
    pub(super) arguments: Option<Result<Vec<Argument>, Unknown>>,
    /// What stands where a value is wanted and has none: reported when nothing else refuses it (`void_operand`).
    pub(super) without_value: Option<Diagnostic>,
}

/// The options that change what a text means.
#[derive(Default)]
pub(super) struct Settings {
    /// `version` asks for D 1.0.
    pub(super) is_1_0: bool,
    /// `strsize`
    pub(super) string_bytes: u32,
    /// `scratchsize`
    pub(super) scratch_bytes: Option<u64>,
    /// `self`
    pub(super) self_scope: SelfScope,
}

impl Settings {
    /// Those of the text.
    pub(super) fn of(pragmas: &[Pragma], options: &Options) -> Settings {
        let is_1_0 = pragmas.iter().any(|pragma| {
            let version = pragma.value.as_deref().unwrap_or_default();
            pragma.name == "version" && (version == "1.0" || version.starts_with("1.0."))
        });
        Settings {
            is_1_0,
            string_bytes: options.string_bytes,
            scratch_bytes: options.scratch_bytes,
            self_scope: options.self_scope,
        }
    }

    /// Those that were given outside of the text count for more.
    pub(super) fn given(&mut self, macros: &MacroValues) {
        self.string_bytes = macros.string_bytes.unwrap_or(self.string_bytes);
        self.scratch_bytes = macros.scratch_bytes.or(self.scratch_bytes);
        self.self_scope = macros.self_scope.unwrap_or(self.self_scope);
    }
}
