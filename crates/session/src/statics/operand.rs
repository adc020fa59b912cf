//! The arguments of a static probe, from the text of its note: assembler operands in AT&T's syntax, as the compiler
//! wrote them, each with its size.
//!
//! ```text
//!    -4@%eax   8@-16(%rbp)   1@(%rax,%rbx,4)   -4@$7   8@counter(%rip)   8@16+table(%rip)   8@$main
//!    |  |
//!    |  the operand                              a size is 1, 2, 4 or 8; with a minus sign the value has a sign; an f
//!    size                                        behind it: floating-point; none: the operand's own
//! ```
//!
//! Any tool may have written a note. An operand that is not understood becomes an argument that cannot be read,
//! with the reason; the other arguments still work.

use nanoprobe_codegen::{Argument, Location, Operand, Register, StaticArguments};

/// Arguments beyond these are not read: D has names for ten, sys/sdt.h for twelve.
const ARGUMENTS_MAX: usize = 12;
/// Terms of a displacement that are added up.
const TERMS_MAX: usize = 16;

/// Where a symbol lies in the target; several addresses when several compilation units have one of that name.
type Find<'a> = &'a dyn Fn(&str) -> Vec<u64>;

/// Reads all arguments.
pub fn parse(text: &str, find: Find<'_>) -> StaticArguments {
    let list = words(text)
        .into_iter()
        .take(ARGUMENTS_MAX)
        .map(|word| argument(word, find));
    StaticArguments { list: list.collect() }
}

/// The operands, separated by blanks that are not within parentheses.
fn words(text: &str) -> Vec<&str> {
    let mut depth = 0_usize;
    let parts = text.split(|character| {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ' ' && depth == 0
    });
    parts.filter(|part| !part.is_empty()).collect()
}

fn argument(word: &str, find: Find<'_>) -> Argument {
    let (size, text) = match word.split_once('@') {
        Some((size, text)) if is_size(size) => (Some(size), text),
        _ => (None, word),
    };
    let (bytes, signed) = match size {
        None => (None, false),
        Some(size) if size.ends_with('f') => return Err(format!("{word} is a floating-point value")),
        Some(size) => {
            let digits = size.strip_prefix('-').unwrap_or(size);
            match digits {
                "1" | "2" | "4" | "8" => (digits.parse::<u8>().ok(), digits != size),
                _ => return Err(format!("{word} is no integer of 1, 2, 4 or 8 bytes")),
            }
        }
    };
    let (location, own_bytes) = location(text, find).map_err(|reason| format!("{word}: {reason}"))?;
    Ok(Operand {
        location,
        // An argument that is larger than its register is read as the register, and extended.
        bytes: match location {
            Location::Register { .. } => bytes.unwrap_or(own_bytes).min(own_bytes),
            _ => bytes.unwrap_or(own_bytes),
        },
        signed: signed || size.is_none() && matches!(location, Location::Constant(_)),
    })
}

