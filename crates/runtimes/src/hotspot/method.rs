//! A method: its names, and its table of lines.

use nanoprobe_arena::layout::RUNTIME_JAVA;

use super::structures;
use super::{Layout, Lines};
use crate::memory::{Memory, bytes, half, word};
use crate::{Function, Object};

/// Longer names are cut.
const NAME_MAX: usize = 512;
/// Longer tables are not read, and then no line is known.
const TABLE_MAX: u64 = 128 << 10;
/// Names of stubs are shorter.
const STUB_NAME_MAX: u64 = 128;

/// The data that is read of a method.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Method {
    /// The function.
    pub function: Function,
    /// Its lines; `None`: not known, or the method is native.
    pub lines: Option<Lines>,
}

/// The identity of a method: its constant part, its class's constants, its class, and the numbers of its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    constant: u64,
    constants: u64,
    class: u64,
    numbers: u64,
}

impl Identity {
    fn read(memory: &dyn Memory, layout: &Layout, method: u64) -> Option<Identity> {
        let agent = &layout.agent;
        let at = |address: u64, offset: u32| word(memory, address.checked_add(offset.into())?);
        let constant = at(method, agent.const_method)?;
        let constants = at(constant, agent.constants)?;
        let numbers = constant.checked_add(agent.name_index.into())? & !7;
        Some(Identity {
            constant,
            constants,
            class: at(constants, agent.holder)?,
            numbers: word(memory, numbers)?,
        })
    }

    /// The agent's check: `method_frame` in `agent/hotspot.c`.
    fn check(&self) -> u32 {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let words = [self.constant, self.constants, self.class, self.numbers];
        let mix = |mixed: u64, word: &u64| mixed.rotate_left(23).wrapping_mul(FACTOR).wrapping_add(*word);
        (words.iter().fold(0, mix).wrapping_mul(FACTOR) >> 47) as u32
    }
}

/// A method in the form that the agent notes in a stack. `None`: it cannot be read.
pub(super) fn method_at(memory: &dyn Memory, layout: &Layout, method: u64) -> Option<Object> {
    let address = Some(method).filter(|method| method.is_multiple_of(8))?;
    let check = Identity::read(memory, layout, address)?.check();
    Some(Object {
        kind: RUNTIME_JAVA,
        address,
        check,
    })
}

impl Method {
    /// Reads a method. `None`: it is no longer the method that the agent saw, or cannot be read.
    pub fn read(memory: &dyn Memory, layout: &Layout, object: Object) -> Option<Method> {
        let seen = Identity::read(memory, layout, object.address)?;
        if seen.check() != object.check {
            return None;
        }
        let reader = Reader { memory, layout, seen };
        let class = reader.symbol(reader.word(seen.class, layout.class_name)?)?;
        let method = reader.constant(reader.number(seen.constant, layout.agent.name_index)?)?;
        let owner = match layout.is_source_file_of_class {
            true => seen.class,
            false => seen.constants,
        };
        let file = match reader.number(owner, layout.source_file)? {
            0 => String::new(),
            index => reader.constant(index)?,
        };
        let lines = reader.lines();
        // The class may have been unloaded while it was read.
        let is_same = Identity::read(memory, layout, object.address) == Some(seen);
        let name = format!("{}.{method}", shown(&class));
        is_same.then_some(Method {
            function: Function { name, file },
            lines,
        })
    }
}

/// The name of a code blob that is no method. `None`: another one is in its place, or it cannot be read.
pub fn stub(memory: &dyn Memory, layout: &Layout, object: Object) -> Option<String> {
    let name = word(memory, object.address.checked_add(layout.agent.blob_name.into())?)?;
    let text = structures::text(memory, name, STUB_NAME_MAX)?;
    (name as u32 & 0x1_ffff == object.check && is_name(&text)).then_some(text)
}

struct Reader<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    seen: Identity,
}

impl Reader<'_> {
    fn word(&self, address: u64, offset: u32) -> Option<u64> {
        word(self.memory, address.checked_add(offset.into())?)
    }

    /// A number of 16 bits.
    fn number(&self, address: u64, offset: u32) -> Option<u16> {
        let two = bytes(self.memory, address.checked_add(offset.into())?, 2)?;
        two.try_into().ok().map(u16::from_le_bytes)
    }

    /// A number of 32 bits.
    fn half(&self, address: u64, offset: u32) -> Option<u32> {
        half(self.memory, address.checked_add(offset.into())?)
    }

    /// The name with this number in the class's constants.
    fn constant(&self, index: u16) -> Option<String> {
        let count = self.half(self.seen.constants, self.layout.constants_count)?;
        if index == 0 || u32::from(index) >= count {
            return None;
        }
        let first = self.seen.constants.checked_add(self.layout.constants_bytes.into())?;
        self.symbol(word(self.memory, first.checked_add(8 * u64::from(index))?)?)
    }

    /// A name. That of an unloaded class is freed: the allocator writes an address there, whose upper bytes, zeros, lie
    /// at the beginning of the text.
    fn symbol(&self, address: u64) -> Option<String> {
        let length = usize::from(self.number(address, self.layout.symbol_length)?);
        let body = address.checked_add(self.layout.symbol_body.into())?;
        let text = bytes(self.memory, body, length.min(NAME_MAX))?;
        let text = String::from_utf8_lossy(&text).into_owned();
        is_name(&text).then_some(text)
    }

    fn lines(&self) -> Option<Lines> {
        let (layout, constant) = (self.layout, self.seen.constant);
        let flags = match layout.flags_bytes {
            2 => u32::from(self.number(constant, layout.flags)?),
            _ => self.half(constant, layout.flags)?,
        };
        let code = u64::from(self.number(constant, layout.agent.code_bytes)?);
        let start = u64::from(layout.agent.const_method_bytes).checked_add(code)?;
        let size = u64::from(self.half(constant, layout.const_method_words)?).checked_mul(8)?;
        let count = size.checked_sub(start).filter(|count| *count <= TABLE_MAX)?;
        if flags & layout.has_lines == 0 || code == 0 {
            return None;
        }
        let table = bytes(self.memory, constant.checked_add(start)?, count as usize)?;
        Some(Lines {
            bytes: table,
            excess: layout.agent.unsigned5_excess,
        })
    }
}

/// Whether a text may be a name. A control character could act on the terminal.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.chars().any(char::is_control)
}

/// A class's name as Java shows it: `shop.Order`, `shop.Order$$Lambda/0x0000000800c03000`.
fn shown(class: &str) -> String {
    match class.rsplit_once("+0x") {
        Some((class, number)) => format!("{}/0x{number}", class.replace('/', ".")),
        None => class.replace('/', "."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_shown_as_java_shows_them() {
        assert_eq!(shown("Order"), "Order");
        assert_eq!(shown("shop/Order$Item"), "shop.Order$Item");
        assert_eq!(shown("shop/Order$$Lambda$7+0x0800"), "shop.Order$$Lambda$7/0x0800");
    }

    #[test]
    fn freed_names_are_no_names() {
        assert!(is_name("<init>") && !is_name("") && !is_name("\0\0ain") && !is_name("a\u{1b}[2J"));
    }
}
