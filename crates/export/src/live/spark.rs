//! A sparkline: a row of characters, each as high as one number.

use super::Characters;

const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];

/// One character for each number. The largest number has the highest character; zero and negative numbers have the
/// lowest.
pub(super) fn line(numbers: impl Iterator<Item = f64> + Clone, characters: Characters) -> String {
    let most = numbers.clone().fold(0.0, f64::max);
    let levels = match characters {
        Characters::Blocks => &BLOCKS,
        Characters::Ascii => &ASCII,
    };
    let top = levels.len() - 1;
    let level = |number: f64| {
        // A positive number, however small, has a different character from zero.
        let height = if number > 0.0 {
            (number / most * top as f64).round().max(1.0)
        } else {
            0.0
        };
        levels.get(height as usize).or(levels.last()).copied().unwrap_or(' ')
    };
    numbers.map(level).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_is_full_and_the_smallest_can_be_seen() {
        let of = |numbers: &[f64], characters| line(numbers.iter().copied(), characters);
        assert_eq!(of(&[0.0, 1.0, 50.0, 100.0], Characters::Blocks), "▁▂▅█");
        assert_eq!(of(&[0.0, 1.0, 50.0, 100.0], Characters::Ascii), "_.=#");
        assert_eq!(of(&[], Characters::Ascii), "");
        assert_eq!(of(&[0.0, -5.0, f64::NAN], Characters::Ascii), "___");
        assert_eq!(of(&[f64::MAX, f64::MAX], Characters::Ascii), "##");
    }
}
