//! From the command line's texts to a program, with diagnostics that show the line.

use std::ffi::OsStr;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::ffi::OsStrExt as _;

use ariadne::{Config, Label, Report, ReportKind};
use nanoprobe_lang::bytes::{bytes_of, readable, text_of};
use nanoprobe_lang::options::{Encoding, Options};
use nanoprobe_lang::source::Origin;
use nanoprobe_lang::{Diagnostic, Program, Source, Span};
use nanoprobe_session::SessionError;

use crate::arguments::{Arguments, ProgramText};
use crate::libraries;
use crate::output::message;
use crate::preprocess;

/// The texts, as sources, in order, behind the libraries. `-n` texts are named as dtrace names them in messages.
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

/// A probe description that ends early, with the colons that it lacks; what follows it, a predicate or a body, stays.
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

/// The program, or nothing after printing what is wrong.
pub fn shown(sources: &[Source], compiled: Result<Program, Vec<Diagnostic>>) -> Option<Program> {
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

/// The options of the command line, over those of the program's pragmas, over the defaults.
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
    // As in DTrace, by these names only.
    let is_plain = |term: String| matches!(term.as_str(), "dumb" | "sun" | "sun-color");
    if options.encoding == Encoding::Auto && std::env::var("TERM").is_ok_and(is_plain) {
        options.encoding = Encoding::Ascii;
    }
    options.quiet |= arguments.quiet;
    options.destructive |= arguments.destructive;
    options.allow_unmatched |= arguments.allow_zero_matches;
    Ok(options)
}

/// Lines with a greater number are shown with a lesser one.
const SHOWN_LINES_MAX: usize = 1 << 20;

/// The message, the line, a caret, the tag.
pub fn show(sources: &[Source], diagnostic: &Diagnostic) {
    let index = diagnostic.span.source as usize;
    let Some(source) = sources.get(index) else {
        message(diagnostic);
        return;
    };
    // What a preprocessor has put together is shown as it stands in its files.
    let origin = source.origin(diagnostic.span.start);
    let before = lines_before(&origin).min(SHOWN_LINES_MAX);
    let shown = "\n".repeat(before) + source.text.get(origin.text.clone()).unwrap_or_default();
    let clamp = |offset: u32| (offset as usize).clamp(origin.text.start, origin.text.end) - origin.text.start + before;
    let range = |start: u32, end: u32| {
        let (start, end) = (clamp(start), clamp(end));
        start..end.max(start)
    };
    let id = origin.file.unwrap_or(&source.name).to_owned();
    let config = Config::default()
        .with_color(std::io::stderr().is_terminal())
        .with_index_type(ariadne::IndexType::Byte)
        .with_compact(false);
    let span = (id.clone(), range(diagnostic.span.start, diagnostic.span.end));
    let mut report = Report::build(ReportKind::Error, span.clone())
        .with_config(config)
        .with_label(Label::new(span).with_message(diagnostic.message.lines().next().unwrap_or_default()));
    for (span, text) in &diagnostic.related {
        if span.source == diagnostic.span.source && origin.text.contains(&(span.start as usize)) {
            report = report.with_label(Label::new((id.clone(), range(span.start, span.end))).with_message(text));
        }
    }
    if let Some(help) = &diagnostic.help {
        report = report.with_help(help);
    }
    let mut text = Vec::new();
    let written = report.finish().write((id, ariadne::Source::from(shown)), &mut text);
    message(format_args!(
        "{}",
        placed(
            source,
            diagnostic.span.start,
            &format!("[{}]", diagnostic.tag),
            &diagnostic.message
        )
    ));
    if written.is_ok() {
        let shown = readable(&String::from_utf8_lossy(&text));
        let _ = anstream::stderr().write_all(shown.as_bytes());
    }
}

/// What is wrong with a description, once it is known what there is: the same without the line.
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

/// How many lines of its file a part of a text has in front of it.
fn lines_before(origin: &Origin<'_>) -> usize {
    (origin.first_line as usize).saturating_sub(1)
}

/// A message with its place and its tag, as dtrace says it with `-x errtags`: of a script by its line, of a text of the
/// command line by the text. What was included has its own file's line.
fn placed(source: &Source, start: u32, tag: &str, text: &str) -> String {
    let origin = source.origin(start);
    let before = source.text.get(origin.text.start..start as usize).unwrap_or_default();
    let line = lines_before(&origin) + before.matches('\n').count() + 1;
    let program = source.text.trim_end();
    let (program, has_lines) = match source.name.starts_with("<-n ") {
        true => (
            format!("invalid probe specifier {program}:"),
            program.lines().count() > 1,
        ),
        false => (format!("failed to compile script {}:", source.name), true),
    };
    let line = match origin.file {
        Some(file) => format!("\"{file}\", line {line}:"),
        None if has_lines => format!("line {line}:"),
        None => String::new(),
    };
    let words = [program.as_str(), tag, &line, text];
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
