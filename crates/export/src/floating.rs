//! Floating point as C's printf writes it: `%e`, `%E`, `%f`, `%g`, `%G`.

use crate::number::Shape;

/// A float or a double. A record holds its bits as an integer of the same size.
pub(crate) fn of_bits(bits: i64, bytes: u8) -> f64 {
    match bytes {
        4 => f64::from(f32::from_bits(bits as u32)),
        _ => f64::from_bits(bits as u64),
    }
}

/// A number in the format of one of the letters `eEfgG`, with the sign, the precision and the zeros of a
/// shape. The caller adds spaces. The default precision is 6.
pub(crate) fn text(value: f64, letter: char, shape: Shape) -> String {
    let precision = shape.precision.unwrap_or(6);
    let magnitude = value.abs();
    let digits = match letter.to_ascii_lowercase() {
        _ if !value.is_finite() => format!("{magnitude}").to_lowercase(),
        'f' => format!("{magnitude:.precision$}"),
        'e' => exponential(magnitude, precision),
        _ => shortest(magnitude, precision.max(1), shape.flags.alternate),
    };
    let sign = match value.is_sign_negative() {
        true => "-",
        false if shape.flags.plus => "+",
        false if shape.flags.space => " ",
        false => "",
    };
    let zeros = match shape.flags.zero && !shape.flags.left && value.is_finite() {
        true => shape.width.saturating_sub(sign.len() + digits.len()),
        false => 0,
    };
    let text = format!("{sign}{}{digits}", "0".repeat(zeros));
    if letter.is_ascii_uppercase() {
        text.to_uppercase()
    } else {
        text
    }
}

/// `%e`: the exponent has a sign and at least two digits.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    match text.split_once('e') {
        Some((mantissa, exponent)) => match exponent.strip_prefix('-') {
            Some(digits) => format!("{mantissa}e-{digits:0>2}"),
            None => format!("{mantissa}e+{exponent:0>2}"),
        },
        None => text,
    }
}

/// `%g`: the given number of significant digits, with or without an exponent, whichever fits, and without trailing
/// zeros.
fn shortest(value: f64, significant: usize, keep_zeros: bool) -> String {
    let scientific = exponential(value, significant - 1);
    let exponent = scientific
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse::<i32>().ok());
    let exponent = exponent.unwrap_or(0);
    let fixed = exponent >= -4 && usize::try_from(exponent).map_or(true, |exponent| exponent < significant);
    let text = if fixed {
        let decimals = (significant as i64 - 1 - i64::from(exponent)).max(0) as usize;
        format!("{value:.decimals$}")
    } else {
        scientific
    };
    if keep_zeros {
        return text;
    }
    let (mantissa, exponent) = text.find('e').map_or((text.as_str(), ""), |at| text.split_at(at));
    let mantissa = match mantissa.contains('.') {
        true => mantissa.trim_end_matches('0').trim_end_matches('.'),
        false => mantissa,
    };
    format!("{mantissa}{exponent}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_by_c() {
        for (value, letter, precision, expected) in [
            (0.0, 'e', None, "0.000000e+00"),
            (0.0, 'E', None, "0.000000E+00"),
            (0.0, 'f', None, "0.000000"),
            (0.0, 'g', None, "0"),
            (-1.5, 'e', Some(2), "-1.50e+00"),
            (1234.5678, 'f', Some(1), "1234.6"),
            (1e100, 'e', Some(3), "1.000e+100"),
            (0.0001, 'g', None, "0.0001"),
            (0.00001, 'g', None, "1e-05"),
            (123456.0, 'g', None, "123456"),
            (1234567.0, 'g', None, "1.23457e+06"),
            (1234567.0, 'G', None, "1.23457E+06"),
            (99.99, 'g', Some(2), "1e+02"),
            (f64::INFINITY, 'f', None, "inf"),
            (f64::NAN, 'G', None, "NAN"),
        ] {
            let shape = Shape {
                precision,
                ..Shape::default()
            };
            assert_eq!(text(value, letter, shape), expected, "%{letter} of {value}");
        }
    }
}
