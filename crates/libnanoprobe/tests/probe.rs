//! Plain probes on this program's own functions and the C library's, through the C interface.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::ffi::{CStr, c_char, c_int, c_ulong, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nanoprobe::api::*;
use nanoprobe::c::{Probe, Registers};
use nanoprobe::error::{np_last_error, np_strerror};

static TURN: Mutex<()> = Mutex::new(());

/// The calling test's turn. A test that failed during its own turn does not make the next test fail.
fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn np_test_add(left: u64, right: u64) -> u64 {
    std::hint::black_box(left)
        .wrapping_mul(3)
        .wrapping_add(std::hint::black_box(right))
}

fn probe(symbol: Option<&'static CStr>, addr: *mut c_void) -> Box<Probe> {
    Box::new(Probe {
        size: size_of::<Probe>(),
        addr,
        symbol: symbol.map_or(null(), |symbol| symbol.as_ptr()),
        offset: 0,
        pre_handler: Some(count),
        post_handler: None,
        fault_handler: None,
        flags: 0,
        user: null_mut(),
        reserved: [null_mut(); 4],
    })
}

static COUNT: AtomicU64 = AtomicU64::new(0);
static BEHIND: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn count(_: *mut Probe, _: *mut Registers) -> c_int {
    COUNT.fetch_add(1, Ordering::Relaxed);
    0
}

unsafe extern "C" fn behind(_: *mut Probe, registers: *mut Registers, flags: c_ulong) {
    assert_eq!(flags, 0);
    // SAFETY: the hit path's own registers.
    BEHIND.store(unsafe { (*registers).rip }, Ordering::Relaxed);
}

unsafe extern "C" fn double_first(_: *mut Probe, registers: *mut Registers) -> c_int {
    // SAFETY: as above.
    unsafe { (*registers).rdi *= 2 };
    0
}

fn check(code: c_int) {
    // SAFETY: both functions yield strings.
    let (text, details) = unsafe { (CStr::from_ptr(np_strerror(code)), CStr::from_ptr(np_last_error())) };
    assert_eq!(code, 0, "{text:?}: {details:?}");
}

fn call(left: u64, right: u64) -> u64 {
    let function: extern "C" fn(u64, u64) -> u64 = std::hint::black_box(np_test_add);
    function(left, right)
}

fn text_of(address: u64) -> Vec<u8> {
    // SAFETY: the address is that of a function of this test.
    unsafe { std::slice::from_raw_parts(address as *const u8, 16) }.to_vec()
}

#[test]
fn a_probe_by_symbol_fires_and_leaves_nothing() {
    let _turn = turn();
    let before = text_of(np_test_add as *const () as u64);
    for flags in [0, 2, 4, 8] {
        let mut probe = probe(Some(c"np_test_add"), null_mut());
        probe.flags = flags;
        COUNT.store(0, Ordering::Relaxed);
        // SAFETY: a structure and handlers as the header wants them.
        check(unsafe { np_register_probe(&mut *probe) });
        assert_eq!(probe.addr as u64, np_test_add as *const () as u64);
        assert_eq!(np_probe_tactic(&*probe) == 5, flags == 4);
        for index in 0..1000 {
            assert_eq!(call(index, 7), index * 3 + 7);
        }
        assert_eq!(COUNT.load(Ordering::Relaxed), 1000);
        assert_eq!((np_probe_hits(&*probe), np_probe_nmissed(&*probe)), (1000, 0));
        check(np_disable_probe(&mut *probe));
        assert_eq!(text_of(np_test_add as *const () as u64), before);
        call(1, 2);
        check(np_enable_probe(&mut *probe));
        call(1, 2);
        assert_eq!(np_probe_hits(&*probe), 1001);
        check(np_unregister_probe(&mut *probe));
        call(1, 2);
        assert_eq!(COUNT.load(Ordering::Relaxed), 1001);
        assert_eq!(text_of(np_test_add as *const () as u64), before);
        assert_eq!(np_unregister_probe(&mut *probe), -7);
    }
}

#[test]
fn colocated_probes_run_in_order_and_change_registers() {
    let _turn = turn();
    let mut first = probe(Some(c"np_test_add"), null_mut());
    let mut second = probe(Some(c"np_test_add"), null_mut());
    first.pre_handler = Some(double_first);
    second.pre_handler = Some(double_first);
    let mut both: [*mut Probe; 2] = [&mut *first, &mut *second];
    // SAFETY: as above.
    check(unsafe { np_register_probes(both.as_ptr(), 2) });
    assert_eq!(call(1, 0), 12);
    // SAFETY: as above.
    assert_eq!(unsafe { np_register_probe(both[0]) }, -6);
    check(np_unregister_probe(both[0]));
    assert_eq!(call(1, 0), 6);
    check(np_unregister_probe(both[1]));
    assert_eq!(call(1, 0), 3);
    both.reverse();
}

