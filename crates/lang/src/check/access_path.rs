//! The ways from a structure to all that it holds, and the nodes that name them.

use super::unions::{is_union, nameless_name};
use crate::program::Type;
use crate::source::Span;
use crate::syntax::{IntegerLiteral, Node, NodeKind};

/// The most values of a structure that is assigned as a whole.
const MAXIMUM_ASSIGNED: usize = 256;

/// One step from a structure to a part of it.
#[derive(Clone)]
pub(super) enum Step {
    Member(String),
    Element(u32),
}

/// The ways to all values and unions in `of`, which begins so many bytes behind the structure that has a name; whether these are
/// not too many.
pub(super) fn members(of: &Type, start: u64, way: &mut Vec<Step>, found: &mut Vec<Vec<Step>>) -> bool {
    match of {
        Type::Structure(structure) if !is_union(of) => {
            let Some(body) = structure.body() else { return false };
            body.members.iter().all(|member| {
                // Those of a member without a name are the outer one's.
                let (is_named, at) = (!member.name.is_empty(), start + member.offset);
                let name = match (is_named, is_union(&member.member_type)) {
                    (true, _) => member.name.clone(),
                    (false, true) => nameless_name(at),
                    (false, false) => return members(&member.member_type, at, way, found),
                };
                way.push(Step::Member(name));
                let fits = members(&member.member_type, 0, way, found);
                way.pop();
                fits
            })
        }
        Type::Array { of, count } => (0..*count).all(|index| {
            way.push(Step::Element(index));
            let fits = members(of, 0, way, found);
            way.pop();
            fits
        }),
        _ => {
            found.push(way.clone());
            found.len() <= MAXIMUM_ASSIGNED
        }
    }
}

/// `whole` with these steps behind it.
pub(super) fn step(whole: &Node, way: &[Step], span: Span) -> Node {
    way.iter().fold(whole.clone(), |base, step| {
        let base = Box::new(base);
        let kind = match step {
            Step::Member(name) => NodeKind::Member {
                base,
                name: name.clone(),
                arrow: false,
            },
            Step::Element(index) => {
                let index = NodeKind::Integer(IntegerLiteral::decimal(i64::from(*index)));
                NodeKind::Index {
                    base,
                    indices: vec![Node::new(index, span)],
                }
            }
        };
        Node::new(kind, span)
    })
}
