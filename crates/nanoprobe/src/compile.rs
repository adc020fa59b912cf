//! From the command line's texts to a program; diagnostics show the line.

mod drawing;
mod names;
mod place;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use nanoprobe_lang::bytes::{bytes_of, text_of};
use nanoprobe_lang::options::{Encoding, Options};
use nanoprobe_lang::source::Origin;
use nanoprobe_lang::{Diagnostic, Program, Source, Span};
use nanoprobe_session::SessionError;

pub use self::drawing::is_utf8;
use self::drawing::{Terminal, drawn};
use crate::arguments::{Arguments, ProgramText};
use crate::libraries;
use crate::output::{message, tell};
use crate::preprocess;

/// The texts as sources, in order, after the libraries. In messages, the texts of `-n` have dtrace's names.
pub fn sources(arguments: &Arguments) -> Result<Vec<Source>, String> {
    if arguments.programs.is_empty() {
        return Ok(Vec::new());
    }
    let mut sources = libraries::read(&arguments.libraries)?;
    for (number, text) in arguments.programs.iter().enumerate() {
        sources.push(match text {
            ProgramText::Carried { name, text } => Source::new(name.clone(), text.clone()),
            ProgramText::Inline(text) => Source::new(format!("<-n {}>", number + 1), text.clone()),
            ProgramText::Short { text, colons } => Source::new(format!("<-n {}>", number + 1), full(text, colons)?),
            ProgramText::Script(path) => {
                let bytes = if path == "-" {
                    let mut bytes = Vec::new();
                    std::io::Read::read_to_end(&mut std::io::stdin(), &mut bytes).map(|_| bytes)
                } else {
                    std::fs::read(OsStr::from_bytes(&bytes_of(path)))
                };
                let bytes = bytes.map_err(|error| format!("failed to open {path}: {error}"))?;
                let bytes = match &arguments.preprocessor {
                    Some(given) => preprocess::run(path, bytes, given, arguments.preprocessor_path.as_deref())?,
                    None => bytes,
                };
                Source::new(path.clone(), text_of(&bytes))
            }
        });
    }
    Ok(sources)
}

/// Completes a probe description that ends early by its missing colons. A predicate or a body after it stays.
fn full(text: &str, colons: &str) -> Result<String, String> {
    const FIELDS_MAX: usize = 4;
    let end = text.find(|character: char| character.is_whitespace() || matches!(character, '/' | '{'));
    let (description, rest) = text.split_at(end.unwrap_or(text.len()));
    let fields = description.split(':').count() + colons.len();
    if fields > FIELDS_MAX {
        return Err(format!(
            "invalid probe specifier {text}: [D_PDESC_INVAL] invalid probe description \"{description}\": \
             Overspecified probe description"
        ));
    }
    Ok(format!("{description}{colons}{rest}"))
}

/// The program. If it has errors, prints them and yields `None`.
pub fn shown<T>(sources: &[Source], compiled: Result<T, Vec<Diagnostic>>) -> Option<T> {
    match compiled {
        Ok(program) => Some(program),
        Err(diagnostics) => {
            for diagnostic in &diagnostics {
                show(sources, diagnostic);
            }
            None
        }
    }
}

/// The options: the command line overrides the program's pragmas, and these override the defaults.
pub fn options(arguments: &Arguments, program: &Program) -> Result<Options, String> {
    let mut options = Options::default();
    for pragma in &program.pragmas {
        options
            .set(&pragma.name, pragma.value.as_deref())
            .map_err(|error| error.to_string())?;
    }
    for option in &arguments.options {
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option.as_str(), None),
        };
        options
            .set(name, value)
            .map_err(|error| format!("failed to set -x {name}: {error}"))?;
    }
    // As in DTrace, only these names of terminals count as plain.
    let is_plain = |term: String| matches!(term.as_str(), "dumb" | "sun" | "sun-color");
    if options.printing.encoding == Encoding::Auto && std::env::var("TERM").is_ok_and(is_plain) {
        options.printing.encoding = Encoding::Ascii;
    }
    options.printing.processors = processors();
    if let Some(number) = options
        .recording
        .processor
        .filter(|number| *number >= options.printing.processors)
    {
        let last = options.printing.processors - 1;
        return Err(format!(
            "failed to set -x cpu: there is no processor {number}, but 0 to {last}"
        ));
    }
    options.printing.quiet |= arguments.quiet;
    options.tracing.destructive |= arguments.destructive;
    options.tracing.allow_unmatched |= arguments.allow_zero_matches;
    Ok(options)
}

