//! Keys, hash aggregations and their buckets, against models in Rust.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;
use std::collections::HashMap;

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Context, FAULT_KEY_TOO_LONG, RING_SWITCH};
use nanoprobe_arena::{AggregateTables, ContextPlan, Memory, Turn, buckets};

/// Pseudo-random numbers that are the same in every run (splitmix64).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Numbers of all magnitudes, and of both signs.
    fn spread(&mut self) -> i64 {
        let value = self.next() as i64;
        let shift = self.next() % 64;
        value >> shift
    }
}

/// Adds to the value words of (aggregation, key); yields whether there was room.
fn count(target: &Target, context: u64, aggregation: u64, key: &[u64], words: u64) -> bool {
    target.begin(context);
    for element in key {
        target.run(context, Function::KeyInteger, &[*element]);
    }
    let (address, fault) = target.run(context, Function::Aggregate, &[aggregation, words]);
    assert_eq!(fault, 0);
    if address != 0 {
        for word in 0..words {
            let at = address - target.arena + word * 8;
            target
                .memory
                .store_u64(at, target.memory.load_u64(at).unwrap() + word + 1)
                .unwrap();
        }
    }
    address != 0
}

/// Value words, by aggregation and key.
type Counts = HashMap<(u32, Vec<u64>), Vec<u64>>;

fn tables(target: &Target, context: u64) -> AggregateTables {
    AggregateTables::new(context - target.arena, context, &target.plan)
}

/// The content of a table.
fn read(target: &Target, tables: &AggregateTables, table: Turn) -> Counts {
    let mut read = HashMap::new();
    for entry in tables.reader(table).entries(&target.memory).unwrap() {
        let entry = entry.unwrap();
        let key = entry
            .key
            .chunks(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap()))
            .collect();
        assert!(
            read.insert((entry.aggregation, key), entry.words).is_none(),
            "a key twice"
        );
    }
    read
}

/// `sums += counts`.
fn add(sums: &mut Counts, counts: Counts) {
    for (key, words) in counts {
        let sum = sums.entry(key).or_insert_with(|| vec![0; words.len()]);
        sum.iter_mut().zip(words).for_each(|(sum, word)| *sum += word);
    }
}

#[test]
fn counts_are_a_models_until_full_and_drops_are_exact() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let mut model = Counts::new();
    let mut drops = 0;
    let mut numbers = Numbers(1);
    for _ in 0..20_000 {
        let aggregation = numbers.next() % 3;
        let key: Vec<u64> = (0..aggregation + 1).map(|_| numbers.next() % 40).collect();
        let words = aggregation + 1;
        if count(&target, context, aggregation, &key, words) {
            let value = model
                .entry((aggregation as u32, key))
                .or_insert_with(|| vec![0; words as usize]);
            for (index, word) in value.iter_mut().enumerate() {
                *word += index as u64 + 1;
            }
        } else {
            assert!(!model.contains_key(&(aggregation as u32, key)));
            drops += 1;
        }
    }
    assert!(drops > 1000, "the table should have been filled: {drops}");
    assert_eq!(target.get(context, offset_of!(Context, aggregate_drops)), drops);
    assert_eq!(read(&target, &tables(&target, context), Turn::First), model);
    // All room was used: the remaining room is smaller than the smallest entry that was dropped.
    let used = target
        .memory
        .load_u64(context - target.arena + target.plan.aggregates[0] + 8)
        .unwrap();
    assert!(target.plan.aggregate_bytes - used < 16 + 3 * 8 + 3 * 8, "{used}");
}

#[test]
fn nothing_is_dropped_while_there_is_room() {
    let plan = ContextPlan::new(0, 0, 0, 0, 64, 1 << 20, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        ..Options::default()
    });
    let context = target.enter();
    let fitting = (plan.aggregate_bytes - plan.first_entry()) / ContextPlan::entry_bytes(8, 1);
    assert!(fitting > 20_000);
    // Keys are often addresses of functions: multiples of sixteen in one range.
    for index in 0..fitting {
        assert!(
            count(&target, context, 1, &[0x5555_5555_4000 + index * 16], 1),
            "dropped at {index} of {fitting}"
        );
    }
    assert_eq!(target.get(context, offset_of!(Context, aggregate_drops)), 0);
}

