//! Which file belongs to which package, and where.
//!
//! There are three packages. A machine on which programs are traced needs the command only. A machine that runs a
//! program which uses the library needs the shared object, and two major versions of the shared object may stand side
//! by side. A machine that builds such a program needs the rest.
//!
//! The unit of services is of the command's package, and the folders of their programs are the administrator's.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::build::Built;
use super::{Release, stage};
use crate::tool;

/// One package of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Package {
    /// The command, its manual and completions, the documents.
    Command,
    /// The shared object.
    Library,
    /// The files with which a program is built.
    Development,
}

/// All packages.
pub const PACKAGES: [Package; 3] = [Package::Command, Package::Library, Package::Development];

/// A distribution's places for files, and its names for the packages.
#[derive(Clone, Copy, Debug)]
pub struct Distribution {
    /// The names of the packages, in the order of `PACKAGES`.
    pub names: [&'static str; 3],
    /// The folder below which the package's files are after the installation. It may be an expression that pkg-config
    /// evaluates.
    prefix: &'static str,
    /// The folder of libraries, below the prefix.
    libraries: &'static str,
    /// The path from the folder of libraries to the folder of headers.
    to_headers: &'static str,
    /// The folder in which zsh looks for completions, below the prefix.
    zsh: &'static str,
    /// The folder of the licences' texts, below the prefix.
    licences: &'static str,
}

/// Debian, and the distributions that derive from it.
pub const DEBIAN: Distribution = Distribution {
    names: ["nanoprobe", "libnanoprobe0", "libnanoprobe-dev"],
    prefix: "/usr",
    libraries: "lib/x86_64-linux-gnu",
    to_headers: "../../include",
    zsh: "share/zsh/vendor-completions",
    licences: "share/doc",
};

/// Fedora, Red Hat, openSUSE.
pub const RPM: Distribution = Distribution {
    names: ["nanoprobe", "libnanoprobe", "libnanoprobe-devel"],
    prefix: "/usr",
    libraries: "lib64",
    to_headers: "../include",
    zsh: "share/zsh/site-functions",
    licences: "share/licenses",
};

/// A folder anywhere, such as /usr/local.
pub const ANYWHERE: Distribution = Distribution {
    names: ["nanoprobe", "libnanoprobe", "libnanoprobe"],
    prefix: "${pcfiledir}/../..",
    libraries: "lib",
    to_headers: "../include",
    zsh: "share/zsh/site-functions",
    licences: "share/licenses",
};

impl Distribution {
    /// A package's name.
    pub fn name(&self, package: Package) -> &'static str {
        self.names[package as usize]
    }
}

/// Puts the files of a package below `prefix`.
///
/// # Errors
/// A file that is missing, or cannot be written.
pub fn fill(
    release: &Release,
    built: &Built,
    distribution: &Distribution,
    package: Package,
    prefix: &Path,
) -> Result<(), String> {
    let name = distribution.name(package);
    match package {
        Package::Command => command(release, built, distribution, prefix)?,
        Package::Library => {
            let libraries = prefix.join(distribution.libraries);
            stage::copy(&built.shared, &libraries.join(real_name(release)), 0o644)?;
            stage::link(&real_name(release), &libraries.join("libnanoprobe.so.0"))?;
        }
        Package::Development => development(release, built, distribution, prefix)?,
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let to = prefix.join(distribution.licences).join(name).join(licence);
        stage::copy(&release.root.join(licence), &to, 0o644)?;
    }
    if package == Package::Development {
        return Ok(());
    }
    let materials = format!("{}-{}.cdx.json", package_of_materials(package), release.version);
    let to = prefix.join("share/doc").join(name).join("sbom.cdx.json");
    stage::copy(&release.dist.join(materials), &to, 0o644)
}

fn package_of_materials(package: Package) -> &'static str {
    match package {
        Package::Command => "nanoprobe",
        Package::Library | Package::Development => "libnanoprobe",
    }
}

