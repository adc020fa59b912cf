//! `nanoprobe diff A B`: the changes from one recorded profile to another.

use std::process::ExitCode;

use clap::Parser;
use nanoprobe_export::profile::{self, Comparison};

use crate::output::message;

/// The flags of `nanoprobe diff`.
#[derive(Parser, Debug)]
#[command(
    name = "diff",
    disable_help_flag = true,
    about = "Compares two recorded profiles: which functions take more of the samples, bytes or time, and which less.",
    override_usage = "nanoprobe diff [--flamegraph file] [--json] [--kind name] [--no-normalize] [--rows n] before after"
)]
pub struct Flags {
    /// The first profile, as --folded, --pprof or --speedscope wrote it
    pub before: String,
    /// The second profile
    pub after: String,
    /// Draw the second profile as a flame graph: red frames have more than in the first, blue ones less
    #[arg(long = "flamegraph", value_name = "file.svg|file.html")]
    pub flame_graph: Option<String>,
    /// Print all functions that have changed as one JSON object
    #[arg(long = "json")]
    pub json: bool,
    /// The profile of a file with several: the name of its aggregation; without it, the first
    #[arg(long = "kind", value_name = "name")]
    pub kind: Option<String>,
    /// Compare the values themselves, and not their shares of all values
    #[arg(long = "no-normalize")]
    pub no_normalize: bool,
    /// The most rows of a table
    #[arg(long = "rows", value_name = "n", default_value_t = 20)]
    pub rows: usize,
    /// Print this help
    #[arg(long = "help", short = 'h', action = clap::ArgAction::Help)]
    pub help: Option<bool>,
}

/// Compares, draws, and yields the text to print.
pub fn run(flags: &Flags) -> Result<String, ExitCode> {
    let failed = |error: &dyn std::fmt::Display| {
        message(error);
        ExitCode::FAILURE
    };
    if let Some(path) = &flags.flame_graph {
        profile::check(path).map_err(|error| failed(&error))?;
    }
    let paths = [&*flags.before, &*flags.after];
    let found = Comparison::of(paths, flags.kind.as_deref(), !flags.no_normalize);
    let comparison = found.map_err(|error| failed(&error))?;
    if let Some(path) = &flags.flame_graph {
        comparison.draw(path).map_err(|error| failed(&error))?;
    }
    Ok(match flags.json {
        true => format!("{}\n", comparison.json()),
        false => comparison.text(flags.rows),
    })
}
