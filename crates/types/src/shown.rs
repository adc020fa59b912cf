//! Types under the names that the source gives them, for `print()`.
//!
//! ```text
//! DWARF                                     shown
//! typedef size_t -> long unsigned int       size_t
//! long unsigned int                         unsigned long
//! pointer -> const -> char                  const char *
//! pointer -> subroutine -> int              int (*)()
//! ```
//!
//! The types of D ([`crate::types`]) have none of these names. The names follow DTrace, which has them from
//! CTF. CTF writes C's base types with the fewest words.

use gimli::constants as dw;
use nanoprobe_lang::program::{Foreign, Type};
use nanoprobe_lang::types::shown_name;

use crate::STEPS_MAX;
use crate::entry::{Entry, EntryId, Reader};

impl<'a> Reader<'a> {
    /// The type of a member; `None`: it is not known.
    pub(crate) fn shown_attribute(&self, member: &Entry<'a>) -> Option<Type> {
        let id = self.reference(member, dw::DW_AT_type).ok()??;
        self.shown(id, STEPS_MAX)
    }

    fn shown(&self, id: EntryId, steps: usize) -> Option<Type> {
        let steps = steps.checked_sub(1)?;
        let entry = self.entry(id).ok()?;
        let to = || self.reference(&entry, dw::DW_AT_type).ok().flatten();
        let itself = || self.type_of(id).ok();
        match entry.die.tag() {
            dw::DW_TAG_typedef => Some(Foreign::named(self.name(&entry)?, itself()?)),
            dw::DW_TAG_base_type => match itself()? {
                Type::Integer(of) => Some(Foreign::named(fewest_words(self.name(&entry)?), Type::Integer(of))),
                other => Some(other),
            },
            dw::DW_TAG_const_type => self.qualified("const", to(), itself()?, steps),
            dw::DW_TAG_volatile_type => self.qualified("volatile", to(), itself()?, steps),
            dw::DW_TAG_pointer_type | dw::DW_TAG_reference_type | dw::DW_TAG_rvalue_reference_type => {
                let Some(to) = to() else {
                    return Some(Type::Pointer(None));
                };
                if let Some(result) = self.result_of_function(to, steps) {
                    return Some(Foreign::named(format!("{result} (*)()"), Type::Pointer(None)));
                }
                Some(Type::Pointer(self.shown(to, steps).map(Box::new)))
            }
            dw::DW_TAG_array_type => Some(with_elements(itself()?, &self.shown(to()?, steps)?)),
            _ => itself(),
        }
    }

    /// A type with `const` or `volatile`: the word precedes the type, but follows a pointer's star.
    fn qualified(&self, word: &str, to: Option<EntryId>, itself: Type, steps: usize) -> Option<Type> {
        let of = match to {
            Some(to) => shown_name(&self.shown(to, steps)?),
            None => "void".to_owned(),
        };
        let name = match of.ends_with('*') {
            true => format!("{of}{word}"),
            false => format!("{word} {of}"),
        };
        Some(Foreign::named(name, itself))
    }

    /// If this is the type of a function: the name of the function's result.
    fn result_of_function(&self, id: EntryId, steps: usize) -> Option<String> {
        let entry = self.entry(id).ok()?;
        if entry.die.tag() != dw::DW_TAG_subroutine_type {
            return None;
        }
        Some(match self.reference(&entry, dw::DW_AT_type).ok().flatten() {
            Some(to) => shown_name(&self.shown(to, steps)?),
            None => "void".to_owned(),
        })
    }
}

/// The array, with elements of this shown type.
fn with_elements(array: Type, element: &Type) -> Type {
    match array {
        Type::Array { of, count } => Type::Array {
            of: Box::new(with_elements(*of, element)),
            count,
        },
        _ => element.clone(),
    }
}

/// Shortens names such as `long unsigned int`, which compilers write.
fn fewest_words(name: String) -> String {
    match name.as_str() {
        "long int" => "long",
        "long unsigned int" => "unsigned long",
        "short int" => "short",
        "short unsigned int" => "unsigned short",
        "long long int" => "long long",
        "long long unsigned int" => "unsigned long long",
        _ => return name,
    }
    .to_owned()
}
