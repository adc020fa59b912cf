//! Commands for developers: `cargo xtask tidy`, the tests by tiers, the packages.

mod deny;
mod dist;
mod metadata;
mod tidy;
mod tiers;
mod tool;

use std::path::PathBuf;
use std::process::ExitCode;

const USAGE: &str = "cargo xtask COMMAND
  tidy           the rules of the house, on every file that git knows
  tidy --allow   the same, and writes what is found into xtask/allowed.txt
  fast           the tests that touch no process: patch, lang, codegen, symbols, types, export, arena
  live           the tests on live programs
  all            everything, as .ci/run does
  deny           licences, sources and duplicates of the packages that we build of, by deny.toml
  dist           a release, in target/dist: the static command, .deb, .rpm, an archive, bills of materials, checksums
  bless          rewrites golden files; read the difference before it is committed";

/// The folder of the workspace.
fn root() -> PathBuf {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or(here.clone(), PathBuf::from)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["tidy"] => tidy::run(&root(), tidy::Allowances::Obey),
        ["tidy", "--allow"] => tidy::run(&root(), tidy::Allowances::Rewrite),
        ["deny"] => deny::run(&root()),
        ["dist"] => dist::run(&root()),
        [name] if let Some(tier) = tiers::named(name) => tiers::run(&root(), tier),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
