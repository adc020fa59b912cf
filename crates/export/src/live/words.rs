//! Times and numbers in a form for people.

use std::time::Duration;

/// `12 s`, `3:05`, `1:02:03`
pub(super) fn clock(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}:{:02}", seconds / 60, seconds % 60),
        _ => format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// A number with separated thousands.
pub(super) fn grouped(number: impl Into<i128>) -> String {
    let number: i128 = number.into();
    let digits = number.unsigned_abs().to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if number < 0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers_read_well() {
        assert_eq!(
            [7, 65, 3723].map(|seconds| clock(Duration::from_secs(seconds))),
            ["7 s", "1:05", "1:02:03"]
        );
        assert_eq!(
            [0, -1234, 1_234_567].map(|number: i64| grouped(number)),
            ["0", "-1,234", "1,234,567"]
        );
        assert_eq!(grouped(i64::MIN), "-9,223,372,036,854,775,808");
    }
}
