//! Types: names, ranks, compatibility. As in DTrace, the rules are C's on LP64, without
//! the integral promotions.

use crate::program::{Foreign, ForeignKind, IntegerType, Structure, Type};
pub use crate::program::{size_of, step_of};

const fn integer(bytes: u8, signed: bool) -> Type {
    Type::Integer(IntegerType { bytes, signed })
}

fn foreign(name: &str, kind: ForeignKind) -> Type {
    Type::Foreign(Foreign::new(name.to_owned(), kind))
}

/// Whether values of the type are represented by their place: a structure, an array, or a foreign type
/// other than an enumeration.
#[must_use]
pub fn is_aggregate(of: &Type) -> bool {
    match of {
        Type::Structure(_) | Type::Array { .. } => true,
        Type::Foreign(foreign) => foreign.integer().is_none(),
        _ => false,
    }
}

/// A type that every program knows by this name.
#[must_use]
pub fn named(name: &str) -> Option<Type> {
    Some(match name {
        "int8_t" => integer(1, true),
        "uint8_t" | "uchar_t" | "u_char" => integer(1, false),
        "int16_t" => integer(2, true),
        "uint16_t" | "ushort_t" | "u_short" | "in_port_t" => integer(2, false),
        "int32_t" | "pid_t" | "key_t" | "clockid_t" | "processorid_t" | "wchar_t" | "psetid_t" | "taskid_t"
        | "projid_t" | "zoneid_t" | "poolid_t" => integer(4, true),
        "uint32_t" | "uint_t" | "u_int" | "uid_t" | "gid_t" | "mode_t" | "in_addr_t" | "ipaddr_t" | "socklen_t"
        | "useconds_t" | "id_t" => integer(4, false),
        "int64_t" | "ssize_t" | "intptr_t" | "ptrdiff_t" | "off_t" | "off64_t" | "time_t" | "clock_t"
        | "suseconds_t" | "longlong_t" | "hrtime_t" | "intmax_t" | "blkcnt_t" => integer(8, true),
        "uint64_t" | "size_t" | "uintptr_t" | "ulong_t" | "u_long" | "u_longlong_t" | "dev_t" | "ino_t" | "nlink_t"
        | "uintmax_t" | "pc_t" => integer(8, false),
        "__int128" | "__int128_t" | "__uint128_t" | "_Float128" | "__float128" => {
            foreign(name, ForeignKind::Opaque(16))
        }
        "_Float16" | "__bf16" => foreign(name, ForeignKind::Opaque(2)),
        "_Float32" => foreign("float", ForeignKind::Floating(4)),
        "_Float64" | "_Float32x" => foreign("double", ForeignKind::Floating(8)),
        "_Float64x" => foreign("long double", ForeignKind::Floating(16)),
        // Three words, whose content only the compiler knows.
        "__builtin_va_list" => Type::Array {
            of: Box::new(integer(8, false)),
            count: 3,
        },
        "caddr_t" => Type::Pointer(Some(Box::new(integer(1, true)))),
        _ => return customary(name),
    })
}

/// A type that most programs know by this name, or that scripts for another system use
/// (`user_addr_t`). A definition in the text or in the traced program takes precedence.
#[must_use]
pub fn customary(name: &str) -> Option<Type> {
    Some(match name {
        "__s8" | "int_least8_t" | "int_fast8_t" => integer(1, true),
        "bool" | "_Bool" | "__u8" | "u_int8_t" | "uint_least8_t" | "uint_fast8_t" => integer(1, false),
        "__s16" | "int_least16_t" => integer(2, true),
        "__u16" | "ushort" | "u_int16_t" | "uint_least16_t" | "char16_t" | "sa_family_t" => integer(2, false),
        "__s32" | "int_least32_t" | "boolean_t" | "daddr_t" | "integer_t" | "kern_return_t" => integer(4, true),
        "__u32" | "uint" | "u_int32_t" | "uint_least32_t" | "char32_t" | "wint_t" | "mach_port_t" | "natural_t"
        | "major_t" | "minor_t" => integer(4, false),
        "__s64" | "int_least64_t" | "int_fast16_t" | "int_fast32_t" | "int_fast64_t" | "loff_t" | "quad_t"
        | "blksize_t" | "register_t" | "offset_t" | "user_ssize_t" | "user_long_t" | "user_off_t" | "user_time_t" => {
            integer(8, true)
        }
        "__u64" | "ulong" | "u_int64_t" | "uint_least64_t" | "uint_fast16_t" | "uint_fast32_t" | "uint_fast64_t"
        | "u_quad_t" | "rlim_t" | "nfds_t" | "fsblkcnt_t" | "fsfilcnt_t" | "u_offset_t" | "vm_offset_t"
        | "vm_address_t" | "vm_size_t" | "mach_vm_address_t" | "mach_vm_size_t" | "user_addr_t" | "user_size_t"
        | "user_ulong_t" => integer(8, false),
        _ => return None,
    })
}

/// The type as messages and dumps write it.
#[must_use]
pub fn name(of: &Type) -> String {
    name_by(of, &|structure| structure.name())
}

/// The type as `print()` writes it: a structure has the name of the typedef that the text used for it.
#[must_use]
pub fn shown_name(of: &Type) -> String {
    name_by(of, &|structure| structure.alias().unwrap_or_else(|| structure.name()))
}

