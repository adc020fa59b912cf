//! The output of a service: moved, rotated, bounded, and lost.

use std::path::Path;

use nanoprobe_tests::results::table;
use nix::sys::signal::Signal;

use crate::copy;
use crate::manager::Service;
use crate::told::{BY_PROCESS, Told};

/// Prints a number for each call: 1, 2, ...
const NUMBERED: &str = "pid$target:a.out:called:entry { printf(\"%d\\n\", ++calls); }";

fn numbers(path: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(path).unwrap();
    // An empty line ends the output.
    let lines = text.lines().filter(|line| !line.is_empty());
    lines.map(|line| line.parse().expect(line)).collect()
}

/// As logrotate does.
#[test]
fn a_hangup_opens_the_output_anew_and_no_record_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "hung-up");
    let out = folder.path().join("out");
    let exe = path.to_str().unwrap();
    let mut told = Told::of(&path);
    let mut service = Service::start(&["-q", "--exe", exe, "-o", out.to_str().unwrap(), "-n", NUMBERED]);
    service.wait_for_processes(1);
    let mut all = Vec::new();
    for round in 0..3 {
        told.tell("call 1000");
        let moved = folder.path().join(format!("moved{round}"));
        std::fs::rename(&out, &moved).unwrap();
        told.tell("call 1000");
        service.running.signal(Signal::SIGHUP);
        service.running.wait_until("a new file", |_| out.exists());
        all.push(moved);
    }
    told.tell("call 1000");
    service.end();
    told.end();
    all.push(out);
    let read: Vec<Vec<u64>> = all.iter().map(|path| numbers(path)).collect();
    // What was recorded before the file was moved is there.
    assert!(
        read.iter().all(|numbers| numbers.len() >= 1000),
        "{:?}",
        read.iter().map(Vec::len).collect::<Vec<_>>()
    );
    assert_eq!(read.concat(), (1..=7000).collect::<Vec<u64>>());
}

#[test]
fn a_rotated_output_is_bounded_and_whole() {
    const BYTES: u64 = 8192;
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "rotated");
    let out = folder.path().join("out");
    let exe = path.to_str().unwrap();
    let mut told = Told::of(&path);
    let arguments = ["-q", "--exe", exe, "-o", out.to_str().unwrap(), "-n", NUMBERED];
    let mut service = Service::start(&[&arguments[..], &["-x", "rotate=8k,3"]].concat());
    service.wait_for_processes(1);
    for _ in 0..10 {
        told.tell("call 1000");
    }
    service.end();
    told.end();
    let files: Vec<_> = (0..5)
        .map(|number| match number {
            0 => out.clone(),
            number => folder.path().join(format!("out.{number}")),
        })
        .collect();
    assert!(!files[4].exists());
    let lengths: Vec<u64> = files[..4].iter().map(|file| file.metadata().unwrap().len()).collect();
    assert!(lengths.iter().all(|length| *length <= BYTES), "{lengths:?}");
    // Full to the last line.
    assert!(lengths[1..].iter().all(|length| *length > BYTES - 6), "{lengths:?}");
    let read: Vec<u64> = files[..4].iter().rev().flat_map(|file| numbers(file)).collect();
    let first = read[0];
    assert_eq!(read, (first..=10_000).collect::<Vec<u64>>());
}

/// A full disk loses output, and neither the probes nor the aggregations.
#[test]
fn a_full_disk_does_not_end_a_service() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "full");
    let exe = path.to_str().unwrap();
    let mut told = Told::of(&path);
    let counted = format!("{BY_PROCESS} END {{ system(\"echo ended\"); printa(\"%d %@d\\n\", @); }}");
    let arguments = [
        "-w",
        "-q",
        "--exe",
        exe,
        "-o",
        "/dev/full",
        "-n",
        NUMBERED,
        "-n",
        &counted,
    ];
    let mut service = Service::start(&arguments);
    service.wait_for_processes(1);
    for _ in 0..3 {
        told.tell("call 1000");
    }
    let sign = "bytes of output were lost: cannot write to the output file '/dev/full'";
    service
        .running
        .wait_until(sign, |running| running.stderr().contains(sign));
    assert_eq!(service.running.stderr().matches(sign).count(), 1);
    let (stdout, stderr) = service.end();
    told.end();
    assert!(stdout.contains("ended"), "{stdout} {stderr}");
}

/// Keys without end, as process numbers are in weeks.
#[test]
fn keys_beyond_the_limit_are_dropped_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "keyed");
    let exe = path.to_str().unwrap();
    let mut told = Told::of(&path);
    let clause = "pid$target:a.out:called:entry { @[++calls] = count(); }";
    let mut service = Service::start(&[
        "-q",
        "--exe",
        exe,
        "-x",
        "aggmax=64k",
        "-x",
        "aggrate=10ms",
        "-n",
        clause,
    ]);
    service.wait_for_processes(1);
    for _ in 0..10 {
        told.tell("call 500");
    }
    let (stdout, stderr) = service.end();
    told.end();
    let kept = table(&stdout);
    assert!(
        kept.values().all(|count| *count == 1) && (100..=400).contains(&kept.len()),
        "{}",
        kept.len()
    );
    let drops = stderr.lines().filter(|line| line.contains("increase aggmax"));
    let dropped: u64 = drops
        .map(|line| {
            let mut words = line.trim_start_matches("nanoprobe: ").split(' ');
            words.next().and_then(|count| count.parse::<u64>().ok()).expect(line)
        })
        .sum();
    assert_eq!(kept.len() as u64 + dropped, 5000, "{stderr}");
}
