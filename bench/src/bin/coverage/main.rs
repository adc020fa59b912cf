//! The coverage table. The entry, the exits and all instructions of every function of real programs are planned as a
//! session would. The table shows the share of each tactic, and the reasons of traps and of refusals.
//!
//!     cargo run --release -p nanoprobe-bench --bin coverage [-- [--markdown] [--kind WORD] [FILE...]]
//!
//! Without files it takes twelve programs: some of the machine's, and some that it compiles.
//! Missing ones are named. `--markdown` prints the content of docs/coverage.md, when all is
//! measured. Nothing is executed or traced: see [`plan_all`] for the model.

mod programs;
mod table;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nanoprobe_session::{Wanted, plan_all};
use nanoprobe_symbols::files;

use crate::programs::Program;
use crate::table::{Row, Table};

fn main() -> Result<()> {
    let mut markdown = false;
    let mut kinds = vec![Wanted::Entries, Wanted::Exits, Wanted::Instructions];
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--markdown" => markdown = true,
            "--kind" => {
                let word = arguments
                    .next()
                    .context("--kind needs entries, exits or instructions")?;
                kinds.retain(|kind| table::name(*kind) == word);
            }
            _ if argument.starts_with("--") => {
                bail!("unknown argument {argument}; there are --markdown, --kind WORD and files")
            }
            _ => paths.push(argument.into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let programs = if paths.is_empty() {
        programs::all(folder.path())
    } else {
        paths.into_iter().map(Program::named_by_path).collect()
    };
    let mut table = Table::default();
    for program in &programs {
        match &program.file {
            Ok(path) => {
                for kind in &kinds {
                    let row = measure(program, path, *kind)?;
                    if !markdown {
                        print!("{}", row.text());
                    }
                    table.rows.push(row);
                }
            }
            Err(reason) => {
                eprintln!("{}: {reason}", program.name);
                table.missing.push(format!("{}: {reason}", program.name));
            }
        }
    }
    if markdown {
        print!("{}", table.markdown());
    }
    Ok(())
}

fn measure(program: &Program, path: &Path, kind: Wanted) -> Result<Row> {
    let module = files::open(path, path).with_context(|| format!("reading {}", path.display()))?;
    Ok(Row {
        program: program.name.clone(),
        kind,
        coverage: plan_all(module, kind),
    })
}
