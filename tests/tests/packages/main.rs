//! The files that `cargo xtask dist` makes, unpacked, installed and started. `NANOPROBE_DIST` names their folder.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod consumers;
mod empty_root;
mod installed;
mod older_root;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::{left_out, need_command};

/// The folder of the release, or a message that the test is left out.
fn dist(what: &str) -> Option<PathBuf> {
    let folder = std::env::var_os("NANOPROBE_DIST").map(|folder| std::fs::canonicalize(folder).unwrap());
    if folder.is_none() {
        left_out(what, "NANOPROBE_DIST names no folder that cargo xtask dist made");
    }
    folder
}

/// The only file of the release whose name begins and ends like this.
fn file(dist: &Path, begin: &str, end: &str) -> PathBuf {
    let entries = std::fs::read_dir(dist).unwrap().map(|entry| entry.unwrap().path());
    let fits = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        name.starts_with(begin) && name.ends_with(end)
    };
    let found: Vec<PathBuf> = entries.filter(fits).collect();
    assert_eq!(found.len(), 1, "{begin}*{end}: {found:?}");
    found.into_iter().next().unwrap()
}

/// The output of a command, which must have succeeded.
fn text(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn run(command: &mut Command) -> String {
    text(&command.output_in_time().unwrap())
}

/// A kind of package, and the names that it has.
struct Kind {
    name: &'static str,
    /// The begin and end of the files, for the command, the library and its development files.
    files: &'static [(&'static str, &'static str)],
    libraries: &'static str,
    zsh: &'static str,
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "deb",
        files: &[
            ("nanoprobe_", ".deb"),
            ("libnanoprobe0_", ".deb"),
            ("libnanoprobe-dev_", ".deb"),
        ],
        libraries: "usr/lib/x86_64-linux-gnu",
        zsh: "usr/share/zsh/vendor-completions/_nanoprobe",
    },
    Kind {
        name: "rpm",
        files: &[
            ("nanoprobe-0", ".rpm"),
            ("libnanoprobe-0", ".rpm"),
            ("libnanoprobe-devel-0", ".rpm"),
        ],
        libraries: "usr/lib64",
        zsh: "usr/share/zsh/site-functions/_nanoprobe",
    },
    Kind {
        name: "tar",
        files: &[("nanoprobe-0", ".tar.gz")],
        libraries: "usr/lib",
        zsh: "usr/share/zsh/site-functions/_nanoprobe",
    },
];

impl Kind {
    /// Unpacks all packages of the kind into a new folder.
    fn unpack(&self, dist: &Path) -> Option<tempfile::TempDir> {
        let folder = tempfile::tempdir().unwrap();
        for (begin, end) in self.files {
            let file = file(dist, begin, end);
            let quoted = |path: &Path| format!("'{}'", path.display());
            let line = match self.name {
                "deb" => format!("dpkg-deb -x {} .", quoted(&file)),
                "rpm" => format!("rpm2cpio {} | cpio -idm --quiet", quoted(&file)),
                _ => format!("mkdir usr && tar -xzf {} -C usr --strip-components=1", quoted(&file)),
            };
            let needed: &[&str] = match self.name {
                "deb" => &["dpkg-deb"],
                "rpm" => &["rpm2cpio", "cpio"],
                _ => &["tar"],
            };
            for tool in needed {
                need_command(self.name, tool)?;
            }
            run(Command::new("sh").args(["-ec", &line]).current_dir(folder.path()));
        }
        Some(folder)
    }
}

