//! Sorting and gathering that add few instructions to the binary.
//!
//! The standard library's sort is compiled anew for each type, at 4 KB each, and a `collect` into a tree sorts, too.
//! Lists that are short, or sorted once, are sorted here. All types share one compiled sort, which sorts their keys.

/// Lists up to this length are sorted without allocation.
const SHORT: usize = 20;

/// Sorts by two numbers, and keeps the order of equals.
pub fn sort_by_numbers<T>(items: &mut [T], key: impl Fn(&T) -> (u64, u64)) {
    if items.len() <= SHORT {
        for sorted in 1..items.len() {
            for place in (1..=sorted).rev() {
                match items.get(place - 1..=place) {
                    Some([before, this]) if key(before) > key(this) => items.swap(place - 1, place),
                    _ => break,
                }
            }
        }
        return;
    }
    let keys = items.iter().map(key);
    let keyed: Vec<(u64, u64, usize)> = keys.zip(0..).map(|((first, second), at)| (first, second, at)).collect();
    let mut from = sorted(keyed);
    // Each cycle of the permutation separately: every swap brings one item to its final place.
    for start in 0..from.len() {
        let mut place = start;
        while let Some(next) = from.get_mut(place).map(|next| std::mem::replace(next, place)) {
            if next == start || next == place {
                break;
            }
            items.swap(place, next);
            place = next;
        }
    }
}

/// Sorts by one number, and keeps the order of equals.
pub fn sort_by_number<T>(items: &mut [T], key: impl Fn(&T) -> u64) {
    sort_by_numbers(items, |item| (key(item), 0));
}

/// For each place, the index of the item that belongs there.
fn sorted(mut keyed: Vec<(u64, u64, usize)>) -> Vec<usize> {
    keyed.sort_unstable();
    keyed.into_iter().map(|(.., at)| at).collect()
}

/// As `collect`, but item by item: for trees of few items.
pub fn gather<C: Default + Extend<T>, T>(items: impl IntoIterator<Item = T>) -> C {
    let mut gathered = C::default();
    gathered.extend(items);
    gathered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_sorted_as_the_standard_library_sorts_them() {
        let mut state = 1_u64;
        for length in (0..60).chain([500]) {
            for values in [1, 3, 1000] {
                let mut random = || {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (state >> 33) % values
                };
                let items: Vec<(u64, u64, usize)> = (0..length).map(|index| (random(), random(), index)).collect();
                let mut expected = items.clone();
                expected.sort_by_key(|(first, second, _)| (*first, *second));
                let mut ours = items.clone();
                sort_by_numbers(&mut ours, |(first, second, _)| (*first, *second));
                assert_eq!(ours, expected);
                expected.sort_by_key(|(_, second, _)| *second);
                sort_by_number(&mut ours, |(_, second, _)| *second);
                assert_eq!(ours, expected);
            }
        }
    }
}
