//! `nanoprobe -l -p PID` shows the probes that a program has put on itself; here, that program is this test.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a panic is how a test fails")]

use std::ffi::c_void;
use std::process::{Command, Output};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nanoprobe_tests::in_time::{EndsInTime, InTime};
use nanoprobe_tests::left_out::left_out;

use nanoprobe::api::{
    np_disable_probe, np_hook, np_register_probe, np_register_watchpoint, np_unhook, np_unregister_probe,
    np_unregister_watchpoint,
};
use nanoprobe::c::{Probe, Registers, Watchpoint};

/// The process has only one list, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// Lets the calling test run alone, even after another test has failed.
fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
static WATCHED: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn own_first(value: u64) -> u64 {
    std::hint::black_box(value) * 3 + 1
}

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn own_second(value: u64) -> u64 {
    std::hint::black_box(value) * 5 + 2
}

extern "C" fn own_third(value: u64) -> u64 {
    value
}

unsafe extern "C" fn nested(_: *mut Probe, _: *mut Registers) -> i32 {
    // The probe's own handler executes the probed instruction: a missed hit.
    own_first(1);
    0
}

fn probe(function: extern "C" fn(u64) -> u64, flags: u32) -> Probe {
    Probe {
        size: size_of::<Probe>(),
        addr: function as *mut c_void,
        symbol: std::ptr::null(),
        offset: 0,
        pre_handler: Some(nested),
        post_handler: None,
        fault_handler: None,
        flags,
        user: null_mut(),
        reserved: [null_mut(); 4],
    }
}

fn list(pid: u32) -> Output {
    // Lets any process trace this one, if the system restricts that to parents. SAFETY: the
    // call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_PTRACER, libc::PR_SET_PTRACER_ANY, 0, 0, 0) };
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(["-l", "-p", &pid.to_string()])
        .output_in_time()
        .expect("running nanoprobe")
}

/// The rows, each split into its words.
fn rows() -> Vec<Vec<String>> {
    let output = list(std::process::id());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    let text = String::from_utf8(output.stdout).unwrap();
    let mut lines = text.lines();
    let head = "           ADDRESS KIND TACTIC           HITS     MISSED  WHERE";
    assert_eq!(lines.next(), Some(head));
    lines
        .map(|line| line.split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn each_is_shown_with_its_counts_until_it_is_gone() {
    let _alone = alone();
    let module = std::env::current_exe().unwrap();
    let module = module.file_name().unwrap().to_string_lossy().into_owned();
    let (mut first, mut second) = (probe(own_first, 0), probe(own_second, 4));
    // SAFETY: the structures are complete, and stay in place until they are unregistered.
    unsafe {
        assert_eq!(np_register_probe(&mut first), 0);
        assert_eq!(np_register_probe(&mut second), 0);
        assert_eq!(
            np_hook(own_second as *mut c_void, own_third as *mut c_void, null_mut()),
            0
        );
    }
    assert_eq!(np_disable_probe(&mut second), 0);
    let call = || (0..50).for_each(|value| assert_eq!(own_first(value), value * 3 + 1));
    call();
    std::thread::spawn(call).join().unwrap();
    assert_eq!(own_second(7), 7);
    let at = |function: extern "C" fn(u64) -> u64| format!("{:#x}", function as *const () as usize);
    let mut expected = [
        (
            own_first as *const () as usize,
            words(&format!("{} k TACTIC 100 100 {module}`own_first", at(own_first))),
        ),
        (
            own_second as *const () as usize,
            words(&format!("{} k - 0 0 {module}`own_second [DISABLED]", at(own_second))),
        ),
        (
            own_second as *const () as usize,
            words(&format!("{} h TACTIC 1 0 {module}`own_second", at(own_second))),
        ),
    ];
    expected.sort_by_key(|(address, _)| *address);
    let mut found = rows();
    for row in &mut found {
        let is_jump = ["jump", "run", "pun", "evict", "trap"].contains(&row[2].as_str());
        if is_jump {
            row[2] = "TACTIC".to_owned();
        }
    }
    assert_eq!(found, expected.map(|(_, row)| row));

    assert_eq!(np_unregister_probe(&mut first), 0);
    assert_eq!(np_unregister_probe(&mut second), 0);
    assert_eq!(np_unhook(own_second as *mut c_void), 0);
    assert_eq!(rows(), Vec::<Vec<String>>::new());
    // Another probe has now taken the row of the removed probe, and so its counters.
    let mut again = probe(own_second, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { np_register_probe(&mut again) }, 0);
    let found = rows();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0][3].as_str(), found[0][4].as_str()), ("0", "0"));
    assert_eq!(np_unregister_probe(&mut again), 0);
}

#[test]
fn a_watchpoint_is_shown() {
    let _alone = alone();
    unsafe extern "C" fn handler(_: *mut Watchpoint, _: *mut Registers) {}
    let mut watch = Watchpoint {
        size: size_of::<Watchpoint>(),
        addr: WATCHED.as_ptr().cast(),
        length: 8,
        kind: 2,
        flags: 0,
        handler: Some(handler),
        user: null_mut(),
        reserved: [null_mut(); 4],
    };
    // SAFETY: the structure is complete, and stays in place until it is unregistered.
    let error = unsafe { np_register_watchpoint(&mut watch) };
    if error == -16 || error == -17 || error == -20 {
        return left_out(
            "a watchpoint among one's own probes",
            &format!("no debug register is to be had ({error})"),
        );
    }
    assert_eq!(error, 0);
    for value in 0..7 {
        WATCHED.store(value, Ordering::SeqCst);
    }
    let found = rows();
    assert_eq!(found.len(), 1);
    let address = format!("{:#x}", WATCHED.as_ptr() as usize);
    assert_eq!(found[0][..4], [address.as_str(), "w", "-", "7"]);
    assert_eq!(np_unregister_watchpoint(&mut watch), 0);
}

/// A reader sees the unchanging entries correctly while the list changes.
#[test]
fn it_may_change_meanwhile() {
    let _alone = alone();
    static STOP: AtomicBool = AtomicBool::new(false);
    let mut stays = probe(own_first, 0);
    // SAFETY: a whole structure, which stays where it is until it is unregistered.
    assert_eq!(unsafe { np_register_probe(&mut stays) }, 0);
    own_first(1);
    let changes = std::thread::spawn(|| {
        while !STOP.load(Ordering::Relaxed) {
            let mut comes = probe(own_second, 0);
            // SAFETY: as above.
            assert_eq!(unsafe { np_register_probe(&mut comes) }, 0);
            assert_eq!(np_unregister_probe(&mut comes), 0);
        }
    });
    for _ in 0..10 {
        let found = rows();
        let first = format!("{:#x}", own_first as *const () as usize);
        let own: Vec<_> = found.iter().filter(|row| row[0] == first).collect();
        assert_eq!(own.len(), 1);
        assert_eq!(
            (own[0][1].as_str(), own[0][3].as_str(), own[0][4].as_str()),
            ("k", "1", "1")
        );
        assert!(found.len() <= 2);
    }
    STOP.store(true, Ordering::Relaxed);
    changes.join().unwrap();
    assert_eq!(np_unregister_probe(&mut stays), 0);
}

#[test]
fn a_program_without_the_library_gets_a_hint_to_another_list() {
    let mut sleeper = Command::new("sleep").arg("1000").spawn_in_group().unwrap();
    let output = list(sleeper.id());
    sleeper.kill().unwrap();
    sleeper.wait_in_time().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("does not use libnanoprobe"), "{error}");
    let gone = list(sleeper.id());
    assert_eq!(gone.status.code(), Some(1));
}
