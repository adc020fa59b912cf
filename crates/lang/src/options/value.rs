//! The texts of values: numbers, sizes, rates, percentages, switches, words.

use super::{OptionError, Rotation, interval};

/// The largest buffer.
pub(super) const ROOM_MAX: u64 = 4 << 30;

/// An option and its value as they were given.
pub(super) struct Given<'a> {
    pub(super) name: &'a str,
    pub(super) value: Option<&'a str>,
}

impl<'a> Given<'a> {
    pub(super) fn required(&self, expected: &str) -> Result<&'a str, OptionError> {
        match self.value {
            Some(value) if !value.is_empty() => Ok(value),
            _ => Err(OptionError::Missing {
                name: self.name.to_owned(),
                expected: expected.to_owned(),
            }),
        }
    }

    /// Checks a version of D; it must not be later than ours.
    pub(super) fn version(&self) -> Result<(), OptionError> {
        const EXPECTED: &str = "a version of D: up to 1.13, or 2.0";
        let parts: Option<Vec<u32>> = self
            .required(EXPECTED)?
            .split('.')
            .map(|part| part.parse().ok())
            .collect();
        match parts.as_deref() {
            // DTrace for Linux calls 1.6 "2.0" since it runs on BPF.
            Some([major, minor] | [major, minor, _]) if (*major, *minor) <= (1, 13) || (*major, *minor) == (2, 0) => {
                Ok(())
            }
            _ => Err(self.invalid(EXPECTED)),
        }
    }

    fn invalid(&self, expected: &str) -> OptionError {
        let value = self.value.unwrap_or_default().to_owned();
        OptionError::Invalid {
            name: self.name.to_owned(),
            value,
            expected: expected.to_owned(),
        }
    }

    fn in_range(&self, value: u64, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        if (minimum..=maximum).contains(&value) {
            return Ok(value);
        }
        let text = self.value.unwrap_or_default().to_owned();
        Err(OptionError::OutOfRange {
            name: self.name.to_owned(),
            value: text,
            minimum,
            maximum,
        })
    }

    /// No value means on, and so does any number, even 0 (as in DTrace). The empty value means off.
    pub(super) fn switch(&self) -> Result<bool, OptionError> {
        let Some(value) = self.value else { return Ok(true) };
        match value.to_ascii_lowercase().as_str() {
            "yes" | "enable" | "enabled" | "true" | "on" | "set" => Ok(true),
            "" | "no" | "disable" | "disabled" | "false" | "off" | "unset" => Ok(false),
            number => parse_number(number)
                .map(|_| true)
                .ok_or_else(|| self.invalid("yes or no")),
        }
    }

    pub(super) fn number(&self, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        let expected = "a number";
        let value = parse_number(self.required(expected)?).ok_or_else(|| self.invalid(expected))?;
        self.in_range(value, minimum, maximum)
    }

    pub(super) fn size(&self, minimum: u64, maximum: u64) -> Result<u64, OptionError> {
        let expected = "a number of bytes, with k, m, g or t for powers of 1024";
        let value = parse_size(self.required(expected)?).ok_or_else(|| self.invalid(expected))?;
        self.in_range(value, minimum, maximum)
    }

    /// The size of a buffer: at least a page, because nothing fits into less.
    pub(super) fn room(&self) -> Result<u64, OptionError> {
        const PAGE: u64 = 4096;
        Ok(self.size(1, ROOM_MAX)?.max(PAGE))
    }

    /// A period in ns without bounds, as in DTrace (`statusrate=1nsec`).
    pub(super) fn rate(&self) -> Result<u64, OptionError> {
        let expected = "a time with ns, us, ms, s, m, h or d, or a frequency in hz";
        interval::parse_period(self.required(expected)?).ok_or_else(|| self.invalid(expected))
    }

    /// A percentage in hundredths: 5%, 0.25%.
    pub(super) fn percent(&self) -> Result<u32, OptionError> {
        let expected = "a percentage of a processor, as 5% or 0.5%";
        let text = self.required(expected)?;
        let number = text.strip_suffix('%').unwrap_or(text);
        let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
        let is_digits = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        if !is_digits(whole) || !is_digits(part) || part.len() > 2 {
            return Err(self.invalid(expected));
        }
        let hundredths = format!("{whole}{part:0<2}");
        let value = hundredths.parse().map_err(|_| self.invalid(expected))?;
        // The maximum is a hundred processors: more would limit nothing.
        Ok(self.in_range(value, 1, 1_000_000)? as u32)
    }

    /// The size of a file, and how many old ones are kept: 100m, or 100m,5.
    pub(super) fn files(&self) -> Result<Rotation, OptionError> {
        /// Smaller files would hold a few lines each.
        const LEAST: u64 = 4096;
        const KEPT: u64 = 5;
        const KEPT_MAX: u64 = 1000;
        let expected = "the size of a file and the number of old files, as 100m,5";
        let text = self.required(expected)?;
        let (size, kept) = text.split_once(',').unwrap_or((text, ""));
        let bytes_max = parse_size(size).ok_or_else(|| self.invalid(expected))?;
        let kept = match kept {
            "" if !text.ends_with(',') => KEPT,
            number => parse_number(number).ok_or_else(|| self.invalid(expected))?,
        };
        Ok(Rotation {
            bytes_max: self.in_range(bytes_max, LEAST, u64::MAX)?,
            kept: self.in_range(kept, 1, KEPT_MAX)? as u32,
        })
    }

    /// One of a few words.
    pub(super) fn word<T: Copy>(&self, words: &[(&str, T)]) -> Result<T, OptionError> {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let expected = match known.as_slice() {
            [all @ .., last] if !all.is_empty() => format!("{} or {last}", all.join(", ")),
            all => all.concat(),
        };
        let value = self.required(&expected)?;
        let found = words.iter().find(|(word, _)| *word == value);
        found
            .map(|(_, meaning)| *meaning)
            .ok_or_else(|| self.invalid(&expected))
    }
}

/// A number as C writes it: decimal, `0` octal, `0x` hexadecimal.
fn parse_number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.as_bytes() {
        [b'0', b'x' | b'X', ..] => (text.get(2..)?, 16),
        [b'0', _, ..] => (text.get(1..)?, 8),
        _ => (text, 10),
    };
    // from_str_radix also accepts a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| u64::from_str_radix(digits, radix).ok()).flatten()
}

/// A number of bytes with a suffix.
fn parse_size(text: &str) -> Option<u64> {
    let shift = match text.bytes().last()?.to_ascii_lowercase() {
        b'k' => 10,
        b'm' => 20,
        b'g' => 30,
        b't' => 40,
        _ => return parse_number(text),
    };
    let digits = text.get(..text.len() - 1)?;
    parse_number(digits)?.checked_mul(1 << shift)
}
