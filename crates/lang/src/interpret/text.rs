//! The subroutines on strings and numbers, with DTrace's results (illumos, `dtrace_dif_subr`). The
//! agent does the same in C (`agent/text.c`, `agent/numbers.c`), and a test compares the two.
//!
//! Strings are passed and returned without their NUL. `None` is the string NULL: nothing was found.

use std::net::Ipv4Addr;

/// The bytes from an index on; empty when the index lies after the end.
fn from(text: &[u8], index: usize) -> &[u8] {
    text.get(index..).unwrap_or_default()
}

fn starts_with(text: &[u8], index: usize, wanted: &[u8]) -> bool {
    from(text, index).starts_with(wanted)
}

/// `strchr`, `strrchr`: the text from the first, or the last, `wanted` on. The NUL can be found, too.
pub fn character(text: &[u8], wanted: u8, last: bool) -> Option<&[u8]> {
    let found = if wanted == 0 {
        Some(text.len())
    } else if last {
        text.iter().rposition(|byte| *byte == wanted)
    } else {
        text.iter().position(|byte| *byte == wanted)
    };
    found.map(|index| from(text, index))
}

/// `strstr`.
pub fn search<'t>(text: &'t [u8], wanted: &[u8]) -> Option<&'t [u8]> {
    let found = (0..=text.len()).find(|index| starts_with(text, *index, wanted));
    found.map(|index| from(text, index))
}

/// `index`: a position before the string is its start; -1: not found.
pub fn index(text: &[u8], wanted: &[u8], position: i64) -> i64 {
    if text.is_empty() && wanted.is_empty() {
        return 0;
    }
    let start = usize::try_from(position.max(0)).unwrap_or(usize::MAX);
    if start >= text.len() {
        return if wanted.is_empty() { text.len() as i64 } else { -1 };
    }
    let found = (start..text.len()).find(|index| starts_with(text, *index, wanted));
    found.map_or(-1, |index| index as i64)
}

/// `rindex`: a position after the string is its end; -1: not found.
pub fn last_index(text: &[u8], wanted: &[u8], position: i64) -> i64 {
    if position < 0 || (text.is_empty() && wanted.is_empty()) {
        return if wanted.is_empty() { 0 } else { -1 };
    }
    let start = usize::try_from(position).unwrap_or(usize::MAX).min(text.len());
    let found = (0..=start).rev().find(|index| starts_with(text, *index, wanted));
    found.map_or(-1, |index| index as i64)
}

/// `strtok`: the token at the front (empty: there is none), and the rest of the text, with the separator.
pub fn token<'t>(text: &'t [u8], separators: &[u8]) -> (&'t [u8], &'t [u8]) {
    let is_separator = |byte: &u8| separators.contains(byte);
    let start = text.iter().position(|byte| !is_separator(byte)).unwrap_or(text.len());
    let text = from(text, start);
    text.split_at(text.iter().position(is_separator).unwrap_or(text.len()))
}

/// Stands for an omitted count in `substr`, which means `strsize`.
pub const ALL: i64 = i64::MIN;

/// `substr`: a negative index counts from the end; a negative count omits as many characters at the end.
pub fn substring(text: &[u8], index: i64, count: i64, strsize: i64) -> &[u8] {
    let length = text.len() as i64;
    let (mut start, mut remaining) = (index, if count == ALL { strsize } else { count });
    if start < 0 {
        start = start.wrapping_add(length);
        if start < 0 && remaining > 0 && start.wrapping_add(remaining) > 0 {
            remaining += start;
            start = 0;
        }
    }
    if start >= length || start < 0 {
        remaining = 0;
    } else if remaining < 0 {
        remaining += length - start;
    } else if remaining > strsize - start {
        remaining = strsize - start;
    }
    let remaining = remaining.clamp(0, (length - start).max(0));
    let start = usize::try_from(start).unwrap_or(0);
    from(text, start).get(..remaining as usize).unwrap_or_default()
}

fn is_slash(byte: &u8) -> bool {
    *byte == b'/'
}

