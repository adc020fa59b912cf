//! `nanoprobe tools` and `nanoprobe tool NAME`: the D scripts of `tools/`, which are part of the command.
//!
//! A script takes its arguments as macro variables. A missing argument has a default, so the script
//! itself need not know about it. A function may be given without its module.

mod clauses;
mod strace;
pub mod timing;

use std::borrow::Cow;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use nanoprobe_lang::spelling;

use self::timing::Timing;
use crate::arguments::{Arguments, Flags, ProgramText, parse_tool};

/// A script and its arguments.
#[derive(Debug)]
pub struct Tool {
    /// The tool's name on the command line.
    pub name: &'static str,
    /// The D text. Its first comment is the tool's help.
    pub text: &'static str,
    arguments: &'static [Argument],
    /// Whether every report shows the values since the beginning.
    is_total: bool,
}

/// One of a script's arguments.
#[derive(Debug)]
enum Argument {
    /// `[MODULE:]FUNCTION`.
    Function,
    /// `[MODULE:]FUNCTION` with this default, in which `$1` is the first argument.
    OtherFunction(&'static str),
    /// Any text, with this default.
    Default(&'static str),
    /// A whole number; the name of the counted things, and its default.
    Number(&'static str, &'static str),
    /// A time, in this unit unless it names another unit; with this default.
    Time(Unit, &'static str),
    /// An expression of D that is inserted into the text; with this default.
    Expression(&'static str),
    /// One of these words, of which the first is the default.
    OneOf(&'static [&'static str]),
}
use Argument::{Default, Expression, Function, Number, OneOf, OtherFunction, Time};

impl Argument {
    /// Whether a word may be this argument, and not the interval that comes after all arguments.
    fn takes(&self, word: &str) -> bool {
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        match self {
            Time(..) => true,
            Number(..) | Expression(_) => is_number || !timing::is_time(word),
            _ => !timing::is_time(word),
        }
    }
}

/// The unit in which a script counts a time.
#[derive(Debug, Clone, Copy)]
enum Unit {
    Microseconds,
    Milliseconds,
}
use Unit::{Microseconds, Milliseconds};

impl Unit {
    fn nanoseconds(self) -> u64 {
        match self {
            Microseconds => 1_000,
            Milliseconds => 1_000_000,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Microseconds => "microseconds",
            Milliseconds => "milliseconds",
        }
    }
}

macro_rules! tool {
    ($name:literal, $($argument:expr),*) => {
        Tool {
            name: $name,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/", $name, ".d")),
            arguments: &[$($argument),*],
            is_total: false,
        }
    };
}

/// All tools, in the order of the list.
pub static TOOLS: [Tool; 31] = [
    tool!("argcount", Function, Expression("arg0"), OneOf(&["entry", "return"])),
    tool!("argdist", Function, Expression("arg0"), OneOf(&["entry", "return"])),
    tool!("dtruss",),
    tool!("execsnoop",),
    tool!("funccount", Function),
    tool!("funcgraph", Function, OtherFunction("a.out:*")),
    tool!("funclatency", Function, OneOf(&["ns", "us", "ms"])),
    tool!("funcslower", Function, Time(Microseconds, "1000")),
    tool!("futexes", Time(Microseconds, "1"), Number("stacks", "5")),
    tool!("gcpause", Time(Microseconds, "1000")),
    tool!("gethostlatency", Default("libc")),
    tool!("iosnoop",),
    tool!("killsnoop",),
    tool!(
        "lockwait",
        Default("libc"),
        Time(Microseconds, "10"),
        Number("stacks", "0")
    ),
    tool!("mallocstacks", Default("libc"), Number("stacks", "20")),
    Tool {
        is_total: true,
        ..tool!("memleak", Default("*"), OtherFunction("a.out:no_allocator_of_its_own"))
    },
    tool!("nodegc", Time(Microseconds, "1000"), Default("a.out")),
    tool!("offcpu", Time(Microseconds, "1"), Number("stacks", "20")),
    tool!("opensnoop",),
    tool!("procsystime",),
    tool!("profile", Number("samples a second", "97"), Number("stacks", "20")),
    tool!("sqlslower", Time(Milliseconds, "1")),
    tool!("stackcount", Function),
    Tool {
        name: "strace",
        text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools/strace.txt")),
        arguments: &[],
        is_total: true,
    },
    tool!("syscount", Default("*")),
    tool!("tcpaccept",),
    tool!("tcpconnect",),
    tool!("tcptop",),
    tool!("threadsnoop", Default("libc")),
    tool!("uobjnew", Default("libstdc++*")),
    tool!("wakeuptime", Time(Microseconds, "1"), Number("stacks", "20")),
];

/// The result of reading a tool's command line.
#[derive(Debug)]
pub enum Wanted {
    Run(Box<Arguments>),
    /// A text to print: the tool's help, or the list.
    Print(String),
}

impl Tool {
    /// The comment at the beginning of the script.
    pub fn help(&self) -> String {
        let comment = self.text.split("*/").next().unwrap_or_default();
        let lines = comment.lines().filter(|line| !line.starts_with("/*"));
        let lines = lines.map(|line| line.trim_start_matches(" *").strip_prefix(' ').unwrap_or_default());
        let lines: Vec<String> = lines
            .map(|line| match line.starts_with("usage: ") && self.name != "strace" {
                true => format!("{line} [INTERVAL [COUNT]]\n"),
                false => format!("{line}\n"),
            })
            .collect();
        let help = lines.concat().trim_end().to_owned() + "\n";
        // The lines of strace are no reports.
        if self.name == "strace" {
            help
        } else {
            help + timing::HELP
        }
    }

    /// One line with the tool's name and purpose.
    fn summary(&self) -> String {
        self.help().lines().next().unwrap_or_default().to_owned()
    }

    /// The purpose alone.
    pub fn purpose(&self) -> String {
        let summary = self.summary();
        summary
            .split_once(" - ")
            .map_or(summary.clone(), |(_, purpose)| purpose.to_owned())
    }

    /// Splits the words into the script's arguments and the words after them.
    fn parted<'w>(&self, given: &'w [String]) -> (&'w [String], &'w [String]) {
        let is_own = |(argument, word): &(&Argument, &String)| argument.takes(word);
        let own = self.arguments.iter().zip(given).take_while(is_own).count();
        given.split_at(own)
    }

    /// The script's arguments; defaults replace the missing ones.
    fn complete(&self, given: &[String]) -> Result<Vec<String>, String> {
        let complete = self
            .arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| match (argument, given.get(index)) {
                (Function | OtherFunction(_), Some(given)) => function(given),
                (Function, None) => Err("which function? [MODULE:]FUNCTION".to_owned()),
                (Default(_), Some(given)) => Ok(given.clone()),
                (Number(what, _), Some(given)) => number(what, given),
                (Time(unit, _), Some(given)) => time(*unit, given),
                (Expression(_), Some(given)) if given.trim().is_empty() => Err("the expression is empty".to_owned()),
                (Expression(_), Some(given)) => Ok(given.clone()),
                (OneOf(words), Some(given)) if words.contains(&given.as_str()) => Ok(given.clone()),
                (OneOf(words), Some(given)) => Err(format!("`{given}` is neither {}", words.join(" nor "))),
                (OneOf(words), None) => Ok(words.first().copied().unwrap_or_default().to_owned()),
                (OtherFunction(default) | Default(default) | Expression(default), None) => Ok((*default).to_owned()),
                (Number(_, default) | Time(_, default), None) => Ok((*default).to_owned()),
            });
        let mut complete = complete.collect::<Result<Vec<String>, String>>()?;
        let first = complete.first().cloned().unwrap_or_default();
        for word in complete.iter_mut().skip(given.len()) {
            *word = word.replace("$1", &first);
        }
        Ok(complete)
    }

    /// The script with its expressions inserted. A macro variable could not carry an expression: it holds a name, a
    /// number or a text.
    fn filled_in(&self, complete: &[String]) -> Cow<'static, str> {
        let mut text = Cow::Borrowed(self.text);
        for (index, argument) in self.arguments.iter().enumerate() {
            if let (Expression(_), Some(given)) = (argument, complete.get(index)) {
                text = Cow::Owned(text.replace(&format!("${}", index + 1), given));
            }
        }
        text
    }

