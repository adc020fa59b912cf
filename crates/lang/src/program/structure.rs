//! Structures and unions: where their members lie, as the ABI of x86-64 has it.
//!
//! ```text
//! struct { char a; int b : 5; int c : 30; short d[2]; }
//!
//! byte  0       1       2       3       4       5       6       7       8               12
//!       +-------+-----+---------------+-------------------------------+---------------+-------+
//!       | a     | b:5 |               | c:30                          | d[0]    d[1]  |  pad  |
//!       +-------+-----+---------------+-------------------------------+---------------+-------+
//! ```
//!
//! A bit-field lies within one unit of its type, and begins a new unit if it would not fit. A tag may
//! be named before its members are known (`struct list { struct list *next; }`). So a structure is a
//! handle, and its members are filled in later, once.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock};

use super::{IntegerType, Type};

/// A structure or union. Its identity counts: two with the same members are different types.
///
/// The second field is the typedef by which the text named it. Only `print()` uses that name, and it
/// does not make another type.
#[derive(Clone)]
pub struct Structure(Arc<Definition>, Option<Arc<str>>);

struct Definition {
    /// `struct tag`, or only the keyword.
    name: String,
    body: OnceLock<Body>,
    /// Whether the structure contains a string. This is computed when the members are known.
    strings: OnceLock<bool>,
    /// For a structure of the traced program: a function that looks up its members when they are needed. The function
    /// looks up no other structure.
    source: Option<Source>,
}

/// Yields the members and the size of a structure; `None`: they are not known.
pub type Source = Box<dyn Fn() -> Option<Body> + Send + Sync>;

/// The limit for the depth, and for the number of members, of the search in members without names. The
/// types of a damaged program may be circular.
const NESTING_MAX: u32 = 32;
const NAMELESS_MAX: u32 = 4096;
/// The size of a string member. As in DTrace, it does not depend on the option `strsize`.
const STRING_BYTES: u64 = 256;

/// The members and the size of a structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body {
    /// The members in the order of the text.
    pub members: Vec<Member>,
    /// The size with the padding at the end.
    pub bytes: u64,
    /// The alignment in bytes, a power of two.
    pub alignment: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name. It is empty for a structure or union whose members are named as if they were members of the outer one.
    pub name: String,
    /// The member's type. For a bit-field: the type of its unit.
    pub member_type: Type,
    /// Offset from the start of the structure. For a bit-field: the offset of its unit.
    pub offset: u64,
    /// The position of a bit-field in its unit; `None`: not a bit-field.
    pub bits: Option<Bits>,
    /// The type as written, for `print()`, with the type names that [`ForeignKind::Named`](super::ForeignKind) keeps.
    /// `None`: `member_type`.
    pub shown: Option<Type>,
}

/// The position of a bit-field in its unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bits {
    /// The number of bits below the field.
    pub shift: u32,
    /// The number of bits of the field, from 1 to the bits of the unit.
    pub width: u32,
}

/// The result of a search for a member, perhaps within members without a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    pub member_type: Type,
    /// Offset from the start of the outermost structure.
    pub offset: u64,
    /// As in [`Member`].
    pub bits: Option<Bits>,
    /// As in [`Member`].
    pub shown: Option<Type>,
}

/// A member before its place is known.
#[derive(Clone, Debug)]
pub struct Declared {
    /// The name, which may be empty.
    pub name: String,
    pub member_type: Type,
    /// The width of a bit-field. A width of 0, without a name, ends the unit.
    pub width: Option<u32>,
    /// As in [`Member`].
    pub shown: Option<Type>,
    /// Whether the member has its own `__attribute__((packed))`.
    pub packed: bool,
    /// The alignment that its own `__attribute__((aligned(n)))` asks for; 0: none.
    pub aligned: u64,
    /// The alignment that its type asks for.
    pub alignment: u64,
}

