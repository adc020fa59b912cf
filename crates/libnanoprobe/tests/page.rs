//! docs/library.md: each program on the page is compiled and run, and prints what the page shows below it.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

use common::{Built, text};

/// A program on the page, and the output that follows it.
struct Example {
    language: String,
    code: String,
    output: String,
}

fn examples() -> Vec<Example> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/library.md");
    let page = std::fs::read_to_string(page).unwrap();
    let parts: Vec<&str> = page.split("```").collect();
    let mut blocks = parts
        .iter()
        .skip(1)
        .step_by(2)
        .map(|block| block.split_once('\n').unwrap())
        .filter(|(language, _)| *language != "cmake");
    let mut examples = Vec::new();
    while let Some((language, code)) = blocks.next() {
        let (kind, output) = blocks.next().unwrap();
        assert_eq!(kind, "text", "behind each program is its output");
        examples.push(Example {
            language: language.to_owned(),
            code: code.to_owned(),
            output: output.to_owned(),
        });
    }
    examples
}

fn written(built: &Built, example: &Example, name: &str) -> PathBuf {
    let file = built.folder.path().join(name);
    std::fs::write(&file, &example.code).unwrap();
    file
}

fn compiled(compiler: &str, example: &Example, name: &str) -> String {
    let built = Built::new();
    let file = written(&built, example, name);
    let quiet = ["-Wno-unused-parameter"];
    let program = built.compile_with(compiler, file.to_str().unwrap(), "program", &quiet);
    built.run(&program)
}

/// Compiles an example in Rust with the library that was built for this test, and runs it.
fn rust(example: &Example) -> String {
    let built = Built::new();
    let file = written(&built, example, "page.rs");
    let program = built.folder.path().join("program");
    let library = std::fs::canonicalize(built.folder.path().join("libnanoprobe.so")).unwrap();
    let compiler = std::env::var("RUSTC").unwrap_or("rustc".to_owned());
    let output = Command::new(compiler)
        .args(["--edition", "2024", "-O", "-o"])
        .arg(&program)
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("nanoprobe={}", library.with_extension("rlib").display()))
        .arg(&file)
        .output_in_time()
        .unwrap();
    text(&output);
    built.run(&program)
}

fn python(example: &Example) -> Option<String> {
    let built = Built::new();
    let script = written(&built, example, "page.py");
    let output = Command::new("python3")
        .arg(script)
        .env("LD_LIBRARY_PATH", built.folder.path())
        .output_in_time();
    if output.is_err() {
        left_out("the python programs of the page", "there is no python3");
    }
    Some(text(&output.ok()?))
}

#[test]
fn every_program_on_the_page_prints_what_is_shown() {
    let mut languages = Vec::new();
    for example in examples() {
        let printed = match example.language.as_str() {
            "c" => compiled("cc", &example, "page.c"),
            "cpp" => compiled("c++", &example, "page.cpp"),
            "rust" => rust(&example),
            "python" => python(&example).unwrap_or(example.output.clone()),
            other => panic!("a block in `{other}`"),
        };
        assert_eq!(printed, example.output, "{}", example.language);
        languages.push(example.language);
    }
    assert_eq!(languages, ["c", "cpp", "rust", "python"]);
}
