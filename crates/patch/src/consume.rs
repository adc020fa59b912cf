//! Converts long lists item by item, such as all runs of a program to patches. The memory of converted items is given
//! back meanwhile, so both lists together take little more than one list.

/// The number of items that are handed on at once.
const PART: usize = 4096;

/// Hands on all items in parts, in their order, until one call says `false`.
pub fn in_parts<T>(mut items: Vec<T>, mut take: impl FnMut(Vec<T>) -> bool) {
    // Reversed, because only the end of a list can be given back.
    items.reverse();
    while !items.is_empty() {
        let mut part = items.split_off(items.len().saturating_sub(PART));
        part.reverse();
        items.shrink_to_fit();
        if !take(part) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_items_come_in_their_order_until_the_end_is_asked_for() {
        for count in [0, 1, PART - 1, PART, PART + 1, 3 * PART + 7] {
            let mut taken = Vec::new();
            in_parts((0..count).collect(), |part| {
                taken.extend(part);
                true
            });
            assert!(taken.into_iter().eq(0..count));
        }
        let mut parts = 0;
        in_parts(vec![(); 3 * PART], |_| {
            parts += 1;
            parts < 2
        });
        assert_eq!(parts, 2);
    }
}
