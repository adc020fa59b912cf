//! The places of the arguments and results of Go functions: ABIInternal for amd64, computed from the types
//! as the compiler does it.
//!
//! ```text
//!   integers, pointers, maps, channels, functions    a word
//!   strings, interfaces; slices                      two words; three
//!   structures, arrays of one element                each member in a word of its own
//!   floating point                                   X0 to X14, which D does not read
//!   words                                            rax rbx rcx rdi rsi r8 r9 r10 r11
//!   values that do not fit whole, longer arrays      the stack, as in a structure; results after arguments
//! ```
//!
//! The registers of results are counted from rax again. A value whose members are narrower than words has
//! another layout in its words than in memory. For D it is a structure of the same name and members, with
//! the members at the distances at which they are passed.
//!
//! Manual: src/cmd/compile/abi-internal.md. Optimisation changes none of this, because callers may be anywhere.

use nanoprobe_lang::program::{Body, ForeignKind, Member, Structure, Type, alignment_of, size_of};
use nanoprobe_lang::target::{Argument, ArgumentPlace};

use crate::function::{Parameter, Signature};

/// The number of registers for integers.
const INTEGERS: usize = 9;
/// The number of registers for floating point.
const FLOATS: usize = 15;
/// How deep structures within structures are examined.
const DEPTH_MAX: u32 = 16;
/// How many members are examined. More members do not fit into registers.
const MEMBERS_MAX: u32 = 256;

/// A part of a value that takes a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// An integer or a pointer, at an offset in memory.
    Word(u64),
    Float,
}

/// `args[]` at the entry of a Go function.
#[must_use]
pub fn at_entry_of_go(signature: &Signature) -> Vec<Argument> {
    let mut sequence = Sequence::default();
    sequence.places(&signature.parameters, signature.dictionary, 0)
}

/// `args[]` at the return of a Go function: the offset of the exit, and the results.
#[must_use]
pub fn at_return_of_go(signature: &Signature) -> Vec<Argument> {
    let mut sequence = Sequence::default();
    sequence.places(&signature.parameters, signature.dictionary, 0);
    sequence = Sequence {
        stack: sequence.stack.and_then(|end| end.checked_next_multiple_of(8)),
        ..Sequence::default()
    };
    let mut arguments = vec![Argument {
        name: String::new(),
        value_type: Type::U64,
        place: ArgumentPlace::Words(0),
    }];
    // Word 0 is the offset.
    arguments.extend(sequence.places(&signature.results, None, 1));
    arguments
}

/// The registers and the stack that the values so far have taken.
struct Sequence {
    integers: usize,
    floats: usize,
    /// The offset at which the next value on the stack would begin; `None`: it is not known.
    stack: Option<u64>,
    /// The reason why the places of further values are not known.
    lost: Option<&'static str>,
}

impl Default for Sequence {
    fn default() -> Sequence {
        Sequence {
            integers: 0,
            floats: 0,
            stack: Some(0),
            lost: None,
        }
    }
}

impl Sequence {
    /// The places of `values`. `dictionary`: the index of the value before which the compiler passes an
    /// additional word. `first`: the number of the word that is rax.
    fn places(&mut self, values: &[Parameter], dictionary: Option<usize>, first: usize) -> Vec<Argument> {
        let mut arguments = Vec::new();
        for (index, value) in values.iter().enumerate() {
            if dictionary == Some(index) {
                self.integers += 1;
            }
            let (value_type, place) = self.place(&value.value_type, first);
            arguments.push(Argument {
                name: value.name.clone(),
                value_type,
                place,
            });
        }
        arguments
    }

