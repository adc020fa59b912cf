//! Writing to text that is mapped without the right to write.
#![allow(missing_docs, clippy::unwrap_used)]

mod support;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::{MappingKind, MemoryError, StopError};
use support::{Running, compile, until};

#[test]
fn text_is_changed_and_restored() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    let line = running.line();
    let twice = TargetAddress(u64::from_str_radix(line.split(' ').nth(1).unwrap(), 16).unwrap());
    let process = running.open();
    let original: [u8; 6] = process.memory().read_array(twice).unwrap();
    // mov eax, 99; ret - in three pieces, out of order, with an unchanged byte between two of them
    let at = |offset: u64| TargetAddress(twice.0 + offset);
    process
        .memory()
        .write_text(&[(at(5), &[0xc3]), (at(0), &[0xb8, 99]), (at(2), &[0, 0, 0])])
        .unwrap();
    running.write(b"f\n");
    assert_eq!(running.line(), "99");
    process.memory().write_text(&[(twice, &original)]).unwrap();
    running.write(b"f\n");
    assert_eq!(running.line(), "42");
    // The file is untouched, and the mapping is still r-x.
    let map = process.map().unwrap();
    let mapping = map.find(twice).unwrap();
    assert!(mapping.permissions.execute && !mapping.permissions.write);
}

#[test]
fn pieces_with_a_gap_keep_what_is_between() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let map = process.map().unwrap();
    let image = &map.images()[0];
    let text = image.executable().next().unwrap();
    let before: [u8; 64] = process.memory().read_array(text.start).unwrap();
    process
        .memory()
        .write_text(&[(text.start, &[1, 2]), (TargetAddress(text.start.0 + 60), &[3])])
        .unwrap();
    let after: [u8; 64] = process.memory().read_array(text.start).unwrap();
    let mut expected = before;
    expected[..2].copy_from_slice(&[1, 2]);
    expected[60] = 3;
    assert_eq!(after, expected);
}

#[test]
fn the_vdso_can_be_written() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let map = process.map().unwrap();
    let vdso = map
        .mappings()
        .iter()
        .find(|mapping| mapping.kind == MappingKind::Vdso)
        .unwrap();
    let last = TargetAddress(vdso.end.0 - 8);
    process.memory().write_text(&[(last, &[7; 8])]).unwrap();
    assert_eq!(process.memory().read_array::<8>(last).unwrap(), [7; 8]);
    let mine = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(
        mine.contains("[vdso]"),
        "ours is another copy of the page, and we are still here"
    );
}

#[test]
fn unreadable_memory_is_reported() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let memory = process.memory();
    let map = process.map().unwrap();
    let first = map.mappings()[0].start;
    let mut bytes = [0; 32];
    let error = memory.read(TargetAddress(first.0 - 16), &mut bytes).unwrap_err();
    assert!(matches!(error, MemoryError::Unreadable { read: 0, .. }), "{error}");
    let end = map.images()[0].executable().next().unwrap().end;
    let hole = map
        .mappings()
        .windows(2)
        .find(|pair| pair[0].end != pair[1].start && pair[0].permissions.read)
        .unwrap()[0]
        .end;
    assert_eq!(
        memory.read_some(TargetAddress(hole.0 - 16), &mut bytes).unwrap(),
        16,
        "up to the hole ({end})"
    );
    for address in [0, first.0 - 4096, 0xffff_ffff_ff60_0000, u64::MAX - 2] {
        assert!(memory.write(TargetAddress(address), &[1]).is_err(), "{address:#x}");
        assert_eq!(
            memory.read_some(TargetAddress(address), &mut bytes[..1]).unwrap(),
            0,
            "{address:#x}"
        );
    }
}

#[test]
fn after_execve_nothing_is_written_to_the_new_program() {
    let mut command = std::process::Command::new("sh");
    let mut running = Running::start(command.args(["-c", "echo ready; read line; exec sleep 1000"]));
    assert_eq!(running.line(), "ready");
    let process = running.open();
    let text = process.map().unwrap().images()[0].base;
    running.write(b"\n");
    until("executed", || {
        std::fs::read_to_string(format!("/proc/{}/comm", running.pid())).unwrap() == "sleep\n"
    });
    assert_eq!(
        process.memory().write(text, &[0xcc]),
        Err(MemoryError::Gone { pid: running.pid() })
    );
    // No thread is stopped for calls that were meant for the old program.
    let executed = StopError::Executed { pid: running.pid() };
    assert_eq!(process.stop().map(|_| ()), Err(executed.clone()));
    assert_eq!(process.stop_one().map(|_| ()), Err(executed));
    assert!(process.has_executed());
    assert!(!running.open().has_executed());
}

#[test]
fn an_ended_process_is_gone() {
    let program = compile("plain");
    let mut running = Running::of(&program, &[]);
    running.line();
    let process = running.open();
    let text = process.map().unwrap().images()[0].base;
    running.child.kill().unwrap();
    nanoprobe_tests::in_time::EndsInTime::wait_in_time(&mut running.child).unwrap();
    assert_eq!(
        process.memory().read(text, &mut [0; 8]),
        Err(MemoryError::Gone { pid: process.pid() })
    );
    assert_eq!(process.map().unwrap_err(), MemoryError::Gone { pid: process.pid() });
}
