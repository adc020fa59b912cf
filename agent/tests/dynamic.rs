//! Dynamic variables, by the target's threads and by the tracer.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;

use common::{DYNAMIC, Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Context, Control, DynamicTable};
use nanoprobe_arena::{ContextPlan, DynamicError, Memory};

fn key(target: &Target, context: u64, elements: &[u64]) {
    target.begin(context);
    for element in elements {
        target.run(context, Function::KeyInteger, &[*element]);
    }
}

fn bytes(elements: &[u64]) -> Vec<u8> {
    elements.iter().flat_map(|element| element.to_le_bytes()).collect()
}

/// The agent's value of an integer variable.
fn get(target: &Target, context: u64, variable: u64, elements: &[u64]) -> Option<u64> {
    key(target, context, elements);
    let (address, fault) = target.run(context, Function::DynamicGet, &[variable, 8]);
    assert_eq!(fault, 0);
    (address != 0).then(|| target.memory.load_u64(address - target.arena).unwrap())
}

fn store(target: &Target, context: u64, variable: u64, elements: &[u64], value: u64) {
    key(target, context, elements);
    target.run(context, Function::DynamicStore, &[variable, 8, value]);
}

fn drops(target: &Target) -> u64 {
    target
        .memory
        .load_u64(offset_of!(Control, dynamic_drops) as u64)
        .unwrap()
}

#[test]
fn both_sides_see_the_same_variables() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    for number in 0..200_u64 {
        let elements = [number, number % 3];
        if number % 2 == 0 {
            store(&target, context, 4, &elements, number + 1);
        } else {
            target
                .dynamic
                .store(&target.memory, 4, &bytes(&elements), 8, Some(&bytes(&[number + 1])))
                .unwrap();
        }
    }
    for number in 0..200_u64 {
        let elements = [number, number % 3];
        assert_eq!(get(&target, context, 4, &elements), Some(number + 1));
        let read = target.dynamic.get(&target.memory, 4, &bytes(&elements), 8).unwrap();
        assert_eq!(read, Some(bytes(&[number + 1])));
        assert_eq!(get(&target, context, 5, &elements), None);
        assert_eq!(get(&target, context, 4, &[number]), None);
    }
    // A deletion by one side is seen by the other.
    store(&target, context, 4, &[0, 0], 0);
    assert_eq!(target.dynamic.get(&target.memory, 4, &bytes(&[0, 0]), 8), Ok(None));
    target
        .dynamic
        .store(&target.memory, 4, &bytes(&[1, 1]), 8, None)
        .unwrap();
    assert_eq!(get(&target, context, 4, &[1, 1]), None);
    assert_eq!(target.dynamic.values(&target.memory).unwrap().len(), 198);
    assert_eq!(drops(&target), 0);
}

#[test]
fn strings_are_copied_out() {
    let target = Target::new(&Options {
        strsize: 32,
        ..Options::default()
    });
    let context = target.enter();
    let text = target.string(1, b"hello, world");
    key(&target, context, &[1]);
    target.run(context, Function::DynamicStore, &[2, 32, text]);
    let (address, _) = target.run(context, Function::DynamicGet, &[2, 32]);
    let mut expected = b"hello, world".to_vec();
    expected.resize(32, 0);
    assert_eq!(target.bytes(address, 32), expected);
    assert_eq!(address, target.get(context, offset_of!(Context, scratch)));
    assert_eq!(
        target
            .dynamic
            .get(&target.memory, 2, &bytes(&[1]), 32)
            .unwrap()
            .unwrap(),
        expected
    );
    // The copy stays when the variable changes.
    target
        .dynamic
        .store(&target.memory, 2, &bytes(&[1]), 32, Some(b"other"))
        .unwrap();
    assert_eq!(target.bytes(address, 32), expected);
}

