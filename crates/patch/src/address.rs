//! Addresses in the target: a type of their own, so that they are never mixed up with file offsets, ELF addresses, or
//! addresses in the tracer.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

/// A virtual address in the traced process. Arithmetic is checked: a result outside of the 64-bit space is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetAddress(pub u64);

impl TargetAddress {
    /// The address `bytes` further up.
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        self.0.checked_add(bytes).map(Self)
    }

    /// The address `bytes` further down.
    pub fn checked_sub(self, bytes: u64) -> Option<Self> {
        self.0.checked_sub(bytes).map(Self)
    }

    /// The address `bytes` away in either direction.
    pub fn checked_offset(self, bytes: i64) -> Option<Self> {
        self.0.checked_add_signed(bytes).map(Self)
    }

    /// How many bytes this address lies above `base`; `None` when it lies below.
    pub fn offset_from(self, base: Self) -> Option<u64> {
        self.0.checked_sub(base.0)
    }

    /// The signed distance from `from` to this address, `None` when it does not fit into 64 bits.
    pub fn distance_from(self, from: Self) -> Option<i64> {
        i64::try_from(i128::from(self.0) - i128::from(from.0)).ok()
    }

    /// Rounded down to a multiple of `alignment`, a power of two.
    pub fn align_down(self, alignment: u64) -> Self {
        debug_assert!(alignment.is_power_of_two());
        Self(self.0 & !(alignment.wrapping_sub(1)))
    }

    /// Rounded up to a multiple of `alignment`, a power of two; `None` at the end of the space.
    pub fn align_up(self, alignment: u64) -> Option<Self> {
        Some(Self(self.0.checked_add(alignment.wrapping_sub(1))?).align_down(alignment))
    }

    /// The displacement that a branch or RIP-relative operand ending at `next` needs to reach this address;
    /// `None` beyond +-2 GiB.
    pub fn displacement_from(self, next: Self) -> Option<i32> {
        self.distance_from(next)
            .and_then(|distance| i32::try_from(distance).ok())
    }
}

impl fmt::Display for TargetAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for TargetAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, formatter)
    }
}

/// The text is not a hexadecimal address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a hexadecimal address: {0}")]
pub struct ParseAddressError(#[from] ParseIntError);

impl FromStr for TargetAddress {
    type Err = ParseAddressError;

    /// Reads a hexadecimal number, with or without `0x`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_prefix("0x").unwrap_or(text);
        Ok(Self(u64::from_str_radix(digits, 16)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked() {
        let top = TargetAddress(u64::MAX);
        assert_eq!(top.checked_add(1), None);
        assert_eq!(TargetAddress(0).checked_sub(1), None);
        assert_eq!(top.align_up(4096), None);
        assert_eq!(TargetAddress(0x1001).align_up(4096), Some(TargetAddress(0x2000)));
        assert_eq!(top.distance_from(TargetAddress(0)), None);
        assert_eq!(TargetAddress(0x1000).distance_from(TargetAddress(0x1010)), Some(-16));
    }

    #[test]
    fn displacement_reaches_two_gibibytes() {
        let next = TargetAddress(0x1_0000_0000);
        assert_eq!(TargetAddress(0x1_7fff_ffff).displacement_from(next), Some(i32::MAX));
        assert_eq!(TargetAddress(0x1_8000_0000).displacement_from(next), None);
        assert_eq!(TargetAddress(0x8000_0000).displacement_from(next), Some(i32::MIN));
        assert_eq!(TargetAddress(0x7fff_ffff).displacement_from(next), None);
    }

    #[test]
    fn prints_and_parses_hexadecimal() {
        assert_eq!(TargetAddress(0x5555_1000).to_string(), "0x55551000");
        assert_eq!("0x55551000".parse(), Ok(TargetAddress(0x5555_1000)));
        assert!("0x".parse::<TargetAddress>().is_err());
    }
}
