//! `nanoprobe tools` and `nanoprobe tool NAME`: the D scripts of `tools/`, which are part of the command.
//!
//! A script takes its arguments as macro variables. A missing argument has a default, so the script
//! itself need not know about it. A function may be given without its module.

use std::borrow::Cow;

use clap::CommandFactory as _;
use clap::error::ErrorKind;
use nanoprobe_lang::spelling;

use crate::arguments::{Arguments, Flags, ProgramText, parse_trace};

/// A script and its arguments.
#[derive(Debug)]
pub struct Tool {
    /// Its name on the command line.
    pub name: &'static str,
    /// The D text; its first comment is its help.
    pub text: &'static str,
    arguments: &'static [Argument],
}

/// One of a script's arguments.
#[derive(Debug)]
enum Argument {
    /// `[MODULE:]FUNCTION`.
    Function,
    /// The same. The default is this, in which `$1` is the first argument.
    OtherFunction(&'static str),
    /// Any text, with this default.
    Default(&'static str),
    /// A whole number of the things named first, with this default.
    Number(&'static str, &'static str),
    /// A time in this unit, or with a unit of its own, with this default.
    Time(Unit, &'static str),
    /// An expression of D that is inserted into the text, with this default.
    Expression(&'static str),
    /// One of these words; the first is the default.
    OneOf(&'static [&'static str]),
}
use Argument::{Default, Expression, Function, Number, OneOf, OtherFunction, Time};

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
        }
    };
}

/// All of them, in the order of the list.
pub static TOOLS: [Tool; 16] = [
    tool!("argcount", Function, Expression("arg0"), OneOf(&["entry", "return"])),
    tool!("argdist", Function, Expression("arg0"), OneOf(&["entry", "return"])),
    tool!("funccount", Function),
    tool!("funcgraph", Function, OtherFunction("a.out:*")),
    tool!("funclatency", Function),
    tool!("funcslower", Function, Time(Microseconds, "1000")),
    tool!("gcpause", Time(Microseconds, "1000")),
    tool!(
        "lockwait",
        Default("libc"),
        Time(Microseconds, "10"),
        Number("stacks", "0")
    ),
    tool!("mallocstacks", Default("libc"), Number("stacks", "20")),
    tool!("memleak", Default("libc"), OtherFunction("$1:malloc")),
    tool!("nodegc", Time(Microseconds, "1000"), Default("a.out")),
    tool!("profile", Number("samples a second", "97"), Number("stacks", "20")),
    tool!("sqlslower", Time(Milliseconds, "1")),
    tool!("stackcount", Function),
    tool!("threadsnoop", Default("libc")),
    tool!("uobjnew", Default("libstdc++*")),
];

/// What was asked for.
#[derive(Debug)]
pub enum Wanted {
    Run(Box<Arguments>),
    /// To print its help, or the list.
    Print(String),
}

impl Tool {
    /// The comment at the begin of the script.
    pub fn help(&self) -> String {
        let comment = self.text.split("*/").next().unwrap_or_default();
        let lines = comment.lines().filter(|line| !line.starts_with("/*"));
        let lines = lines.map(|line| line.trim_start_matches(" *").strip_prefix(' ').unwrap_or_default());
        let lines: Vec<String> = lines.map(|line| format!("{line}\n")).collect();
        lines.concat().trim_end().to_owned() + "\n"
    }

    /// One line about it.
    fn summary(&self) -> String {
        self.help().lines().next().unwrap_or_default().to_owned()
    }

    /// The same without the name.
    pub fn purpose(&self) -> String {
        let summary = self.summary();
        summary
            .split_once(" - ")
            .map_or(summary.clone(), |(_, purpose)| purpose.to_owned())
    }

