//! The D language: text to typed program.
//!
//! ```text
//! Source text --lexer--> tokens --parser--> syntax tree --check, lower--> Program --(codegen | interpret)--> ...
//! ```
//!
//! [`compile`] is the whole front end. It depends on no process and no machine. Its input is the text
//! and the values of the macro arguments ([`MacroValues`]). The types and variables of the traced
//! program come from [`target`], for the names in the text.
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]
#![forbid(unsafe_code)]

mod by_processor;
pub mod bytes;
pub mod check;
pub mod derived;
pub mod diagnostic;
pub mod dump;
pub mod format;
pub mod glob;
pub mod interpret;
pub mod layout;
pub mod lexer;
pub mod libraries;
mod lower;
pub mod macros;
pub mod options;
pub mod parser;
pub mod probes;
pub mod program;
pub mod providers;
pub mod source;
pub mod spelling;
pub mod syntax;
pub mod target;
pub mod types;

pub use diagnostic::Diagnostic;
pub use macros::{GivenOptions, MacroValues};
pub use program::{ProbeDescription, Program};
pub use providers::providers;
pub use source::{Source, Span};
pub use target::{NoTarget, Target};

use lexer::MacroState;
use std::collections::HashSet;
use std::rc::Rc;

/// The most bytes of one source. A longer file is a mistake (a binary file, a log).
const MAXIMUM_SOURCE_BYTES: usize = 16 << 20;

/// Compiles `sources`, in order, into one program. They share variables, aggregations, types
/// and macro arguments.
///
/// # Errors
///
/// All errors found, in the order of the text; at least one diagnostic. A text with syntax errors
/// is not checked further.
pub fn compile(sources: &[Source], macros: &MacroValues) -> Result<Program, Vec<Diagnostic>> {
    let none: Rc<dyn Target> = Rc::new(NoTarget);
    compile_for(sources, macros, &none)
}

/// As [`compile`], for a given traced program. Its types are looked up where the text names them.
///
/// # Errors
///
/// As [`compile`].
pub fn compile_for(
    sources: &[Source],
    macros: &MacroValues,
    target: &Rc<dyn Target>,
) -> Result<Program, Vec<Diagnostic>> {
    let mut state = MacroState::new(macros);
    let mut types = HashSet::new();
    let mut items = Vec::new();
    let mut pragmas = Vec::new();
    let mut diagnostics = Vec::new();
    let mut loaded = Vec::new();
    for (index, source) in (0_u32..).zip(sources) {
        if let Some(diagnostic) = too_long(source, index) {
            diagnostics.push(diagnostic);
            continue;
        }
        let mut parsed = parser::parse(&source.text, index, &mut state, &mut types, &**target);
        if let Some(unmet) = libraries::unmet(source, &parsed.dependencies, &loaded) {
            if source.is_library && unmet.tag == "D_PRAGMA_DEPEND" {
                continue;
            }
            parsed.diagnostics.push(unmet);
        }
        if source.is_library {
            loaded.push(source);
        }
        let may_be_empty =
            source.is_library || macros.options.empty || parsed.pragmas.iter().any(|pragma| pragma.name == "empty");
        if parsed.items.is_empty() && parsed.diagnostics.is_empty() && !may_be_empty {
            let span = Span {
                source: index,
                start: 0,
                end: 0,
            };
            let empty = Diagnostic::new("D_EMPTY", span, "empty D program translation unit");
            diagnostics.push(empty.with_help("the option `empty` permits it"));
        }
        items.extend(parsed.items);
        pragmas.extend(parsed.pragmas);
        diagnostics.extend(parsed.diagnostics);
    }
    if !diagnostics.is_empty() {
        return Err(diagnostics);
    }
    let is_library = |number: u32| sources.get(number as usize).is_some_and(|source| source.is_library);
    let items = derived::expand(items, &is_library)?;
    let mut program = check::check(&items, pragmas, macros, &is_library, target).map_err(different)?;
    by_processor::apply(&mut program, macros);
    if let Some((number, text)) = state.first_unused() {
        let message = format!("extraneous argument '{text}' (${number} is not used)");
        return Err(vec![Diagnostic::new("D_MACRO_UNUSED", Span::default(), message)]);
    }
    Ok(program)
}

/// The errors without repetitions: a clause on a derived probe is checked once for each place of it.
fn different(all: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut different: Vec<Diagnostic> = Vec::new();
    for one in all {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    different
}

/// The error of a text that is longer than any program.
fn too_long(source: &Source, index: u32) -> Option<Diagnostic> {
    let span = Span {
        source: index,
        start: 0,
        end: 0,
    };
    let message = format!("the text is longer than {} MiB", MAXIMUM_SOURCE_BYTES >> 20);
    (source.text.len() > MAXIMUM_SOURCE_BYTES).then(|| Diagnostic::new("N_SOURCE_LENGTH", span, message))
}

/// The probe descriptions of a text for `-l -n`: those of a program, or a list without any clause.
///
/// # Errors
///
/// As [`compile`].
pub fn probe_descriptions(source: &Source, macros: &MacroValues) -> Result<Vec<ProbeDescription>, Vec<Diagnostic>> {
    let program = compile(std::slice::from_ref(source), macros)?;
    Ok(program.clauses.into_iter().flat_map(|clause| clause.probes).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptions_of_a_list_need_no_clause() {
        let macros = MacroValues {
            target: Some(7),
            ..MacroValues::default()
        };
        let source = Source::new("<-n 1>", "pid$target:libc:str*:entry, BEGIN");
        let probes = probe_descriptions(&source, &macros).unwrap();
        let texts: Vec<String> = probes.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["pid7:libc:str*:entry", ":::BEGIN"]);
        assert_eq!(source.slice(probes[0].span), "pid$target:libc:str*:entry");
    }

    #[test]
    fn a_text_may_hold_nothing_where_that_is_asked_for() {
        let nothing = [Source::new("empty", " /* nothing */ \n")];
        let refused = compile(&nothing, &MacroValues::default()).unwrap_err();
        assert_eq!(refused[0].tag, "D_EMPTY");
        let mut empty = MacroValues::default();
        empty.options.empty = true;
        assert_eq!(compile(&nothing, &empty).unwrap(), Program::default());
    }
}
