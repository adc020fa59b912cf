//! Checks `nanoprobe bench` with known costs.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nanoprobe_tests::in_time::{EndsInTime, InTime};
use nanoprobe_tests::tracer::nanoprobe;

/// `nanoprobe bench` of the nanoprobe under test.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nanoprobe-bench"));
    command.args(arguments).env("NANOPROBE", nanoprobe());
    command
}

fn bench(arguments: &[&str]) -> String {
    let output = command(arguments).output_in_time().expect("running nanoprobe");
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
/// The bounds are wide, and must be. The known time is wall-clock time, measured at the
/// machine's best moment; the figure is the thread's processor time under any load, at any
/// clock rate. A harness that lost its baseline, halved or doubled the figure, or measured
/// another handler is still outside.
#[test]
fn a_handler_that_takes_a_known_time_comes_out_as_that_time() {
    let text = bench(&["--own", "spin", "--rounds", "7"]);
    assert!(!text.contains("failed"), "{text}");
    let (alone, probed) = (median(&text, "alone"), median(&text, "spin") - median(&text, "no-op"));
    assert!(alone > 100.0, "{text}");
    assert!((0.6..1.6).contains(&(probed / alone)), "{probed} of {alone}: {text}");
}

/// The abilities of each kind of probe are tried, and the table agrees with the header.
#[test]
fn the_table_of_functions_agrees_with_the_library() {
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

/// A missing tool gets a row with its package, beside the figures of the others.
#[test]
fn an_absent_tool_is_named_with_the_package_that_installs_it() {
    let output = command(&["--only", "library"])
        .env("NANOPROBE_PYTHON", "/nonexistent/python3")
        .output_in_time()
        .expect("running nanoprobe");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}");
    let line = |start: &str| {
        let line = text.lines().find(|line| line.starts_with(start));
        line.unwrap_or_else(|| panic!("{start} in {text}")).to_owned()
    };
    assert!(line("Frida").contains("not installed; `pip install frida` installs it"));
    for row in [
        "hand-made floor: ",
        "empty pre-handler: ",
        "return probe by the exits: ",
        "jumper probe: ",
    ] {
        for threads in ["1 thread ", "2 threads, each "] {
            let row = format!("{row}{threads}");
            if threads.starts_with('1') || processors() <= 2 {
                assert!(line(&row).contains("ns/call"), "{}", line(&row));
            }
        }
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Programs that run from a folder.
fn running_in(folder: &Path) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten();
    let programs = processes.filter_map(|process| std::fs::read_link(process.path().join("exe")).ok());
    let inside = programs.filter(|program| program.starts_with(folder));
    inside.map(|program| program.display().to_string()).collect()
}

/// Ctrl-C during a measurement leaves no folder and no process.
#[test]
fn an_interrupted_run_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut child = command(&["--only", "call"])
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn_in_group()
        .expect("starting nanoprobe");
    let start = Instant::now();
    // The wait is for one of the probed programs, not for the floor, which comes first.
    while !running_in(folder.path())
        .iter()
        .any(|program| program.ends_with("/loop"))
    {
        assert!(start.elapsed() < Duration::from_secs(300), "nothing was measured");
        assert!(child.try_wait().expect("waiting").is_none(), "it ended");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGINT).expect("a signal");
    let output = child.wait_with_output_in_time().expect("waiting");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("interrupted"), "{stderr}");
    assert!(output.stdout.is_empty());
    assert_eq!(running_in(folder.path()), Vec::<String>::new());
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .expect("the folder")
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