#[test]
fn strings_in_keys_are_whole_words() {
    let target = Target::new(&Options {
        strsize: 20,
        ..Options::default()
    });
    let context = target.enter();
    let expected: [(&[u8], &[u8]); 6] = [
        (b"", b"\0\0\0\0\0\0\0\0"),
        (b"abcdefg", b"abcdefg\0"),
        (b"abcdefgh", b"abcdefgh\0\0\0\0\0\0\0\0"),
        (b"0123456789abcdefgh", b"0123456789abcdefgh\0\0\0\0\0\0"),
        (b"0123456789abcdefghi", b"0123456789abcdefghi\0\0\0\0\0"),
        (b"0123456789abcdefghijklmnop", b"0123456789abcdefghi\0\0\0\0\0"),
    ];
    for (text, key) in expected {
        for place in 0..9 {
            target.memory.write(common::ROOM, &[0xff; 64]).unwrap();
            let string = target.string(place, text);
            target.begin(context);
            let (_, fault) = target.run(context, Function::KeyString, &[string]);
            assert_eq!(fault, 0);
            let bytes = target.get(context, offset_of!(Context, key_bytes));
            let buffer = target.get(context, offset_of!(Context, key));
            assert_eq!(target.bytes(buffer, bytes), key, "{text:?} at {place}");
        }
    }
}

#[test]
fn a_key_that_does_not_fit_is_a_fault_and_stays_unchanged() {
    let plan = ContextPlan::new(0, 0, 0, 0, 24, 4096, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        ..Options::default()
    });
    let context = target.enter();
    let string = target.string(0, b"0123456789abcdef");
    target.begin(context);
    assert_eq!(target.run(context, Function::KeyInteger, &[1]).1, 0);
    assert_eq!(
        target.run(context, Function::KeyString, &[string]).1,
        u64::from(FAULT_KEY_TOO_LONG)
    );
    assert_eq!(target.get(context, offset_of!(Context, key_bytes)), 8);
    target.begin(context);
    for element in 0..3 {
        assert_eq!(target.run(context, Function::KeyInteger, &[element]).1, 0);
    }
    assert_eq!(
        target.run(context, Function::KeyInteger, &[3]).1,
        u64::from(FAULT_KEY_TOO_LONG)
    );
    assert_eq!(target.get(context, offset_of!(Context, key_bytes)), 24);
}

#[test]
fn a_context_without_a_table_drops() {
    let plan = ContextPlan::new(0, 0, 0, 0, 64, 0, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        policy: RING_SWITCH,
        ..Options::default()
    });
    let context = target.enter();
    assert!(!count(&target, context, 1, &[1], 1));
    assert_eq!(target.get(context, offset_of!(Context, aggregate_drops)), 1);
}

/// There are always new keys, many times more than fit, and some keys that recur. The thread switches tables whenever
/// the tracer asks, and each count is copied exactly once.
#[test]
fn a_thread_whose_tables_are_emptied_never_runs_out_of_room() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let mut tables = tables(&target, context);
    let mut numbers = Numbers(5);
    let (mut model, mut taken) = (Counts::new(), Counts::new());
    let room = tables.reader(Turn::First).room();
    let mut turns = 0;
    for index in 0..50_000 {
        let old = numbers.next() % 10;
        for key in [vec![old], vec![1000 + index, 7]] {
            assert!(count(&target, context, 2, &key, 2), "dropped at {index}");
            let words = model.entry((2, key)).or_insert_with(|| vec![0; 2]);
            words[0] += 1;
            words[1] += 2;
        }
        if let Some(left) = tables.left(&target.memory).unwrap() {
            add(&mut taken, read(&target, &tables, left));
            tables.empty(&target.memory).unwrap();
        }
        if let Some(current) = tables.current()
            && tables.reader(current).taken(&target.memory).unwrap() > room / 2
        {
            tables.turn(&target.memory).unwrap();
            turns += 1;
        }
    }
    for table in tables.in_use() {
        add(&mut taken, read(&target, &tables, table));
    }
    assert!(turns > 50, "{turns}");
    assert_eq!(target.get(context, offset_of!(Context, aggregate_drops)), 0);
    assert_eq!(taken, model);
}

