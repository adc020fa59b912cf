//! The packages, installed by dpkg and rpm into roots of their own.

use std::process::Command;

use nanoprobe_tests::left_out::{left_out, need_command};

use crate::{dist, file, run};

/// In a root of its own, without a C library.
#[test]
fn dpkg_installs_and_removes_the_command() {
    let what = "installing by dpkg";
    let Some(dist) = dist(what) else { return };
    let Some(dpkg) = need_command(what, "dpkg") else { return };
    if !nix::unistd::geteuid().is_root() {
        return left_out(what, "only root can");
    }
    let root = tempfile::tempdir().unwrap();
    let database = root.path().join("var/lib/dpkg");
    for folder in ["info", "updates", "triggers"] {
        std::fs::create_dir_all(database.join(folder)).unwrap();
    }
    std::fs::write(database.join("status"), "").unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&dpkg);
        command.arg(format!("--root={}", root.path().display())).args(arguments);
        command
    };
    let package = file(&dist, "nanoprobe_", ".deb");
    run(&mut command(&["-i", package.to_str().unwrap()]));
    let installed = root.path().join("usr/bin/nanoprobe");
    run(Command::new(&installed).arg("--version"));
    assert_eq!(run(&mut command(&["--verify", "nanoprobe"])), "");
    run(&mut command(&["--purge", "nanoprobe"]));
    assert!(!installed.exists());
}

/// The command's package needs no other one. The library's names the versions of glibc that it needs.
#[test]
fn rpm_installs_and_removes_the_packages() {
    let what = "installing by rpm";
    let Some(dist) = dist(what) else { return };
    let Some(rpm) = need_command(what, "rpm") else { return };
    if !nix::unistd::geteuid().is_root() {
        return left_out(what, "only root can");
    }
    let root = tempfile::tempdir().unwrap();
    let command = |arguments: &[&str]| {
        let mut command = Command::new(&rpm);
        command.arg("--root").arg(root.path()).args(arguments);
        // Debian's rpm looks for its database in the home folder.
        command.args(["--define", "_dbpath /var/lib/rpm"]);
        command
    };
    run(&mut command(&["--initdb"]));
    let packages = ["nanoprobe-0", "libnanoprobe-0", "libnanoprobe-devel-0"].map(|name| file(&dist, name, ".rpm"));
    let [tracer, library, development] = packages.each_ref().map(|path| path.to_str().unwrap());
    run(&mut command(&["--install", "--nosignature", tracer]));
    let installed = root.path().join("usr/bin/nanoprobe");
    run(Command::new(&installed).arg("--version"));
    // The root has no glibc and no ldconfig.
    run(&mut command(&[
        "--install",
        "--nosignature",
        "--nodeps",
        "--noscripts",
        library,
        development,
    ]));
    for name in ["nanoprobe", "libnanoprobe", "libnanoprobe-devel"] {
        assert_eq!(run(&mut command(&["--verify", "--nodeps", name])), "", "{name}");
    }
    let needs = run(&mut command(&["--query", "--requires", "libnanoprobe"]));
    assert!(needs.contains("libc.so.6(GLIBC_2.2"), "{needs}");
    let needs = run(&mut command(&["--query", "--requires", "nanoprobe"]));
    assert!(needs.lines().all(|line| line.starts_with("rpmlib(")), "{needs}");
    run(&mut command(&[
        "--erase",
        "--noscripts",
        "nanoprobe",
        "libnanoprobe",
        "libnanoprobe-devel",
    ]));
    assert!(!installed.exists());
}
