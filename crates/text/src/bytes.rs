//! Bytes by address. A list in order, since there may be half a million of them, and nearly all are looked at in that
//! order.

/// Bytes by address, ascending.
#[derive(Clone, Debug, Default)]
pub struct Bytes(Vec<(u64, u8)>);

impl Bytes {
    /// The byte at an address.
    pub fn get(&self, address: u64) -> Option<u8> {
        let index = self.0.binary_search_by_key(&address, |(known, _)| *known).ok()?;
        self.0.get(index).map(|(_, byte)| *byte)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each byte with its address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<(u64, u8)> for Bytes {
    /// Where one address comes several times, the last byte counts.
    fn from_iter<I: IntoIterator<Item = (u64, u8)>>(bytes: I) -> Bytes {
        let mut all = Bytes::default();
        all.extend(bytes);
        all
    }
}

impl Extend<(u64, u8)> for Bytes {
    /// Where one address comes several times, the last byte counts. Meant for many bytes at once, since each call
    /// sorts all.
    fn extend<I: IntoIterator<Item = (u64, u8)>>(&mut self, bytes: I) {
        self.0.extend(bytes);
        // These are mostly two sorted lists, which the sort merges. It keeps the order of equal addresses.
        self.0.sort_by_key(|(address, _)| *address);
        self.0.dedup_by(|later, earlier| {
            let is_same = later.0 == earlier.0;
            if is_same {
                earlier.1 = later.1;
            }
            is_same
        });
    }
}

#[cfg(test)]
mod tests {
    use super::Bytes;

    #[test]
    fn the_last_byte_of_an_address_counts() {
        let mut bytes: Bytes = [(7, 1), (5, 2), (7, 3)].into_iter().collect();
        assert_eq!(bytes.iter().collect::<Vec<_>>(), [(5, 2), (7, 3)]);
        bytes.extend([(6, 9), (5, 4), (9, 8)]);
        assert_eq!(bytes.iter().collect::<Vec<_>>(), [(5, 4), (6, 9), (7, 3), (9, 8)]);
        assert_eq!((bytes.get(6), bytes.get(8)), (Some(9), None));
    }
}