/// A handler may use the words that it got until it asks for other words, however long that takes.
#[test]
fn a_table_is_left_only_with_the_next_aggregation() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let mut tables = tables(&target, context);
    let mut filled = 0;
    while count(&target, context, 1, &[filled], 1) {
        filled += 1;
    }
    target.begin(context);
    target.run(context, Function::KeyInteger, &[3]);
    let (held, _) = target.run(context, Function::Aggregate, &[1, 1]);
    tables.turn(&target.memory).unwrap();
    // Another hit, which aggregates nothing: building a key does not switch tables.
    target.begin(context);
    target.run(context, Function::KeyInteger, &[4]);
    assert_eq!(tables.left(&target.memory), Ok(None));
    tables.empty(&target.memory).unwrap();
    let at = held - target.arena;
    target
        .memory
        .store_u64(at, target.memory.load_u64(at).unwrap() + 1)
        .unwrap();
    assert_eq!(read(&target, &tables, Turn::First)[&(1, vec![3])], [2]);
    // A key that found no room finds room now. That also holds in the handler of a signal that interrupted a D
    // handler and leaves it by siglongjmp.
    assert!(count(&target, context, 1, &[filled], 1));
    assert_eq!(tables.left(&target.memory), Ok(Some(Turn::First)));
    assert_eq!(target.get(context, offset_of!(Context, aggregate_drops)), 1);
    assert_eq!(
        read(&target, &tables, Turn::Second),
        HashMap::from([((1, vec![filled]), vec![1])])
    );
    tables.empty(&target.memory).unwrap();
    tables.turn(&target.memory).unwrap();
    for key in 0..filled {
        assert!(count(&target, context, 1, &[key], 1), "the first table is empty again");
    }
    assert_eq!(read(&target, &tables, Turn::First).len(), filled as usize);
}

/// A context passes from an ended thread to the next thread, which answers the tracer's request to the ended thread.
#[test]
fn the_next_thread_of_a_context_answers_for_the_last_one() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let mut tables = tables(&target, context);
    assert!(count(&target, context, 1, &[1], 1));
    tables.turn(&target.memory).unwrap();
    target.call(Function::ThreadChanged, &[context]);
    assert_eq!(tables.left(&target.memory), Ok(None));
    assert!(count(&target, context, 1, &[2], 1));
    assert_eq!(tables.left(&target.memory), Ok(Some(Turn::First)));
}

/// Clears `words` words of the static slots and yields their address.
fn slots(target: &Target, context: u64, words: u64) -> u64 {
    target
        .memory
        .write(context - target.arena + 4096, &vec![0; words as usize * 8])
        .unwrap();
    context + 4096
}

/// The only bucket with a weight, and the weight.
fn only(target: &Target, context: u64, words: u64) -> (usize, u64) {
    let words = nanoprobe_arena::static_words(&target.memory, context - target.arena, 4096, words).unwrap();
    let mut full = words.iter().enumerate().filter(|(_, word)| **word != 0);
    let (bucket, value) = full.next().unwrap();
    assert!(full.next().is_none(), "more than one bucket");
    (bucket, *value)
}

