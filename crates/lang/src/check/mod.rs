//! From the syntax tree to typed operands. Names become variables, every expression gets a type, and
//! mistakes are found. [`crate::lower`] makes the program's form of each operation on these operands.
//!
//! The checker goes through the text once, in order, and names get their meanings in that order,
//! as in DTrace. A variable exists from its first assignment or declaration on, and its type is
//! the type of the first value assigned. A use before that is an error, with a hint when an
//! assignment comes later.
//!
//! | file | checks |
//! |---|---|
//! | `declarations`, `declared_variables`, `structures`, `attributes` | `int x;`, `typedef`, `enum`, `struct` |
//! | `inlines` | `inline` |
//! | `statements` | clauses and statements; `conditional` takes `if` apart |
//! | `actions`, `formatted`, `aggregations`, `effects`, `speculations` | expressions that can only be statements |
//! | `expressions`, `operators`, `assignment`, `subroutines` | values |
//! | `subroutine_table` | a row for each subroutine |
//! | `constant_conditional` | `?:` with a constant condition |
//! | `variables` | places that can be read and assigned |
//! | `keys` | structures and arrays as keys |
//! | `memory`, `pointers`, `characters` | members and elements; addresses; characters of strings |
//! | `shown`, `pointed` | the names of types that `print()` shows; the targets of pointers |
//! | `files` | `fds[ ]` |
//! | `translators`, `translated` | `translator`, `xlate`; translations that are assigned |
//! | `foreign` | `args[]`, types and variables of the traced program |
//! | `void_operand` | actions and aggregations where a value is required |
//! | `names` | the names that every program knows |
//! | `forward_uses`, `bpftrace_hints` | hints for unknown names |
//!
//! [`context`] holds the knowledge so far. Every function that checks returns the first error. The statements of a
//! clause are checked one by one, so each one can report an error.

mod action_arguments;
mod actions;
mod aggregations;
mod argument_text;
mod assignment;
mod attributes;
mod bpftrace_hints;
mod characters;
mod conditional;
mod constant_conditional;
mod context;
mod declarations;
mod declared_variables;
mod derived;
mod distributions;
pub mod effects;
mod expressions;
mod files;
mod foreign;
mod formatted;
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
mod scheduled;
mod shown;
mod speculations;
mod stacks;
mod statements;
mod structures;
mod subroutine_table;
mod subroutines;
mod translated;
mod translators;
mod variables;
mod void_operand;

pub use subroutine_table::subroutine_lines;

use crate::diagnostic::Diagnostic;
use crate::lower::variables::Variables;
use crate::macros::MacroValues;
use crate::options::Options;
use crate::program::{Pragma, Program};
use crate::syntax::Item;
use crate::target::{NoTarget, Target, Unknown};
use context::{ClauseContext, Scope, Settings, Types};
use forward_uses::Later;
use std::rc::Rc;

pub(crate) use aggregations::function_name;
pub(crate) use internet::ADDRESS_NAME;

type Checked<T> = Result<T, Diagnostic>;

/// Checks the items of all sources, in order.
///
/// `macros` includes the options of the command line. They override those in the text.
///
/// # Errors
/// All errors found.
pub fn check(
    items: &[Item],
    pragmas: Vec<Pragma>,
    macros: &MacroValues,
    is_library: &dyn Fn(u32) -> bool,
    target: &Rc<dyn Target>,
) -> Result<Program, Vec<Diagnostic>> {
    let mut checker = Checker {
        later: Later::of(items),
        program_traced: Some(target.clone()),
        ..Checker::default()
    };
    checker.pragmas(pragmas);
    checker.settings.given(macros);
    for item in items {
        match item {
            Item::Clause(clause) if is_library(clause.span.source) => checker.clause_of_library(clause),
            Item::Clause(clause) => checker.clause(clause),
            Item::Declaration(declaration) => {
                let result = checker.declaration(declaration);
                checker.note(result);
            }
            Item::Inline(inline) => {
                let result = checker.inline(inline);
                checker.note(result);
            }
            Item::Translator(translator) => {
                let result = checker.translator(translator);
                checker.note(result);
            }
            Item::PassedOver => {}
            Item::Provider(provider) => {
                let message = "a provider definition is for -h and -G, and not for a program that traces";
                checker
                    .diagnostics
                    .push(Diagnostic::new("N_PROVIDER", provider.span, message));
            }
        }
    }
    checker.choose_task();
    // Each of the clauses that an `if` was split into writes its own records.
    for clause in &checker.program.clauses {
        if let Err(diagnostic) = speculations::check_order(clause) {
            checker.diagnostics.push(diagnostic);
        }
    }
    if checker.diagnostics.is_empty() {
        checker.variables.into_program(&mut checker.program);
        Ok(checker.program)
    } else {
        Err(checker.diagnostics)
    }
}

#[derive(Default)]
struct Checker {
    /// The part of the program that is complete so far.
    program: Program,
    diagnostics: Vec<Diagnostic>,
    variables: Variables,
    scope: Scope,
    types: Types,
    clause_at_hand: ClauseContext,
    settings: Settings,
    /// The assignments further on in the text.
    later: Later,
    /// The traced program, which answers questions about its types.
    program_traced: Option<Rc<dyn Target>>,
}

impl Checker {
    fn target(&self) -> Result<Rc<dyn Target>, Unknown> {
        Ok(self.program_traced.clone().unwrap_or_else(|| Rc::new(NoTarget)))
    }

    fn note(&mut self, result: Checked<()>) {
        if let Err(diagnostic) = self.settled(result) {
            self.diagnostics.push(diagnostic);
        }
    }

    /// Checks the options, so that an error names the line that sets the option.
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
        self.settings = Settings::of(&pragmas, &options);
        self.program.pragmas = pragmas;
    }
}
