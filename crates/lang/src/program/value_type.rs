//! The types of values.

use super::{Foreign, Structure};

/// A type of integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IntegerType {
    /// The size in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether the type has negative values.
    pub signed: bool,
}

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// No value: the type of an action used as a statement.
    Void,
    Integer(IntegerType),
    /// A D string: at most `strsize` bytes with its NUL.
    String,
    /// An address in the target; the type is the one that it points to (`None`: void).
    Pointer(Option<Box<Type>>),
    /// The address of bytes in scratch memory, as `copyin` yields it.
    Bytes {
        /// The number of bytes, if it is constant.
        size: Option<u32>,
    },
    /// A structure or union. Only members, and what pointers point to, have this type: the values
    /// of a program are integers, pointers, strings and bytes.
    Structure(Structure),
    /// An array. It can be used where [`Type::Structure`] can.
    Array {
        of: Box<Type>,
        count: u32,
    },
    /// Any other type of the traced program. It can be used where [`Type::Structure`] can.
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
