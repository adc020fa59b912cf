//! From entries to the types of D.
//!
//! | DWARF | D |
//! |---|---|
//! | base types | integers of 1, 2, 4, 8 bytes; floating point and the rest are [`Foreign`]: a size and a name |
//! | pointers, references | pointers; to functions and members: `void *` |
//! | typedef, const, volatile, restrict, _Atomic | the type that they modify |
//! | structures, classes, unions, interfaces | [`Structure`], whose members [`crate::body`] reads if needed |
//! | arrays | nested arrays; a flexible one has no elements |
//! | enumerations | [`Foreign`], with the names |
//!
//! A structure that several units define alike is one type. Definitions are alike if name, size and place of
//! declaration are the same. In C a structure that a unit only declares is the structure of that name that another unit
//! defines. If no place is known (Rust), each definition is a type of its own.

use gimli::{AttributeValue, DwTag, constants as dw};
use nanoprobe_lang::program::{Foreign, ForeignKind, IntegerType, Structure, Type};

use crate::entry::{Entry, EntryId, Reader};
use crate::{Problem, STEPS_MAX};

/// The most enumerators that are kept.
const ENUMERATORS_MAX: usize = 1 << 16;
/// The most dimensions of an array.
const DIMENSIONS_MAX: usize = 16;

/// The properties that distinguish structures with the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Definition {
    bytes: Option<u64>,
    line: u64,
    file: Option<String>,
}

impl<'a> Reader<'a> {
    /// The type that an entry describes.
    pub fn type_of(&self, id: EntryId) -> Result<Type, Problem> {
        self.type_within(id, STEPS_MAX)
    }

    /// The type that `DW_AT_type` of an entry refers to; void if there is no such attribute.
    pub fn type_attribute(&self, entry: &Entry<'a>, steps: usize) -> Result<Type, Problem> {
        match self.reference(entry, dw::DW_AT_type)? {
            Some(id) => self.type_within(id, steps),
            None => Ok(Type::Void),
        }
    }

    fn type_within(&self, id: EntryId, steps: usize) -> Result<Type, Problem> {
        let mut id = id;
        // The last typedef is the name of a structure without a name; `print()` shows the first typedef.
        let mut alias = None;
        let mut first = None;
        let mut qualifiers = String::new();
        for left in (0..steps).rev() {
            let entry = self.entry(id)?;
            // The entry stands for a type that has a unit of its own, and does not describe it.
            if let Some(whole) = self.reference(&entry, dw::DW_AT_signature)? {
                id = whole;
                continue;
            }
            match entry.die.tag() {
                dw::DW_TAG_typedef => {
                    alias = self.name(&entry).or(alias);
                    first = first.or_else(|| alias.clone());
                }
                dw::DW_TAG_const_type if first.is_none() => qualifiers.push_str("const "),
                dw::DW_TAG_volatile_type if first.is_none() => qualifiers.push_str("volatile "),
                dw::DW_TAG_const_type
                | dw::DW_TAG_volatile_type
                | dw::DW_TAG_restrict_type
                | dw::DW_TAG_atomic_type
                | dw::DW_TAG_immutable_type
                | dw::DW_TAG_packed_type => {}
                tag => {
                    return Ok(match self.plain_type(&entry, tag, alias, left)? {
                        Type::Structure(structure) if first.is_some() || !qualifiers.is_empty() => {
                            let name = first.as_deref().unwrap_or_else(|| structure.name());
                            let name = format!("{qualifiers}{name}");
                            Type::Structure(structure.called(&name))
                        }
                        found => found,
                    });
                }
            }
            match self.reference(&entry, dw::DW_AT_type)? {
                Some(next) => id = next,
                None => return Ok(Type::Void),
            }
        }
        Err(self.info.damaged("a type that is made of too many others"))
    }

