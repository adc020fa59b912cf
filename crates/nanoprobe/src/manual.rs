//! `nanoprobe completions SHELL` and `nanoprobe manual FOLDER`: both are made from the flags, the
//! options of D, the tools, and the library's header.

mod library;
mod page;
mod pages;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;
use nanoprobe_export::profile::PROFILE_FORMATS;
use nanoprobe_lang::options;

use crate::arguments::Flags;
use crate::commands::COMMANDS;
use crate::diff;
use crate::tools::{self, timing};

/// The command with its words and tools as subcommands, and with the values that a flag may have.
fn command() -> Command {
    let mut names: Vec<&'static str> = options::rows().map(|row| row.name).collect();
    names.sort_unstable();
    let hints = [
        ("script", ValueHint::FilePath),
        ("output", ValueHint::FilePath),
        ("include", ValueHint::DirPath),
        ("library", ValueHint::DirPath),
        ("command", ValueHint::CommandString),
        ("exe", ValueHint::FilePath),
        ("cgroup", ValueHint::DirPath),
    ];
    let flags = Flags::command().mut_arg("option", |option| option.value_parser(PossibleValuesParser::new(names)));
    let profiles = PROFILE_FORMATS.iter().map(|format| (format.flag, ValueHint::FilePath));
    let flags = hints.into_iter().chain(profiles).fold(flags, |flags, (flag, hint)| {
        flags.mut_arg(flag, |argument| argument.value_hint(hint))
    });
    let process = |command: Command| {
        let all = Flags::command();
        let wanted = all.get_arguments().filter(|flag| is_of_tools(flag.get_id().as_str()));
        let command = wanted.fold(command, |command, flag| command.arg(flag));
        command.args([timing::interval(), timing::duration(), timing::stamps()])
    };
    let words = COMMANDS.iter().map(|(word, meaning)| match *word {
        "diff" => diff::Flags::command().mut_arg("flame_graph", |flag| flag.value_hint(ValueHint::FilePath)),
        word => Command::new(word).about(*meaning).args(own_flag(word)),
    });
    let tools = tools::TOOLS
        .iter()
        .map(|tool| process(Command::new(tool.name).about(tool.purpose())));
    flags
        .disable_help_subcommand(true)
        .subcommands(words)
        .subcommands(tools)
}

/// The flag of a word that takes no flags of tracing.
fn own_flag(word: &str) -> Option<Arg> {
    let (flag, meaning) = match word {
        "ps" => ("json", "Print a JSON object for each process"),
        "restore" => ("all", "Restore every process whose tracer is dead"),
        _ => return None,
    };
    Some(Arg::new(flag).long(flag).help(meaning).action(ArgAction::SetTrue))
}

/// Whether the completion of a tool offers a flag of tracing.
fn is_of_tools(flag: &str) -> bool {
    [
        "pid",
        "exe",
        "name_of",
        "cgroup",
        "container",
        "service",
        "command",
        "output",
        "json",
    ]
    .contains(&flag)
        || PROFILE_FORMATS.iter().any(|format| format.flag == flag)
}

/// The names of the shells whose completions can be made.
pub fn shells() -> String {
    let names: Vec<String> = [Shell::Bash, Shell::Zsh, Shell::Fish]
        .map(|shell| shell.to_string())
        .to_vec();
    names.join("|")
}

/// The text that a shell reads to complete command lines; `None` for an unknown shell.
pub fn completions(shell: &str) -> Option<String> {
    let shell = shell.parse::<Shell>().ok()?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "nanoprobe", &mut text);
    String::from_utf8(text).ok()
}

/// Writes all pages of the manual into a folder. Yields the number of pages.
///
/// # Errors
/// The file that could not be written.
pub fn write(folder: &Path) -> std::io::Result<usize> {
    std::fs::create_dir_all(folder)?;
    let pages = pages::all();
    for (name, text) in &pages {
        std::fs::write(folder.join(name), text)?;
    }
    Ok(pages.len())
}

#[cfg(test)]
mod tests;
