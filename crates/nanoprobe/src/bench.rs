//! `nanoprobe bench`: hands over to `nanoprobe-bench`, the program beside this one that measures
//! the cost of probes.

use std::convert::Infallible;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use anyhow::Context as _;
use nanoprobe_lang::bytes::bytes_of;

use crate::output::message;

/// The program's name, and its package's.
const PROGRAM: &str = "nanoprobe-bench";

/// Replaces this process by that program, with these arguments. The program then measures this build of nanoprobe.
pub fn run(arguments: &[String]) -> ExitCode {
    let Err(error) = hand_over(arguments);
    message(format_args!("{error:#}"));
    ExitCode::FAILURE
}

fn hand_over(arguments: &[String]) -> Result<Infallible, anyhow::Error> {
    let own = std::env::current_exe().context("the path of this command")?;
    let program = own.with_file_name(PROGRAM);
    let words = arguments
        .iter()
        .map(|word| OsString::from_vec(bytes_of(word).into_owned()));
    let error = Command::new(&program).args(words).env("NANOPROBE", &own).exec();
    Err(error).with_context(|| {
        format!(
            "cannot run {}, which makes the comparison (in nanoprobe's source, `cargo build --release -p {PROGRAM}` builds it)",
            program.display()
        )
    })
}
