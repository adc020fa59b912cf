//! Structures, unions and arrays of fixed size, as types.

use super::{Checked, Checker, internet};
use crate::diagnostic::Diagnostic;
use crate::lower::constant;
use crate::lower::refusals::find_member;
use crate::lower::refusals::{complete, too_many_bytes};
use crate::program::{Declared, Packing, Structure, Type, alignment_of, size_of};
use crate::source::Span;
use crate::syntax::{Declarator, MemberDeclaration, Node};
use crate::types;

/// The most bytes of a structure or array: as much as one record can hold.
const MAXIMUM_BYTES: u64 = 1 << 20;

impl Checker {
    /// `struct tag`, with its members if the text gives them.
    pub(super) fn structure(
        &mut self,
        (keyword, tag): (&str, &str),
        members: Option<&[MemberDeclaration]>,
        packing: Packing,
        span: Span,
    ) -> Checked<Structure> {
        let name = if tag.is_empty() {
            keyword.to_owned()
        } else {
            format!("{keyword} {tag}")
        };
        let known = self.types.structures.get(&name).filter(|_| !tag.is_empty()).cloned();
        let is_ours = members.is_none() && name == internet::ADDRESS && !self.later.defines(&name);
        let foreign = || self.foreign_structure(keyword, tag, &name);
        let structure = known.or_else(foreign).unwrap_or_else(|| match is_ours {
            true => internet::address(),
            false => Structure::new(name.clone()),
        });
        if !tag.is_empty() {
            self.types.structures.insert(name.clone(), structure.clone());
        }
        let Some(members) = members else {
            return Ok(structure);
        };
        let mut declared = Vec::new();
        for member in members {
            self.members(member, &mut declared)?;
        }
        let mut names: Vec<&str> = declared.iter().map(|member| member.name.as_str()).collect();
        names.retain(|name| !name.is_empty());
        names.sort_unstable();
        if let Some([twice, _]) = names.array_windows::<2>().find(|[a, b]| a == b) {
            let message = format!("member redeclared: {twice} in {name}");
            return Err(Diagnostic::new("D_DECL_IDRED", span, message));
        }
        if !structure.define(declared, keyword == "union", packing) {
            return Err(Diagnostic::new(
                "D_DECL_TYPERED",
                span,
                format!("type redeclared: {name}"),
            ));
        }
        if size_of(&Type::Structure(structure.clone())).is_none_or(|bytes| bytes > MAXIMUM_BYTES) {
            return Err(too_many_bytes(&name, span));
        }
        Ok(structure)
    }

    fn members(&mut self, member: &MemberDeclaration, declared: &mut Vec<Declared>) -> Checked<()> {
        let base = self.base(&member.base, member.span)?;
        if member.declarators.is_empty() {
            if !matches!(base, Type::Structure(_)) {
                return Err(Diagnostic::new(
                    "D_DECL_MNAME",
                    member.span,
                    "member declaration requires a name",
                ));
            }
            complete(&base, "a member", member.span)?;
            declared.push(Declared {
                name: String::new(),
                width: None,
                shown: None,
                packed: member.attributes.packed,
                aligned: self.aligned(&member.attributes)?,
                alignment: alignment_of(&base),
                member_type: base,
            });
            return Ok(());
        }
        let shown_base = self.shown_base(&member.base, &base);
        for (declarator, width) in &member.declarators {
            let member_type = self.derive_member(base.clone(), &declarator.derived, declarator.span)?;
            let member_type = self.attributed(member_type, &declarator.attributes, declarator.span)?;
            let name = &declarator.name;
            match member_type {
                Type::Void => {
                    let message = format!("cannot have void member: {name}");
                    return Err(Diagnostic::new("D_DECL_VOIDOBJ", declarator.span, message));
                }
                // `sizeof` refuses a string, but as a member it takes room.
                Type::String => {}
                _ => complete(&member_type, name, declarator.span)?,
            }
            let width = match width {
                Some(width) => Some(self.width(declarator, &member_type, width)?),
                None => None,
            };
            let shown = self.shown_derived(shown_base.clone(), &declarator.derived, &member_type);
            declared.push(Declared {
                name: name.clone(),
                packed: declarator.attributes.packed,
                aligned: self.aligned(&declarator.attributes)?,
                alignment: self.alignment(&member.base, &declarator.derived, &member_type),
                member_type,
                width,
                shown: Some(shown),
            });
        }
        Ok(())
    }

