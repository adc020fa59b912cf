//! The packages in a whole Debian 11, of 2021: its dpkg, its glibc 2.31, its gcc 10.

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::{is_root_of_the_machine, left_out, need_command};

use crate::{dist, file, run, unshared};

const WHAT: &str = "the packages in Debian 11";

/// A new Debian 11 with a compiler, or the reason why there is none. `NANOPROBE_DEBIAN_11` may name one, which is
/// copied.
fn debian() -> Option<tempfile::TempDir> {
    if !is_root_of_the_machine() {
        left_out(WHAT, "only the machine's root can make it");
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    if let Some(made) = std::env::var_os("NANOPROBE_DEBIAN_11") {
        run(Command::new("cp")
            .arg("-a")
            .arg(Path::new(&made).join("."))
            .arg(folder.path()));
        return Some(folder);
    }
    let debootstrap = need_command(WHAT, "debootstrap")?;
    let log = folder.path().with_extension("log");
    let mut make = Command::new(debootstrap);
    make.args(["--variant=minbase", "--include=gcc,libc6-dev,pkg-config", "bullseye"]);
    make.arg(folder.path()).stdout(std::fs::File::create(&log).unwrap());
    let made = make.status_within(3 * nanoprobe_tests::LIMIT).unwrap();
    let said = std::fs::read_to_string(&log).unwrap();
    std::fs::remove_file(&log).unwrap();
    if !made.success() {
        let last = said.lines().last().unwrap_or_default();
        left_out(WHAT, &format!("debootstrap cannot make one: {last}"));
        return None;
    }
    Some(folder)
}

#[test]
fn an_older_distribution_installs_the_packages_and_counts_with_them() {
    let Some(dist) = dist(WHAT) else { return };
    let Some(root) = debian() else { return };
    for (begin, end) in [
        ("nanoprobe_", ".deb"),
        ("libnanoprobe0_", ".deb"),
        ("libnanoprobe-dev_", ".deb"),
    ] {
        run(Command::new("cp")
            .arg(file(&dist, begin, end))
            .arg(root.path().join("tmp")));
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/packages");
    for source in ["called.c", "counts.c"] {
        std::fs::copy(sources.join(source), root.path().join("tmp").join(source)).unwrap();
    }
    let within = |script: &str| {
        let script = format!("exec chroot . /bin/sh -ec '{script}'");
        let mut command = unshared(root.path(), &[], &script);
        run(command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"))
    };
    within("dpkg --install /tmp/*.deb >/dev/null");
    assert_eq!(within("dpkg --verify nanoprobe libnanoprobe0 libnanoprobe-dev"), "");
    // A program that the older root's gcc has compiled, with the older root's C library.
    let printed = within(
        "cc -O2 -o /tmp/called /tmp/called.c; nanoprobe -q -c /tmp/called -n \
         \"pid\\$target:a.out:called:entry,pid\\$target:libc:printf:entry { @[probefunc] = count(); }\"",
    );
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert_eq!(words, ["14999850000", "printf", "1", "called", "100000"]);
    // Programs of the library, which find the shared one as the loader does.
    for flags in [
        "$(pkg-config --cflags --libs nanoprobe)",
        "-static $(pkg-config --static --cflags --libs nanoprobe)",
    ] {
        let printed = within(&format!("cc -O2 -o /tmp/counts /tmp/counts.c {flags}; /tmp/counts"));
        assert_eq!(printed, "999000 1000\n", "{flags}");
    }
    within("dpkg --purge libnanoprobe-dev libnanoprobe0 nanoprobe >/dev/null");
    assert!(!root.path().join("usr/bin/nanoprobe").exists());
}
