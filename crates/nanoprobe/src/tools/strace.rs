//! The tool `strace`: its flags, and the program that they ask for.
//!
//! The flags are strace's own, so `-s`, `-T` and `-r` mean here what they mean there. All others are those of tracing.

use std::borrow::Cow;

use nanoprobe_export::{Stamps, StraceStyle};
use nanoprobe_syscalls::capture::{Wish, program};
use nanoprobe_syscalls::prototypes::{calls, set};
use nanoprobe_syscalls::signal_number;

use super::{Tool, Wanted};
use crate::arguments::{ProgramText, parse_tool};

/// The bytes of a buffer that are shown, as by strace.
const BUFFER: u32 = 32;
/// More do not fit into a record beside others.
const BUFFER_MAX: u32 = 32 << 10;
/// Options that the command line may override. A path has up to 1,023 bytes.
const OPTIONS: &str = "#pragma D option quiet\n#pragma D option strsize=1k\n#pragma D option bufsize=8m\n\
                       #pragma D option switchrate=20hz\n\n";

/// What the tool's own flags ask for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Asked {
    style: StraceStyle,
    buffer: Option<u32>,
    /// The calls of `-e`; empty: all.
    names: Vec<String>,
    /// The signals of `-e signal=`, a bit for each number from 1 on; `None`: all.
    signals: Option<u64>,
    follows: bool,
    /// `-y`
    has_paths: bool,
}

/// Reads the command line of the tool; `words` are those after its name.
pub fn parse(tool: &Tool, words: &[String]) -> Result<Wanted, clap::Error> {
    let mut rest = vec!["nanoprobe".to_owned()];
    let mut asked = own_flags(words, &mut rest).map_err(|what| tool.misused(&what))?;
    let (mut arguments, _) = parse_tool(&rest)?;
    if !arguments.programs.is_empty() {
        return Err(tool.misused("a tool brings its own program: no -n, -P, -m"));
    }
    if let Some(word) = arguments.macro_arguments.first() {
        return Err(tool.misused(&format!("one argument too many: {word} (a command is given by -c)")));
    }
    if arguments.processes.is_none() && arguments.command.is_none() {
        return Err(tool.misused("what is to be traced? -p PID, or -c COMMAND (or a set: -p A,B, --exe FILE)"));
    }
    // As in strace, children are traced only if that is asked for.
    let follow = if asked.follows { "follow=all" } else { "follow=no" };
    arguments.options.insert(0, follow.to_owned());
    let is_set = arguments.processes.is_set();
    asked.style.has_processes = asked.follows || is_set;
    asked.style.has_threads = (asked.follows || is_set) && arguments.output.is_some();
    let wish = Wish {
        buffer: asked.buffer.unwrap_or(BUFFER).max(1),
        has_paths: asked.has_paths && !asked.style.has_no_lines,
        has_no_memory: asked.style.has_no_lines,
        signals: match asked.style.has_no_lines {
            true => 0,
            false => asked.signals.unwrap_or(u64::MAX),
        },
    };
    arguments.tool.strace = Some(asked.style);
    arguments.programs.push(ProgramText::Carried {
        name: "tools/strace.d".to_owned(),
        text: Cow::Owned(OPTIONS.to_owned() + &program(&asked.names, wish)),
    });
    Ok(Wanted::Run(Box::new(arguments)))
}

/// Takes the tool's own flags; all other words go to `rest`.
fn own_flags(words: &[String], rest: &mut Vec<String>) -> Result<Asked, String> {
    let mut asked = Asked::default();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = |attached: &str| match attached {
            "" => words.next().cloned().ok_or(format!("{word} needs a value")),
            attached => Ok(attached.to_owned()),
        };
        match word.as_str() {
            "-f" => asked.follows = true,
            "-y" => asked.has_paths = true,
            "-t" => asked.style.stamps = Stamps::Seconds,
            "-tt" => asked.style.stamps = Stamps::Microseconds,
            "-ttt" => asked.style.stamps = Stamps::Epoch,
            "-r" => asked.style.stamps = Stamps::Relative,
            "-T" => asked.style.has_durations = true,
            "-C" | "--summary" => asked.style.has_summary = true,
            "--summary-only" => (asked.style.has_summary, asked.style.has_no_lines) = (true, true),
            flag if flag.starts_with("-e") => {
                let given = value(&flag[2..])?;
                match given.strip_prefix("signal=").or(given.strip_prefix("signals=")) {
                    Some(list) => asked.signals = Some(signals(list)?),
                    None => asked.names = names(&given)?,
                }
            }
            flag if flag.starts_with("-s") => {
                let given = value(&flag[2..])?;
                let bytes = given.parse().ok().filter(|bytes| *bytes <= BUFFER_MAX);
                asked.buffer = Some(bytes.ok_or(format!("`{given}` is no number of bytes up to {BUFFER_MAX}"))?);
            }
            // Flags of tracing whose value may look like one of the above.
            "-p" | "-c" | "-o" | "-x" | "-b" | "--exe" | "--cgroup" | "--container" => {
                rest.push(word.clone());
                rest.extend(words.next().cloned());
            }
            _ => rest.push(word.clone()),
        }
    }
    Ok(asked)
}

