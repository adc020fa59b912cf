//! The packages for Fedora, Red Hat and openSUSE, made by rpmbuild.

use std::path::Path;

use super::build::Built;
use super::layout::{PACKAGES, Package, RPM, fill};
use super::{Release, stage};
use crate::tool;

/// Definitions that make the bytes independent of the machine, of the time, and of the macros that a distribution sets.
const MACROS: [&str; 12] = [
    "use_source_date_epoch_as_buildtime 1",
    "clamp_mtime_to_source_date_epoch 1",
    "_buildhost nanoprobe",
    "_build_id_links none",
    "debug_package %{nil}",
    // The files in the package are not compressed, stripped or compiled.
    "__os_install_post %{nil}",
    "__spec_install_pre %{nil}",
    // xz: the rpm of Red Hat 8 can read it, and it makes the smallest package.
    "_binary_payload w6.xzdio",
    "_source_payload w6.xzdio",
    "_rpmfilename %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm",
    // The folders that Red Hat uses, on whichever distribution rpmbuild runs.
    "_docdir /usr/share/doc",
    "_defaultlicensedir /usr/share/licenses",
];

/// Makes all packages.
///
/// # Errors
/// A file that is missing, or a program that fails.
pub fn make(release: &Release, built: &Built) -> Result<(), String> {
    for package in PACKAGES {
        let name = RPM.name(package);
        let work = release.work("rpm")?;
        let folder = work.join("files").join(name);
        fill(release, built, &RPM, package, &folder.join("usr"))?;
        let spec = work.join(format!("{name}.spec"));
        stage::write(&spec, text(release, package, &folder)?)?;
        let mut pack = release.command("rpmbuild");
        pack.args(["--quiet", "-bb", "--target", "x86_64-linux"]);
        for (key, value) in [("_topdir", work.join("top")), ("_rpmdir", release.dist.clone())] {
            pack.arg("--define").arg(format!("{key} {}", value.display()));
        }
        for one in MACROS {
            pack.args(["--define", one]);
        }
        pack.arg("--buildroot").arg(work.join("root").join(name));
        tool::output(pack.arg(&spec))?;
    }
    Ok(())
}

fn text(release: &Release, package: Package, folder: &Path) -> Result<String, String> {
    let version = &release.version;
    let library = RPM.name(Package::Library);
    let (needs, summary, description) = match package {
        Package::Command => (
            // Nothing but the kernel is required.
            "AutoReqProv: no\n".to_owned(),
            "Dynamic tracing of running programs",
            "Probes of a running program by jumps in its text, at nanoseconds each, in DTrace's language D.",
        ),
        Package::Library => (
            String::new(),
            "Kprobes for a program's own code",
            "Probes, return probes, hooks and watchpoints in the program that loads the library.",
        ),
        Package::Development => (
            format!("Requires: {library}%{{?_isa}} = {version}\n"),
            "Kprobes for a program's own code: development files",
            "The header, the archive, and the files of pkg-config and CMake.",
        ),
    };
    let scripts = if package == Package::Library {
        "%post -p /sbin/ldconfig\n%postun -p /sbin/ldconfig\n"
    } else {
        ""
    };
    let files: Vec<String> = stage::files(folder)?.iter().map(|file| listed(file)).collect();
    Ok(format!(
        "Name: {}\nVersion: {version}\nRelease: 1\nSummary: {summary}\nLicense: Apache-2.0 OR MIT\n{needs}\n\
         %description\n{description}\n\n\
         %install\nrm -rf %{{buildroot}}\nmkdir -p %{{buildroot}}\ncp -a '{}/.' %{{buildroot}}\n\n\
         {scripts}%files\n%defattr(-,root,root)\n{}\n",
        RPM.name(package),
        folder.display(),
        files.join("\n")
    ))
}

/// The line for a file in the list of the package's files.
fn listed(file: &str) -> String {
    let kind = if file.starts_with("usr/share/doc/") {
        "%doc "
    } else if file.starts_with("usr/share/licenses/") {
        "%license "
    } else {
        ""
    };
    format!("{kind}/{file}")
}