    /// The width of a bit-field.
    fn width(&mut self, declarator: &Declarator, member_type: &Type, width: &Node) -> Checked<u32> {
        let Type::Integer(unit) = member_type else {
            return Err(Diagnostic::new(
                "D_DECL_BFTYPE",
                declarator.span,
                format!("invalid type for bit-field: {}", types::name(member_type)),
            ));
        };
        let Some(bits) = constant::wide_value(&self.expression(width)?) else {
            return Err(Diagnostic::new(
                "D_DECL_BFCONST",
                width.span,
                "bit-field must be of an integral constant size",
            ));
        };
        if bits < 0 || (bits == 0 && !declarator.name.is_empty()) {
            let message = "a bit-field must have a positive number of bits";
            return Err(Diagnostic::new("D_DECL_BFCONST", width.span, message));
        }
        match u32::try_from(bits) {
            Ok(bits) if bits <= 8 * u32::from(unit.bytes) => Ok(bits),
            _ => Err(Diagnostic::new(
                "D_DECL_BFSIZE",
                width.span,
                format!(
                    "bit-field of {bits} bits does not fit into {}",
                    types::name(member_type)
                ),
            )),
        }
    }

    /// `of[dimension]`.
    pub(super) fn array(&mut self, of: Type, dimension: &Node, span: Span) -> Checked<Type> {
        if matches!(of, Type::Void | Type::String) {
            let message = format!("cannot declare an array of {}", types::name(&of));
            let tag = if of == Type::Void {
                "D_DECL_VOIDOBJ"
            } else {
                "D_DECL_DYNOBJ"
            };
            return Err(Diagnostic::new(tag, span, message));
        }
        complete(&of, "an element", span)?;
        let Some(count) = constant::wide_value(&self.expression(dimension)?) else {
            return Err(Diagnostic::new(
                "D_DECL_ARRSUB",
                dimension.span,
                "positive integral constant expression or tuple signature expected as array declaration subscript",
            ));
        };
        let count = match u32::try_from(count) {
            Ok(count) if count > 0 => count,
            _ if count > 0 => {
                return Err(Diagnostic::new(
                    "D_DECL_ARRBIG",
                    dimension.span,
                    "array dimension too big",
                ));
            }
            _ => {
                return Err(Diagnostic::new(
                    "D_DECL_ARRSUB",
                    dimension.span,
                    "array dimension must be positive",
                ));
            }
        };
        let array = Type::Array {
            of: Box::new(of),
            count,
        };
        if size_of(&array).is_none_or(|bytes| bytes > MAXIMUM_BYTES) {
            return Err(too_many_bytes("the array", span));
        }
        Ok(array)
    }

    /// `offsetof(type, member)`, or `member.of.it`.
    pub(super) fn offset_of(&mut self, of: &Type, member: &str, span: Span) -> Checked<u64> {
        let Type::Structure(structure) = of else {
            return Err(Diagnostic::new(
                "D_OFFSETOF_TYPE",
                span,
                format!(
                    "offsetof operand must be a struct or union type, not {}",
                    types::name(of)
                ),
            ));
        };
        if structure.body().is_none() {
            let message = format!("offsetof operand is not defined: {}", structure.name());
            let error = Diagnostic::new("D_OFFSETOF_TYPE", span, message);
            return Err(self.with_reason(error, structure));
        }
        let (member, rest) = match member.split_once('.') {
            Some((member, rest)) => (member, Some(rest)),
            None => (member, None),
        };
        let found = find_member(structure, member, span)?;
        if found.bits.is_some() {
            let message = format!("cannot take offset of a bit-field: {member}");
            return Err(Diagnostic::new("D_OFFSETOF_BITFIELD", span, message));
        }
        match rest {
            None => Ok(found.offset),
            Some(rest) => Ok(found.offset + self.offset_of(&found.member_type, rest, span)?),
        }
    }
}