#[test]
fn buckets_are_rusts() {
    let plan = ContextPlan::new(1 << 20, 0, 0, 0, 0, 0, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        ..Options::default()
    });
    let context = target.enter();
    let mut numbers = Numbers(2);
    let edges = [0, 1, -1, i64::MIN, i64::MAX, i64::MIN + 1, 1 << 62, -(1 << 62)];
    let values: Vec<i64> = edges.into_iter().chain((0..3000).map(|_| numbers.spread())).collect();
    for value in &values {
        let words = slots(&target, context, 128);
        target.run(context, Function::Quantize, &[words, *value as u64, 3]);
        assert_eq!(
            only(&target, context, 128),
            (buckets::quantize_bucket(*value), 3),
            "{value}"
        );
    }
    for value in &values {
        let (step, levels) = (numbers.next() % 100 + 1, numbers.next() % 50);
        let base = numbers.spread() as i32;
        let packed = (step << 48) | (levels << 32) | u64::from(base as u32);
        let near = i64::from(base) + (value % 6000);
        for value in [*value, near] {
            let words = slots(&target, context, levels + 2);
            target.run(context, Function::LinearQuantize, &[words, value as u64, 1, packed]);
            let bucket = buckets::lquantize_bucket(packed, value).unwrap();
            assert_eq!(
                only(&target, context, levels + 2),
                (bucket, 1),
                "{value} in {packed:#x}"
            );
        }
    }
    for value in &values {
        let factor = numbers.next() % 20 + 2;
        let (low, high) = (numbers.next() % 5, numbers.next() % 20);
        let packed = (factor << 48) | (low << 32) | (high << 16) | (factor * (numbers.next() % 5 + 1));
        let count = buckets::llquantize_buckets(packed) as u64;
        let words = slots(&target, context, count);
        target.run(
            context,
            Function::LogLinearQuantize,
            &[words, *value as u64, u64::MAX, packed],
        );
        let bucket = buckets::llquantize_bucket(packed, *value).unwrap();
        assert_eq!(
            only(&target, context, count),
            (bucket, u64::MAX),
            "{value} in {packed:#x}"
        );
    }
}

/// No parameters make the agent divide by zero, loop for long, or write outside.
#[test]
fn absurd_parameters_are_harmless() {
    let plan = ContextPlan::new(1 << 20, 0, 0, 0, 0, 0, 0).unwrap();
    let target = Target::new(&Options {
        plan,
        ..Options::default()
    });
    let context = target.enter();
    let mut numbers = Numbers(3);
    for _ in 0..3000 {
        let packed = if numbers.next().is_multiple_of(2) {
            numbers.next()
        } else {
            numbers.next() & 0x001f_003f_003f_003f
        };
        let value = numbers.spread();
        let words = slots(&target, context, 1000);
        target.run(context, Function::LogLinearQuantize, &[words, value as u64, 1, packed]);
        match buckets::llquantize_bucket(packed, value) {
            Some(bucket) if bucket < 1000 => {
                assert_eq!(only(&target, context, 1000), (bucket, 1), "{value} {packed:#x}")
            }
            _ => {}
        }
    }
    for function in [
        Function::LinearQuantize,
        Function::LogLinearQuantize,
        Function::Quantize,
    ] {
        target.run(context, function, &[0, 5, 1, 0]);
    }
    target.run(
        context,
        Function::LinearQuantize,
        &[slots(&target, context, 8), 5, 1, 4 << 32],
    );
    assert_eq!(target.bytes(context + 4096, 64), [0; 64]);
}

#[test]
fn standard_deviation_sums_in_128_bits() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let words = slots(&target, context, 4);
    let mut numbers = Numbers(4);
    let (mut sum, mut squares) = (0_i64, 0_u128);
    for _ in 0..1000 {
        let value = numbers.spread() >> 6;
        sum = sum.wrapping_add(value);
        squares += u128::from(value.unsigned_abs()).pow(2);
        target.run(context, Function::StandardDeviation, &[words, value as u64]);
    }
    let read = nanoprobe_arena::static_words(&target.memory, context - target.arena, 4096, 4).unwrap();
    assert_eq!(read, [1000, sum as u64, squares as u64, (squares >> 64) as u64]);
}
