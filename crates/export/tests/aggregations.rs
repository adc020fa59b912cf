//! Whole outputs of aggregations, compared byte for byte with the files in `golden/`: every
//! function, its keys, their order, and the effects of the consumer's actions.
#![allow(clippy::unwrap_used, reason = "a test ends where it goes wrong")]

mod support;

use nanoprobe_lang::program::{AggregatingFunction as Function, AggregationId, KeyType, RecordKind};
use support::*;

/// Aggregates the same values with every function.
fn every_function(session: &mut Session, keys: &[KeyType]) -> Vec<u32> {
    [
        Function::Count,
        Function::Sum,
        Function::Average,
        Function::Minimum,
        Function::Maximum,
        Function::StandardDeviation,
        Function::Quantize,
        Function::LinearQuantize {
            base: -10,
            limit: 30,
            step: 10,
        },
        Function::LogLinearQuantize {
            factor: 10,
            low: 0,
            high: 2,
            steps: 10,
        },
    ]
    .into_iter()
    .map(|function| session.aggregation(function, keys))
    .collect()
}

#[test]
fn every_function_without_a_key() {
    let mut session = Session::new(&[]);
    for id in every_function(&mut session, &[]) {
        session.values(id, &[], &[-12, -1, 0, 3, 5, 8, 29, 30, 1000]);
    }
    golden("functions", &session.output());
}

#[test]
fn every_function_with_keys() {
    let mut session = Session::new(&[]);
    for id in every_function(&mut session, &[KeyType::String, INT_KEY, INTEGER_KEY]) {
        session.values(id, &[string("one"), integer(-1), integer(10)], &[7, 9]);
        session.values(id, &[string("two"), integer(2), integer(-20)], &[1]);
    }
    golden("functions-keys", &session.output());
}

#[test]
fn normalised() {
    let mut session = Session::new(&["quiet"]);
    let ids = every_function(&mut session, &[]);
    for id in &ids {
        session.values(*id, &[], &[-4000, 1000, 2000, 8000]);
        session.record((1, "", "END"), vec![normalize(*id, 100), printa(None, &[*id])]);
    }
    session.record(
        (1, "", "END"),
        vec![
            plain(RecordKind::Denormalize(AggregationId(ids[1]))),
            printa(None, &[ids[1]]),
        ],
    );
    golden("normalised", &session.output());
}

#[test]
fn distributions() {
    let mut session = Session::new(&[]);
    let quantize = |session: &mut Session, weights: &[(i64, i64)]| {
        let id = session.aggregation(Function::Quantize, &[]);
        weights
            .iter()
            .for_each(|(value, weight)| session.aggregate(id, &[], *value, *weight));
    };
    quantize(&mut session, &[(i64::MIN, 1), (i64::MAX, 1)]);
    quantize(&mut session, &[(0, 1), (1, 2), (4, 3)]);
    quantize(&mut session, &[(1, -1), (2, -3)]);
    quantize(&mut session, &[(-5, 2), (1, -1), (2, 3)]);
    quantize(&mut session, &[(1, 1), (1, -1)]);
    let linear = session.aggregation(
        Function::LinearQuantize {
            base: 0,
            limit: 100,
            step: 10,
        },
        &[],
    );
    session.values(linear, &[], &[-1, 5, 55, 99, 100, 7000]);
    let empty = session.aggregation(
        Function::LinearQuantize {
            base: 0,
            limit: 100,
            step: 10,
        },
        &[],
    );
    session.aggregate(empty, &[], 5, 0);
    let log = session.aggregation(
        Function::LogLinearQuantize {
            factor: 10,
            low: 3,
            high: 5,
            steps: 10,
        },
        &[],
    );
    session.values(log, &[], &[10, 1000, 1999, 2000, 99_999, 100_000, 999_999, 1_000_000]);
    let coarse = session.aggregation(
        Function::LogLinearQuantize {
            factor: 2,
            low: 0,
            high: 6,
            steps: 4,
        },
        &[],
    );
    session.values(coarse, &[], &[0, 1, 2, 3, 4, 5, 6, 7, 9, 31, 32, 100]);
    golden("distributions", &session.output());
}

fn sorted(options: &[&str]) -> String {
    let mut session = Session::new(options);
    let first = session.aggregation(Function::Sum, &[KeyType::String, INT_KEY]);
    let second = session.aggregation(Function::Count, &[INTEGER_KEY]);
    for (text, number, value) in [("b", 1, 5), ("a", 2, 5), ("a", -1, 5), ("c", 0, -7), ("d", 3, 100)] {
        session.aggregate(first, &[string(text), integer(number)], value, 1);
    }
    for key in [3, 1, 2, 1] {
        session.aggregate(second, &[integer(key)], 0, 1);
    }
    session.output()
}

