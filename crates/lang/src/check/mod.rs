//! Syntax tree to typed operands: names become variables, everything gets a type, mistakes are found. What an operation on
//! such operands is in the program, [`crate::lower`] knows.
//!
//! The text is gone through once, in order, and so are its meanings, as in DTrace: a variable exists from its first
//! assignment or declaration on, its type is the type of what was first assigned, and a use before that is an error (with
//! a hint when the assignment comes later).
//!
//! | file | checks |
//! |---|---|
//! | `declarations`, `declared_variables`, `structures`, `attributes`, `inlines` | `int x;`, `typedef`, `enum`, `struct`, `inline` |
//! | `statements` | clauses and statements; `conditional` takes `if` apart |
//! | `actions`, `aggregations`, `effects`, `speculations` | what only a statement can be |
//! | `expressions`, `operators`, `assignment`, `subroutines` | values |
//! | `constant_conditional` | `?:` with a constant before it |
//! | `variables` | places that can be read and assigned |
//! | `keys` | structures and arrays as keys |
//! | `memory`, `pointers`, `characters` | members and elements; addresses; characters of strings |
//! | `shown`, `pointed` | the names of types that `print()` shows; what pointers point to |
//! | `files` | `fds[ ]` |
//! | `translators`, `translated` | `translator`, `xlate`; translations that are assigned |
//! | `foreign` | `args[]`, types and variables of the traced program |
//! | `void_operand` | actions and aggregations where a value is wanted |
//! | `names` | the names every program knows |
//! | `forward_uses`, `bpftrace_hints` | what to do about a name that is not known |
//!
//! Every function that resolves answers with the first thing wrong; the statements of a clause are resolved
//! independently of each other, so that each can have its own.

mod action_arguments;
mod actions;
mod aggregations;
mod assignment;
mod attributes;
mod bpftrace_hints;
mod characters;
mod conditional;
mod constant_conditional;
mod declarations;
mod declared_variables;
mod distributions;
pub mod effects;
mod expressions;
mod files;
mod foreign;
mod forward_uses;
mod goroutines;
mod inlines;
mod internet;
mod keys;
mod memory;
mod names;
mod operators;
mod pointed;
mod pointers;
mod shown;
mod speculations;
mod statements;
mod structures;
mod subroutines;
mod translated;
mod translators;
mod variables;
mod void_operand;

use crate::diagnostic::Diagnostic;
use crate::lower::variables::Variables;
use crate::macros::MacroValues;
use crate::options::{Options, SelfScope};
use crate::program::{
    AggregationId, Expression, Foreign, IntegerType, Pragma, ProbeDescription, Program, Structure, Type,
};
use crate::source::Span;
use crate::syntax::{Item, Node, TypeName};
use crate::target::{Argument, NoTarget, Target, Unknown};
use forward_uses::Later;
use std::collections::{HashMap, HashSet};
use std::rc::Rc;

pub(crate) use aggregations::function_name;
pub(crate) use internet::ADDRESS_NAME;

type Resolve<T> = Result<T, Diagnostic>;

/// Resolves the items of all sources, in order.
///
/// `macros`: with the options that were given outside of the text, and count for more than those in it.
///
/// # Errors
/// Everything found wrong.
pub fn check(
    items: &[Item],
    pragmas: Vec<Pragma>,
    macros: &MacroValues,
    is_library: &dyn Fn(u32) -> bool,
    target: &Rc<dyn Target>,
) -> Result<Program, Vec<Diagnostic>> {
    let mut resolver = Resolver {
        later: Later::of(items),
        program_traced: Some(target.clone()),
        ..Resolver::default()
    };
    resolver.pragmas(pragmas);
    resolver.string_bytes = macros.string_bytes.unwrap_or(resolver.string_bytes);
    resolver.scratch_bytes = macros.scratch_bytes.or(resolver.scratch_bytes);
    resolver.self_scope = macros.self_scope.unwrap_or(resolver.self_scope);
    for item in items {
        match item {
            Item::Clause(clause) if is_library(clause.span.source) => resolver.clause_of_library(clause),
            Item::Clause(clause) => resolver.clause(clause),
            Item::Declaration(declaration) => {
                let result = resolver.declaration(declaration);
                resolver.note(result);
            }
            Item::Inline(inline) => {
                let result = resolver.inline(inline);
                resolver.note(result);
            }
            Item::Translator(translator) => {
                let result = resolver.translator(translator);
                resolver.note(result);
            }
            Item::PassedOver => {}
            Item::Provider(provider) => {
                let message = "a provider definition is for -h and -G, and not for a program that traces";
                resolver
                    .diagnostics
                    .push(Diagnostic::new("N_PROVIDER", provider.span, message));
            }
        }
    }
    resolver.choose_task();
    // The parts that an `if` was taken apart into write their records each for itself.
    for clause in &resolver.program.clauses {
        if let Err(diagnostic) = speculations::check_order(clause) {
            resolver.diagnostics.push(diagnostic);
        }
    }
    if resolver.diagnostics.is_empty() {
        resolver.variables.into_program(&mut resolver.program);
        Ok(resolver.program)
    } else {
        Err(resolver.diagnostics)
    }
}