#[test]
fn wrong_places_are_refused_with_their_reason() {
    let _turn = turn();
    let refused = |probe: &mut Probe| {
        // SAFETY: as above.
        let code = unsafe { np_register_probe(probe) };
        // SAFETY: a string.
        let text = unsafe { CStr::from_ptr(np_last_error()) }.to_str().unwrap().to_owned();
        (code, text)
    };
    assert_eq!(refused(&mut probe(Some(c"np_no_such_function"), null_mut())).0, -2);
    assert_eq!(refused(&mut probe(None, null_mut())).0, -1);
    assert_eq!(refused(&mut probe(None, (&raw const COUNT) as *mut c_void)).0, -3);
    let mut inside = probe(None, np_test_add as *const () as *mut c_void);
    inside.offset = (1..16)
        .find(|offset| {
            let mut probe = probe(None, np_test_add as *const () as *mut c_void);
            probe.offset = *offset;
            refused(&mut probe).0 == -4
        })
        .unwrap();
    assert!(refused(&mut inside).1.contains("the nearest are"));
    let path = nanoprobe::hit::dispatch_address();
    assert_eq!(refused(&mut probe(None, path as *mut c_void)).0, -5);
    let mut small = probe(Some(c"np_test_add"), null_mut());
    small.size = 8;
    assert_eq!(refused(&mut small).0, -1);
    // Either all probes of a batch are registered, or none.
    let (mut good, mut bad) = (
        probe(Some(c"np_test_add"), null_mut()),
        probe(Some(c"np_nowhere"), null_mut()),
    );
    let both: [*mut Probe; 2] = [&mut *good, &mut *bad];
    // SAFETY: as above.
    assert_eq!(unsafe { np_register_probes(both.as_ptr(), 2) }, -2);
    assert_eq!(np_unregister_probe(both[0]), -7);
}

#[test]
fn a_post_handler_sees_the_next_instruction() {
    let _turn = turn();
    let mut probe = probe(Some(c"np_test_add"), null_mut());
    probe.post_handler = Some(behind);
    // SAFETY: as above.
    check(unsafe { np_register_probe(&mut *probe) });
    assert_eq!(call(5, 6), 21);
    let next = BEHIND.load(Ordering::Relaxed) - np_test_add as *const () as u64;
    assert!((1..16).contains(&next), "{next}");
    check(np_unregister_probe(&mut *probe));
}

unsafe extern "C" fn visit(info: *const Info, user: *mut c_void) -> c_int {
    // SAFETY: `info` is np_list's structure, and `user` is the vector that it was given.
    let (info, names) = unsafe { (&*info, &mut *user.cast::<Vec<(String, u64, c_int)>>()) };
    // SAFETY: a string.
    let symbol = unsafe { CStr::from_ptr(info.symbol as *const c_char) };
    names.push((symbol.to_string_lossy().into_owned(), info.hits, info.tactic));
    0
}

#[test]
fn the_c_librarys_functions_are_probed_while_they_are_used_here() {
    let _turn = turn();
    let names = [
        c"malloc",
        c"free",
        c"memcpy",
        c"strlen",
        c"pwrite64",
        c"syscall",
        c"pthread_mutex_lock",
    ];
    let mut probes: Vec<Box<Probe>> = names.iter().map(|name| probe(Some(name), null_mut())).collect();
    for round in 0..20 {
        let pointers: Vec<*mut Probe> = probes.iter_mut().map(|probe| &raw mut **probe).collect();
        // SAFETY: as above.
        check(unsafe { np_register_probes(pointers.as_ptr(), pointers.len()) });
        let text: Vec<String> = (0..100).map(|index| format!("{index} {round}")).collect();
        assert_eq!(text[99], format!("99 {round}"));
        let mut listed: Vec<(String, u64, c_int)> = Vec::new();
        // SAFETY: the visitor takes the vector.
        assert_eq!(unsafe { np_list(visit, (&raw mut listed).cast()) }, 0);
        let malloc = listed.iter().find(|(name, ..)| name.contains("malloc")).unwrap();
        assert!(malloc.1 >= 100 && malloc.2 != 0, "{listed:?}");
        assert_eq!(listed.len(), names.len());
        // SAFETY: as above.
        check(unsafe { np_unregister_probes(pointers.as_ptr(), pointers.len()) });
    }
}

