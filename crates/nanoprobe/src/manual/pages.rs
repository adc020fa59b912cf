//! The pages: nanoprobe(1), one for each tool, and libnanoprobe(3).

use clap::CommandFactory as _;
use nanoprobe_lang::check::subroutine_lines;
use nanoprobe_lang::options;
use nanoprobe_lang::program::{AGGREGATING, BUILTINS};

use super::library;
use super::page::Page;
use crate::arguments::Flags;
use crate::commands::COMMANDS;
use crate::tools::{TOOLS, Tool};

/// Each page's file name, and its text.
pub fn all() -> Vec<(String, String)> {
    let tools = TOOLS
        .iter()
        .map(|tool| (format!("nanoprobe-{}.1", tool.name), of_tool(tool)));
    let mut pages = vec![
        ("nanoprobe.1".to_owned(), of_command()),
        ("libnanoprobe.3".to_owned(), library::page()),
    ];
    pages.extend(tools);
    pages
}

fn of_command() -> String {
    let command = Flags::command();
    let mut page = Page::new("nanoprobe", "1", "dynamic tracing of running programs, in D");
    page.section("SYNOPSIS");
    let usage = command.clone().render_usage().to_string();
    for line in usage.lines() {
        page.paragraph(line.trim_start_matches("Usage:").trim());
    }
    page.section("DESCRIPTION");
    page.paragraph(
        "nanoprobe puts probes into a process that runs, without stopping it for long, rebuilding it or being root. At \
         a probe the process executes machine code that was compiled from a program in D, the language of DTrace. At \
         the end the process is what it was.",
    );
    page.section("OPTIONS");
    for flag in command.get_arguments().filter(|flag| !flag.is_hide_set()) {
        page.term(
            &shown(flag),
            &sentence(&flag.get_help().map(ToString::to_string).unwrap_or_default()),
        );
    }
    page.section("COMMANDS");
    for (word, meaning) in COMMANDS {
        page.term(word, &sentence(meaning));
    }
    page.section("TOOLS");
    for tool in &TOOLS {
        page.term(tool.name, &sentence(&tool.purpose()));
    }
    page.section("OPTIONS OF D");
    page.paragraph("These are set by -x name=value, or in a program by #pragma D option name=value.");
    let mut rows: Vec<&options::Row> = options::rows().collect();
    rows.sort_by_key(|row| row.name);
    for row in rows {
        let term = format!(
            "{} ({}; default {})",
            row.name,
            plain(&row.values()),
            plain(row.default)
        );
        page.term(&term, &sentence(&plain(row.line)));
    }
    page.section("VARIABLES OF D");
    for row in BUILTINS {
        let term = format!("{} ({})", row.names.join(", "), row.shown_type);
        page.term(&term, &sentence(&plain(row.line)));
    }
    page.section("AGGREGATIONS OF D");
    for row in AGGREGATING {
        page.term(
            &format!("{}({})", row.name, row.parameters),
            &sentence(&plain(row.line)),
        );
    }
    page.section("SUBROUTINES OF D");
    for (shown, meaning) in subroutine_lines() {
        page.term(&shown.join(", "), &sentence(&plain(meaning)));
    }
    page.section("EXIT STATUS");
    page.paragraph("0 on success, the status of an exit() in D, 1 after an error, 2 for a wrong command line.");
    page.section("EXAMPLES");
    let examples = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    page.lines(examples.trim_start_matches("Examples:").trim_start_matches('\n'));
    page.section("SEE ALSO");
    let tools: Vec<String> = TOOLS.iter().map(|tool| format!("nanoprobe-{}(1)", tool.name)).collect();
    page.paragraph(&format!("libnanoprobe(3), {}", tools.join(", ")));
    page.render()
}

/// A flag with the name of its value.
fn shown(flag: &clap::Arg) -> String {
    let short = flag.get_short().map(|letter| format!("-{letter}"));
    let long = flag.get_long().map(|word| format!("--{word}"));
    let names: Vec<String> = short.into_iter().chain(long).collect();
    let takes_value = flag.get_action().takes_values();
    let value = flag.get_value_names().and_then(<[_]>::first).filter(|_| takes_value);
    match (names.is_empty(), value) {
        (true, Some(value)) => format!("[{value}]..."),
        (_, Some(value)) => format!("{} {value}", names.join(", ")),
        (_, None) => names.join(", "),
    }
}

fn of_tool(tool: &Tool) -> String {
    let mut page = Page::new(&format!("nanoprobe-{}", tool.name), "1", &tool.purpose());
    let help = tool.help();
    let mut blocks = help.split("\n\n").skip(1).peekable();
    page.section("SYNOPSIS");
    if let Some(usage) = blocks.next_if(|block| block.starts_with("usage: ")) {
        page.paragraph(usage.trim_start_matches("usage: "));
    }
    page.section("DESCRIPTION");
    for block in blocks {
        if let Some(question) = block.strip_prefix("example:") {
            page.section("EXAMPLE");
            page.text(question.trim_start());
        } else {
            page.text(block);
        }
    }
    page.section("SEE ALSO");
    page.paragraph("nanoprobe(1)");
    page.render()
}

/// Markdown's marks for code and links are of no use here.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, (name, after))) = rest.split_once('[').and_then(|(before, link)| {
        let (name, target) = link.split_once("](")?;
        Some((before, (name, target.split_once(')')?.1)))
    }) {
        plain += before;
        plain += name;
        rest = after;
    }
    (plain + rest).replace('`', "")
}

/// A meaning as a sentence.
fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let first = letters
        .next()
        .map(|first| first.to_uppercase().to_string())
        .unwrap_or_default();
    let end = if text.trim().ends_with(['.', '?']) { "" } else { "." };
    first + letters.as_str() + end
}

#[cfg(test)]
mod tests {
    use super::{plain, sentence};

    #[test]
    fn marks_and_links_become_their_texts() {
        assert_eq!(
            plain("`-w`: [actions](actions.md) of `a[1]` and [b]"),
            "-w: actions of a[1] and [b]"
        );
        assert_eq!(plain("[x, y](z) `w`"), "x, y w");
    }

    #[test]
    fn a_meaning_becomes_a_sentence() {
        assert_eq!(sentence("the result"), "The result.");
        assert_eq!(sentence("which one?"), "Which one?");
        assert_eq!(sentence(""), ".");
    }
}