#[test]
fn what_each_package_has_starts_from_where_it_is_unpacked() {
    let Some(dist) = dist("packages") else { return };
    for kind in &KINDS {
        let Some(folder) = kind.unpack(&dist) else { continue };
        let at = |path: &str| folder.path().join(path);
        let printed = run(Command::new(at("usr/bin/nanoprobe")).arg("--version"));
        assert!(printed.starts_with("nanoprobe: "), "{}: {printed}", kind.name);
        for path in [
            "usr/share/man/man1/nanoprobe.1.gz",
            "usr/lib/systemd/system/nanoprobe@.service",
            "usr/share/man/man3/libnanoprobe.3.gz",
            "usr/share/bash-completion/completions/nanoprobe",
            "usr/share/fish/vendor_completions.d/nanoprobe.fish",
            "usr/share/doc/nanoprobe/README.md",
            "usr/share/doc/nanoprobe/docs/install.md",
            "usr/share/doc/nanoprobe/sbom.cdx.json",
            "usr/include/nanoprobe.h",
            kind.zsh,
        ] {
            assert!(at(path).is_file(), "{}: {path}", kind.name);
        }
        for name in [
            "libnanoprobe.so",
            "libnanoprobe.so.0",
            "libnanoprobe.a",
            "pkgconfig/nanoprobe.pc",
        ] {
            let path = at(kind.libraries).join(name);
            assert!(path.is_file(), "{}: {}", kind.name, path.display());
        }
        let licences: Vec<bool> = match kind.name {
            "deb" => ["nanoprobe", "libnanoprobe0", "libnanoprobe-dev"]
                .map(|name| at(&format!("usr/share/doc/{name}/copyright")).is_file())
                .to_vec(),
            _ => ["LICENSE-MIT", "LICENSE-APACHE"]
                .map(|name| at(&format!("usr/share/licenses/nanoprobe/{name}")).is_file())
                .to_vec(),
        };
        assert!(licences.iter().all(|there| *there), "{}: {licences:?}", kind.name);
    }
}

/// A script of the shell in a folder, with mounts and processes of its own, and /proc mounted in `proc`.
fn unshared(folder: &Path, flags: &[&str], script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(flags);
    command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]);
    let mount = "if [ -d proc ]; then mount -t proc proc proc; fi";
    let script = format!("{mount}; {script}");
    command.args(["sh", "-ec", &script]).current_dir(folder);
    command
}

#[test]
fn the_checksums_are_those_of_all_other_files() {
    let Some(dist) = dist("checksums") else { return };
    run(Command::new("sha256sum")
        .args(["--check", "--strict", "SHA256SUMS"])
        .current_dir(&dist));
    let listed = std::fs::read_to_string(dist.join("SHA256SUMS"))
        .unwrap()
        .lines()
        .count();
    assert_eq!(std::fs::read_dir(&dist).unwrap().count(), listed + 1);
}

/// The second build is of a copy of the sources, in another folder. It takes minutes, so it is made only if
/// `NANOPROBE_DIST_TWICE` asks for it.
#[test]
fn two_builds_of_a_commit_give_the_same_bytes() {
    let what = "a second build of the packages";
    let Some(dist) = dist(what) else { return };
    if std::env::var_os("NANOPROBE_DIST_TWICE").is_none() {
        return left_out(what, "NANOPROBE_DIST_TWICE is not set");
    }
    let Some(git) = need_command(what, "git") else { return };
    let workspace = std::fs::canonicalize(Path::new(env!("CARGO_MANIFEST_DIR")).join("..")).unwrap();
    let again = tempfile::tempdir().unwrap();
    let sources = again.path().join("sources");
    run(Command::new(&git)
        .args(["clone", "--quiet", "--shared"])
        .arg(&workspace)
        .arg(&sources));
    // Changes that are not committed were in the first build, too.
    let changed = run(Command::new(&git)
        .args(["diff", "HEAD", "--name-only"])
        .current_dir(&workspace));
    for name in changed.lines() {
        let (from, to) = (workspace.join(name), sources.join(name));
        match from.exists() {
            true => drop(std::fs::copy(from, to).unwrap()),
            false => std::fs::remove_file(to).unwrap(),
        }
    }
    let mut build = Command::new(env!("CARGO"));
    build.args(["xtask", "dist"]).current_dir(&sources);
    build.env("CARGO_TARGET_DIR", again.path().join("target"));
    let status = build.status_within(12 * nanoprobe_tests::LIMIT).unwrap();
    assert!(status.success());
    let sums = |folder: &Path| {
        let text = std::fs::read_to_string(folder.join("SHA256SUMS")).unwrap();
        let lines = text.lines().map(|line| line.split_once("  ").unwrap());
        lines
            .map(|(sum, name)| (name.to_owned(), sum.to_owned()))
            .collect::<BTreeMap<String, String>>()
    };
    assert_eq!(sums(&dist), sums(&again.path().join("target/dist")));
}