/// How the members of a structure are laid out, where this differs from C's rules.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packing {
    /// `__attribute__((packed))`.
    pub packed: bool,
    /// `#pragma pack(n)`.
    pub pack: Option<u64>,
    /// `__attribute__((aligned(n)))`; 0: none.
    pub aligned: u64,
}

impl Structure {
    /// A structure whose members are not known.
    #[must_use]
    pub fn new(name: String) -> Structure {
        let definition = Arc::new(Definition {
            name,
            body: OnceLock::new(),
            strings: OnceLock::new(),
            source: None,
        });
        Structure(definition, None)
    }

    /// A structure of the traced program: its members are looked up when they are needed.
    #[must_use]
    pub fn foreign(name: String, source: Source) -> Structure {
        let definition = Arc::new(Definition {
            name,
            body: OnceLock::new(),
            strings: OnceLock::new(),
            source: Some(source),
        });
        Structure(definition, None)
    }

    /// This structure, under the name of a typedef.
    #[must_use]
    pub fn called(self, name: &str) -> Structure {
        Structure(self.0, Some(Arc::from(name)))
    }

    /// The typedef by which the text named the structure, if it used one.
    #[must_use]
    pub fn alias(&self) -> Option<&str> {
        self.1.as_deref()
    }

    /// `struct tag`, or only the keyword.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The members and the size, if they are known.
    #[must_use]
    pub fn body(&self) -> Option<&Body> {
        if let (None, Some(source)) = (self.0.body.get(), &self.0.source)
            && let Some(body) = source()
        {
            // If another thread was faster, it stored the same body.
            let _known = self.0.body.set(body);
        }
        self.0.body.get()
    }

    /// Lays the members out; yields whether they were unknown before. `union`: all members begin at offset 0.
    pub fn define(&self, declared: Vec<Declared>, union: bool, packing: Packing) -> bool {
        let strings = declared.iter().any(|member| holds_strings(&member.member_type));
        let is_new = self.body().is_none() && self.0.body.set(laid_out(declared, union, packing)).is_ok();
        is_new && self.0.strings.set(strings).is_ok()
    }

    /// Whether the structure contains a string.
    #[must_use]
    pub fn has_strings(&self) -> bool {
        self.0.strings.get().copied().unwrap_or(false)
    }

    /// A member by its name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<Found> {
        let mut left = NAMELESS_MAX;
        self.member_within(name, NESTING_MAX, &mut left)
    }

    fn member_within(&self, name: &str, depth: u32, left: &mut u32) -> Option<Found> {
        let body = self.body()?;
        if let Some(member) = body.members.iter().find(|member| member.name == name) {
            return Some(Found {
                member_type: member.member_type.clone(),
                offset: member.offset,
                bits: member.bits,
                shown: member.shown.clone(),
            });
        }
        body.members
            .iter()
            .filter(|member| member.name.is_empty())
            .find_map(|member| {
                let Type::Structure(inner) = &member.member_type else {
                    return None;
                };
                *left = left.checked_sub(1)?;
                let found = inner.member_within(name, depth.checked_sub(1)?, left)?;
                Some(Found {
                    offset: found.offset.wrapping_add(member.offset),
                    ..found
                })
            })
    }
}

