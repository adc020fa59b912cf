//! The memory of a service in which processes come and go.

use nanoprobe_tests::results::table;

use crate::copy;
use crate::manager::Service;
use crate::told::{BY_PROCESS, Told};

/// Processes that are there at the same time.
const BATCH: usize = 25;
/// The number of processes before the first look at the memory, and before the last. The variable
/// NANOPROBE_SERVICE_PROCESSES makes the last one larger.
const FIRST: usize = 100;
const LAST: usize = 300;
/// By how much the bytes in use may grow between the looks.
const GROWTH_KIB: u64 = 256;
/// By how much the resident memory may: free memory that lies between used memory stays resident.
const RESIDENT_GROWTH_KIB: u64 = 16 << 10;

fn resident_kib(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// The bytes in use when no process is left, and the resident memory, in KiB.
fn memory(service: &mut Service, seen: usize) -> (u64, u64) {
    let sign = "memory in use with 0 processes: ";
    service
        .running
        .wait_until(sign, |running| running.stderr().matches(sign).count() > seen);
    let stderr = service.running.stderr();
    let line = stderr.lines().rev().find_map(|line| line.split_once(sign)).unwrap();
    let in_use = line.1.trim_end_matches(" KiB").parse().unwrap();
    (in_use, resident_kib(service.running.pid()))
}

#[test]
fn processes_that_come_and_go_leave_nothing_in_the_tracer() {
    let last = std::env::var("NANOPROBE_SERVICE_PROCESSES").map_or(LAST, |number| number.parse().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "comes-and-goes");
    // A file that has just changed is read for each process.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let exe = path.to_str().unwrap();
    let mut service = Service::start(&[
        "-v",
        "--exe",
        exe,
        "-n",
        BY_PROCESS,
        "-n",
        "pid$target:libc:m*:entry { @calls = count(); }",
    ]);
    let (mut began, mut calls) = (0, 0);
    let mut looks = Vec::new();
    while began < last {
        let mut told: Vec<Told> = (0..BATCH).map(|_| Told::of(&path)).collect();
        began += BATCH;
        service.wait_for_processes(began);
        let seen = service
            .running
            .stderr()
            .matches("memory in use with 0 processes")
            .count();
        for mut told in told.drain(..) {
            told.tell("call 7");
            calls += 7;
            told.running.close_input();
            told.running.finish().success();
        }
        service.wait_for(&format!("tracing 0 processes of --exe {exe}; {began} since"));
        if began == FIRST || began >= last {
            looks.push(memory(&mut service, seen));
        }
    }
    eprintln!("KiB in use and resident after {FIRST} and {last} processes: {looks:?}");
    let (stdout, stderr) = service.end();
    let counted = table(&stdout);
    let of_processes: i64 = counted
        .iter()
        .filter(|(key, _)| !key.is_empty())
        .map(|(_, count)| count)
        .sum();
    assert_eq!(of_processes, calls, "{stderr}");
    let [(first_in_use, first_resident), (last_in_use, last_resident)] = looks[..] else {
        panic!("{looks:?}")
    };
    assert!(last_in_use <= first_in_use + GROWTH_KIB, "{looks:?}");
    assert!(last_resident <= first_resident + RESIDENT_GROWTH_KIB, "{looks:?}");
}
