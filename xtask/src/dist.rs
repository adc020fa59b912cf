//! `cargo xtask dist`: everything that a release consists of, in `target/dist`. The same commit gives the same bytes.
//!
//! The order: the build, the layout of its files, the packages of these files.

mod archive;
mod build;
mod debian;
mod layout;
mod older_libc;
mod rpm;
mod sbom;
mod stage;

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{metadata, tool};

/// The facts that every part of a release needs.
struct Release {
    /// The workspace.
    root: PathBuf,
    /// Where cargo builds.
    target: PathBuf,
    /// Where the packages go.
    dist: PathBuf,
    /// The workspace's version.
    version: String,
    /// The commit's time in seconds: the time of every file in a package.
    epoch: String,
}

impl Release {
    /// A folder for temporary files, which is made if it is missing.
    fn work(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.target.join("dist-work").join(name);
        std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// A command that sees the commit's time and no difference between machines.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("SOURCE_DATE_EPOCH", &self.epoch)
            .env("DPKG_DEB_THREADS_MAX", "1")
            .env("TZ", "UTC")
            .env("LC_ALL", "C");
        command
    }
}

/// Builds everything.
///
/// # Errors
/// The part that could not be built, and the reason.
pub fn run(root: &Path) -> Result<(), String> {
    let packages = metadata::read(root)?;
    let command = packages.iter().find(|package| package.name == "nanoprobe");
    let version = command.ok_or("the workspace has no nanoprobe")?.version.clone();
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = std::path::absolute(target).map_err(|error| format!("the target folder: {error}"))?;
    let release = Release {
        root: root.to_owned(),
        dist: target.join("dist"),
        target,
        version,
        epoch: epoch(root)?,
    };
    for folder in [release.dist.clone(), release.work("")?] {
        stage::empty(&folder)?;
    }
    let built = build::all(&release)?;
    for name in ["nanoprobe", "libnanoprobe"] {
        let file = release.dist.join(format!("{name}-{}.cdx.json", release.version));
        let text = sbom::text(&release, &packages, name)?;
        std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    archive::make(&release, &built)?;
    debian::make(&release, &built)?;
    rpm::make(&release, &built)?;
    checksums(&release)
}

/// The time of the commit, or what the environment says.
fn epoch(root: &Path) -> Result<String, String> {
    if let Ok(epoch) = std::env::var("SOURCE_DATE_EPOCH") {
        return Ok(epoch);
    }
    let mut git = Command::new("git");
    let text = tool::text(git.current_dir(root).args(["log", "-1", "--format=%ct"]))?;
    Ok(text.trim().to_owned())
}

/// `SHA256SUMS`, as `sha256sum --check` reads it, and the size of each file for the reader.
fn checksums(release: &Release) -> Result<(), String> {
    let names = stage::files(&release.dist)?;
    let mut command = release.command("sha256sum");
    command.current_dir(&release.dist).arg("--").args(names);
    let text = tool::text(&mut command)?;
    let file = release.dist.join("SHA256SUMS");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))?;
    for name in stage::files(&release.dist)? {
        let bytes = std::fs::metadata(release.dist.join(&name)).map_or(0, |status| status.len());
        eprintln!("{bytes:>10}  {name}");
    }
    eprintln!("{} is complete", release.dist.display());
    Ok(())
}
