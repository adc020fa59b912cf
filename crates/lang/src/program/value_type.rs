//! The types of values.

use super::{Foreign, Structure};

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerType {
    /// 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it has negative values.
    pub signed: bool,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: an action used as a statement.
    Void,
    /// An integer.
    Integer(IntegerType),
    /// A D string: at most `strsize` bytes with its NUL.
    String,
    /// An address in the target; what it points to is for later (`None`: void).
    Pointer(Option<Box<Type>>),
    /// An address of bytes in scratch memory, as `copyin` gives it; constant size where known.
    Bytes {
        /// Bytes, where the text says it.
        size: Option<u32>,
    },
    /// A structure or union. Only what is pointed to, and members, have this type: the values of a
    /// program are integers, pointers, strings and bytes.
    Structure(Structure),
    /// Elements one behind the other; as [`Type::Structure`].
    Array {
        /// Their type.
        of: Box<Type>,
        /// How many.
        count: u32,
    },
    /// A type of the traced program that is none of these; as [`Type::Structure`].
    Foreign(Foreign),
}

impl Type {
    /// `int64_t`
    pub const I64: Type = Type::Integer(IntegerType { bytes: 8, signed: true });
    /// `uint64_t`
    pub const U64: Type = Type::Integer(IntegerType {
        bytes: 8,
        signed: false,
    });
    /// `int`
    pub const I32: Type = Type::Integer(IntegerType { bytes: 4, signed: true });
    /// `uint32_t`
    pub const U32: Type = Type::Integer(IntegerType {
        bytes: 4,
        signed: false,
    });
}