/// An aggregation, and where it was first assigned.
#[derive(Clone, Copy, Debug)]
struct KnownAggregation {
    id: AggregationId,
    span: Span,
}

#[derive(Default)]
struct Resolver {
    program: Program,
    diagnostics: Vec<Diagnostic>,
    /// What stands where a value is wanted and has none: told when nothing else refuses it (`valueless`).
    without_value: Option<Diagnostic>,
    variables: Variables,
    aggregations: HashMap<String, KnownAggregation>,
    types: HashMap<String, Type>,
    /// Of typedefs that have an alignment of their own.
    alignments: HashMap<String, u64>,
    /// Typedefs of function types, which are void to D: only pointers to them are of use.
    function_types: HashSet<String>,
    /// By their tags, enumerations whose values are not an `int`.
    enumeration_types: HashMap<String, IntegerType>,
    /// By keyword and tag: `struct s`.
    structures: HashMap<String, Structure>,
    enumerators: HashMap<String, i128>,
    /// What `print()` shows of the types that the text names.
    shown: shown::Shown,
    inlines: HashMap<String, Expression>,
    inline_functions: HashMap<String, inlines::InlineFunction>,
    /// Inlines that are translations: what they translate to and from.
    inline_translations: HashMap<String, (TypeName, Node)>,
    translators: Vec<translators::Known>,
    /// The parameters of the inline, or the input of the translator, whose value is being resolved.
    bound: Vec<(String, Expression)>,
    /// What is assigned further on.
    later: Later,
    /// The clause at hand is carried out by the tracer, at every one of its probes.
    in_tracer: bool,
    /// The probes of the clause at hand; none outside of clauses.
    probes: Vec<ProbeDescription>,
    /// Its `args[]`, once they were asked for.
    arguments: Option<Result<Vec<Argument>, Unknown>>,
    /// What knows the traced program.
    program_traced: Option<Rc<dyn Target>>,
    /// The option `version` asks for D 1.0.
    is_1_0: bool,
    /// The option `strsize`.
    string_bytes: u32,
    /// Declared variables of floating point, which nothing can be assigned to.
    floats: HashMap<String, Foreign>,
    /// The option `scratchsize`.
    scratch_bytes: Option<u64>,
    /// The option `self`.
    self_scope: SelfScope,
    /// What `extern` declares: the program's variables, by their names alone.
    externals: HashMap<String, Type>,
    /// Why structures that were only named are not known.
    unknown: HashMap<String, Unknown>,
}

impl Resolver {
    fn target(&self) -> Result<Rc<dyn Target>, Unknown> {
        Ok(self.program_traced.clone().unwrap_or_else(|| Rc::new(NoTarget)))
    }

    fn note(&mut self, result: Resolve<()>) {
        if let Err(diagnostic) = self.settled(result) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Checks the options, so that the error is at the line that sets them.
    fn pragmas(&mut self, pragmas: Vec<Pragma>) {
        let mut options = Options::default();
        for pragma in &pragmas {
            if let Err(error) = options.set(&pragma.name, pragma.value.as_deref()) {
                let value = pragma.value.as_ref().map(|value| format!(" to '{value}'"));
                let message = format!(
                    "failed to set option '{}'{}: {error}",
                    pragma.name,
                    value.unwrap_or_default()
                );
                self.diagnostics
                    .push(Diagnostic::new(error.tag(), pragma.span, message));
            }
        }
        self.is_1_0 = pragmas.iter().any(|pragma| {
            let version = pragma.value.as_deref().unwrap_or_default();
            pragma.name == "version" && (version == "1.0" || version.starts_with("1.0."))
        });
        self.string_bytes = options.string_bytes;
        self.scratch_bytes = options.scratch_bytes;
        self.self_scope = options.self_scope;
        self.program.pragmas = pragmas;
    }
}
