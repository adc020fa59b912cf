//! A tar archive of everything, for a distribution that has neither dpkg nor rpm: unpack it anywhere.

use super::build::Built;
use super::layout::{ANYWHERE, PACKAGES, fill};
use super::{Release, stage};
use crate::tool;

/// Makes the archive.
///
/// # Errors
/// A file that is missing, or a program that fails.
pub fn make(release: &Release, built: &Built) -> Result<(), String> {
    let work = release.work("archive")?;
    let name = format!("nanoprobe-{}-x86_64-linux", release.version);
    for package in PACKAGES {
        fill(release, built, &ANYWHERE, package, &work.join(&name))?;
    }
    let file = work.join("all.tar");
    let mut tar = release.command("tar");
    tar.current_dir(&work)
        .args([
            "--sort=name",
            "--owner=0",
            "--group=0",
            "--numeric-owner",
            "--format=gnu",
        ])
        .arg(format!("--mtime=@{}", release.epoch))
        .arg("-cf")
        .args([&file, name.as_ref() as &std::path::Path]);
    tool::run(&mut tar)?;
    stage::compress(release, &file)?;
    stage::copy(
        &file.with_extension("tar.gz"),
        &release.dist.join(format!("{name}.tar.gz")),
        0o644,
    )
}
