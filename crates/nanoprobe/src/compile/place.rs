//! The part of a clause that has an error, for a program of the command line: as in DTrace, such a
//! program has no lines.

/// `action list` or `predicate`, for the text at an offset; `None` for a syntax error, which DTrace does not place
/// either.
pub fn part_of_clause(text: &str, at: usize, tag: &str) -> Option<&'static str> {
    const OF_GRAMMAR: [&str; 7] = ["SYNTAX", "PDESC_", "MACRO_", "STR_", "CHR_", "INT_", "PRAG"];
    let tag = tag.trim_matches(['[', ']']);
    let name = tag.strip_prefix("D_")?;
    if OF_GRAMMAR.iter().any(|start| name.starts_with(start)) {
        return None;
    }
    let bytes = text.as_bytes();
    let byte = |index: usize| bytes.get(index).copied().unwrap_or(0);
    let (mut index, mut depth, mut in_predicate) = (0, 0usize, false);
    while index < at.min(bytes.len()) {
        match byte(index) {
            b'/' if byte(index + 1) == b'*' => {
                let end = text.get(index + 2..).and_then(|rest| rest.find("*/"));
                index += end.map_or(bytes.len(), |end| end + 3);
            }
            b'/' if byte(index + 1) == b'/' => {
                let end = text.get(index..).and_then(|rest| rest.find('\n'));
                index += end.unwrap_or(bytes.len());
            }
            quote @ (b'"' | b'\'') => {
                index += 1;
                while index < bytes.len() && byte(index) != quote {
                    index += 1 + usize::from(byte(index) == b'\\');
                }
            }
            b'/' if depth == 0 => in_predicate = !in_predicate || !ends_predicate(bytes, index + 1),
            b'{' if !in_predicate => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        index += 1;
    }
    match (in_predicate, depth) {
        (true, _) => Some("predicate"),
        (false, 1..) => Some("action list"),
        _ => None,
    }
}

/// Whether the slash before the offset `behind` ends a predicate, and is not a division. A body or the next clause
/// follows such a slash.
fn ends_predicate(bytes: &[u8], behind: usize) -> bool {
    let mut rest = bytes.iter().skip(behind).filter(|byte| !byte.is_ascii_whitespace());
    matches!(rest.next(), None | Some(b'{' | b';'))
}

#[cfg(test)]
mod tests {
    use super::part_of_clause;

    #[test]
    fn a_mistake_is_in_the_predicate_or_in_the_actions() {
        for (text, part) in [
            ("BEGIN { here }", Some("action list")),
            ("BEGIN /here/ { trace(1); }", Some("predicate")),
            ("BEGIN /4 / 2 == here/ { trace(1); }", Some("predicate")),
            ("BEGIN /4 / 2/ { here }", Some("action list")),
            ("BEGIN { trace(\"}\"); /* } */ here }", Some("action list")),
            ("BEGIN { trace(1); } int here;", None),
            ("here", None),
        ] {
            let at = text.find("here").expect("the mistake");
            assert_eq!(part_of_clause(text, at, "[D_IDENT_UNDEF]"), part, "{text}");
            assert_eq!(part_of_clause(text, at, "[D_SYNTAX]"), None, "{text}");
        }
    }
}
