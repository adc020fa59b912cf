//! `-C`: scripts go through the machine's C preprocessor.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// What every script may rely on, as with dtrace; and the names that cpp would otherwise put numbers for.
///
/// Headers are told that they are read by a compiler of GNU C: otherwise they leave out attributes
/// and flexible arrays, and structures lie elsewhere than in the program (`struct epoll_event` is
/// packed, `struct inotify_event` ends with no element).
const ALWAYS: [&str; 10] = [
    "-D__SUNW_D=1",
    // D 1.13, as -V has it: eight bits of the major number, twelve of the minor, twelve of the micro.
    "-D__SUNW_D_VERSION=0x0100d000",
    "-D__SUNW_D_64=1",
    "-D__NANOPROBE__=1",
    "-D__unix=1",
    "-D__SVR4=1",
    "-D__Linux=1",
    "-Ulinux",
    "-Uunix",
    "-std=gnu11",
];

/// The preprocessed text, by `cpp` or by another program that takes its flags. Files in `#include "..."` are looked for
/// beside the script.
///
/// # Errors
/// A message: there is no preprocessor, or it has found something wrong and said so on stderr.
pub fn run(path: &str, text: Vec<u8>, given: &[String], program: Option<&str>) -> Result<Vec<u8>, String> {
    let folder = Path::new(path).parent().filter(|_| path != "-");
    let folder = folder
        .map(|folder| folder.to_string_lossy().into_owned())
        .filter(|folder| !folder.is_empty());
    let program = program.unwrap_or("cpp");
    let mut child = Command::new(program)
        .args(ALWAYS)
        .args(["-iquote", folder.as_deref().unwrap_or(".")])
        .args(given)
        .arg("-")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| {
            format!("-C: failed to run the C preprocessor, {program} ({error}); cpp comes with gcc or clang")
        })?;
    let input = child.stdin.take();
    // cpp may write before it has read everything: one of us has to do two things at a time.
    let writer = std::thread::spawn(move || {
        let text = without_interpreter(text);
        // Whatever cpp does not want to read it has complained about.
        let _ = input.map(|mut input| input.write_all(&text));
    });
    let output = child.wait_with_output();
    let _ = writer.join();
    let output = output.map_err(|error| format!("-C: {error}"))?;
    if !output.status.success() {
        return Err(format!(
            "failed to compile script {path}: Preprocessor failed to process input program"
        ));
    }
    Ok(output.stdout)
}

/// A `#!` line is no directive of the preprocessor's; its line stays, so that the others keep their numbers.
fn without_interpreter(mut text: Vec<u8>) -> Vec<u8> {
    if text.starts_with(b"#!") {
        let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
        text.drain(..end);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_command_is_not_for_cpp() {
        assert_eq!(without_interpreter(b"#!/usr/bin/x -s\nBEGIN".to_vec()), b"\nBEGIN");
        assert_eq!(without_interpreter(b"#define A\n".to_vec()), b"#define A\n");
        assert_eq!(without_interpreter(b"#!".to_vec()), b"");
    }
}