    /// An error in the command line of a tool, with its usage.
    fn misused(&self, what: &str) -> clap::Error {
        let help = self.help();
        let usage = help
            .lines()
            .find(|line| line.starts_with("usage: "))
            .unwrap_or_default();
        let text = format!(
            "{name}: {what}\n\n{usage}\n\n`nanoprobe tool {name} -h` tells more.\n",
            name = self.name
        );
        clap::Error::raw(ErrorKind::ValueValidation, text)
    }
}

/// `module:function`, from an argument. A pair of colons, as in C++ and Rust, belongs to the function.
fn function(given: &str) -> Result<String, String> {
    let single = given.match_indices(':').map(|(at, _)| at).filter(|&at| {
        let pairs = given.as_bytes();
        let is_colon = |at: Option<usize>| at.and_then(|at| pairs.get(at)) == Some(&b':');
        !is_colon(at.checked_sub(1)) && !is_colon(Some(at + 1))
    });
    let single: Vec<usize> = single.collect();
    match single[..] {
        _ if given.contains(":::") || given.is_empty() => Err(format!("`{given}` is no [MODULE:]FUNCTION")),
        [] => Ok(format!(":{given}")),
        [_] => Ok(given.to_owned()),
        _ => Err(format!("`{given}` is no [MODULE:]FUNCTION")),
    }
}

