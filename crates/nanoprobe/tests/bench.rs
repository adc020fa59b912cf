//! `nanoprobe bench` hands over to the program beside it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime as _;
use nanoprobe_tests::program::copy_program;

/// `nanoprobe bench` of a copy of nanoprobe in a folder.
fn bench_in(folder: &Path) -> Output {
    let nanoprobe = folder.join("nanoprobe");
    copy_program(Path::new(env!("CARGO_BIN_EXE_nanoprobe")), &nanoprobe);
    let mut command = Command::new(nanoprobe);
    command.args(["bench", "--only", "two words", "--help"]);
    command.output_in_time().expect("running nanoprobe")
}

#[test]
fn the_program_beside_it_gets_the_arguments_and_the_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/bin/sh\nprintf '%s\\n' \"$NANOPROBE\" \"$@\"\n").expect("a script");
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("its permissions");
    copy_program(&script, &folder.path().join("nanoprobe-bench"));
    let output = bench_in(folder.path());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (path, arguments) = text.split_once('\n').expect("a line");
    let folder = folder.path().canonicalize().expect("a path");
    assert_eq!(Path::new(path), folder.join("nanoprobe"));
    assert_eq!(arguments, "--only\ntwo words\n--help\n");
}

#[test]
fn a_missing_bench_program_is_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = bench_in(folder.path());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("/nanoprobe-bench") && stderr.contains("cargo build --release -p nanoprobe-bench"),
        "{stderr}"
    );
}
