//! Return addresses that are replaced, and restored for an unwinder.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::sync::Barrier;

use common::{Options, Target, map, map_code};
use nanoprobe_agent::Function;
use nanoprobe_arena::Structure as _;
use nanoprobe_arena::layout::{
    MAGIC, RETURN_CHUNK, RETURN_POOL_BYTES, RETURN_POOL_INSTANCES, RETURN_THUNK_BYTES, ReturnInstance, Returns, VERSION,
};

const THUNKS: u64 = 0x10_0000_0000;
/// The number of other threads, each of which is within a call and has a chunk of instances.
const OTHERS: usize = 40;

/// A place after a call, to which a function returns.
fn behind_a_call() -> u64 {
    let mut code = [0x90; 64];
    code[16] = 0xe8;
    map_code(&code) + 21
}

fn target() -> (Target, u64) {
    let pool = map(RETURN_POOL_BYTES as usize, libc::MAP_PRIVATE);
    let head = Returns {
        magic: MAGIC,
        version: VERSION,
        maxactive: RETURN_CHUNK,
        thunks: THUNKS,
        ..Returns::default()
    };
    let bytes = head.to_bytes();
    // SAFETY: the mapping is new, ours, and larger than its head.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), pool as *mut u8, bytes.len()) };
    let options = Options {
        contexts: OTHERS as u32 + 1,
        returns: pool,
        thunks: THUNKS,
        ..Options::default()
    };
    (Target::new(&options), pool)
}

/// Replaces a return address on the calling thread's own stack; yields its instance.
fn take(target: &Target, slot: &mut u64) -> u64 {
    let context = target.enter();
    let instance = target.call(Function::ReturnTake, &[context, core::ptr::from_mut(slot) as u64, 1]);
    assert_ne!(instance, 0);
    instance
}

fn now(slot: &u64) -> u64 {
    // SAFETY: a reference is always valid. The read is volatile because the agent has changed the value.
    unsafe { core::ptr::from_ref(slot).read_volatile() }
}

fn protect(pool: u64, chunks: core::ops::Range<u64>, protection: i32) {
    let chunk =
        |number: u64| pool + RETURN_POOL_INSTANCES + number * u64::from(RETURN_CHUNK) * ReturnInstance::BYTES as u64;
    let (start, end) = (chunk(chunks.start).next_multiple_of(4096), chunk(chunks.end) & !4095);
    // SAFETY: whole pages of the pool, which this test alone uses.
    let result = unsafe { libc::mprotect(start as *mut _, (end - start) as usize, protection) };
    assert_eq!(result, 0);
}

/// The bounds of chunks keep an unwinder from looking at the instances of all other threads. In this test, such a look
/// would fault.
#[test]
fn an_unwinder_does_not_look_at_other_threads_instances() {
    let (target, pool) = target();
    let original = behind_a_call();
    let (taken, put_back) = (Barrier::new(OTHERS + 1), Barrier::new(OTHERS + 1));
    let mut own = original;
    let first = take(&target, &mut own);
    std::thread::scope(|scope| {
        for _ in 0..OTHERS {
            scope.spawn(|| {
                let mut slot = original;
                let instance = take(&target, &mut slot);
                let index = (instance - pool - RETURN_POOL_INSTANCES) / ReturnInstance::BYTES as u64;
                let thunk = THUNKS + index * RETURN_THUNK_BYTES;
                assert_eq!(now(&slot), thunk);
                taken.wait();
                put_back.wait();
                assert_eq!(now(&slot), thunk);
            });
        }
        taken.wait();
        assert_eq!(first, pool + RETURN_POOL_INSTANCES, "the first chunk is this thread's");
        assert_eq!(now(&own), THUNKS);
        protect(pool, 1..OTHERS as u64 + 1, libc::PROT_NONE);
        target.call(Function::ReturnPutBack, &[]);
        protect(pool, 1..OTHERS as u64 + 1, libc::PROT_READ | libc::PROT_WRITE);
        put_back.wait();
    });
    assert_eq!(now(&own), original);
}

/// A coroutine continues in another thread than the thread in which its call began. There, too, an unwinder finds the
/// real address.
#[test]
fn addresses_replaced_by_another_thread_on_this_stack_are_restored() {
    let (target, _) = target();
    let original = behind_a_call();
    // The slots lie above the frame of the function that restores them.
    let mut slots = [original; 3];
    std::thread::scope(|scope| {
        let slots = &mut slots;
        scope
            .spawn(|| {
                for slot in slots {
                    take(&target, slot);
                }
            })
            .join()
            .unwrap();
    });
    assert!(slots.iter().all(|slot| now(slot) != original));
    target.call(Function::ReturnPutBack, &[]);
    assert!(slots.iter().all(|slot| now(slot) == original));
}
