//! Bytes by address. This is an ordered list, since there may be half a million bytes, and nearly all are accessed in
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

    /// Keeps the bytes at these addresses only.
    pub fn retain(&mut self, is_kept: impl Fn(u64) -> bool) {
        self.0.retain(|(address, _)| is_kept(*address));
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each byte with its address.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u8)> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<(u64, u8)> for Bytes {
    /// If an address occurs several times, the last byte counts.
    fn from_iter<I: IntoIterator<Item = (u64, u8)>>(bytes: I) -> Bytes {
        let mut all = Bytes::default();
        all.extend(bytes);
        all
    }
}

impl Extend<(u64, u8)> for Bytes {
    /// If an address occurs several times, the last byte counts. Pass many bytes at once, since new addresses have all
    /// bytes sorted anew.
    fn extend<I: IntoIterator<Item = (u64, u8)>>(&mut self, bytes: I) {
        let mut others = Vec::new();
        let mut next = 0;
        for (address, byte) in bytes {
            // In most changes both lists have the same addresses in the same order, so few are searched.
            if self.0.get(next).is_none_or(|known| known.0 != address) {
                next = self.0.partition_point(|known| known.0 < address);
            }
            match self.0.get_mut(next).filter(|known| known.0 == address) {
                Some(known) => known.1 = byte,
                None => others.push((address, byte)),
            }
            next += 1;
        }
        match self.0.is_empty() {
            true => self.0 = others,
            false => self.0.append(&mut others),
        }
        // The sort keeps the order of equal addresses. It takes memory, so sorted bytes are not sorted again.
        if !self.0.is_sorted_by_key(|(address, _)| *address) {
            self.0.sort_by_key(|(address, _)| *address);
        }
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
        bytes.retain(|address| address > 6);
        assert_eq!(bytes.iter().collect::<Vec<_>>(), [(7, 3), (9, 8)]);
    }
}
