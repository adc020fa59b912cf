//! A code object: its names, and its table of lines.

use nanoprobe_arena::layout::RUNTIME_PYTHON;

use super::{Layout, Lines};
use crate::memory::{Memory, bytes, half, word};
use crate::{Function, Object};

/// Longer names are cut.
const NAME_MAX: u64 = 512;
/// Longer tables are not read, and then no line is known.
const TABLE_MAX: u64 = 256 << 10;
/// Offsets in every object of variable size, and of the content of bytes.
const SIZE: u64 = 16;
const CONTENT: u64 = 32;
/// Offsets in a string.
const TEXT_LENGTH: u64 = 16;
const TEXT_STATE: u64 = 32;

/// The data that is read of a code object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Code {
    /// The function that was compiled to it.
    pub function: Function,
    /// Its lines; `None`: not known.
    pub lines: Option<Lines>,
}

/// The identity of a code object: the addresses of its name, of its file and of its table of lines, the first line, and
/// the content of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Identity {
    name: u64,
    file: u64,
    first: u32,
    table: u64,
    bytes: Vec<u8>,
}

impl Identity {
    fn read(memory: &dyn Memory, layout: &Layout, address: u64) -> Option<Identity> {
        let agent = &layout.agent;
        let at = |offset: u32| address.checked_add(offset.into());
        let table = word(memory, at(agent.code_table)?)?;
        let length = word(memory, table.checked_add(SIZE)?).filter(|length| *length <= TABLE_MAX)?;
        Some(Identity {
            name: word(memory, at(agent.code_name)?)?,
            file: word(memory, at(agent.code_filename)?)?,
            first: half(memory, at(agent.code_line)?)?,
            table,
            bytes: bytes(memory, table.checked_add(CONTENT)?, length as usize)?,
        })
    }

    fn check(&self, memory: &dyn Memory) -> Option<u32> {
        let of_object = [self.name, self.file, self.first.into(), self.table];
        check(memory, of_object, self.bytes.len() as u64)
    }
}

/// The agent's check: `check_code` in `agent/python.c`. `of_object`: name, file, first line, and table of lines.
/// `length`: the table's.
fn check(memory: &dyn Memory, of_object: [u64; 4], length: u64) -> Option<u32> {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    let [name, file, first, table] = of_object;
    let content = table.checked_add(CONTENT)?;
    // A table may be shorter than a word: what lies beside it is compared, too.
    let last = content.checked_add(length)?.checked_sub(8)?;
    let words = [
        name,
        file,
        first,
        table,
        length,
        word(memory, content)?,
        word(memory, last)?,
    ];
    let mix = |mixed: u64, word: &u64| mixed.rotate_left(23).wrapping_mul(FACTOR).wrapping_add(*word);
    Some((words.iter().fold(0, mix).wrapping_mul(FACTOR) >> 47) as u32)
}

/// The code object at an address, as the agent would note it now.
pub fn object_at(memory: &dyn Memory, layout: &Layout, address: u64) -> Option<Object> {
    let agent = &layout.agent;
    let at = |offset: u32| address.checked_add(offset.into());
    let table = word(memory, at(agent.code_table)?)?;
    let of_object = [
        word(memory, at(agent.code_name)?)?,
        word(memory, at(agent.code_filename)?)?,
        half(memory, at(agent.code_line)?)?.into(),
        table,
    ];
    let length = word(memory, table.checked_add(SIZE)?)?;
    Some(Object {
        kind: RUNTIME_PYTHON,
        address,
        check: check(memory, of_object, length)?,
    })
}

impl Code {
    /// Reads an object. `None`: it is no longer the object that the agent saw, or cannot be read.
    pub fn read(memory: &dyn Memory, layout: &Layout, object: Object) -> Option<Code> {
        let identity = || Identity::read(memory, layout, object.address);
        let seen = identity()?;
        let text = |address| text(memory, layout, address);
        let qualified = || text(word(memory, object.address.checked_add(layout.qualified_name)?)?);
        let name = match layout.qualified_name {
            0 => text(seen.name)?,
            _ => qualified().or_else(|| text(seen.name))?,
        };
        let file = text(seen.file)?;
        // The object may have been freed while it was read.
        let is_same = seen.check(memory)? == object.check
            && identity().as_ref() == Some(&seen)
            && is_referenced(word(memory, object.address)?);
        is_same.then_some(Code {
            function: Function { name, file },
            lines: Some(Lines {
                first: seen.first,
                form: layout.line_form,
                bytes: seen.bytes,
            }),
        })
    }
}

/// Whether a count of references belongs to a living object. In a freed object the count is 0, or the allocator has put
/// an address there; its names may belong to other objects already.
fn is_referenced(count: u64) -> bool {
    const MOST: u64 = 1 << 20;
    // 3.12 and later: objects that are never freed.
    const IMMORTAL: std::ops::Range<u64> = 1 << 30..1 << 32;
    (1..=MOST).contains(&count) || IMMORTAL.contains(&count)
}

/// A string.
fn text(memory: &dyn Memory, layout: &Layout, address: u64) -> Option<String> {
    let state = half(memory, address.checked_add(TEXT_STATE)?)?;
    let (width, is_compact, is_ascii) = (state >> 2 & 7, state >> 5 & 1 == 1, state >> 6 & 1 == 1);
    let length = word(memory, address.checked_add(TEXT_LENGTH)?)?.min(NAME_MAX);
    if !is_compact || !matches!(width, 1 | 2 | 4) || is_ascii && width != 1 {
        return None;
    }
    let head = match is_ascii {
        true => layout.text_heads[0],
        false => layout.text_heads[1],
    };
    let content = bytes(memory, address.checked_add(head)?, length as usize * width as usize)?;
    let characters = content.chunks_exact(width as usize).map(|bytes| {
        let number = bytes
            .iter()
            .rev()
            .fold(0, |number, byte| number << 8 | u32::from(*byte));
        // A control character in a name could act on the terminal.
        let character = char::from_u32(number).unwrap_or(char::REPLACEMENT_CHARACTER);
        if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        }
    });
    Some(characters.collect())
}
