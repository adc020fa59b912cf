//! The content of a structure: its members, their places, the structures that it is derived from.
//!
//! ```text
//! C++     class Circle : Shape { double radius; }       inheritance     a member without a name, at the base's offset
//! Rust    enum Shape { Circle(f64), Empty }             variant part    members __discriminant, Circle, Empty, all at
//!                                                                       their own offsets, as in a union
//! C       unsigned kind : 3;                            data_bit_offset  the aligned unit of its type that holds the
//!                                                                        bits
//! ```
//!
//! A member of an unknown type has a size and no value. Static members are left out.

use std::cell::Cell;

use gimli::{AttributeValue, constants as dw};
use nanoprobe_lang::program::{Bits, Body, Foreign, ForeignKind, IntegerType, Member, Type, alignment_of, unit_of};

use crate::entry::{Entry, EntryId, Reader};
use crate::names::Kind;
use crate::{DebugInfo, Problem, STEPS_MAX};

/// The most members of a structure.
const MEMBERS_MAX: usize = 1 << 16;
/// How deep structures within structures are examined for their alignment.
const ALIGNMENT_DEPTH_MAX: u32 = 6;

/// The deepest nesting at which the members of inner structures are still read.
const NESTED_MAX: u32 = 64;

std::thread_local! {
    static NESTED: Cell<u32> = const { Cell::new(0) };
}

/// Counts one more structure that is being read. In damaged information a structure may contain itself.
struct Nested;

impl Nested {
    fn enter() -> Option<Nested> {
        NESTED.with(|count| {
            let more = count.get() + 1;
            (more <= NESTED_MAX).then(|| {
                count.set(more);
                Nested
            })
        })
    }
}

impl Drop for Nested {
    fn drop(&mut self) {
        NESTED.with(|count| count.set(count.get().saturating_sub(1)));
    }
}

impl DebugInfo {
    /// The members of a structure; `None`: they are not known.
    pub(crate) fn body(&self, id: EntryId) -> Option<Body> {
        let _nested = Nested::enter()?;
        let reader = self.reader();
        let entry = reader.entry(id).ok()?;
        if !entry.is(dw::DW_AT_declaration) {
            return reader.body(&entry).ok();
        }
        let name = self.qualified_name(&reader, id)?;
        let defined = self.find(&reader, Kind::Structure, &name).ok()??;
        reader.body(&reader.entry(defined).ok()?).ok()
    }
}

impl<'a> Reader<'a> {
    fn body(&self, entry: &Entry<'a>) -> Result<Body, Problem> {
        let bytes = entry.number(dw::DW_AT_byte_size);
        let mut members = Vec::new();
        self.members(entry.id, &mut members, bytes.unwrap_or(0), 0)?;
        let bytes = bytes.ok_or_else(|| self.info.damaged("a structure without a size"))?;
        Ok(Body {
            members,
            bytes,
            alignment: self.alignment(entry, ALIGNMENT_DEPTH_MAX),
        })
    }

    /// `size` is that of the structure. No unit of a bit-field may reach beyond it.
    fn members(&self, id: EntryId, members: &mut Vec<Member>, size: u64, depth: usize) -> Result<(), Problem> {
        let mut parts = Vec::new();
        self.children(id, |child| {
            match child.die.tag() {
                dw::DW_TAG_member | dw::DW_TAG_inheritance => {
                    members.extend(self.member(&child, size));
                }
                dw::DW_TAG_variant_part | dw::DW_TAG_variant if depth < STEPS_MAX => {
                    if let Some(found) = self.reference(&child, dw::DW_AT_discr).ok().flatten()
                        && let Ok(discriminant) = self.entry(found)
                    {
                        let name = "__discriminant".to_owned();
                        members.extend(self.member(&discriminant, size).map(|member| Member { name, ..member }));
                    }
                    parts.push(child);
                }
                _ => {}
            }
            members.len() + parts.len() < MEMBERS_MAX
        })?;
        for part in parts {
            // The discriminant is itself a child of its part, so it was already added.
            let before = members.len();
            self.members(part.id, members, size, depth + 1)?;
            let unnamed = |member: &Member| member.name.is_empty();
            if members.get(before).is_some_and(unnamed) {
                members.remove(before);
            }
        }
        Ok(())
    }