    fn plain_type(&self, entry: &Entry<'a>, tag: DwTag, alias: Option<String>, left: usize) -> Result<Type, Problem> {
        let bytes = entry.number(dw::DW_AT_byte_size);
        match tag {
            dw::DW_TAG_base_type => Ok(self.base_type(entry, bytes)),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                // The pointer is known, even if the type that it points to is not.
                Ok(match self.type_attribute(entry, left) {
                    Ok(Type::Void) | Err(_) => Type::Pointer(None),
                    Ok(to) => Type::Pointer(Some(Box::new(to))),
                })
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type | dw::DW_TAG_interface_type => {
                Ok(Type::Structure(self.structure(entry, tag, alias)))
            }
            dw::DW_TAG_enumeration_type => self.enumeration(entry, bytes, alias, left),
            dw::DW_TAG_array_type => self.array(entry, left),
            // In Go a value of such a type is a pointer to the code.
            dw::DW_TAG_subroutine_type if self.language(entry.id.unit) == Some(dw::DW_LANG_Go) => {
                Ok(Type::Pointer(None))
            }
            dw::DW_TAG_subroutine_type => Ok(Type::Void),
            dw::DW_TAG_unspecified_type => Ok(Type::Void),
            dw::DW_TAG_ptr_to_member_type => {
                let bytes = match bytes {
                    Some(bytes) => bytes,
                    // A pointer to a member function: its address or virtual index, and an offset for `this`.
                    None if self.points_to_function(entry)? => 16,
                    None => 8,
                };
                Ok(opaque("a pointer to a member".to_owned(), bytes))
            }
            _ => match bytes {
                Some(bytes) => Ok(opaque(self.name(entry).unwrap_or_else(|| tag.to_string()), bytes)),
                None => Err(self.info.damaged("a type of an unknown kind")),
            },
        }
    }

    fn points_to_function(&self, entry: &Entry<'a>) -> Result<bool, Problem> {
        Ok(match self.reference(entry, dw::DW_AT_type)? {
            Some(to) => self.entry(to)?.die.tag() == dw::DW_TAG_subroutine_type,
            None => false,
        })
    }

    fn base_type(&self, entry: &Entry<'a>, bytes: Option<u64>) -> Type {
        let name = self.name(entry).unwrap_or_default();
        let bytes = bytes.unwrap_or(0);
        let encoding = match entry.die.attr_value(dw::DW_AT_encoding) {
            Some(AttributeValue::Encoding(encoding)) => encoding,
            _ => dw::DW_ATE_unsigned,
        };
        let signed = matches!(
            encoding,
            dw::DW_ATE_signed | dw::DW_ATE_signed_char | dw::DW_ATE_signed_fixed
        );
        match (encoding, bytes) {
            (dw::DW_ATE_float, _) => Type::Foreign(Foreign::new(
                name,
                ForeignKind::Floating(u32::try_from(bytes).unwrap_or(0)),
            )),
            (
                dw::DW_ATE_complex_float
                | dw::DW_ATE_imaginary_float
                | dw::DW_ATE_decimal_float
                | dw::DW_ATE_signed_fixed
                | dw::DW_ATE_unsigned_fixed,
                _,
            ) => opaque(name, bytes),
            (_, 1 | 2 | 4 | 8) => Type::Integer(IntegerType {
                bytes: bytes as u8,
                signed,
            }),
            // These are Rust's unit and never types, and C++'s decltype(nullptr).
            (_, 0) => Type::Void,
            _ => opaque(name, bytes),
        }
    }

    fn enumeration(
        &self,
        entry: &Entry<'a>,
        bytes: Option<u64>,
        alias: Option<String>,
        left: usize,
    ) -> Result<Type, Problem> {
        let below = match self.type_attribute(entry, left) {
            Ok(Type::Integer(integer)) => Some(integer),
            _ => None,
        };
        let bytes = bytes.or(below.map(|below| u64::from(below.bytes)));
        let Some(bytes @ (1 | 2 | 4 | 8)) = bytes else {
            return Err(self.info.damaged("an enumeration without a size"));
        };
        let mut names = Vec::new();
        self.children(entry.id, |child| {
            if child.die.tag() == dw::DW_TAG_enumerator
                && let (Some(name), Some(value)) = (self.name(&child), child.constant(dw::DW_AT_const_value))
            {
                names.push((name, value));
            }
            names.len() < ENUMERATORS_MAX
        })?;
        let signed = below.map_or_else(|| names.iter().any(|(_, value)| *value < 0), |below| below.signed);
        let integer = IntegerType {
            bytes: bytes as u8,
            signed,
        };
        for (_, value) in &mut names {
            *value = nanoprobe_lang::types::normalise(*value, integer);
        }
        let name = match (self.name(entry), alias) {
            (Some(name), _) => format!("enum {name}"),
            (None, Some(alias)) => alias,
            (None, None) => "enum".to_owned(),
        };
        Ok(Type::Foreign(Foreign::new(
            name,
            ForeignKind::Enumeration { integer, names },
        )))
    }

