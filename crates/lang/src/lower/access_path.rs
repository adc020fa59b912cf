//! The paths from a structure to all of its parts.

use crate::program::{Structure, Type};

/// The most values of a structure that can be assigned as a whole.
const MAXIMUM_ASSIGNED: usize = 256;

/// How deep the search descends into members without names.
const DEPTH_MAX: u32 = 32;

/// One step from a structure to one of its parts.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Member(String),
    /// A union without a name, by its offset.
    Nameless(u64),
    Element(u32),
}

/// A part of a structure that is stored member by member: the part has its own variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    Member(String),
    /// A union without a name, by its offset.
    Nameless(u64),
    /// All elements of an array; their index becomes a key.
    Elements,
    /// All words of a union; their index becomes a key.
    Words,
}

impl Part {
    /// The name of the part's variable in a printed program. No text can spell it.
    pub(super) fn name_in(&self, outer: &str) -> String {
        match self {
            Part::Member(name) => format!("{outer}.{name}"),
            Part::Nameless(offset) => format!("{outer}.%{offset}"),
            Part::Elements => format!("{outer}[]"),
            Part::Words => format!("{outer}{{}}"),
        }
    }
}

/// Whether a type is a union of several members, which share their bytes.
pub(crate) fn is_union(of: &Type) -> bool {
    match of {
        Type::Structure(structure) => {
            structure.name().starts_with("union") && structure.body().is_some_and(|body| body.members.len() > 1)
        }
        _ => false,
    }
}

/// The union without a name that begins at the offset `at`.
pub(super) fn nameless_at(of: &Type, at: u64) -> Option<Type> {
    nameless(of, 0, DEPTH_MAX, &|offset, _| offset == at).map(|(_, of)| of)
}

/// The union without a name to which a member of a structure belongs, and the offset of the union.
pub(super) fn nameless_with(of: &Type, name: &str) -> Option<(u64, Type)> {
    nameless(of, 0, DEPTH_MAX, &|_, found: &Structure| found.member(name).is_some())
}

fn nameless(of: &Type, start: u64, depth: u32, is_wanted: &dyn Fn(u64, &Structure) -> bool) -> Option<(u64, Type)> {
    let Type::Structure(structure) = of else { return None };
    let members = structure.body()?.members.iter();
    let depth = depth.checked_sub(1)?;
    members.filter(|member| member.name.is_empty()).find_map(|member| {
        let start = start + member.offset;
        match &member.member_type {
            Type::Structure(union) if is_union(&member.member_type) => {
                is_wanted(start, union).then(|| (start, member.member_type.clone()))
            }
            other => nameless(other, start, depth, is_wanted),
        }
    })
}

/// The paths to all values and unions in `of`; `None`: there are too many.
pub(crate) fn paths(of: &Type) -> Option<Vec<Vec<Step>>> {
    let mut found = Vec::new();
    collect(of, 0, &mut Vec::new(), &mut found).then_some(found)
}

/// Collects the paths in `of`. `start` is the offset of `of` in the innermost structure with a name.
fn collect(of: &Type, start: u64, way: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) -> bool {
    match of {
        Type::Structure(structure) if !is_union(of) => {
            let Some(body) = structure.body() else { return false };
            body.members.iter().all(|member| {
                // The members of a member without a name belong to the outer structure.
                let (is_named, at) = (!member.name.is_empty(), start + member.offset);
                let step = match (is_named, is_union(&member.member_type)) {
                    (true, _) => Step::Member(member.name.clone()),
                    (false, true) => Step::Nameless(at),
                    (false, false) => return collect(&member.member_type, at, way, found),
                };
                way.push(step);
                let fits = collect(&member.member_type, 0, way, found);
                way.pop();
                fits
            })
        }
        Type::Array { of, count } => (0..*count).all(|index| {
            way.push(Step::Element(index));
            let fits = collect(of, 0, way, found);
            way.pop();
            fits
        }),
        _ => {
            found.push(way.clone());
            found.len() <= MAXIMUM_ASSIGNED
        }
    }
}
