//! Generic functions of Go: the additional word (dictionary) that the compiler passes to them.

/// The index of the parameter before which a function gets its dictionary, found by its name in the symbol
/// table. A function has a dictionary if it was made from a generic function for all types of a shape
/// (`main.apply[go.shape.int]`). A method gets it after its receiver. A function within such a function
/// has none.
pub fn dictionary(name: &str) -> Option<usize> {
    let at = name.find("[go.shape.")?;
    let mut depth = 0_u32;
    let mut end = None;
    for (index, byte) in name.bytes().enumerate().skip(at) {
        match byte {
            b'[' => depth += 1,
            b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    end = Some(index + 1);
                    break;
                }
            }
            _ => {}
        }
    }
    match name.get(end?..)? {
        "" => Some(0),
        rest => {
            let method = rest.strip_prefix(')').unwrap_or(rest).strip_prefix('.')?;
            let is_within = method.contains('.') || !rest.starts_with(')') && is_closure(method);
            (!is_within).then_some(1)
        }
    }
}

fn is_closure(name: &str) -> bool {
    let digits = name.strip_prefix("func").or(name.strip_prefix("gowrap"));
    digits.is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_comes_first_or_after_the_receiver() {
        for (name, expected) in [
            ("main.apply", None),
            ("main.apply[go.shape.int]", Some(0)),
            ("main.pair[go.shape.int,go.shape.[]uint8]", Some(0)),
            ("main.(*List[go.shape.int]).Add", Some(1)),
            ("main.Set[go.shape.string].Has", Some(1)),
            ("main.apply[go.shape.int].func1", None),
            ("main.(*List[go.shape.int]).Add.func2", None),
        ] {
            assert_eq!(dictionary(name), expected, "{name}");
        }
    }
}
