//! Probe-field matching: DTrace's globs.
//!
//! `*` matches any text, `?` any one character, `[a-z]` one of a set, `[!a-z]` one not of the set,
//! `\x` the character x. An empty pattern matches everything; a `[` without its `]` matches
//! nothing. `.` and `/` are ordinary characters. Manual: "Program Structure", Probe Descriptions.
//!
//! Only the last `*` seen is ever retried: it matches whatever an earlier `*` could. So a match
//! takes at most pattern x text steps and no recursion.

/// Whether `text` matches `pattern`.
pub fn matches(pattern: &str, text: &str) -> bool {
    if pattern.is_empty() || pattern == "*" {
        return true;
    }
    let (mut pattern_rest, mut text_rest) = (pattern, text);
    // The pattern after the last `*`, and the part of the text at which this pattern is tried next.
    let mut retry: Option<(&str, &str)> = None;
    loop {
        if let Some(after) = pattern_rest.strip_prefix('*') {
            pattern_rest = after;
            if pattern_rest.is_empty() {
                return true;
            }
            retry = Some((pattern_rest, text_rest));
            continue;
        }
        let step = match text_rest.chars().next() {
            None if pattern_rest.is_empty() => return true,
            None => return false, // more pattern, none of it a star: no later start can help
            Some(character) => match_one(pattern_rest, character).map(|after| (after, skip(text_rest))),
        };
        match (step, retry) {
            (Some((after, text_after)), _) => (pattern_rest, text_rest) = (after, text_after),
            (None, Some((star, start))) => {
                let start = skip(start);
                retry = Some((star, start));
                (pattern_rest, text_rest) = (star, start);
            }
            (None, None) => return false,
        }
    }
}

/// Whether a pattern is a plain name. A plain name matches one text only: its [`literal`].
pub fn is_literal(pattern: &str) -> bool {
    !pattern.is_empty() && !pattern.contains(['*', '?', '['])
}

/// The one text that a plain name matches: without its backslashes. `None` for a pattern that is not a plain name.
pub fn literal(pattern: &str) -> Option<String> {
    if !is_literal(pattern) {
        return None;
    }
    let mut text = String::with_capacity(pattern.len());
    let mut characters = pattern.chars();
    while let Some(character) = characters.next() {
        text.push(if character == '\\' {
            characters.next().unwrap_or('\\')
        } else {
            character
        });
    }
    Some(text)
}

/// Matches one character against the first element of a pattern, which is not a star; yields the
/// pattern after the element.
fn match_one(pattern: &str, character: char) -> Option<&str> {
    let mut rest = pattern.chars();
    let matched = match rest.next()? {
        '?' => true,
        '[' => return match_set(rest.as_str(), character),
        '\\' => rest.next().unwrap_or('\\') == character,
        plain => plain == character,
    };
    matched.then_some(rest.as_str())
}

/// Matches one character against the set after a `[`. A `]` that comes first belongs to the set; a
/// `-` that comes first or last is a `-`.
fn match_set(pattern: &str, character: char) -> Option<&str> {
    let (negated, set) = match pattern.strip_prefix('!') {
        Some(set) => (true, set),
        None => (false, pattern),
    };
    let mut rest = set.chars();
    let mut found = false;
    let mut first = true;
    loop {
        let mut low = rest.next()?; // without a closing bracket: no match
        if low == ']' && !first {
            return (found != negated).then_some(rest.as_str());
        }
        first = false;
        if low == '\\' {
            low = rest.next()?;
        }
        let mut range = rest.clone();
        let high = match (range.next(), range.next()) {
            (Some('-'), Some(high)) if high != ']' => {
                rest = range;
                if high == '\\' { rest.next()? } else { high }
            }
            _ => low,
        };
        found |= (low..=high).contains(&character);
    }
}

/// The text after its first character.
fn skip(text: &str) -> &str {
    let mut rest = text.chars();
    rest.next();
    rest.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_what_the_manual_says() {
        for (pattern, text, expected) in [
            ("", "anything", true),
            ("", "", true),
            ("*", "", true),
            ("malloc", "malloc", true),
            ("malloc", "mallocx", false),
            ("malloc", "xmalloc", false),
            ("mallocx", "malloc", false),
            ("?", "", false),
            ("?", "é", true),
            ("??", "é", false),
            ("mal*", "malloc", true),
            ("*loc", "malloc", true),
            ("*loc", "mallo", false),
            ("m*l*c", "malloc", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*ab", "aab", true),
            ("*abc*", "ababc", true),
            ("[a-c]x", "bx", true),
            ("[a-c]x", "dx", false),
            ("[!a-c]x", "dx", true),
            ("[!a-c]x", "ax", false),
            ("[abc]", "c", true),
            ("[]]", "]", true),
            ("[!]]", "]", false),
            ("[-a]", "-", true),
            ("[a-]", "-", true),
            ("[a-]", "b", false),
            ("[a", "a", false),
            ("x[", "x[", false),
            ("[\\]]", "]", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("a\\", "a\\", true),
            ("libc.so.*", "libc.so.6", true),
            ("libc.so.*", "libcxsox6", false),
            ("*entry", "entry", true),
            ("_ZN*4pushE?", "_ZN3std4pushEv", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern:?} on {text:?}");
        }
    }

    /// A slow but plainly correct definition: a star is nothing, or a character and a star.
    fn slow(pattern: &str, text: &str) -> bool {
        if let Some(after) = pattern.strip_prefix('*') {
            return slow(after, text) || (!text.is_empty() && slow(pattern, skip(text)));
        }
        match text.chars().next() {
            None => pattern.is_empty(),
            Some(character) => match_one(pattern, character).is_some_and(|after| slow(after, skip(text))),
        }
    }

    proptest::proptest! {
        #[test]
        fn backtracking_only_to_the_last_star_loses_nothing(pattern in "[ab*?]{1,8}", text in "[abc]{0,10}") {
            proptest::prop_assert_eq!(matches(&pattern, &text), slow(&pattern, &text));
        }

        #[test]
        fn any_pattern_ends(pattern in ".{0,20}", text in ".{0,20}") {
            let expected = pattern.is_empty() || slow(&pattern, &text);
            proptest::prop_assert_eq!(matches(&pattern, &text), expected);
        }
    }

    #[test]
    fn many_stars_stay_cheap() {
        // A recursive matcher takes 2^30 steps, this one 60 x 60.
        let pattern = "*a".repeat(30) + "b";
        assert!(!matches(&pattern, &"a".repeat(60)));
    }

    #[test]
    fn plain_names_lose_their_backslashes() {
        assert_eq!(literal("operator\\*").as_deref(), None); // a star, escaped or not, takes the slow way
        assert_eq!(literal("a\\.b").as_deref(), Some("a.b"));
        assert_eq!(literal("main").as_deref(), Some("main"));
        assert_eq!(literal(""), None);
        assert!(!is_literal("f*"));
    }
}
