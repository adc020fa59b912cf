//! A recorded profile, of any format.

use nanoprobe_export::profile::Comparison;

/// Compares a file with itself. Each printed row fits a line, and no function has more than the total.
pub fn profile(input: &[u8]) {
    for is_normalized in [false, true] {
        let compared = Comparison::of_bytes([input, input], ["a", "b"], None, is_normalized);
        let Ok(comparison) = compared else { return };
        let text = comparison.text(5);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        // A file that is compared with itself has no difference.
        assert_eq!(text.matches("no difference").count(), 2, "{text}");
        assert!(comparison.json().to_string().ends_with("\"functions\":[]}"));
        let picture = comparison.picture();
        assert!(picture.len() < 48 << 20);
    }
}
