//! The packages for Debian and Ubuntu, made by dpkg-deb.

use std::path::Path;

use super::build::Built;
use super::layout::{DEBIAN, PACKAGES, Package, fill};
use super::{Release, stage};
use crate::tool;

/// Makes all packages.
///
/// # Errors
/// A file that is missing, or a program that fails.
pub fn make(release: &Release, built: &Built) -> Result<(), String> {
    for package in PACKAGES {
        let name = DEBIAN.name(package);
        let folder = release.work("debian")?.join(name);
        fill(release, built, &DEBIAN, package, &folder.join("usr"))?;
        documents(release, name, &folder)?;
        control(release, built, package, &folder)?;
        let file = format!("{name}_{}_amd64.deb", release.version);
        let mut pack = release.command("dpkg-deb");
        // xz, because the dpkg of Debian 11 does not know zstd.
        pack.args(["--root-owner-group", "-Zxz", "--build"]).arg(&folder);
        tool::output(pack.arg(release.dist.join(file)))?;
    }
    Ok(())
}

/// The files that Debian demands of every package: the copyright and the changelog.
fn documents(release: &Release, name: &str, folder: &Path) -> Result<(), String> {
    let documents = folder.join("usr/share/doc").join(name);
    let read = |file: &str| {
        let path = release.root.join(file);
        std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let mit = read("LICENSE-MIT")?;
    let indented: Vec<String> = mit.lines().map(paragraph).collect();
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\
         Upstream-Name: nanoprobe\n\
         Comment: The packages that it is built of, and their licences, are in sbom.cdx.json. The command contains\n \
         glibc, of LGPL-2.1-or-later; `cargo xtask dist` links it anew with another one.\n\n\
         Files: *\nCopyright: 2026 the nanoprobe authors\nLicense: Apache-2.0 or Expat\n\n\
         License: Apache-2.0\n The text is in /usr/share/common-licenses/Apache-2.0.\n\n\
         License: Expat\n{}\n",
        indented.join("\n")
    );
    stage::write(&documents.join("copyright"), copyright)?;
    // `copyright` has the text of MIT, and Debian itself has the text of Apache.
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let file = documents.join(licence);
        std::fs::remove_file(&file).map_err(|error| format!("{}: {error}", file.display()))?;
    }
    let time = release
        .command("date")
        .args(["-R", "-d", &format!("@{}", release.epoch)])
        .output();
    let time = time.map_err(|error| format!("cannot start date: {error}"))?.stdout;
    let changelog = format!(
        "nanoprobe ({}) stable; urgency=medium\n\n  * The changes are in CHANGELOG.md of the package nanoprobe.\n\n \
         -- {}  {}",
        release.version,
        MAINTAINER,
        String::from_utf8_lossy(&time)
    );
    let file = documents.join("changelog");
    stage::write(&file, changelog)?;
    stage::compress(release, &file)
}

/// An address that does not exist: packages that a project makes itself have no maintainer in Debian.
const MAINTAINER: &str = "the nanoprobe authors <nanoprobe@example.org>";

/// One line of a field of several lines in a control file.
fn paragraph(line: &str) -> String {
    let line = line.trim_end();
    if line.is_empty() {
        " .".to_owned()
    } else {
        format!(" {line}")
    }
}

fn control(release: &Release, built: &Built, package: Package, folder: &Path) -> Result<(), String> {
    let name = DEBIAN.name(package);
    let version = &release.version;
    let (major, minor, _) = built.glibc;
    let (section, depends, short, long) = match package {
        Package::Command => (
            "devel",
            String::new(),
            "dynamic tracing of running programs",
            "Probes of a running program by jumps in its text, at nanoseconds each, in\n DTrace's language D. The \
             program is linked statically and needs no other file.",
        ),
        Package::Library => (
            "libs",
            format!("Depends: libc6 (>= {major}.{minor}), libgcc-s1 | libgcc1\n"),
            "kprobes for a program's own code (shared library)",
            "Probes, return probes, hooks and watchpoints of functions and instructions in\n the program that loads \
             the library.",
        ),
        Package::Development => (
            "libdevel",
            format!("Depends: {} (= {version}), libc6-dev\n", DEBIAN.name(Package::Library)),
            "kprobes for a program's own code (development files)",
            "The header, the archive, and the files of pkg-config and CMake for programs\n that use libnanoprobe.",
        ),
    };
    let same = if package == Package::Command { "foreign" } else { "same" };
    let files = stage::files(folder)?;
    let bytes = files
        .iter()
        .filter_map(|file| std::fs::symlink_metadata(folder.join(file)).ok());
    let kilobytes: u64 = bytes.map(|status| status.len().div_ceil(1024)).sum();
    let text = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: {MAINTAINER}\n\
         Installed-Size: {kilobytes}\n{depends}Section: {section}\nPriority: optional\nMulti-Arch: {same}\n\
         Description: {short}\n {long}\n"
    );
    let mut sums = release.command("md5sum");
    let regular = files.iter().filter(|file| !folder.join(file).is_symlink());
    let sums = tool::text(sums.current_dir(folder).arg("--").args(regular))?;
    stage::write(&folder.join("DEBIAN/control"), text)?;
    stage::write(&folder.join("DEBIAN/md5sums"), sums)?;
    if package == Package::Library {
        let dependency = format!("libnanoprobe 0 {name} (>= {version})\n");
        stage::write(&folder.join("DEBIAN/shlibs"), dependency)?;
        stage::write(&folder.join("DEBIAN/triggers"), "activate-noawait ldconfig\n")?;
    }
    Ok(())
}
