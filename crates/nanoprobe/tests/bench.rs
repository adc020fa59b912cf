//! `nanoprobe bench` measured by what is known.

use std::process::Command;

fn bench(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .arg("bench")
        .args(arguments)
        .output()
        .expect("running nanoprobe");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn median(text: &str, row: &str) -> f64 {
    let mut samples: Vec<f64> = text
        .lines()
        .filter_map(|line| {
            line.strip_prefix("sample\t")?
                .strip_prefix(row)?
                .strip_prefix('\t')?
                .parse()
                .ok()
        })
        .collect();
    assert_eq!(samples.len(), 7, "{text}");
    samples.sort_by(f64::total_cmp);
    samples[3]
}

/// A handler that spends a known time costs that time more than one that does nothing.
///
/// The bounds are wide, and must be: the known time is that of the wall, measured at the machine's best moment, the
/// figure is of the thread's processor time under whatever load there is, at whatever clock rate. A harness that lost its
/// baseline, halved or doubled, or measured another handler, is still outside.
#[test]
fn a_handler_that_takes_a_known_time_comes_out_as_that_time() {
    let text = bench(&["--own", "spin", "--rounds", "7"]);
    assert!(!text.contains("failed"), "{text}");
    let (alone, probed) = (median(&text, "alone"), median(&text, "spin") - median(&text, "no-op"));
    assert!(alone > 100.0, "{text}");
    assert!((0.6..1.6).contains(&(probed / alone)), "{probed} of {alone}: {text}");
}

/// What each kind of probe can do is tried, and the table says what the header promises.
#[test]
fn the_table_of_functions_is_what_the_library_can_do() {
    let text = bench(&["--own", "functions"]);
    let answer = |question: &str, kind: &str| {
        let start = format!("fact\t{question}\t{kind}\t");
        let line = text.lines().find_map(|line| line.strip_prefix(&start));
        line.unwrap_or_else(|| panic!("{start} in {text}")).to_owned()
    };
    for kind in ["probe by trap", "jumper probe", "probe by jump", "return probe"] {
        assert_eq!(answer("at a function's entry (push)", kind), "yes");
        assert_eq!(answer("sees the function's arguments", kind), "yes");
        assert_eq!(answer("two at one place", kind), "yes");
    }
    for kind in ["probe by trap", "probe by jump"] {
        assert_eq!(answer("changes registers", kind), "yes");
        assert_eq!(answer("returns in the function's place", kind), "yes");
        assert_eq!(answer("a handler behind the instruction", kind), "yes");
    }
    assert!(answer("changes registers", "jumper probe").starts_with("no: "));
    assert_eq!(answer("changes the value returned", "return probe"), "yes");
    assert!(answer("at a branch (je)", "return probe").starts_with("no: "));
}

/// The files of `--out`, from the one experiment that takes no time.
#[test]
fn the_report_is_written_as_page_data_and_text() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_str().expect("a name");
    let text = bench(&["--only", "functions", "--rounds", "1", "--out", path]);
    assert!(text.contains("functions: seed 000, List 15"), "{text}");
    let file = |name: &str| std::fs::read_to_string(folder.path().join(name)).expect(name);
    assert!(file("report.html").contains("<h2 id=\"functions\">"));
    assert!(file("report.json").contains("\"functions\"") && file("report.json").contains("\"mitigations\""));
    assert!(file("samples.csv").starts_with("experiment,row,unit,round,value\n"));
    assert_eq!(file("report.txt"), text);
}
