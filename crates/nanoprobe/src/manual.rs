//! `nanoprobe completions SHELL` and `nanoprobe manual FOLDER`: both are made from the flags, the
//! options of D, the tools, and the library's header.

mod library;
mod page;
mod pages;

use std::path::Path;

use clap::builder::PossibleValuesParser;
use clap::{Command, CommandFactory as _, ValueHint};
use clap_complete::Shell;
use nanoprobe_lang::options;

use crate::arguments::Flags;
use crate::commands::COMMANDS;
use crate::tools;

/// The command with its words and tools as subcommands, and with the values that a flag may have.
fn command() -> Command {
    let mut names: Vec<&'static str> = options::rows().map(|row| row.name).collect();
    names.sort_unstable();
    let hints = [
        ("script", ValueHint::FilePath),
        ("output", ValueHint::FilePath),
        ("flame_graph", ValueHint::FilePath),
        ("include", ValueHint::DirPath),
        ("library", ValueHint::DirPath),
        ("command", ValueHint::CommandString),
    ];
    let flags = Flags::command().mut_arg("option", |option| option.value_parser(PossibleValuesParser::new(names)));
    let flags = hints.into_iter().fold(flags, |flags, (flag, hint)| {
        flags.mut_arg(flag, |argument| argument.value_hint(hint))
    });
    let process = |command: Command| {
        let all = Flags::command();
        let wanted = all
            .get_arguments()
            .filter(|flag| ["pid", "command"].contains(&flag.get_id().as_str()));
        wanted.fold(command, |command, flag| command.arg(flag))
    };
    let words = COMMANDS
        .iter()
        .map(|(word, meaning)| Command::new(*word).about(*meaning));
    let tools = tools::TOOLS
        .iter()
        .map(|tool| process(Command::new(tool.name).about(tool.purpose())));
    flags
        .disable_help_subcommand(true)
        .subcommands(words)
        .subcommands(tools)
}

/// The names of the shells whose completions can be made.
pub fn shells() -> String {
    let names: Vec<String> = [Shell::Bash, Shell::Zsh, Shell::Fish]
        .map(|shell| shell.to_string())
        .to_vec();
    names.join("|")
}

/// What a shell reads to complete command lines; `None`: there is no such shell.
pub fn completions(shell: &str) -> Option<String> {
    let shell = shell.parse::<Shell>().ok()?;
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command(), "nanoprobe", &mut text);
    String::from_utf8(text).ok()
}

/// Writes all pages of the manual into a folder. How many there are.
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