fn is_size(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let digits = digits.strip_suffix('f').unwrap_or(digits);
    (1..=3).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// The location, and the size that it implies.
fn location(text: &str, find: Find<'_>) -> Result<(Location, u8), String> {
    if let Some(immediate) = text.strip_prefix('$') {
        let sum = sum(immediate, find)?;
        return Ok((Location::Constant(sum.value), 8));
    }
    if text.starts_with('%') && !text.contains(':') {
        let named = register(text)?;
        let location = Location::Register {
            register: named.register,
            shift: named.shift,
        };
        return Ok((location, named.bytes));
    }
    if text.contains(':') {
        return Err("it is relative to a segment: the thread's own data".to_owned());
    }
    let (displacement, registers) = match text.split_once('(') {
        None => (text, None),
        Some((displacement, rest)) => {
            let inside = rest.strip_suffix(')').ok_or("a parenthesis is missing")?;
            (displacement, Some(inside))
        }
    };
    let sum = sum(displacement, find)?;
    let Some(registers) = registers else {
        return Ok((memory(None, None, sum.value), 8));
    };
    if registers.trim() == "%rip" {
        if !sum.has_symbol {
            return Err("it is relative to an unknown instruction".to_owned());
        }
        return Ok((memory(None, None, sum.value), 8));
    }
    let mut parts = registers.split(',').map(str::trim);
    let base = match parts.next().unwrap_or_default() {
        "" => None,
        name => Some(address_register(name)?),
    };
    let index = match parts.next() {
        None | Some("") => None,
        Some(name) => Some(address_register(name)?),
    };
    let scale = match parts.next() {
        None | Some("" | "1") => 1,
        Some("2") => 2,
        Some("4") => 4,
        Some("8") => 8,
        Some(other) => return Err(format!("{other} is no scale")),
    };
    if parts.next().is_some() || base.is_none() && index.is_none() {
        return Err("not an operand that is known here".to_owned());
    }
    if index == Some(nanoprobe_codegen::RSP) {
        return Err("the stack pointer is no index".to_owned());
    }
    Ok((memory(base, index.map(|register| (register, scale)), sum.value), 8))
}

fn memory(base: Option<Register>, index: Option<(Register, u8)>, displacement: i64) -> Location {
    Location::Memory {
        base,
        index,
        displacement,
    }
}

/// A register's name.
struct Named {
    register: Register,
    shift: u8,
    bytes: u8,
}

fn register(text: &str) -> Result<Named, String> {
    // The registers by their numbers in machine code.
    const WIDE: [&str; 8] = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
    const LOW: [&str; 8] = ["al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil"];
    const HIGH: [&str; 4] = ["ah", "ch", "dh", "bh"];
    let name = text.strip_prefix('%').ok_or_else(|| format!("{text} is no register"))?;
    let at = |names: &[&str], name: &str| names.iter().position(|known| *known == name).map(|at| at as u8);
    let named = |number: u8, shift, bytes| {
        Ok(Named {
            register: Register(number),
            shift,
            bytes,
        })
    };
    if let Some(number) = at(&LOW, name) {
        return named(number, 0, 1);
    }
    if let Some(number) = at(&HIGH, name) {
        return named(number, 8, 1);
    }
    if let Some(number) = at(&WIDE, name) {
        return named(number, 0, 2);
    }
    for (prefix, bytes) in [("e", 4), ("r", 8)] {
        if let Some(number) = name.strip_prefix(prefix).and_then(|rest| at(&WIDE, rest)) {
            return named(number, 0, bytes);
        }
    }
    if let Some(rest) = name.strip_prefix('r') {
        let digits = rest.trim_end_matches(['b', 'w', 'd', 'l']);
        let bytes = match rest.get(digits.len()..) {
            Some("") => Some(8),
            Some("d") => Some(4),
            Some("w") => Some(2),
            Some("b" | "l") => Some(1),
            _ => None,
        };
        if let (Some(bytes), Ok(number @ 8..=15)) = (bytes, digits.parse::<u8>()) {
            return named(number, 0, bytes);
        }
    }
    let is_vector = ["xmm", "ymm", "zmm", "mm", "st", "k"]
        .iter()
        .any(|prefix| name.starts_with(prefix));
    Err(if is_vector {
        format!("{text} is a floating-point or vector register, and D has integers only")
    } else {
        format!("{text} is no general register")
    })
}

fn address_register(name: &str) -> Result<Register, String> {
    let named = register(name)?;
    if named.bytes == 8 {
        Ok(named.register)
    } else {
        Err(format!("{name} is no register for an address of 64 bits"))
    }
}

/// The text before the parentheses, or after the dollar.
struct Sum {
    value: i64,
    has_symbol: bool,
}

fn sum(text: &str, find: Find<'_>) -> Result<Sum, String> {
    let mut value = 0_u64;
    let mut has_symbol = false;
    let mut rest = text;
    for _ in 0..TERMS_MAX {
        let signs = rest.len() - rest.trim_start_matches(['+', '-']).len();
        let (sign, behind) = rest.split_at(signs);
        if behind.is_empty() {
            return if sign.is_empty() {
                let value = value as i64;
                Ok(Sum { value, has_symbol })
            } else {
                Err("a number is missing".to_owned())
            };
        }
        let end = behind.find(['+', '-']).unwrap_or(behind.len());
        let (term, next) = behind.split_at(end);
        let term = if term.starts_with(|first: char| first.is_ascii_digit()) {
            number(term)?
        } else {
            has_symbol = true;
            symbol(term, find)?
        };
        let negative = sign.bytes().filter(|byte| *byte == b'-').count() % 2 == 1;
        value = value.wrapping_add(if negative { term.wrapping_neg() } else { term });
        rest = next;
    }
    Err("it has too many terms".to_owned())
}

/// A number as the assembler reads it: decimal, hexadecimal, octal; modulo 2^64.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16),
        None if text.len() > 1 && text.starts_with('0') => u64::from_str_radix(text, 8),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text} is no number"))
}

