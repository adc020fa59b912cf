//! Checks the chapters of `docs/d`. Their programs compile, or are refused with the tag in the fence
//! (```` ```d N_ACTION ````). Their tables name every tag and every option. With `BLESS` the test
//! rewrites the tables of options.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use nanoprobe_lang::check::subroutine_lines;
use nanoprobe_lang::diagnostic::OWN_TAGS;
use nanoprobe_lang::options;
use nanoprobe_lang::program::{AGGREGATING, BUILTINS};
use nanoprobe_lang::{MacroValues, Source, compile};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
}

/// The names and texts of the chapters.
fn chapters() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(root().join("docs/d")).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    let chapter = |path: std::path::PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        (name, std::fs::read_to_string(&path).unwrap())
    };
    let mut chapters: Vec<(String, String)> = paths.map(chapter).collect();
    chapters.sort();
    chapters
}

/// The text of all chapters.
fn reference() -> String {
    chapters().into_iter().map(|(_, text)| text).collect()
}

/// A fenced program, where it starts, and the tag with which it must be refused.
struct Example {
    line: String,
    refused: Option<String>,
    text: String,
}

fn examples(name: &str, document: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for (number, line) in document.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => examples.extend(open.take()),
            (Some(example), None) => example.text += &format!("{line}\n"),
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                assert_eq!(words.next(), Some("d"), "{name}:{}: only D is fenced", number + 1);
                open = Some(Example {
                    line: format!("{name}:{}", number + 2),
                    refused: words.next().map(str::to_owned),
                    text: String::new(),
                });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{name}: a fence is not closed");
    examples
}

/// The tags in the first column of the document's tables.
fn listed(document: &str, prefix: &str) -> BTreeSet<String> {
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    document
        .lines()
        .filter_map(cell)
        .filter(|tag| tag.starts_with(prefix))
        .collect()
}

#[test]
fn programs_in_the_chapters_are_accepted_or_refused_as_their_fences_say() {
    let chapters = chapters();
    let examples: Vec<Example> = chapters.iter().flat_map(|(name, text)| examples(name, text)).collect();
    assert!(examples.len() > 20, "{} programs", examples.len());
    for Example { line, refused, text } in examples {
        let mut macros = MacroValues {
            target: Some(1234),
            arguments: if text.contains("$2") {
                vec!["main".to_owned(), "5".to_owned()]
            } else {
                Vec::new()
            },
            ..MacroValues::default()
        };
        macros.options.default_arguments = text.contains("option defaultargs");
        let sources = [Source::new("reference", text)];
        match (compile(&sources, &macros), refused) {
            (Ok(program), None) => {
                assert!(!program.clauses.is_empty(), "{line}: no clause");
                common::check(&program);
            }
            (Ok(_), Some(tag)) => panic!("{line}: accepted, but {tag} was expected"),
            (Err(diagnostics), tag) => {
                let rendered: Vec<String> = diagnostics.iter().map(|found| found.render(&sources)).collect();
                assert_eq!(
                    Some(diagnostics[0].tag),
                    tag.as_deref(),
                    "{line}: {}",
                    rendered.join("\n")
                );
            }
        }
    }
}

#[test]
fn the_reference_has_each_of_our_tags_with_its_meaning() {
    let document = reference();
    let known: BTreeSet<String> = OWN_TAGS.iter().map(|(tag, _)| (*tag).to_owned()).collect();
    assert_eq!(listed(&document, "N_"), known);
    for (tag, meaning) in OWN_TAGS {
        assert!(
            document.contains(&format!("| `{tag}` | {meaning} |")),
            "{tag} means: {meaning}"
        );
    }
}

/// The tag of a message that begins with a tag in brackets.
fn unbracketed(part: &str) -> &str {
    let tag = part.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    tag.map_or(part, |(tag, _)| tag)
}

#[test]
fn the_reference_has_each_tag_of_dtrace_that_is_used() {
    let mut used = BTreeSet::new();
    // The session, and not the compiler, matches and refuses probe descriptions.
    let mut folders = vec![root().join("crates/lang/src"), root().join("crates/session/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tags are whole string literals, so the text is split at its quotes.
            let is_tag = |part: &&str| {
                part.starts_with("D_") && part.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase())
            };
            // A message of the session begins with its tag in brackets.
            used.extend(text.split('"').map(unbracketed).filter(is_tag).map(str::to_owned));
        }
    }
    assert_eq!(listed(&reference(), "D_"), used);
}

#[test]
fn a_chapter_has_15_kilobytes_at_most() {
    for (name, text) in chapters() {
        assert!(text.len() <= 15_000, "docs/d/{name} has {} bytes", text.len());
    }
}

