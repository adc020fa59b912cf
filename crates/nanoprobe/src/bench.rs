//! `nanoprobe bench`: what a probe costs on this machine, and what it would cost by other ways.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use clap::{CommandFactory as _, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use nanoprobe_bench::{EXPERIMENTS, Options, data, page, report::Report, text};

use crate::interrupt;
use crate::output::message;

/// Measure what a probe costs on this machine, by nanoprobe, by the kernel, and by the other tools that are there
#[derive(Parser, Clone, Debug, PartialEq, Eq)]
#[command(name = "nanoprobe bench", disable_version_flag = true)]
pub struct Arguments {
    /// Write report.html, report.json, samples.csv and report.txt into this folder
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How often each configuration is attached and measured: 1 is a run of some minutes. What is doubtful then is
    /// measured again
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,
    /// Only the experiments whose names contain this
    #[arg(long, value_name = "EXPERIMENT")]
    pub only: Option<String>,
    /// The experiments that take minutes, too
    #[arg(long)]
    pub full: bool,
    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// What a process measures on itself: the command starts itself so
    #[arg(long, hide = true)]
    pub own: Option<String>,
}

/// Reads what follows `nanoprobe`.
///
/// # Errors
/// Clap's.
pub fn parse(words: &[String]) -> Result<Arguments, clap::Error> {
    let names: Vec<String> = EXPERIMENTS
        .iter()
        .map(|(name, what)| format!("  {name:10} {what}"))
        .collect();
    let command = Arguments::command().after_help(format!("Experiments:\n{}", names.join("\n")));
    let matches = command.try_get_matches_from(words)?;
    clap::FromArgMatches::from_arg_matches(&matches)
}

/// Runs it.
pub fn run(arguments: &Arguments) -> ExitCode {
    match try_run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &Arguments) -> Result<(), anyhow::Error> {
    if let Some(name) = &arguments.own {
        return nanoprobe_bench::own(name, usize::from(arguments.rounds));
    }
    interrupt::install();
    // Before the minutes that it takes, not behind them.
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let options = Options {
        rounds: usize::from(arguments.rounds),
        only: arguments.only.clone(),
        full: arguments.full,
        nanoprobe: std::env::current_exe().context("the path of this command")?,
        interrupted: interrupt::requested,
    };
    let bar = ProgressBar::new_spinner();
    bar.set_style(ProgressStyle::with_template(
        "{spinner} {elapsed_precise} {prefix:10} {wide_msg}",
    )?);
    bar.enable_steady_tick(Duration::from_millis(200));
    let report = nanoprobe_bench::run(&options, &|experiment, step| {
        bar.set_prefix(experiment.to_owned());
        bar.set_message(step.to_owned());
    });
    bar.finish_and_clear();
    let report = report?;
    print!("{}", text::text(&report));
    write(arguments, &report)
}

fn write(arguments: &Arguments, report: &Report) -> Result<(), anyhow::Error> {
    let put = |path: PathBuf, text: String| {
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        message(format_args!("{} written", path.display()));
        Ok::<(), anyhow::Error>(())
    };
    if let Some(folder) = &arguments.out {
        put(folder.join("report.html"), page::page(report))?;
        put(folder.join("report.json"), data::json(report))?;
        put(folder.join("samples.csv"), data::csv(report))?;
        put(folder.join("report.txt"), text::text(report))?;
    }
    match &arguments.json {
        Some(path) => put(path.clone(), data::json(report)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn flags() {
        let arguments = parse(&words("bench --out /tmp/x --rounds 5 --only gtod --json f")).expect("good flags");
        assert_eq!((arguments.rounds, arguments.only.as_deref()), (5, Some("gtod")));
        assert_eq!(arguments.out, Some(PathBuf::from("/tmp/x")));
        assert_eq!(parse(&words("bench")).expect("no flags").rounds, 1);
        assert!(!arguments.full && parse(&words("bench --full")).expect("good flags").full);
        assert!(parse(&words("bench --rounds 0")).is_err());
        let help = parse(&words("bench --help")).expect_err("help").to_string();
        assert!(
            help.contains("gtod") && help.contains("--out <DIR>") && !help.contains("--own"),
            "{help}"
        );
    }
}