    fn array(&self, entry: &Entry<'a>, left: usize) -> Result<Type, Problem> {
        let mut element = self.type_attribute(entry, left)?;
        if element == Type::Void {
            return Err(self.info.damaged("an array of nothing"));
        }
        let mut counts = Vec::new();
        self.children(entry.id, |child| {
            if child.die.tag() == dw::DW_TAG_subrange_type {
                let bound = child.number(dw::DW_AT_upper_bound).map(|last| last.wrapping_add(1));
                // If both attributes are missing, or one is computed, the number is not known.
                counts.push(child.number(dw::DW_AT_count).or(bound).unwrap_or(0));
            }
            counts.len() < DIMENSIONS_MAX
        })?;
        if counts.is_empty() {
            counts.push(0);
        }
        for count in counts.into_iter().rev() {
            // An upper bound of -1 is a flexible array, too.
            let count = u32::try_from(count).map_err(|_| self.info.damaged("an array of too many elements"))?;
            element = Type::Array {
                of: Box::new(element),
                count,
            };
        }
        // A vector is no array to the ABI.
        match nanoprobe_lang::types::size_of(&element) {
            Some(bytes) if entry.is(dw::DW_AT_GNU_vector) => Ok(opaque("a vector".to_owned(), bytes)),
            _ => Ok(element),
        }
    }

    /// The handle of a structure, made once for each definition.
    fn structure(&self, entry: &Entry<'a>, tag: DwTag, alias: Option<String>) -> Structure {
        let keyword = match tag {
            dw::DW_TAG_union_type => "union",
            dw::DW_TAG_class_type => "class",
            _ => "struct",
        };
        let tag_name = self.name(entry);
        let name = match (&tag_name, alias) {
            (Some(name), _) => format!("{keyword} {name}"),
            (None, Some(alias)) => alias,
            (None, None) => keyword.to_owned(),
        };
        let declared = entry.is(dw::DW_AT_declaration);
        let definition = entry.number(dw::DW_AT_decl_line).filter(|_| !declared);
        let definition = definition.map(|line| Definition {
            bytes: entry.number(dw::DW_AT_byte_size),
            line,
            file: self.declaring_file(entry),
        });
        let is_shared = tag_name.is_some() && (definition.is_some() || declared && self.is_c(entry.id.unit));
        let Ok(mut structures) = self.info.structures.lock() else {
            return Structure::new(name);
        };
        if let Some(known) = structures.by_entry.get(&entry.id) {
            return known.clone();
        }
        let alike = structures.by_name.entry(name.clone()).or_default();
        // A declaration can refer to any type with its name. A definition may complete a type that was only declared so
        // far.
        let found = alike
            .iter_mut()
            .find(|(known, _)| definition.is_none() || known.is_none() || *known == definition)
            .filter(|_| is_shared);
        let structure = match found {
            Some((known, structure)) => {
                if known.is_none() {
                    known.clone_from(&definition);
                }
                structure.clone()
            }
            None => {
                let (info, id) = (self.info.handle.clone(), entry.id);
                let source = Box::new(move || info.upgrade()?.body(id));
                let structure = Structure::foreign(name, source);
                if is_shared {
                    alike.push((definition, structure.clone()));
                }
                structure
            }
        };
        structures.by_entry.insert(entry.id, structure.clone());
        structure
    }
}

fn opaque(name: String, bytes: u64) -> Type {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Type::Foreign(Foreign::new(name, ForeignKind::Opaque(bytes)))
}
