//! Numbers in a readable form.

/// A number with separated thousands.
pub fn thousands(number: f64) -> String {
    let digits = format!("{:.0}", number.max(0.0));
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share in percent, with at least two significant digits.
pub fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent.abs() {
        0.0 => "0".to_owned(),
        1.0.. => format!("{percent:.1}"),
        0.1.. => format!("{percent:.2}"),
        0.01.. => format!("{percent:.3}"),
        0.001.. => format!("{percent:.4}"),
        _ => format!("{percent:.1e}"),
    }
}

/// Hundredths of a percent in the form in which a user writes them: `0.01`, `0.5`, `5`.
pub fn given_percent(hundredths: u32) -> String {
    let (whole, part) = (hundredths / 100, hundredths % 100);
    match part {
        0 => whole.to_string(),
        part if part.is_multiple_of(10) => format!("{whole}.{}", part / 10),
        part => format!("{whole}.{part:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated() {
        assert_eq!(thousands(0.0), "0");
        assert_eq!(thousands(999.4), "999");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
        assert_eq!(thousands(745.0), "745");
        assert_eq!(thousands(1_745.4), "1,745");
        assert_eq!(thousands(1_234_567.0), "1,234,567");
    }

    #[test]
    fn small_shares_are_not_zero() {
        let cases = [
            (0.5, "50.0"),
            (0.012_34, "1.2"),
            (0.001_23, "0.12"),
            (0.000_1, "0.010"),
            (0.000_012, "0.0012"),
        ];
        for (share, shown) in cases {
            assert_eq!(percent(share), shown);
        }
        assert_eq!((percent(0.0).as_str(), percent(1e-9).as_str()), ("0", "1.0e-7"));
    }

    #[test]
    fn a_budget_is_shown_as_it_was_given() {
        for (hundredths, shown) in [
            (1, "0.01"),
            (7, "0.07"),
            (20, "0.2"),
            (50, "0.5"),
            (500, "5"),
            (10_050, "100.5"),
        ] {
            assert_eq!(given_percent(hundredths), shown);
        }
    }
}