/// The line before the tables that are made from the rows of the options.
const TABLES: &str = "<!-- The tables are made of crates/lang/src/options/table by BLESS. -->\n";

fn option_tables() -> String {
    let mut tables = "\n| option | value | default | |\n|---|---|---|---|\n".to_owned();
    let mut rows: Vec<&options::Row> = options::rows().collect();
    rows.sort_by_key(|row| row.name);
    for row in rows {
        let (name, values, default, line) = (row.name, row.values(), row.default, row.line);
        writeln!(tables, "| `{name}` | {values} | {default} | {line} |").unwrap();
    }
    tables += "\nThese are options of DTrace that change nothing here. A bad value is refused:\n\n| option | value | why |\n|---|---|---|\n";
    for row in options::ignored() {
        writeln!(tables, "| `{}` | {} | {} |", row.name, row.values(), row.line).unwrap();
    }
    tables += "\nThese are options of DTrace that are refused:\n\n| option | why |\n|---|---|\n";
    let mut refused: Vec<(&str, &str)> = options::refused().collect();
    refused.sort_unstable();
    for (name, reason) in refused {
        writeln!(tables, "| `{name}` | {reason} |").unwrap();
    }
    tables
}

#[test]
fn the_tables_of_options_are_their_rows() {
    let path = root().join("docs/d/options.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (intro, tables) = document.split_once(TABLES).unwrap();
    let expected = option_tables();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{intro}{TABLES}{expected}")).unwrap();
    } else {
        assert_eq!(tables, expected, "set BLESS to write the tables");
    }
}

/// The table of a chapter between the two lines that say where it comes from, or writes it.
fn compare_table(chapter: &str, rows: &str, expected: &str) {
    let path = root().join("docs/d").join(chapter);
    let document = std::fs::read_to_string(&path).unwrap();
    let first = format!("<!-- The rows from here are made of crates/lang/src/{rows} by BLESS. -->\n");
    let last = "<!-- The rows up to here. -->\n";
    let (before, rest) = document.split_once(&first).unwrap();
    let (table, after) = rest.split_once(last).unwrap();
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, format!("{before}{first}{expected}{last}{after}")).unwrap();
    } else {
        assert_eq!(table, expected, "set BLESS to write the table");
    }
}

/// Code words, separated by commas.
fn code(words: &[&str]) -> String {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    words.join(", ")
}

#[test]
fn the_table_of_variables_is_their_rows() {
    let mut expected = "\n| variable | type | |\n|---|---|---|\n".to_owned();
    for row in BUILTINS {
        let names = code(row.names);
        writeln!(expected, "| {names} | `{}` | {} |", row.shown_type, row.line).unwrap();
    }
    compare_table("variables.md", "program/builtin.rs", &(expected + "\n"));
}

#[test]
fn the_table_of_subroutines_is_their_rows() {
    let mut expected = "\n| subroutine | |\n|---|---|\n".to_owned();
    for (shown, meaning) in subroutine_lines() {
        writeln!(expected, "| {} | {meaning} |", code(&shown)).unwrap();
    }
    compare_table("actions.md", "check/subroutine_table/rows.rs", &(expected + "\n"));
}

/// Each row is a variable of the language, and has the type that the reference names.
#[test]
fn every_variable_has_the_type_of_its_row() {
    for row in BUILTINS {
        for name in row.names {
            let text = match row.names {
                // Outside of Go programs the variable is refused with its own tag.
                ["goid"] => continue,
                _ => format!("BEGIN {{ this->x = {name}; trace(this->x); }}"),
            };
            let program = compile(&[Source::new("reference", text)], &MacroValues::default());
            assert!(program.is_ok(), "{name}: {program:?}");
            let dumped = nanoprobe_lang::dump::dump(&program.unwrap());
            assert!(dumped.contains(row.names[0]), "{name}: {dumped}");
        }
    }
}

#[test]
fn the_table_of_aggregating_functions_is_their_rows() {
    let mut table = "\n| function | value |\n|---|---|\n".to_owned();
    for row in AGGREGATING {
        writeln!(table, "| `{}({})` | {} |", row.name, row.parameters, row.line).unwrap();
    }
    assert!(reference().contains(&(table.clone() + "\n")), "{table}");
}

#[test]
fn every_aggregating_function_has_the_row_of_its_name() {
    for row in AGGREGATING {
        let arguments = match row.name {
            "count" => "",
            "lquantize" => "arg0, 0, 10",
            "llquantize" => "arg0, 10, 0, 2, 10",
            _ => "arg0",
        };
        let text = format!("BEGIN {{ @ = {}({arguments}); }}", row.name);
        let program = compile(&[Source::new("reference", text)], &MacroValues::default()).unwrap();
        assert_eq!(program.aggregations[0].function.row().name, row.name);
    }
}