/// The shared object's own name; the soname is a link to it.
fn real_name(release: &Release) -> String {
    format!("libnanoprobe.so.{}", release.version)
}

fn command(release: &Release, built: &Built, distribution: &Distribution, prefix: &Path) -> Result<(), String> {
    stage::copy(&built.command, &prefix.join("bin/nanoprobe"), 0o755)?;
    pages(built, prefix, |page| !is_of_library(page))?;
    for (shell, to) in [
        ("bash", PathBuf::from("share/bash-completion/completions/nanoprobe")),
        ("zsh", Path::new(distribution.zsh).join("_nanoprobe")),
        ("fish", PathBuf::from("share/fish/vendor_completions.d/nanoprobe.fish")),
    ] {
        stage::copy(&built.completions.join(shell), &prefix.join(to), 0o644)?;
    }
    let unit = "nanoprobe@.service";
    let from = release.root.join("crates/nanoprobe/service").join(unit);
    stage::copy(&from, &prefix.join("lib/systemd/system").join(unit), 0o644)?;
    // The links between the documents work in the package as they work in the sources.
    let mut git = Command::new("git");
    let listed = tool::text(git.current_dir(&release.root).args(["ls-files", "--", "*.md"]))?;
    let documents = listed
        .lines()
        .filter(|path| path.starts_with("docs/") || !path.contains('/'));
    let folder = prefix.join("share/doc/nanoprobe");
    for document in documents {
        stage::copy(&release.root.join(document), &folder.join(document), 0o644)?;
    }
    Ok(())
}

fn development(release: &Release, built: &Built, distribution: &Distribution, prefix: &Path) -> Result<(), String> {
    let libraries = prefix.join(distribution.libraries);
    let sources = release.root.join("crates/libnanoprobe");
    stage::link("libnanoprobe.so.0", &libraries.join("libnanoprobe.so"))?;
    stage::copy(&built.archive, &libraries.join("libnanoprobe.a"), 0o644)?;
    let header = sources.join("include/nanoprobe.h");
    stage::copy(&header, &prefix.join("include/nanoprobe.h"), 0o644)?;
    for (template, to) in [
        ("nanoprobe.pc.in", "pkgconfig/nanoprobe.pc"),
        ("nanoprobe-config.cmake.in", "cmake/nanoprobe/nanoprobe-config.cmake"),
        (
            "nanoprobe-config-version.cmake.in",
            "cmake/nanoprobe/nanoprobe-config-version.cmake",
        ),
    ] {
        let template = sources.join(template);
        let text = std::fs::read_to_string(&template).map_err(|error| format!("{}: {error}", template.display()))?;
        let text = text
            .replace("@prefix@", distribution.prefix)
            .replace("@libdir@", &format!("${{prefix}}/{}", distribution.libraries))
            .replace("@headers@", distribution.to_headers);
        stage::write(&libraries.join(to), text)?;
    }
    pages(built, prefix, is_of_library)?;
    let document = release.root.join("docs/library.md");
    let name = distribution.name(Package::Development);
    stage::copy(
        &document,
        &prefix.join("share/doc").join(name).join("library.md"),
        0o644,
    )
}

fn is_of_library(page: &str) -> bool {
    page.starts_with("libnanoprobe.")
}

/// Copies manual pages to the folder of their section: the digit in `nanoprobe.1.gz`.
fn pages(built: &Built, prefix: &Path, wanted: impl Fn(&str) -> bool) -> Result<(), String> {
    for page in stage::files(&built.manual)?.iter().filter(|page| wanted(page)) {
        let section = page.trim_end_matches(".gz").rsplit('.').next().unwrap_or_default();
        let folder = prefix.join("share/man").join(format!("man{section}"));
        stage::copy(&built.manual.join(page), &folder.join(page), 0o644)?;
    }
    Ok(())
}
