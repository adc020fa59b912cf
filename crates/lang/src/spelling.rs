//! "Did you mean": the known name that a misspelt one is nearest to.

/// A name with fewer letters is similar to too many others.
const LETTERS_MIN: usize = 4;
/// Letters of the given name after this number are ignored.
const LETTERS_MAX: usize = 32;

/// The addition to a message about an unknown name: "; did you mean timestamp?", or nothing.
pub fn hint<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(name, known).map_or_else(String::new, |meant| format!("; did you mean {meant}?"))
}

/// The first of the known names that was probably meant. One letter is wrong, too many or missing; or
/// two neighbours are swapped; or only the case differs.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let letters: Vec<char> = name.chars().take(LETTERS_MAX).collect();
    let is_meant = |known: &&str| *known != name && (is_near(&letters, known) || known.eq_ignore_ascii_case(name));
    known.into_iter().find(is_meant)
}

fn is_near(given: &[char], known: &str) -> bool {
    let known: Vec<char> = known.chars().collect();
    if known.len() < LETTERS_MIN {
        return false;
    }
    let same = given
        .iter()
        .zip(&known)
        .take_while(|(left, right)| left == right)
        .count();
    let rest = |letters: &[char], skipped: usize| letters.get(same + skipped..).map(<[char]>::to_vec);
    let swapped = || {
        let mut given = given.to_vec();
        if same + 1 < given.len() {
            given.swap(same, same + 1);
        }
        given == known
    };
    rest(given, 1).is_some_and(|left| Some(left) == rest(&known, 1))
        || rest(given, 1).is_some_and(|left| Some(left) == rest(&known, 0))
        || rest(given, 0).is_some_and(|left| Some(left) == rest(&known, 1))
        || swapped()
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn one_slip_is_forgiven() {
        let known = ["timestamp", "printf", "BEGIN", "pid"];
        for (given, meant) in [
            ("timstamp", Some("timestamp")),
            ("tiemstamp", Some("timestamp")),
            ("timestampp", Some("timestamp")),
            ("prinft", Some("printf")),
            ("printg", Some("printf")),
            ("begin", Some("BEGIN")),
            ("timestamp", None),
            ("pod", None),
            ("nothing", None),
            ("", None),
        ] {
            assert_eq!(nearest(given, known), meant, "{given}");
        }
    }

    /// The names are variables, subroutines, actions and aggregating functions, and the program's own variables.
    #[test]
    fn a_misspelt_name_of_d_names_the_one_that_was_meant() {
        for (text, meant) in [
            (
                "BEGIN { trace(timstamp); }",
                "Unknown variable name; did you mean timestamp?",
            ),
            ("BEGIN { trace(threadnme); }", "did you mean threadname?"),
            ("BEGIN { visits = 1; trace(vistis); }", "did you mean visits?"),
            (
                "BEGIN { prinft(\"x\"); }",
                "undefined function name: prinft; did you mean printf?",
            ),
            ("BEGIN { trace(copyinst(1)); }", "did you mean copyinstr?"),
            ("BEGIN { @ = quantise(1); }", "did you mean quantize?"),
        ] {
            let sources = [crate::Source::new("test", text)];
            let errors = crate::compile(&sources, &crate::MacroValues::default()).expect_err(text);
            assert!(errors[0].message.ends_with(meant), "{text}: {}", errors[0].message);
        }
    }
}