#[test]
fn registered_and_removed_while_threads_run_the_code() {
    let _turn = turn();
    /// Sets the flag when the scope is left in any way. Otherwise the threads would run for ever after a panic.
    struct Stop<'a>(&'a AtomicBool);
    impl Drop for Stop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..3 {
            scope.spawn(|| {
                let mut index = 0;
                while !stop.load(Ordering::Relaxed) {
                    index += 1;
                    assert_eq!(call(index, 1), index * 3 + 1);
                }
            });
        }
        let mut fired = 0;
        for round in 0..500 {
            let mut probe = probe(Some(c"np_test_add"), null_mut());
            probe.flags = if round % 3 == 2 { 4 } else { 0 };
            // SAFETY: as above.
            check(unsafe { np_register_probe(&mut *probe) });
            while np_probe_hits(&*probe) < 3 {
                std::thread::yield_now();
            }
            check(np_unregister_probe(&mut *probe));
            fired += 1;
        }
        assert_eq!(fired, 500);
    });
}

static MIRRORED: Mutex<Vec<(u64, f64, u64, u64)>> = Mutex::new(Vec::new());

#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn np_test_many(a: u64, x: f64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64, y: f64, h: u64) -> f64 {
    let integers = std::hint::black_box(a + b + c + d + e + f + g + h);
    std::hint::black_box(integers as f64 + x * y)
}

extern "C" fn mirror(a: u64, x: f64, _b: u64, _c: u64, _d: u64, _e: u64, _f: u64, g: u64, y: f64, h: u64) -> f64 {
    MIRRORED
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((a, x + y, g, h));
    if a.is_multiple_of(2) {
        np_jprobe_return();
    }
    -1.0
}

#[test]
fn a_mirror_sees_the_arguments() {
    let _turn = turn();
    for flags in [0, 4] {
        let mut jumper = Box::new(nanoprobe::c::JumperProbe {
            probe: *probe(Some(c"np_test_many"), null_mut()),
            entry: mirror as *mut c_void,
        });
        jumper.probe.flags = flags;
        // SAFETY: the mirror has the function's prototype.
        check(unsafe { np_register_jprobe(&mut *jumper) });
        let function: extern "C" fn(u64, f64, u64, u64, u64, u64, u64, u64, f64, u64) -> f64 =
            std::hint::black_box(np_test_many);
        for a in 0..100 {
            assert_eq!(function(a, 0.5, 1, 2, 3, 4, 5, 6, 4.0, 7), (a + 28) as f64 + 2.0);
        }
        let seen = std::mem::take(&mut *MIRRORED.lock().unwrap_or_else(PoisonError::into_inner));
        let expected: Vec<(u64, f64, u64, u64)> = (0..100).map(|a| (a, 4.5, 6, 7)).collect();
        assert_eq!(seen, expected);
        check(np_unregister_jprobe(&mut *jumper));
    }
}

static ORIGINAL: AtomicU64 = AtomicU64::new(0);

extern "C" fn replacement(left: u64, right: u64) -> u64 {
    // SAFETY: np_hook has stored a function of this prototype there.
    let original: extern "C" fn(u64, u64) -> u64 = unsafe { std::mem::transmute(ORIGINAL.load(Ordering::Relaxed)) };
    original(left, right) + 1000
}

#[test]
fn a_hook_takes_a_functions_place() {
    let _turn = turn();
    let function = np_test_add as *mut c_void;
    let mut original = null_mut();
    // SAFETY: the replacement has the function's prototype.
    check(unsafe { np_hook(function, replacement as *mut c_void, &mut original) });
    ORIGINAL.store(original as u64, Ordering::Relaxed);
    assert_eq!(call(1, 2), 1005);
    assert_eq!(
        // SAFETY: as above.
        unsafe { np_hook(function, replacement as *mut c_void, null_mut()) },
        -18
    );
    // A probe on the same function fires, too, and the original is the function itself.
    let mut probe = probe(Some(c"np_test_add"), null_mut());
    // SAFETY: as above.
    check(unsafe { np_register_probe(&mut *probe) });
    assert_eq!(call(1, 2), 1005);
    check(np_unhook(function));
    assert_eq!(call(1, 2), 5);
    assert_eq!(replacement(1, 2), 1005, "the original stays callable");
    check(np_unregister_probe(&mut *probe));
    assert_eq!(np_unhook(function), -7);
}
