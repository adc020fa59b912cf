//! Splits the command of `-c` into words.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use nanoprobe_lang::bytes::bytes_of;

/// The words of a command, with the shell's rules for quotes.
pub fn split(command: &str) -> Result<Vec<OsString>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut characters = command.chars();
    while let Some(character) = characters.next() {
        match character {
            ' ' | '\t' | '\n' => words.extend(word.take().map(|word| os_string(&word))),
            '\'' | '"' => {
                let open = word.get_or_insert_default();
                loop {
                    match characters.next() {
                        Some(end) if end == character => break,
                        Some('\\') if character == '"' => open.extend(characters.next()),
                        Some(inside) => open.push(inside),
                        None => return Err(format!("the command has a {character} that is not closed: {command}")),
                    }
                }
            }
            '\\' => word.get_or_insert_default().extend(characters.next()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word.map(|word| os_string(&word)));
    Ok(words)
}

/// A word of the command line, with the bytes that were given.
fn os_string(word: &str) -> OsString {
    OsString::from_vec(bytes_of(word).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_as_by_a_shell() {
        let words = |command: &str| {
            split(command).map(|words| {
                words
                    .iter()
                    .map(|word| word.to_string_lossy().into_owned())
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(words("./looper  10"), Ok(vec!["./looper".to_owned(), "10".to_owned()]));
        assert_eq!(
            words(r#"bash -c "echo 'a b' \"c\"" x\ y ''"#).unwrap(),
            ["bash", "-c", "echo 'a b' \"c\"", "x y", ""]
        );
        assert!(words("echo 'a").is_err());
    }
}
