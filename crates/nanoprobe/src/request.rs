//! The request of a command line: to trace, or something smaller.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory as _, Parser as _};
use nanoprobe_lang::bytes::bytes_of;
use nanoprobe_lang::spelling;

use crate::arguments::{Arguments, Flags, parse_trace};
use crate::{commands, diff, manual, processes, ps, restore, tools};

/// Which file to make of provider definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    /// `-h`
    Header,
    /// `-G`
    Object,
}

/// The request that the command line makes.
#[derive(Debug)]
pub enum Request {
    Trace(Box<Arguments>),
    Cost(Box<Arguments>),
    /// Compare two recorded profiles.
    Diff(Box<diff::Flags>),
    /// `-h`, `-G`
    Provide(Product, Box<Arguments>),
    Restore {
        pid: i32,
    },
    /// `restore --all`
    RestoreAll,
    /// The traced processes are listed.
    Ps {
        as_json: bool,
    },
    /// The arguments after the word `bench`.
    Bench(Vec<String>),
    /// Write the manual into this folder.
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
        "diff" => return difference(words),
        "ps" => return traced(rest),
        "restore" => return restoring(rest),
        "tools" => return Ok(Request::Print(tools::list())),
        "tool" => return tool(rest),
        "help" => return help(rest),
        "completions" => return completions(rest),
        "manual" => return manual(rest),
        "version" | "--version" => return Ok(Request::Version),
        _ => {}
    }
    // A tool brings its own program. With another program, a tool's name is an argument of that program.
    let brings_program = |words: &[String]| parse_trace(words).is_ok_and(|trace| !trace.programs.is_empty());
    if tools::is_one(first) && !brings_program(words) {
        return tool(words.get(1..).unwrap_or_default());
    }
    if is_word(first) && first != "cost" && parse_trace(words).is_ok_and(|trace| trace.programs.is_empty()) {
        return Err(unknown(first));
    }
    // `cost` takes the flags of tracing, so a tracing command line becomes a question about its cost.
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
        // Builds pass flags of the compiler here, such as -fPIC.
        arguments.programs.retain(|program| !program.is_position_independence());
        return Ok(Request::Provide(product, arguments));
    }
    Ok(if is_cost {
        Request::Cost(arguments)
    } else {
        Request::Trace(arguments)
    })
}

/// The message for a wrong command line: the error, and the usage.
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

/// Whether a first word may be the name of a command: it is no flag, number or path.
fn is_word(word: &str) -> bool {
    let mut letters = word.chars();
    letters.next().is_some_and(char::is_alphabetic) && letters.all(|letter| letter.is_alphanumeric() || letter == '-')
}

/// The error for a first word that names no command and no tool.
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

/// `diff A B`
fn difference(words: &[String]) -> Result<Request, clap::Error> {
    let flags = diff::Flags::try_parse_from(words.iter().skip(1));
    let flags = flags.map_err(|error| match error.use_stderr() {
        true => {
            let what = error.to_string();
            let what = what.split("\n\n").next().unwrap_or_default();
            let what = what.trim_start_matches("error: ").replace(":\n ", "");
            let usage = diff::Flags::command()
                .render_usage()
                .to_string()
                .replace("Usage: ", "usage: ");
            misused(&format!("{what}\n\n{usage}"))
        }
        false => error,
    })?;
    Ok(Request::Diff(Box::new(flags)))
}

fn tool(words: &[String]) -> Result<Request, clap::Error> {
    Ok(match tools::parse(words)? {
        tools::Wanted::Run(arguments) => Request::Trace(arguments),
        tools::Wanted::Print(text) => Request::Print(text),
    })
}

/// `restore PID`, `restore --all`
fn restoring(words: &[String]) -> Result<Request, clap::Error> {
    let refused = |what: &str| Err(misused(&format!("{what}\n\n{}", restore::USAGE)));
    match words {
        [flag] if is_help(flag) => Ok(Request::Print(restore::help())),
        [flag] if flag == "--all" => Ok(Request::RestoreAll),
        [flag] if flag.starts_with("--") => refused(&unexpected(flag, &["--all", "--help"])),
        [word] => match processes::number_of(word) {
            Ok(pid) => Ok(Request::Restore { pid }),
            Err(what) => refused(&what),
        },
        _ => refused("which process? nanoprobe restore PID"),
    }
}

/// `ps`, `ps --json`
fn traced(words: &[String]) -> Result<Request, clap::Error> {
    match words {
        [] => Ok(Request::Ps { as_json: false }),
        [flag] if flag == "--json" => Ok(Request::Ps { as_json: true }),
        [flag] if is_help(flag) => Ok(Request::Print(ps::help())),
        [first, ..] => Err(misused(&format!(
            "{}\n\n{}",
            unexpected(first, &["--json", "--help"]),
            ps::USAGE
        ))),
    }
}

fn is_help(word: &str) -> bool {
    ["-h", "--help"].contains(&word)
}

/// The message for a word that a command does not accept, with the flag that was probably meant.
fn unexpected(word: &str, flags: &[&'static str]) -> String {
    let meant = spelling::nearest(word, flags.iter().copied());
    let meant = meant
        .map(|meant| format!("; did you mean {meant}?"))
        .unwrap_or_default();
    format!("unexpected argument '{word}' found{meant}")
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
        Some(name) if name == "diff" => Ok(Request::Print(diff::Flags::command().render_help().to_string())),
        Some(name) if name == "ps" => Ok(Request::Print(ps::help())),
        Some(name) if name == "restore" => Ok(Request::Print(restore::help())),
        Some(name) if commands::words().all(|word| word != name) => Err(unknown(name)),
        _ => Ok(Request::Print(Flags::command().render_help().to_string())),
    }
}

#[cfg(test)]
mod tests;