fn name_by<'a>(of: &'a Type, of_structure: &dyn Fn(&'a Structure) -> &'a str) -> String {
    let name = |of: &'a Type| name_by(of, of_structure);
    match of {
        Type::Void => "void".to_owned(),
        Type::Integer(integer) => integer_name(*integer).to_owned(),
        Type::String => "string".to_owned(),
        Type::Pointer(None) => "void *".to_owned(),
        Type::Pointer(Some(to)) => match to.as_ref() {
            Type::Array { .. } => format!("{} (*)", name(to)),
            Type::Pointer(_) => format!("{}*", name(to)),
            _ => format!("{} *", name(to)),
        },
        Type::Bytes { size: Some(size) } => format!("bytes[{size}]"),
        Type::Bytes { size: None } => "bytes[]".to_owned(),
        Type::Structure(structure) => of_structure(structure).to_owned(),
        Type::Foreign(foreign) => foreign.name().to_owned(),
        Type::Array { of, count } => {
            // The dimensions are printed in the order of the declaration.
            let (mut element, mut dimensions) = (of.as_ref(), format!("[{count}]"));
            while let Type::Array { of, count } = element {
                dimensions.push_str(&format!("[{count}]"));
                element = of;
            }
            format!("{} {dimensions}", name(element))
        }
    }
}

/// As [`name`], for an integer type.
#[must_use]
pub fn integer_name(of: IntegerType) -> &'static str {
    match (of.bytes, of.signed) {
        (1, true) => "int8_t",
        (1, false) => "uint8_t",
        (2, true) => "int16_t",
        (2, false) => "uint16_t",
        (4, true) => "int",
        (4, false) => "uint32_t",
        (_, true) => "int64_t",
        (_, false) => "uint64_t",
    }
}

/// The type of an operation on two integers: as in DTrace, the type of higher rank. A wider type has a higher rank. Of
/// two types of the same width, the unsigned type has the higher rank. Unlike in C, a narrow type does not become an
/// `int`.
#[must_use]
pub fn common(left: IntegerType, right: IntegerType) -> IntegerType {
    match left.bytes.cmp(&right.bytes) {
        std::cmp::Ordering::Less => right,
        std::cmp::Ordering::Greater => left,
        std::cmp::Ordering::Equal => IntegerType {
            bytes: left.bytes,
            signed: left.signed && right.signed,
        },
    }
}

/// The type in which two integers are compared. As in C, a type narrower than `int` becomes an
/// `int` first, so the sign is only lost where it must be.
#[must_use]
pub fn compared(left: IntegerType, right: IntegerType) -> IntegerType {
    const INT: IntegerType = IntegerType { bytes: 4, signed: true };
    let promoted = |of: IntegerType| if of.bytes < INT.bytes { INT } else { of };
    common(promoted(left), promoted(right))
}

/// The narrowest type that holds the values of both types. It is for keys, whose values have 64 bits anyway.
#[must_use]
pub fn union_of_keys(left: IntegerType, right: IntegerType) -> IntegerType {
    if left == right {
        return left;
    }
    if left.signed == right.signed {
        return if left.bytes > right.bytes { left } else { right };
    }
    let (signed, unsigned) = if left.signed { (left, right) } else { (right, left) };
    match (signed.bytes, unsigned.bytes) {
        // No type holds the values of both; as in C's conversions, the sign is lost.
        (_, 8) => unsigned,
        (signed_bytes, bytes) => IntegerType {
            bytes: signed_bytes.max(bytes * 2),
            signed: true,
        },
    }
}

/// The 64 bits that hold a value of this type: cut to its width, then extended.
#[must_use]
pub fn normalise(value: i64, to: IntegerType) -> i64 {
    let unused = 64 - 8 * u32::from(to.bytes.clamp(1, 8));
    if to.signed {
        (value << unused) >> unused
    } else {
        (((value as u64) << unused) >> unused) as i64
    }
}

/// Whether a value can be tested for zero: an integer or a pointer.
#[must_use]
pub fn is_scalar(of: &Type) -> bool {
    matches!(of, Type::Integer(_) | Type::Pointer(_))
}

/// Whether this is `char *`, which D accepts as a string.
#[must_use]
pub fn is_character_pointer(of: &Type) -> bool {
    matches!(of, Type::Pointer(Some(to)) if matches!(to.as_ref(), Type::Integer(IntegerType { bytes: 1, .. })))
}

#[cfg(test)]
mod tests {
    use super::*;

    const I8: IntegerType = IntegerType { bytes: 1, signed: true };
    const U16: IntegerType = IntegerType {
        bytes: 2,
        signed: false,
    };
    const I32: IntegerType = IntegerType { bytes: 4, signed: true };
    const U32: IntegerType = IntegerType {
        bytes: 4,
        signed: false,
    };
    const I64: IntegerType = IntegerType { bytes: 8, signed: true };
    const U64: IntegerType = IntegerType {
        bytes: 8,
        signed: false,
    };

    #[test]
    fn arithmetic_has_the_type_of_higher_rank() {
        assert_eq!(common(I8, U16), U16);
        assert_eq!(common(I8, I8), I8);
        assert_eq!(common(I32, U32), U32);
        assert_eq!(common(U32, I64), I64);
        assert_eq!(common(U64, I64), U64);
    }

    #[test]
    fn comparisons_convert_as_in_c() {
        assert_eq!(compared(I8, U16), I32);
        assert_eq!(compared(I32, U32), U32);
        assert_eq!(compared(U32, I64), I64);
    }

    #[test]
    fn keys_of_two_types_lose_no_values() {
        assert_eq!(union_of_keys(I32, U32), I64);
        assert_eq!(union_of_keys(I32, I64), I64);
        assert_eq!(union_of_keys(U16, I64), I64);
        assert_eq!(union_of_keys(I64, U64), U64);
    }

    #[test]
    fn values_are_cut_and_extended() {
        assert_eq!(normalise(0x1_ffff_ffff, I32), -1);
        assert_eq!(normalise(-1, U32), 0xffff_ffff);
        assert_eq!(normalise(200, I8), -56);
        assert_eq!(normalise(-1, U64), -1);
    }
}
