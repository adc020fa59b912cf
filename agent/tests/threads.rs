//! Contexts: one for each thread, none for a forked child, none after exit().

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;
use std::collections::HashSet;
use std::sync::Barrier;

use common::{Options, Target, in_child};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{
    CONTEXT_SLOTS, Context, Control, KEY_FSBASE, KEY_TLS_SELF, SLOT_ENDED, TABLE_BITS, TABLE_EARLY_KEYS, TABLE_FACTOR,
    TABLE_LENT, TABLE_SLOTS,
};
use nanoprobe_arena::{ControlBlock, Memory};

fn missed(target: &Target) -> u64 {
    target
        .memory
        .load_u64(offset_of!(Control, missed_without_context) as u64)
        .unwrap()
}

#[test]
fn every_thread_gets_its_own() {
    let target = Target::new(&Options {
        contexts: 64,
        ..Options::default()
    });
    let barrier = Barrier::new(32);
    let contexts: Vec<(u64, u64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..32)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let context = target.enter();
                    for _ in 0..1000 {
                        assert_eq!(target.enter(), context);
                    }
                    // SAFETY: asks for nothing but a number.
                    let tid = unsafe { libc::gettid() } as u64;
                    assert_eq!(
                        u64::from(target.memory.load_u32(context - target.arena + 80).unwrap()),
                        tid
                    );
                    barrier.wait();
                    (context, target.get(context, offset_of!(Context, thread_key)))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(contexts.iter().all(|(context, key)| *context != 0 && *key != 0));
    assert_eq!(
        contexts
            .iter()
            .map(|(context, _)| *context)
            .collect::<HashSet<_>>()
            .len(),
        32
    );
    assert_eq!(contexts.iter().map(|(_, key)| *key).collect::<HashSet<_>>().len(), 32);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().contexts_in_use(), Ok(32));
    assert_eq!(missed(&target), 0);
}

#[test]
fn more_threads_than_contexts_are_missed_and_counted() {
    let target = Target::new(&Options {
        contexts: 3,
        ..Options::default()
    });
    let barrier = Barrier::new(8);
    let with = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let first = target.enter();
                    assert_eq!(target.enter(), first);
                    barrier.wait();
                    first != 0
                })
            })
            .collect();
        threads
            .into_iter()
            .filter(|_| true)
            .map(|thread| thread.join().unwrap())
            .filter(|found| *found)
            .count()
    });
    assert_eq!(with, 3);
    assert_eq!(missed(&target), 5 * 2);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().contexts_in_use(), Ok(3));
}

/// The tracer prepares contexts as threads arrive: a thread without one asks again.
#[test]
fn a_thread_that_was_missed_gets_its_context_when_there_are_more() {
    let target = Target::new(&Options {
        contexts: 2,
        ..Options::default()
    });
    let capacity = offset_of!(Control, context_capacity) as u64;
    target.memory.store_u32(capacity, 0).unwrap();
    assert_eq!(target.enter(), 0);
    assert_eq!(target.enter(), 0);
    assert_eq!(missed(&target), 2);
    target.memory.store_u32(capacity, 1).unwrap();
    let context = target.enter();
    assert_ne!(context, 0);
    assert_eq!(target.enter(), context);
    let other = || std::thread::scope(|scope| scope.spawn(|| target.enter()).join().unwrap());
    assert_eq!(other(), 0);
    target.memory.store_u32(capacity, 2).unwrap();
    assert_eq!(other(), context + target.plan.stride);
    assert_eq!(target.enter(), context);
    assert_eq!(missed(&target), 3);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().contexts_in_use(), Ok(2));
}

/// Threads claim contexts while the tracer adds contexts: no two threads get the same one.
#[test]
fn no_two_threads_share_a_context_that_the_tracer_adds() {
    let target = Target::new(&Options {
        contexts: 48,
        ..Options::default()
    });
    let capacity = offset_of!(Control, context_capacity) as u64;
    target.memory.store_u32(capacity, 0).unwrap();
    let barrier = Barrier::new(49);
    let contexts: HashSet<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..48)
            .map(|_| {
                scope.spawn(|| {
                    barrier.wait();
                    let mut context = 0;
                    while context == 0 {
                        context = target.enter();
                        std::thread::yield_now();
                    }
                    barrier.wait();
                    context
                })
            })
            .collect();
        barrier.wait();
        for ready in 1..=48 {
            target.memory.store_u32(capacity, ready).unwrap();
            std::thread::yield_now();
        }
        barrier.wait();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(contexts.len(), 48);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().contexts_in_use(), Ok(48));
}

