//! The text of a D program: lexed, parsed, checked, and shown.

use nanoprobe_lang::{MacroValues, Source, compile, probe_descriptions};

/// A D program.
pub fn d_text(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let macros = MacroValues {
        target: Some(7),
        ..MacroValues::default()
    };
    let source = Source::new("fuzz.d", text);
    match compile(std::slice::from_ref(&source), &macros) {
        Ok(program) => {
            let limits = nanoprobe_lang::options::Options::default().limits();
            for clause in &program.clauses {
                let _layout = nanoprobe_lang::layout::record_layout(clause, limits);
            }
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in diagnostics {
                assert!(!diagnostic.to_string().is_empty());
            }
        }
    }
    let _descriptions = probe_descriptions(&source, &macros);
}