    /// A member; `None`: it has no place in the structure.
    fn member(&self, child: &Entry<'a>, size: u64) -> Option<Member> {
        if child.is(dw::DW_AT_external) || child.is(dw::DW_AT_declaration) {
            return None;
        }
        let inherited = child.die.tag() == dw::DW_TAG_inheritance;
        let name = if inherited {
            String::new()
        } else {
            self.name(child).unwrap_or_default()
        };
        let offset = self.offset(child)?;
        let member_type = match self.type_attribute(child, STEPS_MAX) {
            Ok(Type::Void) | Err(_) => Type::Foreign(Foreign::new("void".to_owned(), ForeignKind::Opaque(0))),
            Ok(of) => of,
        };
        match child.number(dw::DW_AT_bit_size) {
            Some(width) => {
                let field = self.bit_field(child, offset, &member_type, width, size)?;
                Some(Member { name, ..field })
            }
            None => Some(Member {
                name,
                member_type,
                offset,
                bits: None,
                shown: self.shown_attribute(child),
            }),
        }
    }

    /// `DW_AT_data_member_location`: a number, or an expression that adds a number. Without this attribute: 0, as in
    /// unions.
    fn offset(&self, child: &Entry<'a>) -> Option<u64> {
        match child.die.attr_value(dw::DW_AT_data_member_location) {
            None => Some(0),
            Some(AttributeValue::Exprloc(expression)) => {
                let unit = self.unit(child.id.unit).ok()?;
                let mut operations = expression.operations(unit.encoding());
                match (operations.next(), operations.next()) {
                    (Ok(Some(gimli::Operation::PlusConstant { value })), Ok(None)) => Some(value),
                    // The place of a virtual base depends on the object.
                    _ => None,
                }
            }
            Some(value) => value.udata_value(),
        }
    }

    fn bit_field(&self, child: &Entry<'a>, offset: u64, of: &Type, width: u64, size: u64) -> Option<Member> {
        let integer = match of {
            Type::Integer(integer) => *integer,
            Type::Foreign(foreign) => foreign.integer()?,
            _ => return None,
        };
        if !(1..=64).contains(&width) {
            return None;
        }
        let first = match child.number(dw::DW_AT_data_bit_offset) {
            Some(first) => first,
            // DWARF 2 and 3 count from the most significant bit of the unit.
            None => {
                let unit = child.number(dw::DW_AT_byte_size).unwrap_or(u64::from(integer.bytes));
                // The result is below 0 if a packed field lies across the unit's end.
                let from_top = child.constant(dw::DW_AT_bit_offset).unwrap_or(0);
                let in_unit = (8 * unit.min(16))
                    .checked_add_signed(from_top.checked_neg()?)?
                    .checked_sub(width)?;
                offset.checked_mul(8)?.checked_add(in_unit)?
            }
        };
        let (bytes, start, shift) = unit_of(first, width, u64::from(integer.bytes), size)?;
        let unit = IntegerType {
            bytes,
            signed: integer.signed,
        };
        let named = match of {
            Type::Foreign(foreign) => foreign.held_in(unit),
            _ => None,
        };
        Some(Member {
            name: String::new(),
            member_type: named.map_or(Type::Integer(unit), Type::Foreign),
            offset: start,
            bits: Some(Bits {
                shift,
                width: width as u32,
            }),
            shown: self.shown_attribute(child),
        })
    }

    /// The alignment of a structure in which nothing is packed: the greatest of its members' alignments.
    fn alignment(&self, entry: &Entry<'a>, depth: u32) -> u64 {
        if let Some(alignment) = entry
            .number(dw::DW_AT_alignment)
            .filter(|bytes| bytes.is_power_of_two())
        {
            return alignment.min(1 << 12);
        }
        let mut most = 1;
        let mut left = 256_u32;
        let _incomplete = self.children(entry.id, |child| {
            if matches!(child.die.tag(), dw::DW_TAG_member | dw::DW_TAG_inheritance)
                && let Ok(Some(of)) = self.reference(&child, dw::DW_AT_type)
            {
                most = most.max(self.alignment_of_type(of, depth));
            }
            left -= 1;
            left > 0
        });
        most
    }

    fn alignment_of_type(&self, id: EntryId, depth: u32) -> u64 {
        let mut id = id;
        for _ in 0..STEPS_MAX {
            let Ok(entry) = self.entry(id) else {
                return 1;
            };
            match entry.die.tag() {
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                    return match depth {
                        0 => 1,
                        depth => self.alignment(&entry, depth - 1),
                    };
                }
                dw::DW_TAG_typedef
                | dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_atomic_type
                | dw::DW_TAG_array_type => match self.reference(&entry, dw::DW_AT_type) {
                    Ok(Some(next)) => id = next,
                    _ => return 1,
                },
                _ => return self.type_of(id).map_or(1, |of| alignment_of(&of)),
            }
        }
        1
    }
}
