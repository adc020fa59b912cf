//! The keys of a terminal in raw mode.
//!
//! Crossterm's reader is not used: it waits for the rest of an incomplete key, and tries for ever to read a terminal
//! that is gone. The tracer may do neither while probes are in place.

use nanoprobe_export::live::Key;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// The meaning of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pressed {
    Key(Key),
    Quit,
    Redraw,
    Suspend,
}

/// Reads keys, and waits for none.
#[derive(Debug, Default)]
pub struct Keys {
    /// Whether the terminal is gone, or its input has ended.
    is_over: bool,
}

impl Keys {
    /// The keys that were pressed since the last call.
    pub fn read(&mut self) -> Vec<Pressed> {
        let input = rustix::stdio::stdin();
        let mut fds = [PollFd::new(&input, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.is_over || poll(&mut fds, Some(&now)) != Ok(1) {
            return Vec::new();
        }
        let mut bytes = [0; 256];
        match rustix::io::read(input, &mut bytes) {
            Ok(0) => self.is_over = true,
            Ok(count) => return meanings(bytes.get(..count).unwrap_or_default()),
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(_) => self.is_over = true,
        }
        Vec::new()
    }
}

/// The meanings of bytes. A terminal sends the bytes of a key at once.
fn meanings(mut bytes: &[u8]) -> Vec<Pressed> {
    let mut pressed = Vec::new();
    while !bytes.is_empty() {
        let (meaning, length) = sequence(bytes).unwrap_or((of_byte(bytes.first().copied().unwrap_or(0)), 1));
        pressed.extend(meaning);
        bytes = bytes.get(length..).unwrap_or_default();
    }
    pressed
}

fn of_byte(byte: u8) -> Option<Pressed> {
    const CTRL_C: u8 = 3;
    const CTRL_L: u8 = 12;
    const CTRL_Z: u8 = 26;
    Some(match byte {
        b'q' | b'Q' | CTRL_C => Pressed::Quit,
        CTRL_L => Pressed::Redraw,
        CTRL_Z => Pressed::Suspend,
        b' ' | b'f' => Pressed::Key(Key::Freeze),
        b's' | b'>' => Pressed::Key(Key::SortRight),
        b'<' => Pressed::Key(Key::SortLeft),
        b'r' => Pressed::Key(Key::Reverse),
        b'\t' => Pressed::Key(Key::Table),
        b'k' => Pressed::Key(Key::Up),
        b'j' => Pressed::Key(Key::Down),
        b'g' => Pressed::Key(Key::Home),
        b'G' => Pressed::Key(Key::End),
        _ => return None,
    })
}

/// The meaning of an escape sequence, and its length: `ESC [ parameters letter`, or `ESC O letter`.
fn sequence(bytes: &[u8]) -> Option<(Option<Pressed>, usize)> {
    let rest = bytes.strip_prefix(b"\x1b")?;
    let (letter_at, parameters) = match rest.first() {
        Some(b'[') => {
            let end = rest.iter().skip(1).position(|byte| (0x40..=0x7e).contains(byte))? + 1;
            (end, rest.get(1..end).unwrap_or_default())
        }
        Some(b'O') => (1, &[][..]),
        _ => return None,
    };
    let key = match (rest.get(letter_at)?, parameters) {
        (b'A', _) => Key::Up,
        (b'B', _) => Key::Down,
        (b'C', _) => Key::SortRight,
        (b'D', _) => Key::SortLeft,
        (b'H', _) | (b'~', b"1" | b"7") => Key::Home,
        (b'F', _) | (b'~', b"4" | b"8") => Key::End,
        (b'~', b"5") => Key::PageUp,
        (b'~', b"6") => Key::PageDown,
        (b'Z', _) => Key::Table,
        _ => return Some((None, letter_at + 2)),
    };
    Some((Some(Pressed::Key(key)), letter_at + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_meanings() {
        let key = Pressed::Key;
        for (bytes, expected) in [
            (&b"q"[..], vec![Pressed::Quit]),
            (b"\x03", vec![Pressed::Quit]),
            (b" r\t", vec![key(Key::Freeze), key(Key::Reverse), key(Key::Table)]),
            (
                b"\x1b[A\x1bOB\x1b[C",
                vec![key(Key::Up), key(Key::Down), key(Key::SortRight)],
            ),
            (
                b"\x1b[5~\x1b[6~\x1b[1~\x1b[F",
                vec![key(Key::PageUp), key(Key::PageDown), key(Key::Home), key(Key::End)],
            ),
            (b"\x1b[1;5Ds", vec![key(Key::SortLeft), key(Key::SortRight)]),
            // An unknown sequence, and an incomplete character.
            (b"\x1b[15~x\xc3\xa9", vec![]),
            (b"\x1b", vec![]),
            (b"\x1b[", vec![]),
            (b"\x1b[1;", vec![]),
            (b"\x1bO", vec![]),
            (b"\x1bq", vec![Pressed::Quit]),
        ] {
            assert_eq!(meanings(bytes), expected, "{bytes:?}");
        }
    }
}
