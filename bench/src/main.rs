//! The measured comparison as a program. `nanoprobe bench` hands over to it, with its own path in `NANOPROBE`.
//!
//! It is a program of its own, so that a build of nanoprobe builds neither it nor the measured programs.
//!
//!     cargo run --release -p nanoprobe-bench -- [--rounds N] [--only EXPERIMENT] [--out DIR] [--json FILE] [--full]

use std::fmt::Display;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::{CommandFactory as _, Parser};
use indicatif::{ProgressBar, ProgressStyle};
use nanoprobe_bench::{EXPERIMENTS, Options, data, interrupt, page, report::Report, text};

/// Measure what a probe costs on this machine, by nanoprobe, by the kernel, and by the other tools that are there
#[derive(Parser, Clone, Debug, PartialEq, Eq)]
#[command(name = "nanoprobe bench", disable_version_flag = true)]
struct Arguments {
    /// Write report.html, report.json, samples.csv and report.txt into this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How often each configuration is attached and measured: 1 takes some minutes. Doubtful figures are measured again
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,
    /// Only the experiments whose names contain this
    #[arg(long, value_name = "EXPERIMENT")]
    only: Option<String>,
    /// The experiments that take minutes, too
    #[arg(long)]
    full: bool,
    /// Write everything as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// One experiment that a process makes on itself: the program starts itself with this
    #[arg(long, hide = true)]
    own: Option<String>,
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let result = match parse(&words) {
        Ok(arguments) => run(&arguments),
        Err(error) => error.exit(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message(format_args!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn message(text: impl Display) {
    eprintln!("nanoprobe: {text}");
}

fn parse(words: &[std::ffi::OsString]) -> Result<Arguments, clap::Error> {
    let names: Vec<String> = EXPERIMENTS
        .iter()
        .map(|(name, what)| format!("  {name:10} {what}"))
        .collect();
    let command = Arguments::command().after_help(format!("Experiments:\n{}", names.join("\n")));
    let matches = command.try_get_matches_from(words)?;
    clap::FromArgMatches::from_arg_matches(&matches)
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(name) = &arguments.own {
        return nanoprobe_bench::own(name, usize::from(arguments.rounds));
    }
    interrupt::install();
    // The folder is checked before the minutes of the run, and not afterwards.
    if let Some(folder) = &arguments.out {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let options = Options {
        rounds: usize::from(arguments.rounds),
        only: arguments.only.clone(),
        full: arguments.full,
        nanoprobe: nanoprobe()?,
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

fn write(arguments: &Arguments, report: &Report) -> Result<()> {
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

/// The command that is measured: `NANOPROBE`, or the one beside this executable, which is built if it is missing.
fn nanoprobe() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("NANOPROBE") {
        return Ok(PathBuf::from(path));
    }
    let executable = std::env::current_exe()?;
    let folder = executable.parent().context("a folder")?;
    let beside = folder.join("nanoprobe");
    if !beside.is_file() {
        let mut build = Command::new("cargo");
        build.args(["build", "--release", "-p", "nanoprobe", "--target-dir"]);
        build.arg(folder.parent().context("a target folder")?);
        build.current_dir(env!("CARGO_MANIFEST_DIR"));
        ensure!(
            build.status().context("running cargo")?.success(),
            "building nanoprobe failed"
        );
    }
    Ok(beside)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words: Vec<_> = line.split_whitespace().map(Into::into).collect();
        super::parse(&words)
    }

    #[test]
    fn flags() {
        let arguments = parse("bench --out /tmp/x --rounds 5 --only gtod --json f").expect("good flags");
        assert_eq!((arguments.rounds, arguments.only.as_deref()), (5, Some("gtod")));
        assert_eq!(arguments.out, Some(PathBuf::from("/tmp/x")));
        assert_eq!(parse("bench").expect("no flags").rounds, 1);
        assert!(!arguments.full && parse("bench --full").expect("good flags").full);
        assert!(parse("bench --rounds 0").is_err());
        let help = parse("bench --help").expect_err("help").to_string();
        assert!(
            help.contains("gtod") && help.contains("--out <DIR>") && !help.contains("--own"),
            "{help}"
        );
    }
}