/// The calls that `-e` means: `trace=open,close`, `%file`, `!read`.
fn names(given: &str) -> Result<Vec<String>, String> {
    let list = given.strip_prefix("trace=").unwrap_or(given);
    let (is_inverse, list) = match list.strip_prefix('!') {
        Some(list) => (true, list),
        None => (false, list),
    };
    let mut meant: Vec<&str> = Vec::new();
    for word in list.split(',') {
        let found = set(word);
        if found.is_empty() {
            return Err(format!(
                "`{word}` is neither a system call nor a set of them (%file, %desc, %network, %memory, %process, %signal)"
            ));
        }
        meant.extend(found);
    }
    let is_wanted = |name: &&str| meant.contains(name) != is_inverse;
    let all: Vec<&str> = calls().map(|call| call.name).filter(is_wanted).collect();
    match all.is_empty() {
        true => Err(format!("`{given}` leaves no system call")),
        // All of them are one description.
        false if all.len() == calls().count() => Ok(Vec::new()),
        false => Ok(all.into_iter().map(str::to_owned).collect()),
    }
}

/// The signals that `-e signal=` means: `SIGUSR1,INT`, `!CHLD`, `all`, `none`.
fn signals(list: &str) -> Result<u64, String> {
    let (is_inverse, list) = match list.strip_prefix('!') {
        Some(list) => (true, list),
        None => (false, list),
    };
    let mut meant = 0;
    for word in list.split(',') {
        meant |= match (word, signal_number(word)) {
            ("all", _) => u64::MAX,
            ("none", _) => 0,
            (_, Some(number)) => 1 << (number - 1),
            (_, None) => return Err(format!("`{word}` is no signal (SIGUSR1, USR1, 10, all, none)")),
        };
    }
    Ok(if is_inverse { !meant } else { meant })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Result<(Asked, Vec<String>), String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let mut rest = Vec::new();
        own_flags(&words, &mut rest).map(|asked| (asked, rest))
    }

    #[test]
    fn own_flags_are_taken_out_of_those_of_tracing() {
        let (found, rest) = asked("-f -y -tt -T -s 64 -e trace=read,write -p 7 -x strsize=2k").unwrap();
        assert_eq!(rest, ["-p", "7", "-x", "strsize=2k"]);
        assert_eq!(
            (
                found.follows && found.has_paths,
                found.buffer,
                found.style.has_durations
            ),
            (true, Some(64), true)
        );
        assert_eq!(found.style.stamps, Stamps::Microseconds);
        assert_eq!(found.names, ["read", "write"]);
        let style = |text| asked(text).unwrap().0.style;
        assert!(style("-C").has_summary && !style("-C").has_no_lines && style("--summary-only").has_no_lines);
        assert_eq!(asked("-c -f").unwrap().1, ["-c", "-f"]);
        assert!(asked("-s 1m").is_err() && asked("-s").is_err());
    }

    #[test]
    fn signals_are_a_set_of_their_own() {
        let (found, _) = asked("-e signal=SIGUSR1,chld -e read").unwrap();
        assert_eq!(
            (found.signals, &found.names[..]),
            (Some(1 << 9 | 1 << 16), &["read".to_owned()][..])
        );
        assert_eq!(signals("!USR1"), Ok(!(1 << 9)));
        assert_eq!((signals("none"), signals("all")), (Ok(0), Ok(u64::MAX)));
        assert!(signals("USR3").is_err_and(|what| what.contains("`USR3`")));
        assert_eq!(asked("-f").unwrap().0.signals, None);
    }

    #[test]
    fn sets_have_names() {
        assert_eq!(names("all"), Ok(Vec::new()));
        let without = names("!read").unwrap();
        assert!(!without.contains(&"read".to_owned()) && without.contains(&"write".to_owned()));
        let files = names("%file").unwrap();
        assert!(files.contains(&"openat".to_owned()) && !files.contains(&"read".to_owned()));
        assert!(names("opn").is_err_and(|what| what.contains("`opn`")));
    }
}
