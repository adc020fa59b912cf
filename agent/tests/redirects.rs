//! The current tables: published by rows, each with one byte; and by one row that changes while
//! readers are counted.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::{Options, Published, Target, map, map_code};
use nanoprobe_agent::redirect_table;
use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{Readers, TABLE_ROWS, Tables};

/// An int3, and two functions to which it may be redirected. They lie at offsets 16 and 32, and return 77 and 78.
const CODE: [u8; 48] = {
    let mut code = [0xcc; 48];
    code[16] = 0xb8;
    code[17] = 77;
    code[18] = 0;
    code[19] = 0;
    code[20] = 0;
    code[21] = 0xc3;
    code[32] = 0xb8;
    code[33] = 78;
    code[34] = 0;
    code[35] = 0;
    code[36] = 0;
    code[37] = 0xc3;
    code
};

fn execute(address: u64) -> i32 {
    // SAFETY: the trap at `address` is redirected to a function without arguments.
    let function: extern "C" fn() -> i32 = unsafe { core::mem::transmute(address) };
    function()
}

/// Memory with these bytes, never unmapped.
fn put(bytes: &[u8]) -> u64 {
    let at = map(bytes.len(), libc::MAP_PRIVATE);
    // SAFETY: new memory of this size.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) };
    at
}

/// Tables in which the trap leads to 77, and to 78.
fn tables_of(code: u64) -> [Vec<u8>; 2] {
    [16, 32].map(|offset| {
        let redirects = put(&redirect_table([(code, code + offset)].into_iter()));
        Tables { redirects, origins: 0 }.to_bytes().to_vec()
    })
}

#[test]
fn the_last_published_row_is_current() {
    let code = map_code(&CODE);
    let tables = tables_of(code);
    let row_bytes = tables[0].len();
    let rows = map(TABLE_ROWS as usize, libc::MAP_PRIVATE);
    let all = map(TABLE_ROWS as usize * row_bytes, libc::MAP_PRIVATE);
    let target = Target::new(&Options {
        published: Some(Published {
            tables: all,
            rows,
            readers: 0,
        }),
        ..Options::default()
    });
    target.install();
    for row in 0..TABLE_ROWS {
        let bytes = &tables[row as usize % 2];
        // SAFETY: the row's own memory, within the mapping.
        unsafe {
            let place = (all + row * row_bytes as u64) as *mut u8;
            core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, row_bytes);
        }
        if row > 0 {
            assert_eq!(execute(code), 77 + (row as i32 - 1) % 2, "row {row} is not told yet");
            // SAFETY: as above; its byte.
            unsafe { *((rows + row) as *mut u8) = 1 };
        }
        assert_eq!(execute(code), 77 + row as i32 % 2, "row {row}");
    }
}

#[test]
fn look_ups_are_counted() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let code = map_code(&CODE);
    let tables = put(&tables_of(code)[0]);
    let readers = put(Readers::default().to_bytes().as_ref());
    let target = Target::new(&Options {
        published: Some(Published {
            tables,
            rows: 0,
            readers,
        }),
        ..Options::default()
    });
    target.install();
    // SAFETY: two aligned words of memory that lives for ever.
    let inside = [8, 16].map(|offset| unsafe { &*((readers + offset) as *const AtomicU64) });
    let traps = std::thread::spawn(move || {
        let mut wrong = 0;
        while !STOP.load(Ordering::Relaxed) {
            wrong += u64::from(execute(code) != 77);
        }
        wrong
    });
    let end = Instant::now() + Duration::from_secs(60);
    for phase in [0, 1, 0] {
        // SAFETY: an aligned word of that memory; the agent only reads it.
        unsafe { core::sync::atomic::AtomicU32::from_ptr(readers as *mut u32) }.store(phase as u32, Ordering::SeqCst);
        while inside[phase].load(Ordering::SeqCst) == 0 {
            assert!(Instant::now() < end, "nobody is ever counted in {phase}");
        }
        // Waits until the readers of the earlier phase have left; no further readers join that phase.
        while inside[1 - phase].load(Ordering::SeqCst) != 0 {
            assert!(Instant::now() < end, "somebody is counted for ever in {}", 1 - phase);
        }
    }
    STOP.store(true, Ordering::Relaxed);
    assert_eq!(traps.join().unwrap(), 0);
    assert_eq!(inside.map(|count| count.load(Ordering::SeqCst)), [0, 0]);
}