    /// The script's arguments, with defaults.
    fn complete(&self, given: &[String]) -> Result<Vec<String>, String> {
        if let Some(surplus) = given.get(self.arguments.len()) {
            return Err(format!("one argument too many: {surplus}"));
        }
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

    /// The script with its expressions inserted: a macro variable could only be a name, a number or a text.
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

/// `module:function`. The colons of C++ and Rust, which come in pairs, belong to the function.
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

/// A time as a whole number of units. A number without a unit is in these units.
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
    let mut trace = vec!["nanoprobe".to_owned()];
    trace.extend_from_slice(rest);
    let mut arguments = parse_trace(&trace)?;
    if !arguments.programs.is_empty() {
        return Err(tool.misused("a tool brings its own program: no -n, -s, -P, -m or -f"));
    }
    arguments.macro_arguments = tool
        .complete(&arguments.macro_arguments)
        .map_err(|what| tool.misused(&what))?;
    if arguments.pid.is_none() && arguments.command.is_none() {
        return Err(tool.misused("what is to be traced? -p PID, or -c COMMAND"));
    }
    arguments.programs.push(ProgramText::Carried {
        name: format!("tools/{name}.d"),
        text: tool.filled_in(&arguments.macro_arguments),
    });
    Ok(Wanted::Run(Box::new(arguments)))
}

fn error(what: &str) -> clap::Error {
    Flags::command().error(ErrorKind::ValueValidation, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Wanted, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        parse(&words).map_err(|error| error.to_string())
    }

    fn arguments(line: &str) -> Vec<String> {
        match parsed(line) {
            Ok(Wanted::Run(arguments)) => arguments.macro_arguments,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn every_tool_has_its_summary_help_and_example() {
        for tool in &TOOLS {
            let help = tool.help();
            assert!(tool.summary().starts_with(&format!("{} - ", tool.name)), "{help}");
            assert!(
                help.contains(&format!(
                    "\nusage: nanoprobe tool {} {{-p PID | -c COMMAND}}",
                    tool.name
                )),
                "{help}"
            );
            assert!(
                help.contains("\nexample:") && help.contains(&format!("# nanoprobe tool {}", tool.name)),
                "{help}"
            );
            assert!(list().contains(&tool.summary()));
            assert!(matches!(parsed(&format!("{} -h", tool.name)), Ok(Wanted::Print(text)) if text == help));
        }
        let files = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tools")).unwrap();
        let scripts = files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|end| end == "d"));
        assert_eq!(scripts.count(), TOOLS.len());
    }

    #[test]
    fn arguments_are_completed() {
        assert_eq!(arguments("funccount -p 1 malloc"), [":malloc"]);
        assert_eq!(arguments("funccount -p 1 libc:str*"), ["libc:str*"]);
        assert_eq!(arguments("funcgraph -p 1 a.out:main"), ["a.out:main", "a.out:*"]);
        assert_eq!(arguments("funcgraph -p 1 main libc:"), [":main", "libc:"]);
        assert_eq!(arguments("funcslower -c true main 5"), [":main", "5"]);
        assert_eq!(arguments("lockwait -p 1"), ["libc", "10", "0"]);
        assert_eq!(arguments("argdist -p 1 read"), [":read", "arg0", "entry"]);
        assert_eq!(arguments("argdist -p 1 read arg2"), [":read", "arg2", "entry"]);
        assert_eq!(arguments("argcount -p 1 read arg1 return"), [":read", "arg1", "return"]);
        assert_eq!(arguments("lockwait -p 1 libc 0"), ["libc", "0", "0"]);
        assert_eq!(arguments("lockwait -p 1 libc 5ms 3"), ["libc", "5000", "3"]);
        assert_eq!(arguments("funcslower -p 1 read 3000ns"), [":read", "3"]);
        assert_eq!(arguments("funcslower -p 1 read 20us"), [":read", "20"]);
        assert_eq!(arguments("sqlslower -p 1 2s"), ["2000"]);
        assert_eq!(arguments("sqlslower -p 1 30"), ["30"]);
        assert_eq!(arguments("memleak -p 1"), ["libc", "libc:malloc"]);
        assert_eq!(arguments("memleak -p 1 a.out"), ["a.out", "a.out:malloc"]);
        assert_eq!(arguments("memleak -p 1 libc a.out:xmalloc"), ["libc", "a.out:xmalloc"]);
        assert_eq!(
            arguments("funccount -p 1 shapes::Circle::area"),
            [":shapes::Circle::area"]
        );
        assert_eq!(arguments("funccount -p 1 a.out:*::area"), ["a.out:*::area"]);
        assert_eq!(arguments("funccount -p 1 a.out:"), ["a.out:"]);
    }

    #[test]
    fn an_expression_is_put_into_the_text() {
        let words = ["argdist", "-p", "1", "read", "args[0]->port + 1"].map(str::to_owned);
        let Ok(Wanted::Run(arguments)) = parse(&words) else {
            panic!("refused");
        };
        assert!(
            matches!(&arguments.programs[..], [ProgramText::Carried { text, .. }] if text.contains("quantize(args[0]->port + 1);"))
        );
    }

    #[test]
    fn missing_and_superfluous_arguments_are_reported() {
        for (line, what) in [
            ("funccount -p 1", "which function?"),
            ("funccount malloc", "-p PID, or -c COMMAND"),
            ("funccount -p 1 a b", "one argument too many: b"),
            ("funccount -p 1 pid1:a:b:entry", "no [MODULE:]FUNCTION"),
            ("funccount -p 1 pid1:::entry", "no [MODULE:]FUNCTION"),
            ("funcslower -p 1 read abc", "`abc` is no number of microseconds"),
            ("funcslower -p 1 read 1.5", "no number of microseconds"),
            ("funcslower -p 1 read -- -5", "no number of microseconds"),
            ("lockwait -p 1 libc 99999999999999999999", "no number of microseconds"),
            ("mallocstacks -p 1 libc few", "`few` is no number of stacks"),
            ("sqlslower -p 1 1h", "`1h` is no number of milliseconds"),
            ("sqlslower -p 1 1us", "`1us` is no number of milliseconds"),
            ("sqlslower -p 1 ms", "`ms` is no number of milliseconds"),
            ("funcslower -p 1 read 99999999s", "no number of microseconds"),
            ("funcslower -p 1 read 5µs", "no number of microseconds"),
            ("argdist -p 1 read arg2 exit", "`exit` is neither entry nor return"),
            (
                "argdist -p 1",
                "usage: nanoprobe tool argdist {-p PID | -c COMMAND} [MODULE:]FUNCTION [EXPRESSION",
            ),
            ("gcpause -p 1 x", "`x` is no number of microseconds"),
            ("funccount -p 1 -n BEGIN malloc", "its own program"),
            ("nothing -p 1", "there is no tool nothing"),
        ] {
            assert!(parsed(line).is_err_and(|error| error.contains(what)), "{line}");
        }
    }
}