#[test]
fn a_forked_child_gets_none_and_writes_nothing() {
    let target = Target::new(&Options::default());
    assert_ne!(target.enter(), 0);
    let before = target.memory.copy(0, target.memory.bytes()).unwrap();
    let status = in_child(|| i32::from(target.enter() != 0) + 2 * i32::from(target.enter() != 0));
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    assert!(before == target.memory.copy(0, target.memory.bytes()).unwrap());
    assert_ne!(target.enter(), 0);
}

#[test]
fn exit_ends_all_contexts() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let other = std::thread::scope(|scope| scope.spawn(|| target.enter()).join().unwrap());
    assert_ne!(other, 0);
    target.run(context, Function::Exit, &[(-5_i64) as u64]);
    assert_eq!(ControlBlock::open(&target.memory).unwrap().exit_status(), Ok(Some(-5)));
    assert_eq!(target.enter(), 0);
    assert_eq!(
        std::thread::scope(|scope| scope.spawn(|| target.enter()).join().unwrap()),
        0
    );
    assert_eq!(missed(&target), 0);
    // SAFETY: the table is mapped, and no thread writes it now.
    let slots = unsafe { core::slice::from_raw_parts(target.table as *const u64, 8192) };
    assert!(slots.iter().skip(1).step_by(2).all(|context| *context == 0));
    assert_eq!(slots.iter().step_by(2).filter(|key| **key != 0).count(), 2);
}

fn thread_pointer() -> u64 {
    let pointer: u64;
    // SAFETY: in every libc that Rust runs on, the thread control block begins with its own address.
    unsafe { core::arch::asm!("mov {}, fs:0", out(reg) pointer) };
    pointer
}

#[test]
fn the_thread_is_known_by_its_pointer_and_its_id_by_the_control_block() {
    // Where this libc keeps the thread's id.
    // SAFETY: asks for nothing but a number.
    let tid = unsafe { libc::gettid() } as u32;
    let pointer = thread_pointer();
    // SAFETY: glibc's and musl's thread control blocks are larger than this.
    let found = (8..1024_u32)
        .step_by(4)
        .find(|at| unsafe { *((pointer + u64::from(*at)) as *const u32) } == tid);
    let tid_offset = found.unwrap();
    // SAFETY: asks for nothing but a number. Bit 1 of AT_HWCAP2: the kernel lets programs read their FS base.
    let readable = unsafe { libc::getauxval(libc::AT_HWCAP2) } & 2 != 0;
    for mode in [KEY_TLS_SELF, KEY_FSBASE]
        .into_iter()
        .filter(|mode| *mode == KEY_TLS_SELF || readable)
    {
        let target = Target::new(&Options {
            thread_key_mode: mode,
            tid_offset,
            ..Options::default()
        });
        let context = target.enter();
        assert_eq!(target.get(context, offset_of!(Context, thread_key)), pointer);
        assert_eq!(
            target.get(context, offset_of!(Context, tid_address)),
            pointer + u64::from(tid_offset)
        );
        assert_eq!(
            target.memory.load_u32(target.field(context, offset_of!(Context, tid))),
            Ok(tid)
        );
    }
}

#[test]
fn a_changed_thread_starts_afresh() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let locals = target.get(context, offset_of!(Context, locals)) - target.arena;
    for word in 0..8 {
        target.memory.store_u64(locals + word * 8, 1).unwrap();
    }
    target
        .memory
        .store_u32(target.field(context, offset_of!(Context, tid)), 1)
        .unwrap();
    target.run(context, Function::ThreadChanged, &[]);
    // SAFETY: asks for nothing but a number.
    let tid = unsafe { libc::gettid() } as u32;
    assert_eq!(
        target.memory.load_u32(target.field(context, offset_of!(Context, tid))),
        Ok(tid)
    );
    assert_eq!(target.memory.copy(locals, 64).unwrap(), [0; 64]);
}