#[test]
fn order() {
    let mut all = String::new();
    for options in [
        &[][..],
        &["aggsortrev"],
        &["aggsortkey"],
        &["aggsortkey", "aggsortkeypos=1"],
        &["aggsortkey", "aggsortrev", "aggsortkeypos=7"],
        &["aggsortkeypos=1"],
    ] {
        all.push_str(&format!("{}:\n{}\n", options.join(" "), sorted(options)));
    }
    golden("order", &all);
}

fn three_by_key(options: &[&str], format: Option<&str>) -> String {
    let mut session = Session::new(options);
    let count = session.aggregation(Function::Count, &[KeyType::String]);
    let sum = session.aggregation(Function::Sum, &[KeyType::String]);
    let average = session.aggregation(Function::Average, &[KeyType::String]);
    let unused = session.aggregation(Function::Maximum, &[KeyType::String]);
    for (key, values) in [("read", &[10, 20][..]), ("write", &[5]), ("open", &[1, 1, 1])] {
        session.values(count, &[string(key)], values);
        session.values(average, &[string(key)], values);
        if key != "write" {
            session.values(sum, &[string(key)], values);
        }
    }
    session.record((1, "", "END"), vec![printa(format, &[count, sum, average, unused])]);
    session.output()
}

#[test]
fn several_aggregations_in_one_printa() {
    let mut all = three_by_key(&[], None);
    for options in [&["aggsortpos=1"][..], &["aggsortkey"], &["aggsortrev", "aggsortpos=9"]] {
        all.push_str(&format!(
            "\n{}:\n{}",
            options.join(" "),
            three_by_key(options, Some("%-8s %@4d %@4x %@4u %@d %@d\n"))
        ));
    }
    golden("printa-joined", &all);
}

#[test]
fn printa_with_formats() {
    let mut session = Session::new(&["quiet"]);
    let stacks = session.aggregation(Function::Count, &[STACK_KEY, INTEGER_KEY]);
    let quantize = session.aggregation(Function::Quantize, &[KeyType::String]);
    let deviation = session.aggregation(Function::StandardDeviation, &[]);
    session.aggregate(
        stacks,
        &[
            nanoprobe_lang::interpret::Value::Stack(vec![0x1000, 0x2049]),
            integer(7),
        ],
        0,
        1,
    );
    session.values(quantize, &[string("read")], &[1, 2]);
    session.values(deviation, &[], &[1, 5, 9]);
    for format in [
        "%k%d %@d\n",
        "%-4k%d %@d\n",
        "%30k%@5x\n",
        "only text\n",
        "%@d of %@d\n",
    ] {
        session.record((1, "", "END"), vec![printa(Some(format), &[stacks])]);
    }
    session.record(
        (1, "", "END"),
        vec![
            printa(Some("<%10s>%@d\n"), &[quantize]),
            printa(Some("%@d\n"), &[deviation]),
        ],
    );
    golden("printa-formats", &session.output());
}

#[test]
fn clear_and_truncate() {
    let mut session = Session::new(&["quiet"]);
    let sum = session.aggregation(Function::Sum, &[KeyType::String]);
    let shrink = |session: &mut Session, action| {
        session.record((1, "", "tick-1s"), vec![action, printa(Some("%s %@d\n"), &[sum])]);
        session.output()
    };
    for (key, value) in [("a", 4), ("b", 3), ("c", 2), ("d", 1)] {
        session.aggregate(sum, &[string(key)], value, 1);
    }
    assert_eq!(shrink(&mut session, truncate(sum, Some(3))), "c 2\nb 3\na 4\n");
    assert_eq!(shrink(&mut session, truncate(sum, Some(-2))), "c 2\nb 3\n");
    // A removed key appears again with its next update, and starts from nothing.
    session.aggregate(sum, &[string("d")], 10, 1);
    assert_eq!(
        shrink(&mut session, plain(RecordKind::Clear(AggregationId(sum)))),
        "b 0\nc 0\nd 0\n"
    );
    session.aggregate(sum, &[string("d")], 5, 1);
    assert_eq!(shrink(&mut session, truncate(sum, Some(99))), "b 0\nc 0\nd 5\n");
    assert_eq!(shrink(&mut session, truncate(sum, None)), "");
    session.aggregate(sum, &[string("a")], 0, 1); // adding 0 to a sum is an update, too
    assert_eq!(shrink(&mut session, normalize(sum, 0)), "a 0\n");
}

#[test]
fn a_printed_aggregation_is_not_printed_again_at_the_end() {
    let mut session = Session::new(&["quiet"]);
    let first = session.aggregation(Function::Count, &[]);
    let second = session.aggregation(Function::Count, &[]);
    session.aggregate(first, &[], 0, 1);
    session.aggregate(second, &[], 0, 5);
    session.record((1, "", "END"), vec![printa(Some("first %@d\n"), &[first])]);
    assert_eq!(session.output(), "first 1\n                1\n");
}