fn symbol(name: &str, find: Find<'_>) -> Result<u64, String> {
    let is_plain = name
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte));
    if !is_plain {
        return Err(format!("{name} is no plain symbol"));
    }
    match find(name).as_slice() {
        [address] => Ok(*address),
        [] => Err(format!("the file has no symbol {name}")),
        _ => Err(format!("the file has several symbols {name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> Argument {
        let find = |name: &str| match name {
            "counter" => vec![0x40_1000],
            "twice" => vec![1, 2],
            _ => Vec::new(),
        };
        let list = parse(text, &find).list;
        assert_eq!(list.len(), 1, "{text}: {list:?}");
        list.into_iter().next().unwrap()
    }

    fn operand(location: Location, bytes: u8, signed: bool) -> Argument {
        Ok(Operand {
            location,
            bytes,
            signed,
        })
    }

    fn in_register(number: u8, shift: u8) -> Location {
        Location::Register {
            register: Register(number),
            shift,
        }
    }

    #[test]
    fn registers_of_all_widths() {
        for (number, names) in [
            (0, "al ax eax rax"),
            (1, "cl cx ecx rcx"),
            (2, "dl dx edx rdx"),
            (3, "bl bx ebx rbx"),
            (4, "spl sp esp rsp"),
            (5, "bpl bp ebp rbp"),
            (6, "sil si esi rsi"),
            (7, "dil di edi rdi"),
            (8, "r8b r8w r8d r8"),
            (9, "r9b r9w r9d r9"),
            (10, "r10b r10w r10d r10"),
            (15, "r15b r15w r15d r15"),
        ] {
            for (bytes, name) in [1, 2, 4, 8].into_iter().zip(names.split(' ')) {
                let expected = operand(in_register(number, 0), bytes, true);
                assert_eq!(one(&format!("-{bytes}@%{name}")), expected, "{name}");
                assert_eq!(one(&format!("%{name}")), operand(in_register(number, 0), bytes, false));
            }
        }
        for (number, name) in (0..).zip(["ah", "ch", "dh", "bh"]) {
            assert_eq!(one(&format!("1@%{name}")), operand(in_register(number, 8), 1, false));
        }
        // A size smaller than the register means its low part; a larger one means all of it.
        assert_eq!(one("2@%rax"), operand(in_register(0, 0), 2, false));
        assert_eq!(one("-8@%eax"), operand(in_register(0, 0), 4, true));
    }

    #[test]
    fn memory_and_immediates() {
        let (rax, rbp, r12) = (Register(0), Register(5), Register(12));
        for (text, location, bytes, signed) in [
            ("-4@-20(%rbp)", memory(Some(rbp), None, -20), 4, true),
            ("8@(%rax)", memory(Some(rax), None, 0), 8, false),
            ("1@0x10(%rax,%r12,4)", memory(Some(rax), Some((r12, 4)), 16), 1, false),
            ("1@(%rax,%r12)", memory(Some(rax), Some((r12, 1)), 0), 1, false),
            ("2@8(,%r12,8)", memory(None, Some((r12, 8)), 8), 2, false),
            ("8@(%rax, %r12, 2)", memory(Some(rax), Some((r12, 2)), 0), 8, false),
            ("-4@counter(%rip)", memory(None, None, 0x40_1000), 4, true),
            ("-4@40+counter(%rip)", memory(None, None, 0x40_1028), 4, true),
            ("-4@counter+8-16(%rip)", memory(None, None, 0x40_0ff8), 4, true),
            ("8@counter", memory(None, None, 0x40_1000), 8, false),
            ("counter(,%rax,8)", memory(None, Some((rax, 8)), 0x40_1000), 8, false),
            ("-4@$7", Location::Constant(7), 4, true),
            ("4@$-1", Location::Constant(-1), 4, false),
            ("8@$0xffffffffffffffff", Location::Constant(-1), 8, false),
            ("1@$010", Location::Constant(8), 1, false),
            ("8@$counter+1", Location::Constant(0x40_1001), 8, false),
            ("$-3", Location::Constant(-3), 8, true),
        ] {
            assert_eq!(one(text), operand(location, bytes, signed), "{text}");
        }
    }

    #[test]
    fn an_unreadable_operand_names_the_reason() {
        for (text, reason) in [
            ("8@%xmm0", "D has integers only"),
            ("8f@%xmm0", "floating-point value"),
            ("-4f@(%rax)", "floating-point value"),
            ("8@%st(1)", "vector register"),
            ("16@(%rax)", "1, 2, 4 or 8 bytes"),
            ("8@%fs:16", "the thread's own data"),
            ("8@%fs:x@tpoff", "the thread's own data"),
            ("8@x@GOTPCREL(%rip)", "no plain symbol"),
            ("8@missing(%rip)", "no symbol missing"),
            ("8@twice(%rip)", "several symbols twice"),
            ("8@16(%rip)", "unknown instruction"),
            ("8@(%eax)", "address of 64 bits"),
            ("8@(%rax", "parenthesis"),
            ("8@(%rax,%rbx,3)", "no scale"),
            ("8@(%rax,%rsp)", "no index"),
            ("8@(%rax,%rbx,2,1)", "not an operand"),
            ("8@()", "not an operand"),
            ("8@1-", "a number is missing"),
            ("8@$12x", "no number"),
            ("8@$99999999999999999999", "no number"),
            ("8@%rax%rbx", "no general register"),
            ("8@%r16", "no general register"),
        ] {
            let answer = one(text);
            assert!(
                answer.as_ref().is_err_and(|error| error.contains(reason)),
                "{text}: {answer:?}"
            );
        }
    }

    #[test]
    fn arguments_are_parted_by_blanks() {
        let count = |text: &str| parse(text, &|_| Vec::new()).list.len();
        assert_eq!(count(""), 0);
        assert_eq!(count("8@%rax  -4@(%rax, %rbx, 2) 1@$1"), 3);
        assert_eq!(count(&"8@%rax ".repeat(100)), ARGUMENTS_MAX);
    }

    #[test]
    fn no_text_is_too_odd() {
        // Every text made of up to four of these pieces.
        let pieces = [
            "", "@", "8", "-", "$", "%", "rax", "(", ")", ",", "+", "x", " ", ":", "\u{e9}",
        ];
        let mut seen = 0;
        for first in pieces {
            for second in pieces {
                for third in pieces {
                    for fourth in pieces {
                        let text = format!("{first}{second}{third}{fourth}");
                        seen += parse(&text, &|_| vec![1]).list.len();
                    }
                }
            }
        }
        assert!(seen > 50_000, "{seen}");
    }
}