/// A program's first thread runs under a thread pointer of ours, until its C library sets another one.
#[test]
fn a_thread_that_gets_its_thread_pointer_keeps_its_context() {
    for is_same_thread in [true, false] {
        let target = Target::new(&Options::default());
        let context = target.enter();
        let (lent, pointer) = (target.table + TABLE_LENT as u64, thread_pointer());
        let slots = target.table as *mut [u64; 2];
        let first = |key: u64| (key.wrapping_mul(TABLE_FACTOR) >> (64 - TABLE_BITS)) as usize;
        // SAFETY: the table is mapped, has this many slots, and only this thread uses it.
        unsafe {
            assert_eq!(*slots.add(first(pointer)), [pointer, context]);
            *slots.add(first(pointer)) = [0, 0];
            *slots.add(first(lent)) = [lent, context];
            *((target.table + TABLE_EARLY_KEYS as u64) as *mut u64) = 1;
        }
        target.set(context, offset_of!(Context, thread_key), lent);
        let locals = target.get(context, offset_of!(Context, locals)) - target.arena;
        target.memory.store_u64(locals, 77).unwrap();
        let tid = target.field(context, offset_of!(Context, tid));
        let own = target.memory.load_u32(tid).unwrap();
        target.memory.store_u32(tid, own + u32::from(!is_same_thread)).unwrap();
        let found = target.enter();
        // SAFETY: as above.
        let left = unsafe { *slots.add(first(lent)) };
        assert_eq!(found == context, is_same_thread);
        assert_eq!(left, [lent, if is_same_thread { 0 } else { context }]);
        assert_eq!(target.get(found, offset_of!(Context, thread_key)), pointer);
        assert_eq!(target.memory.load_u64(locals), Ok(77));
        assert_eq!(target.enter(), found);
    }
}

/// Does what the tracer does when a thread is gone.
fn end(target: &Target, context: u64) {
    let offset = context - target.arena;
    let index = target
        .memory
        .load_u32(target.field(context, offset_of!(Context, index)))
        .unwrap();
    target
        .memory
        .store_u64(offset + offset_of!(Context, thread_key) as u64, 0)
        .unwrap();
    target
        .memory
        .store_u64(offset_of!(Control, contexts_ended) as u64, 1 << index)
        .unwrap();
}

fn elsewhere<T: Send>(what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| scope.spawn(what).join().unwrap())
}

#[test]
fn counts_stay_when_another_thread_takes_the_context() {
    let target = Target::new(&Options {
        contexts: 2,
        ..Options::default()
    });
    let own = target.enter();
    let slot = |context: u64| context - target.arena + CONTEXT_SLOTS;
    let locals = |context: u64| target.get(context, offset_of!(Context, locals)) - target.arena;
    // One thread starts the other, so that both exist at once and have different thread pointers.
    let (first, (second, tid)) = elsewhere(|| {
        let first = target.enter();
        assert!(own != 0 && first != 0 && own != first);
        let set = |place: u64, value: u64| target.memory.store_u64(place, value).unwrap();
        set(slot(first), 41);
        set(locals(first), 1);
        set(target.field(first, offset_of!(Context, ring_records)), 5);
        // The thread ended in the middle of a handler.
        set(target.field(first, offset_of!(Context, busy)), 7);
        set(target.field(first, offset_of!(Context, ring_pending)), 7);
        end(&target, first);
        // SAFETY: asks for nothing but a number.
        let second = elsewhere(|| (target.enter(), unsafe { libc::gettid() } as u32));
        (first, second)
    });
    let at = |field: usize| target.field(first, field);
    let (slot, locals) = (slot(first), locals(first));
    assert_eq!(second, first);
    assert_eq!(target.memory.load_u32(at(offset_of!(Context, tid))), Ok(tid));
    assert_eq!(target.memory.load_u64(slot), Ok(41));
    assert_eq!(target.memory.load_u64(locals), Ok(0));
    assert_eq!(target.memory.load_u64(at(offset_of!(Context, ring_records))), Ok(5));
    for field in [offset_of!(Context, busy), offset_of!(Context, ring_pending)] {
        assert_eq!(target.memory.load_u64(at(field)), Ok(0));
    }
    assert_eq!(
        target.memory.load_u64(offset_of!(Control, contexts_ended) as u64),
        Ok(0)
    );
    assert_eq!(ControlBlock::open(&target.memory).unwrap().contexts_in_use(), Ok(2));
    assert_eq!(missed(&target), 0);
}

/// A thread whose slot lies after a freed slot still finds its own; a new thread takes the freed slot.
#[test]
fn chains_go_on_past_slots_of_threads_that_are_gone() {
    let target = Target::new(&Options::default());
    let slots = target.table as *mut u64;
    let first = (thread_pointer().wrapping_mul(TABLE_FACTOR) >> (64 - TABLE_BITS)) as usize;
    let key = |index: usize| {
        // SAFETY: the table is mapped, and only this thread uses it.
        unsafe { &mut *slots.add(2 * ((first + index) % TABLE_SLOTS)) }
    };
    *key(0) = 0x1000;
    *key(1) = SLOT_ENDED;
    let context = target.enter();
    assert_ne!(context, 0);
    assert_eq!(*key(1), thread_pointer());
    *key(0) = SLOT_ENDED;
    assert_eq!(target.enter(), context);
    assert_eq!((*key(0), *key(1)), (SLOT_ENDED, thread_pointer()));
    assert_eq!(target.memory.load_u64(offset_of!(Control, slots_claimed) as u64), Ok(1));
}
