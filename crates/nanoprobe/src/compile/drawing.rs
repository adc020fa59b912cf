//! Draws a diagnostic with its line, if the terminal can show that.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use ariadne::{Config, Label, Report, ReportKind};
use nanoprobe_lang::bytes::readable;
use nanoprobe_lang::{Diagnostic, Source};

/// The abilities of standard error's terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terminal {
    /// Whether the terminal can show the lines and corners of boxes, because its characters are UTF-8.
    pub draws: bool,
    pub has_colors: bool,
}

impl Terminal {
    /// The abilities of standard error.
    pub fn of_stderr() -> Terminal {
        Terminal::with(std::io::stderr().is_terminal(), &|name| std::env::var_os(name))
    }

    /// Reads the abilities from the environment. The first of `LC_ALL`, `LC_CTYPE` and `LANG` that is set names the
    /// characters. `TERM=dumb` means a terminal for text only; `NO_COLOR` asks for no colours.
    fn with(is_terminal: bool, variable: &dyn Fn(&str) -> Option<OsString>) -> Terminal {
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let draws = is_terminal && has_utf8(variable) && set("TERM").is_some_and(|term| term != "dumb");
        Terminal {
            draws,
            has_colors: draws && set("NO_COLOR").is_none(),
        }
    }
}

/// Whether the environment says that characters are UTF-8.
pub fn is_utf8() -> bool {
    has_utf8(&|name| std::env::var_os(name))
}

fn has_utf8(variable: &dyn Fn(&str) -> Option<OsString>) -> bool {
    let set = |name: &str| variable(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    let locale = locale.map(|locale| locale.to_string_lossy().to_ascii_lowercase());
    locale.is_some_and(|locale| locale.contains("utf-8") || locale.contains("utf8"))
}

/// At most this many lines are counted before a text. Later lines are shown with too small a number.
const SHOWN_LINES_MAX: usize = 1 << 20;

/// The line with a caret, in a box.
pub fn drawn(source: &Source, diagnostic: &Diagnostic, has_colors: bool) -> String {
    // Preprocessed text is shown as it is in its files.
    let origin = source.origin(diagnostic.span.start);
    let before = super::lines_before(&origin).min(SHOWN_LINES_MAX);
    let shown = "\n".repeat(before) + source.text.get(origin.text.clone()).unwrap_or_default();
    let clamp = |offset: u32| (offset as usize).clamp(origin.text.start, origin.text.end) - origin.text.start + before;
    let range = |start: u32, end: u32| {
        let (start, end) = (clamp(start), clamp(end));
        start..end.max(start)
    };
    let id = origin.file.unwrap_or(&source.name).to_owned();
    let config = Config::default()
        .with_color(has_colors)
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
    match report.finish().write((id, ariadne::Source::from(shown)), &mut text) {
        Ok(()) => readable(&String::from_utf8_lossy(&text)).to_string(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terminal(is_terminal: bool, variables: &[(&str, &str)]) -> (bool, bool) {
        let found = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let terminal = Terminal::with(is_terminal, &found);
        (terminal.draws, terminal.has_colors)
    }

    #[test]
    fn only_a_terminal_with_utf8_is_drawn_on() {
        let usual = [("LANG", "de_DE.UTF-8"), ("TERM", "xterm")];
        assert_eq!(terminal(true, &usual), (true, true));
        assert_eq!(terminal(false, &usual), (false, false));
        assert_eq!(terminal(true, &[("LC_ALL", "C"), usual[0], usual[1]]), (false, false));
        assert_eq!(
            terminal(true, &[("LC_ALL", ""), ("LC_CTYPE", "C.utf8"), usual[1]]),
            (true, true)
        );
        assert_eq!(terminal(true, &[usual[0], ("TERM", "dumb")]), (false, false));
        assert_eq!(terminal(true, &[usual[0]]), (false, false));
        assert_eq!(terminal(true, &[usual[1]]), (false, false));
        assert_eq!(terminal(true, &[usual[0], usual[1], ("NO_COLOR", "1")]), (true, false));
        assert_eq!(terminal(true, &[usual[0], usual[1], ("NO_COLOR", "")]), (true, true));
    }
}