/// The layout that gcc gives to these members.
fn laid_out(declared: Vec<Declared>, union: bool, packing: Packing) -> Body {
    let mut places = Vec::with_capacity(declared.len());
    // All positions are in bits, because a bit-field begins where the last one ended.
    let (mut end, mut largest, mut alignment) = (0_u64, 0_u64, packing.aligned.max(1));
    for member in declared {
        let bits = 8 * match member.member_type {
            Type::String => STRING_BYTES,
            _ => size_of(&member.member_type).unwrap_or(0),
        };
        let packed = packing.packed || member.packed;
        let own = member.alignment.max(1);
        let cut = |align: u64| packing.pack.map_or(align, |pack| align.min(pack));
        if union {
            end = 0;
        }
        let start = match member.width {
            // A width of 0 ends the unit. Even in a packed structure this takes room.
            Some(0) => {
                end = end.next_multiple_of(8 * own);
                largest = largest.max(end);
                continue;
            }
            Some(width) => {
                let start = match cut(member.aligned) {
                    0 => end,
                    aligned => end.next_multiple_of(8 * aligned),
                };
                // A bit-field without a name takes room, but does not affect the alignment.
                if !member.name.is_empty() {
                    // Under a `#pragma pack` gcc ignores the member's own attribute.
                    let asked = if packed && packing.pack.is_none() { 1 } else { own };
                    alignment = alignment.max(cut(asked)).max(cut(member.aligned));
                }
                let may_cross = packed || packing.pack.is_some();
                let units = (start % (8 * own) + u64::from(width)).div_ceil(8 * own);
                match may_cross || units <= bits / (8 * own) {
                    true => start,
                    false => start.next_multiple_of(8 * own),
                }
            }
            None => {
                let asked = match (packed, member.aligned) {
                    (true, aligned) => aligned.max(1),
                    (false, aligned) => own.max(aligned),
                };
                alignment = alignment.max(cut(asked));
                end.next_multiple_of(8 * cut(asked))
            }
        };
        end = start.saturating_add(member.width.map_or(bits, u64::from));
        largest = largest.max(end);
        if !member.name.is_empty() || member.width.is_none() {
            places.push((member, start));
        }
    }
    let bytes = largest.div_ceil(8).next_multiple_of(alignment);
    let members = places
        .into_iter()
        .filter_map(|(member, start)| placed(member, start, bytes));
    Body {
        members: members.collect(),
        bytes,
        alignment,
    }
}

/// A member with its place; `None`: no unit holds the bit-field.
fn placed(member: Declared, start: u64, size: u64) -> Option<Member> {
    let (mut member_type, mut offset, mut bits) = (member.member_type, start / 8, None);
    if let Some(width) = member.width {
        let Type::Integer(declared) = member_type else {
            return None;
        };
        let (unit, shift);
        (unit, offset, shift) = unit_of(start, u64::from(width), u64::from(declared.bytes), size)?;
        member_type = Type::Integer(IntegerType {
            bytes: unit,
            signed: declared.signed,
        });
        bits = Some(Bits { shift, width });
    }
    Some(Member {
        name: member.name,
        member_type,
        offset,
        bits,
        shown: member.shown,
    })
}

/// The unit of a bit-field that begins at the bit `first` of a structure of `size` bytes. `declared` is
/// the size in bytes of its declared type. Yields the unit's size, its offset, and the field's first
/// bit in the unit.
///
/// Usually the unit is that of the declared type, which decides how the value is shown. A packed
/// field may lie across two such units, or its unit may reach beyond the structure. Then the unit is
/// the smallest that holds the field, or one that begins at the field's first byte. A field that
/// touches nine bytes has no unit.
#[must_use]
pub fn unit_of(first: u64, width: u64, declared: u64, size: u64) -> Option<(u8, u64, u32)> {
    let fits = |bytes: &u64| {
        let start = first / (8 * bytes) * (8 * bytes);
        width > 0 && first - start + width <= 8 * bytes
    };
    let whole = |bytes: &u64| fits(bytes) && (first / (8 * bytes) + 1) * bytes <= size;
    let declared = Some(declared).filter(|bytes| (1..=8).contains(bytes)).filter(whole);
    let (bytes, start) = match declared.or_else(|| [1, 2, 4, 8].into_iter().find(fits)) {
        Some(bytes) => (bytes, first / (8 * bytes) * bytes),
        None => {
            let least = (first % 8).checked_add(width)?;
            let bytes = [1, 2, 4, 8].into_iter().find(|bytes| least <= 8 * bytes)?;
            (bytes, first / 8)
        }
    };
    Some((bytes as u8, start, (first - 8 * start) as u32))
}

