//! The measured comparison by itself: `nanoprobe bench` without the command, for a nanoprobe that was built beside it.
//!
//!     cargo run --release -p nanoprobe-bench [-- --rounds N] [--json FILE] [--quick] [--only WORD] [--full]

use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use nanoprobe_bench::{Options, data, run, text};

fn main() -> Result<()> {
    let mut options = Options {
        rounds: 3,
        only: None,
        full: false,
        nanoprobe: nanoprobe()?,
        interrupted: || false,
    };
    let mut json = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().with_context(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--rounds" => options.rounds = value()?.parse().context("--rounds needs a number")?,
            "--json" => json = Some(value()?),
            "--only" => options.only = Some(value()?),
            "--full" => options.full = true,
            "--quick" => options.rounds = 1,
            _ => bail!("unknown argument {argument}; there are --rounds N, --quick, --only WORD, --full, --json FILE"),
        }
    }
    let report = run(&options, &|experiment, step| eprintln!("{experiment}: {step}"))?;
    print!("{}", text::text(&report));
    if let Some(path) = json {
        std::fs::write(&path, data::json(&report)).with_context(|| format!("writing {path}"))?;
    }
    Ok(())
}

/// `NANOPROBE`, or the one beside this executable, which is built where it is not there.
fn nanoprobe() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("NANOPROBE") {
        return Ok(PathBuf::from(path));
    }
    let executable = std::env::current_exe()?;
    let folder = executable.parent().context("a folder")?;
    let beside = folder.join("nanoprobe");
    if !beside.is_file() {
        let mut build = std::process::Command::new("cargo");
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