/// `basename` and `dirname`: the last component, and the path before it.
pub fn path_part(path: &[u8], base: bool) -> &[u8] {
    if path.is_empty() {
        return b".";
    }
    let Some(last) = path.iter().rposition(|byte| !is_slash(byte)) else {
        return b"/";
    };
    let component = path.get(..=last).unwrap_or_default();
    match (component.iter().rposition(is_slash), base) {
        (None, true) => component,
        (None, false) => b".",
        (Some(slash), true) => from(component, slash + 1),
        (Some(slash), false) => {
            let directory = component.get(..slash).unwrap_or_default();
            match directory.iter().rposition(|byte| !is_slash(byte)) {
                Some(end) => directory.get(..=end).unwrap_or_default(),
                None => b"/",
            }
        }
    }
}

/// `cleanpath`: the path without empty components, `.` and `..`, in the same steps as DTrace. A
/// relative path with `..` is treated as in DTrace for Linux: a `..` that leads out of the path's
/// first directory stays.
pub fn clean_path(path: &[u8], strsize: usize) -> Vec<u8> {
    if !path.first().is_some_and(is_slash) && path.split(is_slash).any(|component| component == b"..") {
        return clean_relative(path);
    }
    let mut at = 0;
    let mut next = |back: bool| {
        if back {
            at -= 1;
            return 0;
        }
        at += 1;
        path.get(at - 1).copied().unwrap_or(0)
    };
    let mut clean: Vec<u8> = Vec::new();
    'all: loop {
        let mut byte = next(false);
        loop {
            if clean.len() + 5 >= strsize {
                break 'all;
            }
            if byte != b'/' {
                clean.push(byte);
                break;
            }
            byte = next(false);
            if byte == b'/' {
                continue;
            }
            if byte != b'.' {
                clean.extend([b'/', byte]);
                break;
            }
            byte = next(false);
            if byte == b'/' {
                continue;
            }
            if byte != b'.' {
                clean.extend([b'/', b'.', byte]);
                break;
            }
            byte = next(false);
            if byte != b'/' && byte != 0 {
                clean.extend([b'/', b'.', b'.', byte]);
                break;
            }
            next(true);
            let slash = clean.iter().rposition(is_slash).unwrap_or(0);
            if byte == 0 {
                // The character to which the text is cut stays, whether it is a slash or not. An empty
                // text becomes a slash.
                clean.truncate(slash + 1);
                if clean.is_empty() {
                    clean.push(b'/');
                }
            } else {
                clean.truncate(slash);
            }
            break;
        }
        if byte == 0 {
            break;
        }
    }
    clean
}

/// Cleans a relative path, component by component.
fn clean_relative(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    for component in path.split(is_slash) {
        match (component, kept.last().copied()) {
            (b"" | b".", _) => {}
            (b"..", Some(last)) if last != b".." => {
                kept.pop();
            }
            _ => kept.push(component),
        }
    }
    match kept.as_slice() {
        [] => b".".to_vec(),
        kept => kept.join(&b'/'),
    }
}

/// `lltostr` in a base from 2 to 36; only decimal numbers have a sign.
pub fn from_number(value: i64, base: u32) -> Vec<u8> {
    let mut rest = if base == 10 { value.unsigned_abs() } else { value as u64 };
    let mut text = Vec::new();
    if base == 8 && rest == 0 {
        return b"0".to_vec();
    }
    loop {
        let digit = (rest % u64::from(base)) as u8;
        text.push(if digit < 10 { b'0' + digit } else { b'a' + digit - 10 });
        rest /= u64::from(base);
        if rest == 0 {
            break;
        }
    }
    match base {
        16 => text.extend(b"x0"),
        8 => text.push(b'0'),
        10 if value < 0 => text.push(b'-'),
        _ => {}
    }
    text.reverse();
    text
}

/// `strtoll` in a base from 2 to 36: up to the first byte that is not a digit; the number wraps.
pub fn to_number(text: &[u8], base: u32) -> i64 {
    let digit = |byte: u8| char::from(byte).to_digit(36).filter(|digit| *digit < base);
    let blanks = text.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    let mut text = from(text, blanks);
    let negative = text.first() == Some(&b'-');
    if matches!(text.first(), Some(b'-' | b'+')) {
        text = from(text, 1);
    }
    if base == 16
        && let [b'0', b'x' | b'X', first, ..] = text
        && digit(*first).is_some()
    {
        text = from(text, 2);
    }
    let value = text.iter().map_while(|byte| digit(*byte)).fold(0_i64, |value, digit| {
        value.wrapping_mul(i64::from(base)).wrapping_add(i64::from(digit))
    });
    if negative { value.wrapping_neg() } else { value }
}

/// `link_ntop`.
pub fn link(address: &[u8]) -> Vec<u8> {
    let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":").into_bytes()
}

