//! Records from the agent's writer to the arena's reader: no record is torn, out of order or unaccounted for.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;
use core::sync::atomic::{AtomicBool, Ordering};

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{
    Context, Control, ErrorRecord, FAULT_BAD_ADDRESS, RECORD_ERROR, RING_FILL, RING_OVERWRITE, RING_SWITCH,
};
use nanoprobe_arena::{ContextPlan, Memory, Record, RingReader, Structure};

fn target(policy: u32) -> Target {
    let plan = ContextPlan::new(0, 0, 0, 64, 64, 0, 4096).unwrap();
    Target::new(&Options {
        plan,
        policy,
        ..Options::default()
    })
}

/// The words of payload of the record with number `sequence`.
fn size(sequence: u64) -> u64 {
    sequence * 7 % 23 + 1
}

/// Writes a record whose words all hold the number `sequence`. Yields whether there was room.
fn write(target: &Target, context: u64, sequence: u64) -> bool {
    let (record, _) = target.run(context, Function::Reserve, &[5, 24 + size(sequence) * 8]);
    if record == 0 {
        return false;
    }
    for word in 0..size(sequence) {
        target
            .memory
            .store_u64(record - target.arena + 24 + word * 8, sequence)
            .unwrap();
    }
    target.run(context, Function::Commit, &[]);
    true
}

/// Checks that a record is whole, and yields its number.
fn check(record: &Record) -> u64 {
    let words: Vec<u64> = record
        .payload
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
        .collect();
    let sequence = words[0];
    assert_eq!(words, vec![sequence; size(sequence) as usize]);
    assert_eq!(record.epid, 5);
    sequence
}

/// For a record without a time the clock is not read.
#[test]
fn untimed_headers_have_thread_and_processor() {
    let plan = ContextPlan::new(0, 0, 0, 64, 64, 0, 4096).unwrap();
    let target = Target::new(&Options {
        plan: ContextPlan { untimed: true, ..plan },
        policy: RING_SWITCH,
        ..Options::default()
    });
    let context = target.enter();
    assert!(write(&target, context, 1));
    let mut reader = RingReader::new(context - target.arena, &target.plan, RING_SWITCH);
    let record = reader.next(&target.memory).unwrap().unwrap();
    assert_eq!(record.tsc, 0);
    // SAFETY: asks for nothing but a number.
    assert_eq!(record.tid, unsafe { libc::gettid() } as u32);
    // SAFETY: asks for nothing but a number.
    assert!(i64::from(record.cpu) < unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) });
}

#[test]
fn headers_have_thread_time_and_processor() {
    let target = target(RING_SWITCH);
    let context = target.enter();
    // SAFETY: reads the time stamp counter.
    let before = unsafe { core::arch::x86_64::_rdtsc() };
    assert!(write(&target, context, 1));
    // SAFETY: as above.
    let after = unsafe { core::arch::x86_64::_rdtsc() };
    let mut reader = RingReader::new(context - target.arena, &target.plan, RING_SWITCH);
    let record = reader.next(&target.memory).unwrap().unwrap();
    assert!((before..=after).contains(&record.tsc));
    // SAFETY: asks for nothing but a number.
    assert_eq!(record.tid, unsafe { libc::gettid() } as u32);
    // SAFETY: asks for nothing but a number.
    assert!(i64::from(record.cpu) < unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) });
    let mut cpus = target.run(context, Function::Cpu, &[]).0;
    // SAFETY: asks for nothing but a number.
    let mut expected = unsafe { libc::sched_getcpu() } as u64;
    while cpus != expected {
        cpus = target.run(context, Function::Cpu, &[]).0;
        // SAFETY: as above.
        expected = unsafe { libc::sched_getcpu() } as u64;
    }
}

#[test]
fn an_uncommitted_reservation_has_no_effect() {
    let target = target(RING_SWITCH);
    let context = target.enter();
    let mut reader = RingReader::new(context - target.arena, &target.plan, RING_SWITCH);
    for round in 0..500 {
        target.run(context, Function::Reserve, &[9, 24 + round % 600]);
        assert_eq!(reader.next(&target.memory), Ok(None));
        assert!(write(&target, context, round));
        assert_eq!(check(&reader.next(&target.memory).unwrap().unwrap()), round);
        // A commit without a reservation does nothing.
        target.run(context, Function::Commit, &[]);
        assert_eq!(reader.next(&target.memory), Ok(None));
    }
    assert_eq!(target.get(context, offset_of!(Context, ring_records)), 500);
}

#[test]
fn a_full_ring_drops_and_counts() {
    for policy in [RING_SWITCH, RING_FILL] {
        let target = target(policy);
        let context = target.enter();
        let written = (0..1000).filter(|sequence| write(&target, context, *sequence)).count() as u64;
        let mut reader = RingReader::new(context - target.arena, &target.plan, policy);
        assert_eq!(reader.drops(&target.memory), Ok(1000 - written));
        let mut read = Vec::new();
        while let Some(record) = reader.next(&target.memory).unwrap() {
            read.push(check(&record));
        }
        assert_eq!(read.len() as u64, written);
        assert!(read.windows(2).all(|pair| pair[0] < pair[1]));
        // All room was used: less than the smallest record is left.
        assert!(written > 4096 / (24 + 23 * 8));
        assert!(write(&target, context, 5000));
        assert_eq!(check(&reader.next(&target.memory).unwrap().unwrap()), 5000);
    }
}

