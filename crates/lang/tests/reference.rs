//! `docs/d-reference.md` says what is so: its programs compile, or are refused with the tag in the fence (```` ```d
//! N_ACTION ````), its tables name every tag and every option there is.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use nanoprobe_lang::diagnostic::OWN_TAGS;
use nanoprobe_lang::options::NAMES;
use nanoprobe_lang::{MacroValues, Source, compile};
use std::collections::BTreeSet;
use std::path::Path;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .parent()
        .unwrap()
}

fn reference() -> String {
    std::fs::read_to_string(root().join("docs/d-reference.md")).unwrap()
}

/// A fenced program, the line it starts in, and the tag with which it must be refused.
struct Example {
    line: usize,
    refused: Option<String>,
    text: String,
}

fn examples(document: &str) -> Vec<Example> {
    let mut examples = Vec::new();
    let mut open: Option<Example> = None;
    for (number, line) in document.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => examples.extend(open.take()),
            (Some(example), None) => example.text += &format!("{line}\n"),
            (None, Some(info)) => {
                let mut words = info.split_whitespace();
                assert_eq!(words.next(), Some("d"), "line {}: only D is fenced", number + 1);
                open = Some(Example {
                    line: number + 2,
                    refused: words.next().map(str::to_owned),
                    text: String::new(),
                });
            }
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "a fence is not closed");
    examples
}

/// The tags that the first column of the document's tables holds.
fn listed(document: &str, prefix: &str) -> BTreeSet<String> {
    let cell = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    document
        .lines()
        .filter_map(cell)
        .filter(|tag| tag.starts_with(prefix))
        .collect()
}

#[test]
fn programs_are_accepted_or_refused_as_it_says() {
    let examples = examples(&reference());
    assert!(examples.len() > 20, "{} programs", examples.len());
    for Example { line, refused, text } in examples {
        let macros = MacroValues {
            target: Some(1234),
            default_arguments: text.contains("option defaultargs"),
            arguments: if text.contains("$2") {
                vec!["main".to_owned(), "5".to_owned()]
            } else {
                Vec::new()
            },
            ..MacroValues::default()
        };
        let sources = [Source::new("reference", text)];
        match (compile(&sources, &macros), refused) {
            (Ok(program), None) => {
                assert!(!program.clauses.is_empty(), "line {line}: no clause");
                common::check(&program);
            }
            (Ok(_), Some(tag)) => panic!("line {line}: accepted, but {tag} was expected"),
            (Err(diagnostics), tag) => {
                let rendered: Vec<String> = diagnostics.iter().map(|found| found.render(&sources)).collect();
                assert_eq!(
                    Some(diagnostics[0].tag),
                    tag.as_deref(),
                    "line {line}: {}",
                    rendered.join("\n")
                );
            }
        }
    }
}

#[test]
fn every_tag_of_ours_is_there_with_its_meaning() {
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

/// Of a message that begins with a tag in brackets, the tag.
fn unbracketed(part: &str) -> &str {
    let tag = part.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    tag.map_or(part, |(tag, _)| tag)
}

#[test]
fn every_tag_of_dtrace_s_is_there() {
    let mut used = BTreeSet::new();
    // Descriptions are matched, and refused, by the session.
    let mut folders = vec![root().join("crates/lang/src"), root().join("crates/session/src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            // Tags are whole string literals: every second part between quotes, if not every one, is looked at.
            let is_tag = |part: &&str| {
                part.starts_with("D_") && part.bytes().all(|byte| byte == b'_' || byte.is_ascii_uppercase())
            };
            // A message of the session's begins with its tag, in brackets.
            used.extend(text.split('"').map(unbracketed).filter(is_tag).map(str::to_owned));
        }
    }
    assert_eq!(listed(&reference(), "D_"), used);
}

#[test]
fn every_option_is_there() {
    let document = reference();
    let options = document
        .split("## Options")
        .nth(1)
        .unwrap()
        .split("\n## ")
        .next()
        .unwrap();
    for name in NAMES {
        assert!(options.contains(&format!("`{name}`")), "the option {name}");
    }
}