    fn place(&mut self, of: &Type, first: usize) -> (Type, ArgumentPlace) {
        let unreadable = |why: String| (of.clone(), ArgumentPlace::Unreadable(why));
        if let Some(why) = self.lost {
            return unreadable(why.to_owned());
        }
        let Some(bytes) = size_of(of).filter(|_| *of != Type::Void) else {
            self.lost = Some("its type, or the type of an argument before it, is not known");
            return unreadable("its type is not known".to_owned());
        };
        if bytes == 0 {
            self.stack = self
                .stack
                .and_then(|end| end.checked_next_multiple_of(alignment_of(of).max(1)));
            return unreadable("it has no bytes".to_owned());
        }
        let mut parts = Vec::new();
        let is_whole = collect(of, 0, &mut parts, DEPTH_MAX, &mut MEMBERS_MAX.clone());
        let words = parts.iter().filter(|part| matches!(part, Part::Word(_))).count();
        let floats = parts.len() - words;
        match is_whole {
            Some(true) if self.integers + words <= INTEGERS && self.floats + floats <= FLOATS => {}
            Some(_) => return (of.clone(), self.on_stack(of, bytes)),
            None => {
                self.lost = Some("its type, or the type of an argument before it, is not known");
                return unreadable("its type is not known".to_owned());
            }
        }
        let (word, float) = (self.integers, self.floats);
        self.integers += words;
        self.floats += floats;
        if floats > 0 {
            return unreadable(match words {
                0 => format!("it is passed in %xmm{float}, which D does not read"),
                _ => "a part of it is passed in %xmm registers, which D does not read".to_owned(),
            });
        }
        let place = u8::try_from(first + word).map_or_else(
            |_| ArgumentPlace::Unreadable("it is in no register".to_owned()),
            ArgumentPlace::Words,
        );
        let as_in_memory = (0..).zip(&parts).all(|(index, part)| *part == Part::Word(8 * index));
        match as_in_memory {
            true => (of.clone(), place),
            false => (apart(of), place),
        }
    }

    fn on_stack(&mut self, of: &Type, bytes: u64) -> ArgumentPlace {
        let offset = self
            .stack
            .and_then(|end| end.checked_next_multiple_of(alignment_of(of).max(1)));
        self.stack = offset.and_then(|offset| offset.checked_add(bytes));
        match (offset.and_then(|offset| u32::try_from(offset).ok()), self.stack) {
            (Some(offset), Some(_)) => ArgumentPlace::Stack(offset),
            _ => ArgumentPlace::Unreadable("its size makes no sense".to_owned()),
        }
    }
}

/// Collects the parts of a value at an offset. `Some(false)`: registers never hold such a value; `None`: this is not
/// known.
fn collect(of: &Type, offset: u64, parts: &mut Vec<Part>, depth: u32, left: &mut u32) -> Option<bool> {
    *left = left.checked_sub(1)?;
    match of {
        Type::Integer(_) | Type::Pointer(_) => parts.push(Part::Word(offset)),
        Type::Foreign(foreign) => match foreign.kind() {
            ForeignKind::Floating(4 | 8) => parts.push(Part::Float),
            ForeignKind::Enumeration { .. } => parts.push(Part::Word(offset)),
            ForeignKind::Opaque(_) if foreign.name().starts_with("complex") => parts.extend([Part::Float; 2]),
            _ => return None,
        },
        Type::Structure(structure) => {
            let depth = depth.checked_sub(1)?;
            for member in &structure.body()?.members {
                if member.bits.is_some() {
                    return None;
                }
                let at = offset.checked_add(member.offset)?;
                if !collect(&member.member_type, at, parts, depth, left)? {
                    return Some(false);
                }
            }
        }
        Type::Array { count: 0, .. } => {}
        Type::Array { of, count: 1 } => return collect(of, offset, parts, depth.checked_sub(1)?, left),
        Type::Array { .. } => return Some(false),
        Type::Void | Type::String | Type::Bytes { .. } => return None,
    }
    Some(true)
}

/// The type of a value in words: each part in a word of its own. `collect` has shown that the recursion ends.
fn apart(of: &Type) -> Type {
    match of {
        Type::Structure(structure) => {
            let Some(body) = structure.body() else {
                return of.clone();
            };
            let mut bytes = 0;
            let members = body.members.iter().map(|member| {
                let member_type = apart(&member.member_type);
                let offset = bytes;
                bytes += words_of(&member_type) * 8;
                Member {
                    name: member.name.clone(),
                    member_type,
                    offset,
                    bits: None,
                    shown: None,
                }
            });
            let members: Vec<Member> = members.collect();
            let body = Body {
                members,
                bytes,
                alignment: 8,
            };
            let name = structure.name().to_owned();
            Type::Structure(Structure::foreign(name, Box::new(move || Some(body.clone()))))
        }
        Type::Array { of, count: 1 } => Type::Array {
            of: Box::new(apart(of)),
            count: 1,
        },
        _ => of.clone(),
    }
}

fn words_of(of: &Type) -> u64 {
    match of {
        Type::Structure(_) | Type::Array { .. } => size_of(of).unwrap_or(0).div_ceil(8),
        _ => 1,
    }
}