#[test]
fn overwriting_keeps_the_newest() {
    let target = target(RING_OVERWRITE);
    let context = target.enter();
    assert!((0..1000).all(|sequence| write(&target, context, sequence)));
    let mut reader = RingReader::new(context - target.arena, &target.plan, RING_OVERWRITE);
    let mut read = Vec::new();
    while let Some(record) = reader.next(&target.memory).unwrap() {
        read.push(check(&record));
    }
    assert!(read.len() > 20, "{}", read.len());
    assert_eq!(read, (1000 - read.len() as u64..1000).collect::<Vec<_>>());
    assert_eq!(reader.outstanding(&target.memory), Ok(1000 - read.len() as u64));
    assert_eq!(reader.drops(&target.memory), Ok(0));
}

/// Handlers may run after `exit()`, until their probes are gone.
#[test]
fn after_an_exit_no_record_is_overwritten() {
    let target = target(RING_OVERWRITE);
    let context = target.enter();
    assert!((0..1000).all(|sequence| write(&target, context, sequence)));
    let reader = || RingReader::new(context - target.arena, &target.plan, RING_OVERWRITE);
    let oldest = check(&reader().next(&target.memory).unwrap().unwrap());
    target
        .memory
        .store_u32(offset_of!(Control, exit_requested) as u64, 1)
        .unwrap();
    // Writes records until the free room is used up.
    let written = (1000..2000)
        .filter(|sequence| write(&target, context, *sequence))
        .count();
    assert!(written < 10, "{written}");
    let mut reader = reader();
    assert_eq!(check(&reader.next(&target.memory).unwrap().unwrap()), oldest);
    assert_eq!(reader.drops(&target.memory), Ok(0));
}

#[test]
fn an_impossible_size_is_a_drop() {
    for policy in [RING_SWITCH, RING_OVERWRITE] {
        let target = target(policy);
        let context = target.enter();
        for bytes in [4104, 1 << 40, u64::MAX, u64::MAX - 7] {
            assert_eq!(target.run(context, Function::Reserve, &[1, bytes]).0, 0);
        }
        assert_eq!(target.get(context, offset_of!(Context, ring_drops)), 4);
        // The least and the greatest size.
        assert_ne!(target.run(context, Function::Reserve, &[1, 0]).0, 0);
        assert_ne!(target.run(context, Function::Reserve, &[1, 4096]).0, 0);
    }
}

/// The most important test: a writer and a reader at the same time.
#[test]
fn a_concurrent_reader_accounts_for_every_record() {
    for policy in [RING_SWITCH, RING_OVERWRITE] {
        let target = target(policy);
        let done = AtomicBool::new(false);
        let total = 200_000_u64;
        let (context, dropped) = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let context = target.enter();
                let dropped = (0..total)
                    .filter(|sequence| !write(&target, context, *sequence))
                    .count() as u64;
                done.store(true, Ordering::Release);
                (context, dropped)
            });
            // The only context.
            let mut reader = RingReader::new(target.contexts, &target.plan, policy);
            let mut last = None;
            let mut read = 0_u64;
            loop {
                let finished = done.load(Ordering::Acquire);
                match reader.next(&target.memory).unwrap() {
                    Some(record) => {
                        let sequence = check(&record);
                        assert!(last.is_none_or(|last| sequence > last), "{sequence} after {last:?}");
                        last = Some(sequence);
                        read += 1;
                    }
                    None if finished => break,
                    None => std::thread::yield_now(),
                }
            }
            let (context, dropped) = writer.join().unwrap();
            assert_eq!(reader.corrupted(), 0);
            assert_eq!(reader.delivered(), read);
            let lost = reader.outstanding(&target.memory).unwrap();
            assert_eq!(read + lost + dropped, total);
            if policy == RING_SWITCH {
                assert_eq!(lost, 0);
            } else {
                assert_eq!((dropped, last), (0, Some(total - 1)));
            }
            (context, dropped)
        });
        assert_eq!(target.get(context, offset_of!(Context, ring_drops)), dropped);
    }
}

#[test]
fn a_scribbled_ring_does_not_lead_the_writer_astray() {
    let target = target(RING_OVERWRITE);
    let context = target.enter();
    let ring = context - target.arena + target.plan.ring;
    for scribble in [0, 4, u64::MAX, 0xffff_fff8_0000_0001, 0x0000_0009_0000_0001] {
        for word in 0..512 {
            target.memory.store_u64(ring + word * 8, scribble).unwrap();
        }
        for sequence in 0..100 {
            assert!(write(&target, context, sequence));
        }
        target.set(context, offset_of!(Context, ring_overwritten), scribble);
        target.set(context, offset_of!(Context, ring_tail), scribble);
        assert!(write(&target, context, 1));
    }
}

#[test]
fn errors_are_records() {
    let target = target(RING_SWITCH);
    let context = target.enter();
    target.begin(context);
    target.run(context, Function::Load, &[8, 8]);
    target.run(context, Function::Error, &[3]);
    let mut reader = RingReader::new(context - target.arena, &target.plan, RING_SWITCH);
    let record = reader.next(&target.memory).unwrap().unwrap();
    assert_eq!(record.epid, RECORD_ERROR | 7);
    let error = ErrorRecord::from_bytes(&record.payload).unwrap();
    assert_eq!(
        error,
        ErrorRecord {
            fault: FAULT_BAD_ADDRESS,
            action: 3,
            value: 8
        }
    );
    assert_eq!(target.get(context, offset_of!(Context, errors)), 1);
}