/// How many processors the machine has, including processors on which this process may not run.
fn processors() -> u32 {
    // SAFETY: the call only returns a number.
    let found = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) };
    u32::try_from(found).unwrap_or(1).max(1)
}

/// Prints an error. A capable terminal gets its line drawn; any other output gets one line in DTrace's words.
pub fn show(sources: &[Source], diagnostic: &Diagnostic) {
    let index = diagnostic.span.source as usize;
    let Some(source) = sources.get(index) else {
        message(diagnostic);
        return;
    };
    let tag = format!("[{}]", diagnostic.tag);
    let diagnostic = &Diagnostic {
        message: names::as_written(&diagnostic.message, &source.text),
        ..diagnostic.clone()
    };
    let text = placed(source, diagnostic.span.start, &tag, &diagnostic.message);
    let terminal = Terminal::of_stderr();
    match &diagnostic.help {
        Some(help) if !terminal.draws => message(format_args!("{text} ({help})")),
        _ => message(text),
    }
    if terminal.draws {
        tell(&drawn(source, diagnostic, terminal.has_colors));
    }
}

/// Prints an error of a description, without its line. Such an error is found late, when the existing probes are known.
pub fn show_at(sources: &[Source], span: Span, error: &SessionError) {
    let error = error.to_string();
    let (tag, text) = match error.split_once("] ") {
        Some((tag, text)) if tag.starts_with("[D_") => (format!("{tag}]"), text),
        _ => (String::new(), error.as_str()),
    };
    match sources.get(span.source as usize) {
        Some(source) => message(placed(source, span.start, &tag, text)),
        None => message(error),
    }
}

/// How many lines of the file precede a part of the text.
fn lines_before(origin: &Origin<'_>) -> usize {
    (origin.first_line as usize).saturating_sub(1)
}

/// A message with its place and its tag, as dtrace prints it with `-x errtags`. The place is the line for a script, and
/// the text for a program of the command line. Included text has the line of its own file.
fn placed(source: &Source, start: u32, tag: &str, text: &str) -> String {
    let origin = source.origin(start);
    let before = source.text.get(origin.text.start..start as usize).unwrap_or_default();
    let line = lines_before(&origin) + before.matches('\n').count() + 1;
    let program_text = source.text.trim_end();
    let (program, has_lines) = match source.name.starts_with("<-n ") {
        true => (format!("invalid probe specifier {program_text}:"), false),
        false => (format!("failed to compile script {}:", source.name), true),
    };
    let line = match origin.file {
        Some(file) => format!("\"{file}\", line {line}:"),
        None if has_lines => format!("line {line}:"),
        None => String::new(),
    };
    // As in DTrace: without a line, the part of the clause is named.
    let part = match line.is_empty() && origin.file.is_none() {
        true => place::part_of_clause(program_text, start as usize, tag).map(|part| format!("in {part}:")),
        false => None,
    };
    let words = [program.as_str(), tag, &line, part.as_deref().unwrap_or_default(), text];
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::full;

    #[test]
    fn providers_modules_and_functions_get_their_colons() {
        for (text, colons, expected) in [
            (
                "libc:malloc/arg0 > 5/{ trace(arg0); }",
                ":",
                "libc:malloc:/arg0 > 5/{ trace(arg0); }",
            ),
            ("pid1:libc", "::", "pid1:libc::"),
            ("pid1 { @ = count(); }", ":::", "pid1::: { @ = count(); }"),
            ("pid1:a.out:main", ":", "pid1:a.out:main:"),
        ] {
            assert_eq!(full(text, colons).unwrap(), expected);
        }
    }

    #[test]
    fn a_description_that_is_too_long_for_its_flag_is_refused() {
        for (text, colons) in [("profile:::tick-1s", ":::"), ("a:b:c", "::"), ("a:b:c:d /1/", ":")] {
            let refused = full(text, colons).unwrap_err();
            assert!(
                refused.contains("[D_PDESC_INVAL]") && refused.ends_with("Overspecified probe description"),
                "{refused}"
            );
        }
    }
}
