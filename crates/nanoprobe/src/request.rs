//! What the command is asked to do: to trace, or something smaller.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use nanoprobe_lang::bytes::bytes_of;
use nanoprobe_lang::spelling;

use crate::arguments::{Arguments, Flags, parse_trace};
use crate::{commands, manual, processes, tools};

/// What to make of provider definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// `-h`
    Header,
    /// `-G`
    Object,
}

/// What to do: trace, or something smaller.
#[derive(Debug)]
pub enum Request {
    Trace(Box<Arguments>),
    Cost(Box<Arguments>),
    /// `-h`, `-G`
    Provide(Product, Box<Arguments>),
    Restore {
        pid: i32,
    },
    /// With the arguments after the word `bench`.
    Bench(Vec<String>),
    /// Writes the manual into this folder.
    Manual(PathBuf),
    /// A text to print.
    Print(String),
    Version,
}

/// Reads the command line.
///
/// # Errors
/// Clap's error; it knows its exit status, and whether help was asked for.
pub fn parse(words: &[String]) -> Result<Request, clap::Error> {
    let first = words.get(1).map_or("", String::as_str);
    let rest = words.get(2..).unwrap_or_default();
    match first {
        "bench" => return Ok(Request::Bench(rest.to_vec())),
        "restore" => return restore(rest),
        "tools" => return Ok(Request::Print(tools::list())),
        "tool" => return tool(rest),
        "help" => return help(rest),
        "completions" => return completions(rest),
        "manual" => return manual(rest),
        "version" | "--version" => return Ok(Request::Version),
        _ => {}
    }
    // A program's first argument may have the name of a tool; a tool has no other program.
    let brings_program = |words: &[String]| parse_trace(words).is_ok_and(|trace| !trace.programs.is_empty());
    if tools::is_one(first) && !brings_program(words) {
        return tool(words.get(1..).unwrap_or_default());
    }
    if is_word(first) && first != "cost" && parse_trace(words).is_ok_and(|trace| trace.programs.is_empty()) {
        return Err(unknown(first));
    }
    // `cost` takes the flags of tracing, so that it can be asked about the same tracing.
    let is_cost = first == "cost";
    let words = words.iter().enumerate().filter(|(index, _)| !(is_cost && *index == 1));
    let words: Vec<String> = words.map(|(_, word)| word.clone()).collect();
    let flags = Flags::try_parse_from(&words)?;
    if flags.version {
        return Ok(Request::Version);
    }
    let mut arguments = Box::new(parse_trace(&words)?);
    let product = match (flags.header, flags.object) {
        (true, _) => Some(Product::Header),
        (_, true) => Some(Product::Object),
        _ => None,
    };
    if let Some(product) = product {
        // Builds pass flags for the compiler here: -fPIC.
        arguments.programs.retain(|program| !program.is_position_independence());
        return Ok(Request::Provide(product, arguments));
    }
    Ok(if is_cost {
        Request::Cost(arguments)
    } else {
        Request::Trace(arguments)
    })
}

/// What is said of a wrong command line: what is wrong, and how it is used.
pub fn misuse(error: &clap::Error) -> String {
    const USAGE: &str = "usage: nanoprobe [flag]... {-n program | -s script}... [-p pid|name | -c command] (nanoprobe --help \
                         tells more)";
    let text = error.to_string();
    let what = text.split("\n\n").next().unwrap_or_default();
    let what = what.strip_prefix("error: ").unwrap_or(what).trim_end();
    let meant = match error.get(ContextKind::SuggestedArg) {
        Some(ContextValue::String(meant)) => format!("; did you mean {meant}?"),
        _ => String::new(),
    };
    let usage = text.lines().find(|line| line.starts_with("usage: ")).unwrap_or(USAGE);
    format!("{what}{meant}\n{usage}")
}

/// Whether a first word may be meant as what to do: no flag, no number, no path.
fn is_word(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_alphabetic) && letters.all(|letter| letter.is_alphanumeric() || letter == '-')
}

/// Nothing has the name that the command line begins with.
fn unknown(word: &str) -> clap::Error {
    let meant = spelling::nearest(word, commands::words().chain(tools::names()));
    let meant = meant
        .map(|meant| format!("; did you mean {meant}?"))
        .unwrap_or_default();
    misused(&format!(
        "there is no command or tool {word}{meant} (`nanoprobe tools` lists the tools; a program is given by -n or -s)"
    ))
}

fn misused(what: &str) -> clap::Error {
    Flags::command().error(ErrorKind::ValueValidation, what)
}

fn tool(words: &[String]) -> Result<Request, clap::Error> {
    Ok(match tools::parse(words)? {
        tools::Wanted::Run(arguments) => Request::Trace(arguments),
        tools::Wanted::Print(text) => Request::Print(text),
    })
}

fn restore(words: &[String]) -> Result<Request, clap::Error> {
    let [word] = words else {
        return Err(misused("which process? nanoprobe restore PID"));
    };
    let pid = processes::number_of(word).map_err(|what| misused(&what))?;
    Ok(Request::Restore { pid })
}

fn completions(words: &[String]) -> Result<Request, clap::Error> {
    let text = match words {
        [shell] => manual::completions(shell),
        _ => None,
    };
    text.map(Request::Print)
        .ok_or_else(|| misused(&format!("which shell? nanoprobe completions {}", manual::shells())))
}

fn manual(words: &[String]) -> Result<Request, clap::Error> {
    let [folder] = words else {
        return Err(misused("which folder? nanoprobe manual FOLDER"));
    };
    Ok(Request::Manual(PathBuf::from(OsString::from_vec(
        bytes_of(folder).into_owned(),
    ))))
}

/// `help`, `help TOOL`
fn help(words: &[String]) -> Result<Request, clap::Error> {
    match words.first() {
        Some(name) if tools::is_one(name) => tool(&[name.clone(), "--help".to_owned()]),
        Some(name) if commands::words().all(|word| word != name) => Err(unknown(name)),
        _ => Ok(Request::Print(Flags::command().render_help().to_string())),
    }
}

#[cfg(test)]
mod tests;
