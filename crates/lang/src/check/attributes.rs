//! How GNU C's attributes change a type's alignment and size.

use super::{Checked, Checker};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::lower::refusals::unsupported;
use crate::program::{Foreign, ForeignKind, IntegerType, Type, alignment_of, size_of};
use crate::source::Span;
use crate::syntax::{Attributes, BaseType, Derived};

/// The alignment that `aligned` without a number means: the greatest of the machine.
const MOST: u64 = 16;
/// The greatest alignment that is accepted.
const ALIGNMENT_MAX: i128 = 1 << 16;

impl Checker {
    /// The greatest alignment that attributes ask for; 0 if they ask for none.
    pub(super) fn aligned(&mut self, attributes: &Attributes) -> Checked<u64> {
        let mut most = 0;
        for value in &attributes.aligned {
            let Some(node) = value else {
                most = most.max(MOST);
                continue;
            };
            let value = constant::wide_value(&self.expression(node)?);
            let bytes = match value {
                Some(value @ 0..=ALIGNMENT_MAX) => u64::try_from(value).unwrap_or(0),
                _ => 0,
            };
            if !bytes.is_power_of_two() && value != Some(0) {
                let message = format!("an alignment must be a power of two up to {ALIGNMENT_MAX}");
                return Err(Diagnostic::new("D_SYNTAX", node.span, message));
            }
            most = most.max(bytes);
        }
        Ok(most)
    }

    /// The alignment of the type that a declaration makes from `base`, which may be a typedef with its
    /// own alignment.
    pub(super) fn alignment(&self, base: &BaseType, derived: &[Derived], resolved: &Type) -> u64 {
        let is_array = |step: &Derived| matches!(step, Derived::Array(_) | Derived::ArrayOfUnknownSize);
        let own = match base {
            BaseType::Named(name) if derived.iter().all(is_array) => self.types.alignments.get(name).copied(),
            _ => None,
        };
        own.unwrap_or_else(|| alignment_of(resolved))
    }

    /// The type `of` with the attributes `mode` and `vector_size` applied.
    pub(super) fn attributed(&mut self, of: Type, attributes: &Attributes, span: Span) -> Checked<Type> {
        let mut of = of;
        if let Some((mode, place)) = &attributes.mode {
            of = in_mode(&of, mode, *place)?;
        }
        if let Some(bytes) = &attributes.vector {
            let element = size_of(&of).filter(|bytes| *bytes > 0);
            let bytes = constant::wide_value(&self.expression(bytes)?).and_then(|bytes| u64::try_from(bytes).ok());
            let count = match (element, bytes) {
                (Some(element), Some(bytes)) if bytes % element == 0 => u32::try_from(bytes / element).ok(),
                _ => None,
            };
            let Some(count) = count.filter(|count| *count > 0) else {
                return Err(unsupported("N_ATTRIBUTE", "this size of a vector", span));
            };
            of = Type::Array {
                of: Box::new(of),
                count,
            };
        }
        Ok(of)
    }
}

/// A type of the size that `__attribute__((mode(...)))` names.
pub(super) fn in_mode(of: &Type, mode: &str, span: Span) -> Checked<Type> {
    let bytes = match mode {
        "QI" | "byte" => 1,
        "HI" => 2,
        "SI" => 4,
        "DI" | "word" | "pointer" => 8,
        "SF" | "DF" | "XF" if matches!(of, Type::Foreign(_)) => {
            let (name, bytes) = match mode {
                "SF" => ("float", 4),
                "DF" => ("double", 8),
                _ => ("long double", 16),
            };
            return Ok(Type::Foreign(Foreign::new(
                name.to_owned(),
                ForeignKind::Floating(bytes),
            )));
        }
        "TI" | "TF" => return Ok(opaque("__int128", 16)),
        _ => return Err(unsupported("N_ATTRIBUTE", &format!("the mode {mode}"), span)),
    };
    match of {
        Type::Integer(IntegerType { signed, .. }) => Ok(Type::Integer(IntegerType { bytes, signed: *signed })),
        _ => Err(unsupported(
            "N_ATTRIBUTE",
            "the attribute mode of a type that is not an integer",
            span,
        )),
    }
}

/// A type of C that D knows only by its size.
pub(super) fn opaque(name: &str, bytes: u32) -> Type {
    Type::Foreign(Foreign::new(name.to_owned(), ForeignKind::Opaque(bytes)))
}