/// Whether a string is part of the type. Structures of the traced program hold no strings.
#[must_use]
pub fn holds_strings(of: &Type) -> bool {
    match of {
        Type::String => true,
        Type::Array { of, .. } => holds_strings(of),
        Type::Structure(structure) => structure.has_strings(),
        _ => false,
    }
}

/// The size in bytes of a value in C; `None`: the type has no fixed size.
#[must_use]
pub fn size_of(of: &Type) -> Option<u64> {
    match of {
        Type::Integer(integer) => Some(u64::from(integer.bytes)),
        Type::Pointer(_) => Some(8),
        Type::Bytes { size } => size.map(u64::from),
        Type::Structure(structure) => structure.body().map(|body| body.bytes),
        Type::Array { of, count } => size_of(of)?.checked_mul(u64::from(*count)),
        Type::Foreign(foreign) => Some(foreign.bytes()),
        Type::Void | Type::String => None,
    }
}

/// As [`size_of`], for the step of a pointer. A string counts as long as a string member.
#[must_use]
pub fn step_of(of: &Type) -> Option<u64> {
    match of {
        Type::String => Some(STRING_BYTES),
        _ => size_of(of),
    }
}

/// The alignment of a value in C; 1 if it has none.
#[must_use]
pub fn alignment_of(of: &Type) -> u64 {
    match of {
        Type::Structure(structure) => structure.body().map_or(1, |body| body.alignment),
        Type::Array { of, .. } => alignment_of(of),
        Type::Bytes { .. } => 1,
        Type::Foreign(foreign) if foreign.bytes().is_power_of_two() => foreign.bytes().min(16),
        Type::Foreign(_) => 1,
        _ => size_of(of).unwrap_or(1),
    }
}

impl PartialEq for Structure {
    fn eq(&self, other: &Structure) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Structure {}

impl Hash for Structure {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.0).hash(state);
    }
}

/// Prints only the name, because a structure may point to itself.
impl fmt::Debug for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::IntegerType;

    fn integer(bytes: u8) -> Type {
        Type::Integer(IntegerType { bytes, signed: true })
    }

    /// The offset; for a bit-field also its shift and its width.
    type Place = (u64, Option<(u32, u32)>);

    fn places(members: &[(&str, u8, Option<u32>)], union: bool) -> (Vec<Place>, u64) {
        let structure = Structure::new("struct s".to_owned());
        let declared = members
            .iter()
            .map(|(name, bytes, width)| Declared {
                name: (*name).to_owned(),
                member_type: integer(*bytes),
                width: *width,
                shown: None,
                packed: false,
                aligned: 0,
                alignment: u64::from(*bytes),
            })
            .collect();
        assert!(structure.define(declared, union, Packing::default()));
        let body = structure.body().unwrap();
        let places = body
            .members
            .iter()
            .map(|member| (member.offset, member.bits.map(|bits| (bits.shift, bits.width))))
            .collect();
        (places, body.bytes)
    }

    /// The expected layouts are those of gcc for the same declarations.
    #[test]
    fn members_lie_where_the_abi_has_them() {
        assert_eq!(
            places(&[("a", 1, None), ("b", 4, None), ("c", 2, None), ("d", 8, None)], false),
            (vec![(0, None), (4, None), (8, None), (16, None)], 24)
        );
        assert_eq!(
            places(
                &[("a", 1, None), ("b", 4, Some(5)), ("c", 4, Some(30)), ("d", 2, None)],
                false
            ),
            (vec![(0, None), (0, Some((8, 5))), (4, Some((0, 30))), (8, None)], 12)
        );
        assert_eq!(
            places(
                &[("a", 4, Some(3)), ("", 4, Some(0)), ("b", 4, Some(3)), ("c", 1, None)],
                false
            ),
            (vec![(0, Some((0, 3))), (4, Some((0, 3))), (5, None)], 8)
        );
        assert_eq!(
            places(&[("a", 1, None), ("b", 8, None), ("c", 4, Some(7))], true),
            (vec![(0, None), (0, None), (0, Some((0, 7)))], 8)
        );
    }
}