/// `inet_ntoa`.
pub fn ipv4(address: [u8; 4]) -> Vec<u8> {
    Ipv4Addr::from(address).to_string().into_bytes()
}

/// `inet_ntop` of 16 bytes. With `short` it is `inet_ntoa6`: if the address holds an IPv4 address,
/// only that is written.
///
/// RFC 1884, convention 2, with two oddities of DTrace. A single zero word is compressed, but not the
/// last one. If the address holds an IPv4 address, zeros that reach into that are not compressed.
pub fn ipv6(address: [u8; 16], short: bool) -> Vec<u8> {
    let (mut first, mut candidate, mut count, mut end) = (-1_i32, None::<i32>, 1_i32, 14_i32);
    for (at, byte) in (0_i32..).zip(address) {
        match candidate {
            None if byte == 0 && at % 2 == 0 => candidate = Some(at),
            Some(start) if byte != 0 || at == 15 => {
                if at - start > count {
                    first = start;
                    count = at - at % 2 - start;
                    if byte == 0 && at == 15 {
                        count += 2;
                    }
                }
                candidate = None;
            }
            _ => {}
        }
    }
    let mut pieces: Vec<Vec<u8>> = Vec::new();
    let [zeros @ .., m1, m2, a, b, c, d] = address;
    let holds_ipv4 =
        zeros == [0; 10] && ((m1, m2) == (0xff, 0xff) || ((m1, m2) == (0, 0) && u32::from_be_bytes([a, b, c, d]) > 1));
    if holds_ipv4 {
        pieces.push(ipv4([a, b, c, d]));
        if short {
            return pieces.concat();
        }
        end = 10;
    }
    let word = |at: i32| {
        let byte = |at: i32| {
            usize::try_from(at)
                .ok()
                .and_then(|at| address.get(at))
                .copied()
                .unwrap_or(0)
        };
        u16::from_be_bytes([byte(at), byte(at + 1)])
    };
    let mut at = end;
    while at >= 0 {
        if at == first + count - 2 {
            pieces.push(b"::".to_vec());
            at -= count;
            continue;
        }
        if at < 14 && at != first - 2 {
            pieces.push(b":".to_vec());
        }
        pieces.push(format!("{:x}", word(at)).into_bytes());
        at -= 2;
    }
    pieces.reverse();
    pieces.concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: impl AsRef<[u8]>) -> String {
        String::from_utf8(bytes.as_ref().to_vec()).unwrap()
    }

    #[test]
    fn paths_are_divided_as_by_basename_and_dirname() {
        for (path, base, directory) in [
            ("", ".", "."),
            ("/", "/", "/"),
            ("///", "/", "/"),
            ("foo", "foo", "."),
            ("foo/", "foo", "."),
            ("/foo", "foo", "/"),
            ("//foo//", "foo", "/"),
            ("/foo/bar", "bar", "/foo"),
            ("/foo//bar//", "bar", "/foo"),
            ("foo/bar/baz", "baz", "foo/bar"),
        ] {
            assert_eq!(text(path_part(path.as_bytes(), true)), base, "{path}");
            assert_eq!(text(path_part(path.as_bytes(), false)), directory, "{path}");
        }
    }

    #[test]
    fn network_addresses_are_compressed_as_dtrace_does() {
        let address = |of: &str| of.parse::<std::net::Ipv6Addr>().unwrap().octets();
        for (of, long, short) in [
            ("::", "::", "::"),
            ("::1", "::1", "::1"),
            (
                "fe80::214:4fff:fe0b:76c8",
                "fe80::214:4fff:fe0b:76c8",
                "fe80::214:4fff:fe0b:76c8",
            ),
            (
                "1080::8:800:200c:417a",
                "1080::8:800:200c:417a",
                "1080::8:800:200c:417a",
            ),
            ("::ffff:1.2.3.4", "::ffff:1.2.3.4", "1.2.3.4"),
            ("::1.2.3.4", "::1.2.3.4", "1.2.3.4"),
            ("1:0:2:3:4:5:6:7", "1::2:3:4:5:6:7", "1::2:3:4:5:6:7"),
            ("1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7:0", "1:2:3:4:5:6:7:0"),
        ] {
            assert_eq!(text(ipv6(address(of), false)), long);
            assert_eq!(text(ipv6(address(of), true)), short);
        }
    }
}
