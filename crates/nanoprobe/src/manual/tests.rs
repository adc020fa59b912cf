//! The pages and the completions contain every row of the tables, and groff and the shells accept them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use nanoprobe_lang::options;

use super::{completions, pages, write};
use crate::arguments::Flags;
use crate::commands::COMMANDS;
use crate::tools;
use clap::CommandFactory as _;

fn page(name: &str) -> String {
    let all = pages::all();
    let (_, text) = all.into_iter().find(|(page, _)| page == name).unwrap();
    text.replace("\\-", "-").replace("\\&", "").replace("\\*(Aq", "'")
}

#[test]
fn the_page_of_the_command_has_every_flag_option_and_tool() {
    let text = page("nanoprobe.1");
    for flag in Flags::command().get_arguments().filter(|flag| !flag.is_hide_set()) {
        if let Some(letter) = flag.get_short() {
            assert!(text.contains(&format!("\\fB-{letter}")), "-{letter}");
        }
    }
    for row in options::rows() {
        assert!(text.contains(&format!("\\fB{} (", row.name)), "{}", row.name);
    }
    for (word, _) in COMMANDS {
        assert!(text.contains(&format!("\\fB{word}\\fR")), "{word}");
    }
    for tool in &tools::TOOLS {
        assert!(text.contains(&format!("\\fB{}\\fR", tool.name)), "{}", tool.name);
        let own = page(&format!("nanoprobe-{}.1", tool.name));
        assert!(
            own.contains(".SH EXAMPLE\n") && own.contains("{-p PID | -c COMMAND}"),
            "{own}"
        );
    }
}

#[test]
fn the_page_of_the_library_has_every_function() {
    let header = include_str!("../../../libnanoprobe/include/nanoprobe.h");
    let text = page("libnanoprobe.3");
    let functions: Vec<&str> = header.lines().filter(|line| line.starts_with("NP_API ")).collect();
    assert!(functions.len() > 30);
    for function in functions {
        assert!(text.contains(function.trim_end()), "{function}");
    }
}

/// Whether a program of this name can be started.
fn is_there(program: &str) -> bool {
    let probe = Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    probe.is_ok_and(|status| status.success())
}

#[test]
fn groff_accepts_every_page() {
    if !is_there("groff") {
        println!("left out: there is no groff");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(write(folder.path()).unwrap(), 2 + tools::TOOLS.len());
    for (name, _) in pages::all() {
        let output = Command::new("groff")
            .args(["-man", "-Tutf8", "-ww"])
            .arg(folder.path().join(&name))
            .output()
            .unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{name}: {output:?}"
        );
        assert!(output.stdout.len() > 500, "{name}");
    }
}

/// The completions that bash offers for a command line.
fn offered(line: &str) -> Vec<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let script = format!(
        "{}\nCOMP_WORDS=({line}); COMP_CWORD={}; COMP_LINE='{line}'; COMP_POINT={}\n\
         _nanoprobe nanoprobe '{}' '{}'\nprintf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        completions("bash").unwrap(),
        words.len() - 1,
        line.len(),
        words.last().unwrap(),
        words[words.len() - 2],
    );
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    bash.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    let output = bash.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_offers_tools_words_flags_and_options() {
    assert_eq!(offered("nanoprobe funcc"), ["funccount"]);
    assert_eq!(offered("nanoprobe resto"), ["restore"]);
    assert_eq!(offered("nanoprobe restore --a"), ["--all"]);
    assert_eq!(offered("nanoprobe ps --js"), ["--json"]);
    assert!(offered("nanoprobe --fl").contains(&"--flamegraph".to_owned()));
    let options = offered("nanoprobe -x agg");
    for name in ["aggrate", "aggsize"] {
        assert!(options.contains(&name.to_owned()), "{options:?}");
    }
    let flags = offered("nanoprobe funccount -");
    for flag in ["-p", "-i", "-d", "-T", "--json"] {
        assert!(flags.contains(&flag.to_owned()), "{flags:?}");
    }
}

#[test]
fn shells_accept_their_completions() {
    assert!(completions("tcsh").is_none());
    for (shell, flag) in [("bash", "-n"), ("zsh", "-n"), ("fish", "--no-execute")] {
        let text = completions(shell).unwrap();
        assert!(text.contains("funclatency") && text.contains("flamegraph"), "{shell}");
        if !is_there(shell) {
            println!("left out: there is no {shell}");
            continue;
        }
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        let output = Command::new(shell).arg(flag).arg(file.path()).output().unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{shell}: {output:?}"
        );
    }
}
