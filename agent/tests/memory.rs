//! Reading memory that may not be there: every bad pointer is a fault of the clause, and
//! the process survives.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{Options, Target, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::Memory;
use nanoprobe_arena::layout::{Context, Control, FAULT_BAD_ADDRESS, FAULT_BAD_SIZE, FAULT_SCRATCH};

const BAD: u64 = FAULT_BAD_ADDRESS as u64;

/// Two pages, of which the second cannot be read; yields the start of the second.
fn edge() -> u64 {
    let at = map(8192, libc::MAP_PRIVATE);
    // SAFETY: the mapping is ours and page aligned.
    let result = unsafe { libc::mprotect((at + 4096) as *mut _, 4096, libc::PROT_NONE) };
    assert_eq!(result, 0);
    at + 4096
}

fn put(address: u64, bytes: &[u8]) {
    // SAFETY: callers pass addresses inside their own mappings.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

/// The three ways to read: with a snapshot that has the address, with one that lacks it (process_vm_readv), and
/// without system calls. Also with a snapshot that wrongly has the address.
fn ways() -> Vec<(&'static str, Target)> {
    let all = |allow_syscalls| {
        let target = Target::new(&Options {
            allow_syscalls,
            ..Options::default()
        });
        target.install();
        target
    };
    let snapshot = all(true);
    snapshot.publish_range(4096, 1 << 47);
    let snapshot_only = all(false);
    snapshot_only.publish_range(4096, 1 << 47);
    vec![
        ("snapshot", snapshot),
        ("kernel", all(true)),
        ("guard", all(false)),
        ("snapshot, no calls", snapshot_only),
    ]
}

#[test]
fn strings_up_to_the_last_readable_byte() {
    let end = edge();
    for (way, target) in ways() {
        let context = target.enter();
        for length in 0..40 {
            let text: Vec<u8> = (0..length).map(|index| b'a' + index as u8 % 26).collect();
            let mut with_nul = text.clone();
            with_nul.push(0);
            let at = end - with_nul.len() as u64;
            put(at, &with_nul);
            target.begin(context);
            let (result, fault) = target.run(context, Function::CopyInString, &[at, 0]);
            assert_eq!(fault, 0, "{way}, {length}");
            assert_eq!(target.bytes(result, with_nul.len() as u64), with_nul, "{way}");
            // Zeros to the end of the word, on which keys rely.
            let padded = (with_nul.len() as u64).next_multiple_of(8);
            assert!(
                target
                    .bytes(result, padded)
                    .iter()
                    .skip(with_nul.len())
                    .all(|byte| *byte == 0),
                "{way}, {length}"
            );
            assert_eq!(target.get(context, offset_of!(Context, scratch_used)), padded);
        }
    }
}

#[test]
fn strings_that_run_off_the_edge_are_faults() {
    let end = edge();
    put(end - 64, &[b'x'; 64]);
    for (way, target) in ways() {
        let context = target.enter();
        for length in 1..24 {
            target.begin(context);
            let (result, fault) = target.run(context, Function::CopyInString, &[end - length, 0]);
            assert_eq!(fault, BAD, "{way}, {length}");
            assert_eq!(target.get(context, offset_of!(Context, fault_address)), end - length);
            assert_eq!(target.get(context, offset_of!(Context, scratch_used)), 0);
            // The returned address is that of an empty string. SAFETY: the agent promises a readable address.
            assert_eq!(unsafe { *(result as *const u8) }, 0);
            // The limit ends the string before the edge.
            target.begin(context);
            let (result, fault) = target.run(context, Function::CopyInString, &[end - length, length]);
            assert_eq!(fault, 0, "{way}, {length}");
            let mut expected = vec![b'x'; length as usize - 1];
            expected.push(0);
            assert_eq!(target.bytes(result, length), expected, "{way}");
        }
    }
}

#[test]
fn bad_pointers_are_faults() {
    let end = edge();
    let bad = [
        0,
        1,
        4095,
        end,
        end + 4000,
        1 << 47,
        1 << 55,
        1 << 60,
        u64::MAX,
        u64::MAX - 4095,
        0xffff_ffff_ff60_0000,
    ];
    for (way, target) in ways() {
        let context = target.enter();
        for address in bad {
            for (function, argument) in [
                (Function::CopyInString, 0),
                (Function::CopyIn, 8),
                (Function::Load, 8),
                (Function::Load, 1),
            ] {
                target.begin(context);
                let (_, fault) = target.run(context, function, &[address, argument]);
                assert_eq!(fault, BAD, "{way}: {function:?} of {address:#x}");
                assert_eq!(target.get(context, offset_of!(Context, fault_address)), address);
            }
        }
    }
}

#[test]
fn loads_of_all_sizes() {
    let end = edge();
    put(end - 8, &[0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87, 0x88]);
    for (way, target) in ways() {
        let context = target.enter();
        for (bytes, value) in [(1, 0x88), (2, 0x8887), (4, 0x8887_8685), (8, 0x8887_8685_8483_8281)] {
            target.begin(context);
            assert_eq!(
                target.run(context, Function::Load, &[end - bytes, bytes]),
                (value, 0),
                "{way}"
            );
            if bytes > 1 {
                target.begin(context);
                assert_eq!(
                    target.run(context, Function::Load, &[end - bytes + 1, bytes]),
                    (0, BAD),
                    "{way}"
                );
            }
        }
        for bytes in [0, 3, 16, u64::MAX] {
            target.begin(context);
            let fault = target.run(context, Function::Load, &[end - 8, bytes]);
            assert_eq!(fault, (0, u64::from(FAULT_BAD_SIZE)), "{way}, {bytes}");
        }
    }
}

#[test]
fn copyin_is_exact() {
    let end = edge();
    let bytes: Vec<u8> = (0..200_u8).collect();
    put(end - 200, &bytes);
    for (way, target) in ways() {
        let context = target.enter();
        for length in [0, 1, 7, 8, 9, 64, 199, 200] {
            target.begin(context);
            let (result, fault) = target.run(context, Function::CopyIn, &[end - 200, length]);
            assert_eq!(fault, 0, "{way}");
            assert_eq!(target.bytes(result, length), bytes[..length as usize], "{way}");
        }
        target.begin(context);
        assert_eq!(target.run(context, Function::CopyIn, &[end - 200, 201]).1, BAD, "{way}");
    }
}

/// A thread that blocks SIGSEGV dies of any fault, guarded or not. With a correct snapshot, or with
/// none, there is no fault.
#[test]
fn a_thread_that_blocks_the_signal_lives() {
    let end = edge();
    put(end - 64, &[b'x'; 63]);
    put(end - 1, &[0]);
    let target = Target::new(&Options::default());
    let context = target.enter();
    let status = common::in_child(|| {
        target
            .memory
            .store_u32(offset_of!(Control, target_pid) as u64, std::process::id())
            .unwrap();
        let mask = u64::MAX;
        let old: *mut u64 = core::ptr::null_mut();
        // SAFETY: blocks all signals of the child's only thread.
        unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_BLOCK, &raw const mask, old, 8) };
        for snapshot in [true, false] {
            if snapshot {
                target.publish_range(end - 4096, end);
            } else {
                target.memory.store_u64(offset_of!(Control, ranges) as u64, 0).unwrap();
            }
            for length in 1..64 {
                target.begin(context);
                if target.run(context, Function::CopyInString, &[end - length, 0]).1 != 0 {
                    return 1;
                }
            }
            for address in [0, end, end - 3, 1 << 46, u64::MAX] {
                target.begin(context);
                if target.run(context, Function::Load, &[address, 8]).1 != BAD {
                    return 2;
                }
            }
        }
        0
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

#[test]
fn scratch_runs_out() {
    let end = edge();
    put(end - 4096, &[b'y'; 4096]);
    let target = Target::new(&Options::default());
    target.install();
    target.publish_range(end - 4096, end);
    let context = target.enter();
    target.begin(context);
    // 4096 bytes of scratch: sixteen strings of 256.
    let places: Vec<u64> = (0..16)
        .map(|_| {
            let (result, fault) = target.run(context, Function::CopyInString, &[end - 4096, 0]);
            assert_eq!(fault, 0);
            result
        })
        .collect();
    assert!(places.windows(2).all(|pair| pair[1] == pair[0] + 256));
    assert_eq!(
        target.run(context, Function::CopyInString, &[end - 4096, 0]).1,
        u64::from(FAULT_SCRATCH)
    );
    target.begin(context);
    assert_eq!(
        target.run(context, Function::CopyIn, &[end - 4096, 4097]).1,
        u64::from(FAULT_SCRATCH)
    );
    target.begin(context);
    assert_eq!(target.run(context, Function::CopyIn, &[end - 4096, 4096]).1, 0);
    // Nothing was written after the scratch memory.
    let behind = target.get(context, offset_of!(Context, scratch)) + 4096;
    assert_eq!(target.bytes(behind, 8), [0; 8]);
}

#[test]
fn a_new_snapshot_is_seen_at_once() {
    let end = edge();
    put(end - 8, &7_u64.to_le_bytes());
    let target = Target::new(&Options::default());
    target.install();
    let context = target.enter();
    target.publish_range(end - 4096, end);
    target.begin(context);
    assert_eq!(target.run(context, Function::Load, &[end - 8, 8]), (7, 0));
    assert_eq!(target.get(context, offset_of!(Context, range_end)), end);
    let ranges = offset_of!(Control, ranges) as u64;
    target.memory.store_u64(ranges, (common::RANGES + 16) << 24).unwrap();
    target.begin(context);
    assert_eq!(target.run(context, Function::Load, &[end - 8, 8]), (7, 0));
    // A snapshot outside of the arena is ignored.
    target.memory.store_u64(ranges, u64::MAX).unwrap();
    target.begin(context);
    assert_eq!(target.run(context, Function::Load, &[end - 8, 8]), (7, 0));
}

#[test]
fn a_range_among_many_is_found() {
    let end = edge();
    put(end - 8, &9_u64.to_le_bytes());
    // Without system calls and working guards, only the snapshot distinguishes good addresses from bad ones. So this
    // examines the cached range.
    let target = Target::new(&Options::default());
    target.install();
    let context = target.enter();
    let mut ranges: Vec<(u64, u64)> = (1..9).map(|index| (index * 0x10000, index * 0x10000 + 4096)).collect();
    ranges.push((end - 4096, end));
    for (index, (start, end)) in ranges.iter().enumerate() {
        target
            .memory
            .store_u64(common::RANGES + index as u64 * 16, *start)
            .unwrap();
        target
            .memory
            .store_u64(common::RANGES + index as u64 * 16 + 8, *end)
            .unwrap();
    }
    for count in 1..=ranges.len() as u64 {
        target
            .memory
            .store_u64(offset_of!(Control, ranges) as u64, (common::RANGES << 24) | count)
            .unwrap();
        target.begin(context);
        assert_eq!(target.run(context, Function::Load, &[end - 8, 8]), (9, 0));
        let cached = target.get(context, offset_of!(Context, range_end));
        assert_eq!(cached == end, count == ranges.len() as u64);
    }
}
