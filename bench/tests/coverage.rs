//! The coverage command on a small program (see small.s): exact numbers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;
use std::process::Command;

use nanoprobe_tests::in_time::InTime;

#[test]
fn every_class_is_counted_exactly() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let output = Command::new(env!("CARGO_BIN_EXE_coverage"))
        .arg(folder.join("small.elf"))
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    // Everything but the time is the same on every machine.
    let text: String = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| match line.rsplit_once(", ") {
            Some((rest, time)) if time.ends_with(" ms") => format!("{rest}\n"),
            _ => format!("{line}\n"),
        })
        .collect();
    let golden = folder.join("small.txt");
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&golden, &text).unwrap();
    }
    assert_eq!(text, std::fs::read_to_string(&golden).unwrap());
}

#[test]
fn a_file_that_is_no_program_is_named_in_the_error() {
    let output = Command::new(env!("CARGO_BIN_EXE_coverage"))
        .arg(file!())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(".."))
        .output_in_time()
        .unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("not an ELF file"));
}
