//! Two million cases, or as many as run in forty seconds, by all tactics, without a difference. `NANOPROBE_CASES` and
//! `NANOPROBE_SEED` change this.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::Command;

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

fn number(output: &str, what: &str) -> u64 {
    let line = output
        .lines()
        .find(|line| line.starts_with(what))
        .unwrap_or_else(|| panic!("no `{what}` in {output}"));
    line[what.len()..].trim_start_matches(':').trim().parse().unwrap()
}

#[test]
fn i3_relocated_instructions_do_what_they_do_in_place() {
    let output = Command::new(env!("CARGO_BIN_EXE_nanoprobe-equivalence"))
        .args(["--seconds", "40"])
        .output_in_time()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if let Some(reason) = text.lines().find_map(|line| line.strip_prefix("left out: ")) {
        return left_out("relocation against the processor", reason);
    }
    assert!(
        output.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert_eq!(number(&text, "failures"), 0, "{text}");
    let cases = number(&text, "cases:");
    assert!(cases >= 1000, "{text}");
    // Checks that every tactic was used often enough, and that the hard cases occurred: faults, traps, control flow.
    for (what, share) in [
        ("cases chosen", 8),
        ("cases jump", 16),
        ("cases run", 8),
        ("cases pun", 100),
        ("cases evict", 200),
        ("cases neighbour", 200),
        ("cases emulated", 16),
        ("cases boosted", 16),
        ("cases stepped", 200),
        ("sites emulated", 50),
        ("sites stepped", 200),
        ("points that call functions", 50),
        ("points behind", 50),
        ("cases that ended by a fault", 10),
        ("traps redirected", 10),
    ] {
        assert!(number(&text, what) > cases / share, "{what}: {text}");
    }
    let sequences = number(&text, "sequences of branches");
    assert!(sequences > cases / 2000, "{text}");
    // Few cases are excused.
    assert!(number(&text, "natively unstable") < cases / 100, "{text}");
    assert_eq!(number(&text, "points refused"), 0, "{text}");
}