/// A whole number, small enough for the script to convert it to nanoseconds.
fn number(what: &str, given: &str) -> Result<String, String> {
    match given.parse::<u32>() {
        Ok(_) => Ok(given.to_owned()),
        Err(_) => Err(format!(
            "`{given}` is no number of {what}: a whole one up to {}",
            u32::MAX
        )),
    }
}

/// A time as a whole number of units. A number that names no unit is in these units.
fn time(unit: Unit, given: &str) -> Result<String, String> {
    let digits = given.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let nanoseconds = match &given[digits.len()..] {
        "" => unit.nanoseconds(),
        "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" => 1_000_000_000,
        _ => 0,
    };
    let all = digits
        .parse::<u64>()
        .ok()
        .and_then(|count| count.checked_mul(nanoseconds));
    let count = all.filter(|all| nanoseconds > 0 && all % unit.nanoseconds() == 0);
    let count = count.and_then(|all| u32::try_from(all / unit.nanoseconds()).ok());
    count.map(|count| count.to_string()).ok_or_else(|| {
        format!(
            "`{given}` is no number of {what}: a whole one up to {}, or a time like 20us, 5ms, 2s",
            u32::MAX,
            what = unit.name()
        )
    })
}

/// The tools' names.
pub fn names() -> impl Iterator<Item = &'static str> {
    TOOLS.iter().map(|tool| tool.name)
}

/// Whether a tool has this name.
pub fn is_one(name: &str) -> bool {
    names().any(|tool| tool == name)
}

pub fn list() -> String {
    let lines = TOOLS.iter().map(|tool| format!("{}\n", tool.summary()));
    lines.collect::<String>() + "\nnanoprobe tool NAME -h tells more of one.\n"
}

/// Reads `nanoprobe tool NAME [flags] [arguments]`; `words` begin with the name. The flags are those of tracing.
///
/// # Errors
/// Clap's error.
pub fn parse(words: &[String]) -> Result<Wanted, clap::Error> {
    let Some(name) = words.first().filter(|name| !["-h", "--help"].contains(&name.as_str())) else {
        return Ok(Wanted::Print(list()));
    };
    let Some(tool) = TOOLS.iter().find(|tool| tool.name == *name) else {
        let meant = spelling::nearest(name, names()).map(|meant| format!("; did you mean {meant}?"));
        return Err(error(&format!(
            "there is no tool {name}{} (`nanoprobe tools` lists them)",
            meant.unwrap_or_default()
        )));
    };
    let rest = words.get(1..).unwrap_or_default();
    if rest.iter().any(|word| word == "-h" || word == "--help") {
        return Ok(Wanted::Print(tool.help()));
    }
    // Its program is made for the calls that are asked for, and its flags are strace's.
    if tool.name == "strace" {
        return strace::parse(tool, rest);
    }
    let mut trace = vec!["nanoprobe".to_owned()];
    trace.extend_from_slice(rest);
    let (mut arguments, given) = parse_tool(&trace)?;
    if !arguments.programs.is_empty() {
        return Err(tool.misused("a tool brings its own program: no -n, -s, -P, -m or -f"));
    }
    let (own, rest) = tool.parted(&arguments.macro_arguments);
    let timing = Timing::new(&given, rest).map_err(|what| tool.misused(&what))?;
    arguments.macro_arguments = tool.complete(own).map_err(|what| tool.misused(&what))?;
    if arguments.processes.is_none() && arguments.command.is_none() {
        return Err(tool.misused("what is to be traced? -p PID, or -c COMMAND (or a set: -p A,B, --exe FILE)"));
    }
    // A report of each interval is text.
    arguments.tool.has_screen = timing.interval.is_none();
    let text = tool.filled_in(&arguments.macro_arguments);
    arguments.programs.push(ProgramText::Carried {
        name: format!("tools/{name}.d"),
        text: Cow::Owned(timing.put_into(&text, tool.is_total)),
    });
    Ok(Wanted::Run(Box::new(arguments)))
}

fn error(what: &str) -> clap::Error {
    Flags::command().error(ErrorKind::ValueValidation, what)
}

#[cfg(test)]
mod tests;
