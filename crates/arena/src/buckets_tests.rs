//! The bucket of each value at an edge, and the least value of each bucket, which lies in that bucket.

use super::*;
use proptest::prelude::*;

#[test]
fn quantize_edges() {
    let expected = [
        (i64::MIN, 0),
        (-(1 << 62), 0),
        (-(1 << 62) + 1, 1),
        (-4, 60),
        (-3, 61),
        (-2, 61),
        (-1, 62),
        (0, 63),
        (1, 64),
        (2, 65),
        (3, 65),
        (4, 66),
        (i64::MAX, 126),
    ];
    for (value, bucket) in expected {
        assert_eq!(quantize_bucket(value), bucket, "{value}");
    }
    for bucket in 0..QUANTIZE_BUCKETS {
        assert_eq!(quantize_bucket(quantize_value(bucket)), bucket);
    }
}

#[test]
fn lquantize_edges() {
    let linear = Linear {
        base: -10,
        step: 5,
        levels: 4,
    };
    assert_eq!(
        linear,
        Linear::unpack((5 << 48) | (4 << 32) | u64::from(-10_i32 as u32))
    );
    let expected = [
        (i64::MIN, 0),
        (-11, 0),
        (-10, 1),
        (-6, 1),
        (-5, 2),
        (9, 4),
        (10, 5),
        (1 << 40, 5),
        (i64::MAX, 5),
    ];
    for (value, bucket) in expected {
        assert_eq!(linear.bucket(value), Some(bucket), "{value}");
    }
    assert_eq!(
        (linear.buckets(), linear.lower(0), linear.lower(1), linear.lower(5)),
        (6, None, Some(-10), Some(10))
    );
    assert_eq!(lquantize_bucket(0, 5), None);
}

/// `llquantize(v, 10, 0, 2, 10)`, an example of DTrace's documentation: steps of 1, of 10 from 10 on, of 100 from 100.
#[test]
fn llquantize_edges() {
    let decades = LogLinear {
        factor: 10,
        low: 0,
        high: 2,
        steps: 10,
    };
    let expected = [
        (i64::MIN, 56),
        (-1000, 56),
        (-999, 55),
        (-10, 38),
        (-1, 29),
        (0, 0),
        (1, 1),
        (9, 9),
        (10, 10),
        (19, 10),
        (20, 11),
        (99, 18),
        (100, 19),
        (199, 19),
        (999, 27),
        (1000, 28),
        (i64::MAX, 28),
    ];
    for (value, bucket) in expected {
        assert_eq!(decades.bucket(value), Some(bucket), "{value}");
    }
    assert_eq!(decades.buckets(), 57);
    use Magnitudes::{Below, From};
    for (bucket, magnitudes) in [
        (0, Some(Below(1))),
        (10, Some(From(10, Some(20), false))),
        (28, Some(From(1000, None, false))),
        (29, Some(From(1, Some(2), true))),
        (38, Some(From(10, Some(20), true))),
        (56, Some(From(1000, None, true))),
        (57, None),
    ] {
        assert_eq!(decades.magnitudes(bucket), magnitudes, "{bucket}");
    }
    let order = decades.in_order();
    assert_eq!(
        (order.len(), order[0], order[27], order[28], order[56]),
        (57, 56, 29, 0, 28)
    );
}

/// `dtrace_aggregate_llquantize_bucket`, word for word except for names, for a value that is not negative.
fn reference(parameters: LogLinear, value: i64) -> i64 {
    let (factor, steps) = (i64::from(parameters.factor), i64::from(parameters.steps));
    let mut this = 1_i64;
    let mut base = 1;
    for _ in 0..parameters.low {
        this *= factor;
    }
    let mut last = this;
    if value < last {
        return 0;
    }
    this *= factor;
    for _ in parameters.low..=parameters.high {
        let buckets = this.min(steps);
        let next = this * factor;
        if value < this {
            return base + (value - last) / (this / buckets);
        }
        base += buckets - buckets / factor;
        last = this;
        this = next;
    }
    base
}

proptest! {
    #[test]
    fn llquantize_is_dtraces(
        (factor, high) in prop_oneof![(Just(2_u16), 1..50_u16), (Just(10), 1..16_u16), (Just(7), 1..18_u16)],
        low in 0..3_u16, multiple in 1..5_u16, shift in 0..64_u32, value: i64,
    ) {
        let parameters = LogLinear { factor, low, high: high.max(low), steps: factor * multiple };
        let value = value >> shift;
        let top = (parameters.buckets() - 1) / 2;
        let magnitude = reference(parameters, value.checked_abs().unwrap_or(i64::MAX)) as usize;
        let expected = if value < 0 && magnitude > 0 { top + magnitude } else { magnitude };
        prop_assert_eq!(parameters.bucket(value), Some(expected));
    }

    #[test]
    fn a_buckets_least_value_lies_in_it(packed: u64) {
        let linear = Linear::unpack(packed);
        if linear.step != 0 {
            for bucket in [1, linear.buckets() / 2, linear.buckets() - 1] {
                if let Some(lower) = linear.lower(bucket) {
                    prop_assert_eq!(linear.bucket(lower), Some(bucket));
                    prop_assert_eq!(linear.bucket(lower - 1), Some(bucket - 1));
                }
            }
        }
    }

    #[test]
    fn any_parameters_stay_within_their_buckets(packed: u64, narrow: bool, value: i64) {
        let packed = if narrow { packed & 0x001f_003f_003f_003f } else { packed };
        let parameters = LogLinear::unpack(packed);
        match parameters.bucket(value) {
            Some(bucket) => prop_assert!(bucket < parameters.buckets()),
            None => prop_assert_eq!(parameters.buckets(), 0),
        }
        let _ = parameters.magnitudes(packed as usize % 1000);
        if let Some(bucket) = lquantize_bucket(packed, value) {
            prop_assert!(bucket < Linear::unpack(packed).buckets());
        }
    }
}
