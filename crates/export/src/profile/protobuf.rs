//! Protocol buffers, as far as profile.proto needs them: writing a message, and reading one within its bounds.
//! Manual: protobuf.dev/programming-guides/encoding.

/// A message that is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Message(pub Vec<u8>);

impl Message {
    fn number(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// Writes a field with an integer. A field with 0 is left out, because a missing field counts as 0.
    pub fn integer(&mut self, field: u64, value: u64) {
        if value != 0 {
            self.number(field << 3);
            self.number(value);
        }
    }

    /// A field with bytes: a string or a message.
    pub fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.number(field << 3 | 2);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// A field with a list of integers.
    pub fn integers(&mut self, field: u64, values: impl Iterator<Item = u64>) {
        let mut packed = Message::default();
        values.for_each(|value| packed.number(value));
        self.bytes(field, &packed.0);
    }
}

/// A field that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    Integer(u64),
    Bytes(&'a [u8]),
    /// A number of fixed size, which profile.proto does not use.
    Other,
}

/// The fields of a message, one after another. It ends at its end, or after [`Fields::is_damaged`].
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    is_damaged: bool,
}

impl<'a> Fields<'a> {
    pub fn of(message: &'a [u8]) -> Fields<'a> {
        Fields {
            rest: message,
            is_damaged: false,
        }
    }

    /// Whether the message is cut off, or the bytes are no message.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }

    fn field(&mut self) -> Option<(u64, Content<'a>)> {
        let key = take_number(&mut self.rest)?;
        let content = match key & 7 {
            0 => Content::Integer(take_number(&mut self.rest)?),
            1 => take(&mut self.rest, 8).map(|_| Content::Other)?,
            2 => {
                let length = take_number(&mut self.rest)?;
                Content::Bytes(take(&mut self.rest, length)?)
            }
            5 => take(&mut self.rest, 4).map(|_| Content::Other)?,
            _ => return None,
        };
        Some((key >> 3, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u64, Content<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.is_damaged {
            return None;
        }
        let field = self.field();
        self.is_damaged = field.is_none();
        field
    }
}

/// The integers of a field: a list, or a single one.
pub(crate) fn integers<'a>(content: Content<'a>) -> impl Iterator<Item = u64> + 'a {
    let (single, mut packed) = match content {
        Content::Integer(value) => (Some(value), &[][..]),
        Content::Bytes(bytes) => (None, bytes),
        Content::Other => (None, &[][..]),
    };
    single
        .into_iter()
        .chain(std::iter::from_fn(move || take_number(&mut packed)))
}

fn take<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (taken, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(taken)
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, after) = rest.split_first()?;
        *rest = after;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut message = Message::default();
        message.integer(1, 300);
        message.integer(2, 0);
        message.bytes(3, b"text");
        message.integers(4, [1, u64::MAX, 0].into_iter());
        let mut fields = Fields::of(&message.0);
        assert_eq!(fields.next(), Some((1, Content::Integer(300))));
        assert_eq!(fields.next(), Some((3, Content::Bytes(b"text"))));
        let (field, content) = fields.next().unwrap();
        assert_eq!(field, 4);
        assert_eq!(integers(content).collect::<Vec<_>>(), [1, u64::MAX, 0]);
        assert_eq!((fields.next(), fields.is_damaged()), (None, false));
    }

    #[test]
    fn a_message_that_is_cut_off_is_damaged() {
        for bytes in [
            &b"\x0a\x05abc"[..],
            b"\x80",
            b"\x0b",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let mut fields = Fields::of(bytes);
            assert_eq!(fields.next(), None);
            assert!(fields.is_damaged());
        }
    }
}