#[test]
fn a_full_table_drops_and_counts() {
    let target = Target::new(&Options {
        dynamic_bytes: 4096,
        ..Options::default()
    });
    let context = target.enter();
    for number in 0..500 {
        store(&target, context, 1, &[number], 1);
    }
    let kept = (0..500)
        .filter(|number| get(&target, context, 1, &[*number]) == Some(1))
        .count() as u64;
    assert!(kept > 50, "{kept}");
    assert_eq!(drops(&target), 500 - kept);
    let full = target
        .dynamic
        .store(&target.memory, 1, &bytes(&[1000]), 8, Some(&bytes(&[1])));
    assert_eq!(full, Err(DynamicError::Full));
    // Deleted elements make room.
    for number in 0..500 {
        store(&target, context, 1, &[number], 0);
    }
    let before = drops(&target);
    for number in 0..kept {
        store(&target, context, 1, &[number], 2);
    }
    assert_eq!(drops(&target), before);
}

#[test]
fn deleted_entries_are_taken_over_by_other_keys() {
    let target = Target::new(&Options {
        dynamic_bytes: 4096,
        ..Options::default()
    });
    let context = target.enter();
    for number in 0..20_000 {
        store(&target, context, 1, &[number], number + 1);
        assert_eq!(get(&target, context, 1, &[number]), Some(number + 1));
        store(&target, context, 1, &[number], 0);
        assert_eq!(get(&target, context, 1, &[number]), None);
    }
    assert_eq!(drops(&target), 0);
}

#[test]
fn a_lock_that_stays_is_a_drop() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let mask = target
        .memory
        .load_u64(DYNAMIC + offset_of!(DynamicTable, bucket_mask) as u64)
        .unwrap();
    for bucket in 0..=mask {
        target.memory.store_u32(DYNAMIC + 32 + bucket * 8, 1).unwrap();
    }
    store(&target, context, 1, &[1], 1);
    assert_eq!(get(&target, context, 1, &[1]), None);
    assert_eq!(drops(&target), 2);
}

#[test]
fn a_program_without_dynamic_variables_has_none() {
    let target = Target::new(&Options {
        dynamic_bytes: 0,
        ..Options::default()
    });
    let context = target.enter();
    store(&target, context, 1, &[1], 1);
    assert_eq!(get(&target, context, 1, &[1]), None);
}

/// Threads and the tracer use different keys in the same buckets at once. No value is lost.
#[test]
fn many_at_once() {
    let plan = ContextPlan::new(0, 0, 0, 64, 64, 0, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        contexts: 8,
        dynamic_bytes: 1 << 18,
        ..Options::default()
    });
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let target = &target;
            scope.spawn(move || {
                let context = target.enter();
                for round in 1..200 {
                    for number in 0..50 {
                        store(target, context, 1, &[thread, number], round);
                        // A busy lock is possible, and counted; a wrong value is not.
                        let read = get(target, context, 1, &[thread, number]);
                        assert!(read.is_none_or(|value| value <= round), "{read:?}");
                    }
                }
                for number in 0..50 {
                    while get(target, context, 1, &[thread, number]) != Some(777) {
                        store(target, context, 1, &[thread, number], 777);
                    }
                }
            });
        }
        for round in 0..2000_u64 {
            let stored = target
                .dynamic
                .store(&target.memory, 1, &bytes(&[9, round % 50]), 8, Some(&bytes(&[round])));
            if stored.is_ok() {
                match target.dynamic.get(&target.memory, 1, &bytes(&[9, round % 50]), 8) {
                    Ok(value) => assert_eq!(value, Some(bytes(&[round]))),
                    Err(error) => assert_eq!(error, DynamicError::Busy),
                }
            }
        }
    });
    let values = target.dynamic.values(&target.memory).unwrap();
    let mut keys: Vec<_> = values.iter().map(|value| value.key.clone()).collect();
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), values.len(), "a key twice");
    assert_eq!(values.iter().filter(|value| value.value == bytes(&[777])).count(), 200);
}
