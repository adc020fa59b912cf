//! The files that cargo builds for a release: the command, linked statically, and the library, for old distributions
//! too.

use std::path::PathBuf;
use std::process::Command;

use super::older_libc::{self, Version};
use super::{Release, stage};
use crate::metadata::TARGET;
use crate::tool;

/// The limit for the size of the command, which users copy to other machines.
const COMMAND_BYTES_MAX: u64 = 15_000_000;

/// The files of a release that come from source text.
pub struct Built {
    /// The command.
    pub command: PathBuf,
    /// `libnanoprobe.so`.
    pub shared: PathBuf,
    /// The version of glibc that `libnanoprobe.so` needs.
    pub glibc: Version,
    /// `libnanoprobe.a`, without debug information.
    pub archive: PathBuf,
    /// A folder of manual pages, compressed.
    pub manual: PathBuf,
    /// A folder of the shells' completions, each under the shell's name.
    pub completions: PathBuf,
}

/// Builds all of it.
///
/// # Errors
/// A build that fails, and an object that would not run everywhere.
pub fn all(release: &Release) -> Result<Built, String> {
    let command = command(release)?;
    let (shared, archive) = library(release)?;
    let manual = release.work("manual")?;
    tool::output(Command::new(&command).arg("manual").arg(&manual))?;
    for page in stage::files(&manual)? {
        stage::compress(release, &manual.join(page))?;
    }
    let completions = release.work("completions")?;
    for shell in ["bash", "zsh", "fish"] {
        let text = tool::output(Command::new(&command).args(["completions", shell]))?;
        stage::write(&completions.join(shell), text)?;
    }
    Ok(Built {
        glibc: older_libc::needed(&shared)?,
        command,
        shared,
        archive,
        manual,
        completions,
    })
}

/// Flags for rustc: no path of this machine is in the object.
fn flags(release: &Release, others: &[&str]) -> String {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(std::env::home_dir()?.join(".cargo")));
    let mut flags: Vec<String> = others.iter().map(|flag| (*flag).to_owned()).collect();
    // The last rule that fits is taken, and the target folder may lie within the workspace or elsewhere.
    for (from, to) in [
        (home, "cargo"),
        (Some(release.root.clone()), "nanoprobe"),
        (Some(release.target.clone()), "target"),
    ] {
        if let Some(from) = from {
            flags.push(format!("--remap-path-prefix={}={to}", from.display()));
        }
    }
    flags.join("\u{1f}")
}

fn command(release: &Release) -> Result<PathBuf, String> {
    let mut cargo = tool::cargo(&release.root);
    cargo
        .args(["build", "--profile", "shipped", "--locked", "-p", "nanoprobe"])
        .args(["--target", TARGET, "--target-dir"])
        .arg(&release.target)
        .env(
            "CARGO_ENCODED_RUSTFLAGS",
            flags(release, &["-C", "target-feature=+crt-static"]),
        );
    tool::run(&mut cargo)?;
    let command = release.target.join(TARGET).join("shipped/nanoprobe");
    let headers = tool::text(Command::new("readelf").args(["-lW", "--"]).arg(&command))?;
    if headers.contains("INTERP") {
        return Err(format!("{} needs a dynamic linker", command.display()));
    }
    let bytes = std::fs::metadata(&command).map_or(0, |status| status.len());
    if bytes > COMMAND_BYTES_MAX {
        return Err(format!(
            "{} has {bytes} bytes, more than {COMMAND_BYTES_MAX}",
            command.display()
        ));
    }
    let named = release.dist.join(format!("nanoprobe-{}-x86_64", release.version));
    stage::copy(&command, &named, 0o755)?;
    Ok(named)
}

fn library(release: &Release) -> Result<(PathBuf, PathBuf), String> {
    let linker = older_libc::linker(&release.work("linker")?)?;
    let mut cargo = tool::cargo(&release.root);
    cargo
        .args([
            "rustc",
            "--profile",
            "library",
            "--locked",
            "-p",
            "libnanoprobe",
            "--lib",
        ])
        .args(["--crate-type", "cdylib,staticlib", "--target", TARGET, "--target-dir"])
        .arg(&release.target)
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_LINKER", linker)
        .env("CARGO_ENCODED_RUSTFLAGS", flags(release, &[]));
    tool::run(&mut cargo)?;
    let built = release.target.join(TARGET).join("library");
    let work = release.work("library")?;
    let (shared, archive) = (work.join("libnanoprobe.so"), work.join("libnanoprobe.a"));
    stage::copy(&built.join("libnanoprobe.so"), &shared, 0o755)?;
    stage::copy(&built.join("libnanoprobe.a"), &archive, 0o644)?;
    let mut strip = Command::new("strip");
    tool::run(
        strip
            .args(["--strip-debug", "--enable-deterministic-archives"])
            .arg(&archive),
    )?;
    Ok((shared, archive))
}
