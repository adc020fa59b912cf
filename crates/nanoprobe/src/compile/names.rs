//! The names of types in messages: those that the program's text uses.

/// The name of an integer type in messages, and C's names for it, which a text may use.
const NAMES: [(&str, &str, &str); 5] = [
    ("int8_t", "char", "char"),
    ("uint8_t", "unsigned char", "unsigned char"),
    ("int16_t", "short", "short"),
    ("uint16_t", "unsigned short", "unsigned short"),
    ("uint32_t", "unsigned", "unsigned int"),
];

/// A message with the names that the text uses for types: a user who writes `char` need not know `int8_t`.
pub fn as_written(message: &str, text: &str) -> String {
    let mut message = message.to_owned();
    for (fixed, written, name) in NAMES {
        if has_word(text, written) && !has_word(text, fixed) {
            message = with_word(&message, fixed, name);
        }
    }
    message
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

/// The offset of a whole word.
fn find(text: &str, word: &str) -> Option<usize> {
    text.match_indices(word).map(|(at, _)| at).find(|at| {
        let before = text.get(..*at).and_then(|before| before.chars().next_back());
        let behind = text.get(at + word.len()..).and_then(|behind| behind.chars().next());
        !before.is_some_and(is_of_word) && !behind.is_some_and(is_of_word)
    })
}

fn has_word(text: &str, word: &str) -> bool {
    find(text, word).is_some()
}

fn with_word(text: &str, word: &str, other: &str) -> String {
    let (mut done, mut rest) = (String::new(), text);
    while let Some(at) = find(rest, word) {
        let (before, behind) = rest.split_at(at);
        done += before;
        done += other;
        rest = behind.get(word.len()..).unwrap_or_default();
    }
    done + rest
}

#[cfg(test)]
mod tests {
    use super::as_written;

    #[test]
    fn types_have_the_names_of_the_text() {
        let message = "expected string, found int8_t (uint8_t, xint8_t, int8_t)";
        assert_eq!(
            as_written(message, "strlen((char)1)"),
            "expected string, found char (uint8_t, xint8_t, char)"
        );
        for text in ["strlen((int8_t)1)", "strlen((char)(int8_t)1)", "character"] {
            assert_eq!(as_written(message, text), message);
        }
        assert_eq!(as_written("found uint32_t", "unsigned x;"), "found unsigned int");
    }
}
