//! Scripts, and the programs or errors that the front end makes of them.
//!
//! `tests/golden/tst.what.d` compiles; `err.D_TAG.what.d` is refused, and that tag is the first. The
//! `.out` file of the same name has the program's dump or the diagnostics.
//! `BLESS=1 cargo test -p nanoprobe-lang` rewrites the `.out` files.
//!
//! Every script is compiled with `$target` 1234 and `$pid` 99; lines `/* argument: TEXT */` give
//! `$1` and so on. Lines `/* source */` divide a script into several sources. A script that begins
//! with `/* typed target */` is compiled for a program whose types are known (`typed_target`).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;
mod typed_target;

use nanoprobe_lang::{MacroValues, NoTarget, Source, Target, compile_for, dump};
use std::path::{Path, PathBuf};
use std::rc::Rc;

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let mut scripts: Vec<PathBuf> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "d"))
        .collect();
    scripts.sort();
    scripts
}

fn macros(text: &str) -> MacroValues {
    let argument = |line: &str| {
        line.strip_prefix("/* argument: ")?
            .strip_suffix(" */")
            .map(str::to_owned)
    };
    MacroValues {
        target: (!text.contains("/* no target */")).then_some(1234),
        pid: Some(99),
        uid: Some(1000),
        script: Some("./script.d".to_owned()),
        arguments: text.lines().filter_map(argument).collect(),
        ..MacroValues::default()
    }
}

/// The output of a script, and the tag of its first error.
fn output(text: &str) -> (String, Option<&'static str>) {
    let sources: Vec<Source> = text
        .split("/* source */\n")
        .enumerate()
        .map(|(index, text)| {
            Source::new(
                if index == 0 {
                    "script".to_owned()
                } else {
                    format!("script{}", index + 1)
                },
                text,
            )
        })
        .collect();
    let target: Rc<dyn Target> = if text.starts_with("/* typed target */") {
        Rc::new(typed_target::Typed::default())
    } else {
        Rc::new(NoTarget)
    };
    match compile_for(&sources, &macros(text), &target) {
        Ok(program) => {
            common::check(&program);
            (dump::dump(&program), None)
        }
        Err(diagnostics) => {
            let lines: Vec<String> = diagnostics
                .iter()
                .map(|diagnostic| diagnostic.render(&sources) + "\n")
                .collect();
            (lines.concat(), Some(diagnostics[0].tag))
        }
    }
}

#[test]
fn scripts_compile_to_their_golden_files() {
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    for path in scripts() {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (output, tag) = output(&std::fs::read_to_string(&path).unwrap());
        let wanted_tag = name.strip_prefix("err.").map(|rest| rest.split('.').next().unwrap());
        if tag != wanted_tag {
            wrong.push(format!("{name}: expected {wanted_tag:?}, got {tag:?}\n{output}"));
            continue;
        }
        let golden = path.with_extension("out");
        if bless {
            std::fs::write(&golden, &output).unwrap();
            continue;
        }
        let before = std::fs::read_to_string(&golden).unwrap_or_default();
        if before != output {
            wrong.push(format!("{name}:\n--- expected\n{before}--- got\n{output}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} scripts differ:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn there_are_as_many_errors_as_successes() {
    let errors = scripts()
        .iter()
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("err."))
        .count();
    let successes = scripts().len() - errors;
    assert!(
        errors >= 40 && successes >= 40,
        "{errors} errors, {successes} successes"
    );
}
