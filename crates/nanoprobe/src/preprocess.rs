//! `-C`: scripts go through the machine's C preprocessor.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Definitions that every script may rely on, as with dtrace. Names that cpp would otherwise replace by numbers are
/// undefined.
///
/// Headers must see a compiler of GNU C. Otherwise they leave out attributes and flexible arrays, and structures are
/// laid out differently from the program's (`struct epoll_event` is packed, `struct inotify_event` ends with an array
/// without elements).
const ALWAYS: [&str; 10] = [
    "-D__SUNW_D=1",
    // D 1.13, as in -V: eight bits for the major number, twelve for the minor, twelve for the micro.
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

/// The text as preprocessed by `cpp`, or by another program with the same flags. Files in `#include "..."` are searched
/// in the script's folder.
///
/// # Errors
/// A message, if the preprocessor does not exist or has found an error, which it printed on stderr.
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
    // cpp may write before it has read everything. So another thread writes to cpp while this thread reads.
    let writer = std::thread::spawn(move || {
        let text = without_interpreter(text);
        // If cpp did not read everything, it has printed why.
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

/// Empties the line of `#!`, which the preprocessor does not know. The other lines keep their numbers.
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
