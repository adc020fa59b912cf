//! Which C++ objects are passed by their address: those that may not be copied byte by byte.
//!
//! Clang marks such a class (`DW_AT_calling_convention`). GCC does not, so the rules of the C++ ABI are
//! applied. They name a class with a destructor, copy or move constructor of its own (or deleted), with
//! virtual functions or bases, or with a base or member of such a class. Manual: Itanium C++ ABI, 1.1
//! (non-trivial for the purposes of calls).

use gimli::{AttributeValue, constants as dw};

use crate::STEPS_MAX;
use crate::entry::{Entry, EntryId, Reader};

/// How deep classes within classes are examined.
const DEPTH_MAX: u32 = 12;
/// The most entries that are examined for one class.
const ENTRIES_MAX: u32 = 1 << 14;

impl<'a> Reader<'a> {
    /// Whether a value of this type is passed by its address.
    pub fn is_by_reference(&self, of: EntryId) -> bool {
        self.is_uncopied(of, DEPTH_MAX, &mut { ENTRIES_MAX })
    }

    fn is_uncopied(&self, of: EntryId, depth: u32, left: &mut u32) -> bool {
        let mut id = of;
        for _ in 0..STEPS_MAX {
            let Ok(entry) = self.entry(id) else {
                return false;
            };
            match entry.die.tag() {
                dw::DW_TAG_typedef | dw::DW_TAG_const_type | dw::DW_TAG_volatile_type | dw::DW_TAG_array_type => {
                    match self.reference(&entry, dw::DW_AT_type) {
                        Ok(Some(next)) => id = next,
                        _ => return false,
                    }
                }
                dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                    return self.is_uncopied_class(&entry, depth, left);
                }
                _ => return false,
            }
        }
        false
    }

    fn is_uncopied_class(&self, class: &Entry<'a>, depth: u32, left: &mut u32) -> bool {
        match class.die.attr_value(dw::DW_AT_calling_convention) {
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_reference)) => return true,
            Some(AttributeValue::CallingConvention(dw::DW_CC_pass_by_value)) => return false,
            _ => {}
        }
        if !self.is_cpp(class.id.unit) {
            return false;
        }
        let name = self.name(class).unwrap_or_default();
        let name = name.split('<').next().unwrap_or_default();
        let mut found = false;
        let mut parts = Vec::new();
        let _incomplete = self.children(class.id, |child| {
            match child.die.tag() {
                dw::DW_TAG_subprogram => found |= self.hinders_copying(&child, class.id, name),
                dw::DW_TAG_inheritance => {
                    found |= child.has(dw::DW_AT_virtuality);
                    parts.push(child);
                }
                dw::DW_TAG_member if !child.is(dw::DW_AT_external) && !child.is(dw::DW_AT_declaration) => {
                    found |= child.is(dw::DW_AT_artificial);
                    parts.push(child);
                }
                _ => {}
            }
            *left = left.saturating_sub(1);
            !found && *left > 0
        });
        let Some(depth) = depth.checked_sub(1) else {
            return found;
        };
        found
            || parts.iter().any(|part| match self.reference(part, dw::DW_AT_type) {
                Ok(Some(of)) => self.is_uncopied(of, depth, left),
                _ => false,
            })
    }

    /// Whether a member function is a destructor, or a copy or move constructor, that the compiler did not make.
    fn hinders_copying(&self, function: &Entry<'a>, class: EntryId, name: &str) -> bool {
        let by_default = function.is(dw::DW_AT_artificial)
            || function.number(dw::DW_AT_defaulted) == Some(u64::from(dw::DW_DEFAULTED_in_class.0));
        if by_default {
            return false;
        }
        if function.has(dw::DW_AT_virtuality) {
            return true;
        }
        let Some(own) = self.text(function, dw::DW_AT_name) else {
            return false;
        };
        if own.starts_with('~') {
            return true;
        }
        own == name && self.takes_itself(function, class)
    }

    /// Whether the first parameter after `this` is a reference to the class.
    fn takes_itself(&self, function: &Entry<'a>, class: EntryId) -> bool {
        let mut parameters = Vec::new();
        let _incomplete = self.children(function.id, |child| {
            if child.die.tag() == dw::DW_TAG_formal_parameter && !child.is(dw::DW_AT_artificial) {
                parameters.push(child);
            }
            parameters.is_empty()
        });
        let Some(parameter) = parameters.first() else {
            return false;
        };
        let mut next = self.reference(parameter, dw::DW_AT_type);
        let mut is_reference = false;
        for _ in 0..STEPS_MAX {
            let Ok(Some(id)) = next else {
                return false;
            };
            if id == class {
                return is_reference;
            }
            let Ok(entry) = self.entry(id) else {
                return false;
            };
            match entry.die.tag() {
                dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => is_reference = true,
                dw::DW_TAG_const_type | dw::DW_TAG_typedef | dw::DW_TAG_volatile_type => {}
                _ => return false,
            }
            next = self.reference(&entry, dw::DW_AT_type);
        }
        false
    }
}
