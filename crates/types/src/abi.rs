//! Where arguments are at a function's entry, and its value at its return: the System V ABI for x86-64.
//!
//! ```text
//!   integers, pointers       rdi rsi rdx rcx r8 r9 = words 0 to 5     then the stack, 8 bytes each
//!   float, double            xmm0 to xmm7, which D does not read      then the stack
//!   structures to 16 bytes   each half like its members               the stack, if too few registers are left
//!   others, long double      the stack
//!   returned                 rax rdx = words 1 and 2; larger values in the caller's memory, whose address is
//!                            passed before the first argument and comes back in rax
//! ```
//!
//! Manual: System V ABI, AMD64 Supplement, 3.2.3 Parameter Passing. Rust's calls are the same for integers
//! and pointers. A structure of up to 16 bytes is passed as the two values that it consists of, and a
//! larger one by its address. If the way of passing is not certain, the argument and all after it are
//! refused, because a wrong value is worse than none.

use nanoprobe_lang::program::{ForeignKind, Type, alignment_of, size_of};
use nanoprobe_lang::target::{Argument, ArgumentPlace};

use crate::entered::Entered;
use crate::function::{Parameter, Signature};

/// The number of registers for integers.
const INTEGERS: u8 = 6;
/// The number of registers for floating point.
const VECTORS: u8 = 8;
/// How many members are examined to classify a structure. More members do not fit into 16 bytes.
const MEMBERS_MAX: u32 = 64;
/// How deep structures within structures are examined.
const DEPTH_MAX: u32 = 16;

/// The class of eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    None,
    Integer,
    Vector,
}

/// How a value is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Passed {
    /// The value is passed in registers of these classes.
    Registers([Class; 2]),
    /// In memory.
    Memory,
    /// The address of the value is passed.
    Address,
    /// No bytes at all.
    Nothing,
    /// The way in which the value is passed is not known, for this reason.
    Unknown(&'static str),
}

/// `args[]` at a function's entry.
#[must_use]
pub fn at_entry(signature: &Signature) -> Vec<Argument> {
    let result = signature.result.as_ref().map(|result| passed(result, signature.rust));
    let mut state = Registers {
        integers: u8::from(matches!(result, Some(Passed::Memory | Passed::Address))),
        vectors: 0,
        stack: 0,
    };
    let mut lost = match result {
        Some(Passed::Unknown(why)) => Some(why),
        _ => None,
    };
    let by_type: Vec<ArgumentPlace> = signature
        .parameters
        .iter()
        .map(|parameter| {
            let how = passed(parameter, signature.rust);
            if let (Passed::Unknown(why), None) = (how, lost) {
                lost = Some(why);
            }
            match lost {
                Some(why) => ArgumentPlace::Unreadable(why.to_owned()),
                None => state.place(parameter, how),
            }
        })
        .collect();
    let stated = || signature.parameters.iter().zip(&signature.entered);
    let changed = signature.changed
        || by_type
            .iter()
            .zip(stated())
            .any(|(place, (of, entered))| is_other(place, of, *entered));
    let unstated = std::iter::repeat(Entered::Unstated);
    let entered = signature.entered.iter().copied().chain(unstated);
    let places = by_type.into_iter().zip(entered);
    let parameters = signature.parameters.iter().zip(places);
    parameters
        .map(|(parameter, (by_type, entered))| Argument {
            name: parameter.name.clone(),
            value_type: parameter.value_type.clone(),
            place: place_of(parameter, by_type, entered, changed),
        })
        .collect()
}

/// Whether a parameter is not in the place that its type implies: in another place, or nowhere. If so, all other
/// parameters may be in other places, too.
fn is_other(by_type: &ArgumentPlace, parameter: &Parameter, entered: Entered) -> bool {
    let has_bytes = size_of(&parameter.value_type).is_none_or(|bytes| bytes != 0);
    match (entered, by_type) {
        (Entered::Unstated, _) => false,
        (Entered::Nowhere, _) => has_bytes,
        // If the type implies no place, the parameter is in no other place.
        (_, ArgumentPlace::Unreadable(_)) => false,
        (Entered::Words(words), place) => place_of_words(parameter, words).as_ref() != Some(place),
        (Entered::Behind(word), place) => *place != ArgumentPlace::Behind(word),
    }
}

/// The place of a parameter: the place that its type implies, or the place that the debug information gives for the
/// entry.
fn place_of(parameter: &Parameter, by_type: ArgumentPlace, entered: Entered, changed: bool) -> ArgumentPlace {
    const CHANGED: &str =
        "the compiler has changed how this function is called, and does not record where this argument is";
    const GONE: &str = "the compiler has removed it, or a part of it, from the call";
    match entered {
        Entered::Words(words) => place_of_words(parameter, words),
        Entered::Behind(word) if parameter.by_reference || is_large(&parameter.value_type) => {
            Some(ArgumentPlace::Behind(word))
        }
        Entered::Behind(_) | Entered::Nowhere => None,
        Entered::Unstated if changed => return ArgumentPlace::Unreadable(CHANGED.to_owned()),
        Entered::Unstated => return by_type,
    }
    .unwrap_or_else(|| match by_type {
        // The parameter has no bytes, or there is already a reason why its place is not known.
        ArgumentPlace::Unreadable(_) => by_type,
        _ => ArgumentPlace::Unreadable(GONE.to_owned()),
    })
}

/// The place of a value whose words follow each other.
fn place_of_words(parameter: &Parameter, words: [Option<u8>; 2]) -> Option<ArgumentPlace> {
    let of = match parameter.by_reference {
        true => return None,
        false => &parameter.value_type,
    };
    let whole = match (size_of(of)?, words) {
        (1..=8, [Some(_), None]) => true,
        (9..=16, [Some(first), Some(second)]) => second == first + 1,
        _ => false,
    };
    words[0].filter(|_| whole).map(ArgumentPlace::Words)
}

fn is_large(of: &Type) -> bool {
    size_of(of).is_some_and(|bytes| bytes > 16)
}

/// `args[]` at a function's return: the offset of the exit, and the returned value if there is one.
#[must_use]
pub fn at_return(signature: &Signature) -> Vec<Argument> {
    let mut arguments = vec![Argument {
        name: String::new(),
        value_type: Type::U64,
        place: ArgumentPlace::Words(0),
    }];
    arguments.extend(signature.result.as_ref().map(|result| Argument {
        name: String::new(),
        value_type: result.value_type.clone(),
        place: match passed(result, signature.rust) {
            _ if signature.changed => {
                ArgumentPlace::Unreadable("the compiler has changed how this function is called".to_owned())
            }
            Passed::Registers([Class::Integer, Class::Integer | Class::None]) => ArgumentPlace::Words(1),
            Passed::Registers(_) => ArgumentPlace::Unreadable("it is returned in %xmm0".to_owned()),
            Passed::Memory | Passed::Address if is_long_double(&result.value_type) => {
                ArgumentPlace::Unreadable("it is returned in %st(0)".to_owned())
            }
            Passed::Memory | Passed::Address => ArgumentPlace::Behind(1),
            Passed::Nothing => ArgumentPlace::Unreadable("it has no bytes".to_owned()),
            Passed::Unknown(why) => ArgumentPlace::Unreadable(why.to_owned()),
        },
    }));
    arguments
}

/// The registers and the stack that the arguments so far have taken.
struct Registers {
    integers: u8,
    vectors: u8,
    stack: u32,
}

impl Registers {
    fn place(&mut self, parameter: &Parameter, how: Passed) -> ArgumentPlace {
        match how {
            Passed::Registers(classes) => {
                let count = |class| classes.iter().filter(|of| **of == class).count() as u8;
                let (integers, vectors) = (count(Class::Integer), count(Class::Vector));
                if self.integers + integers > INTEGERS || self.vectors + vectors > VECTORS {
                    return self.on_stack(&parameter.value_type);
                }
                let first = self.integers;
                self.integers += integers;
                self.vectors += vectors;
                match (integers, vectors) {
                    (_, 0) => ArgumentPlace::Words(first),
                    (0, _) => ArgumentPlace::Unreadable(format!(
                        "it is passed in %xmm{}, which D does not read",
                        self.vectors - vectors
                    )),
                    _ => ArgumentPlace::Unreadable("a part of it is passed in %xmm registers".to_owned()),
                }
            }
            Passed::Address if self.integers < INTEGERS => {
                self.integers += 1;
                ArgumentPlace::Behind(self.integers - 1)
            }
            Passed::Address => match self.on_stack(&Type::U64) {
                ArgumentPlace::Stack(offset) => u8::try_from(offset / 8)
                    .ok()
                    .and_then(|word| word.checked_add(INTEGERS))
                    .filter(|word| *word <= 9)
                    .map_or_else(
                        || ArgumentPlace::Unreadable("its address is too far up the stack".to_owned()),
                        ArgumentPlace::Behind,
                    ),
                other => other,
            },
            Passed::Memory => self.on_stack(&parameter.value_type),
            Passed::Nothing => ArgumentPlace::Unreadable("it has no bytes".to_owned()),
            Passed::Unknown(why) => ArgumentPlace::Unreadable(why.to_owned()),
        }
    }

    fn on_stack(&mut self, of: &Type) -> ArgumentPlace {
        let alignment = if is_long_double(of) { 16 } else { alignment_of(of) };
        let alignment = u32::try_from(alignment).unwrap_or(8).clamp(8, 64);
        let bytes = size_of(of).and_then(|bytes| u32::try_from(bytes).ok());
        let offset = self.stack.checked_next_multiple_of(alignment);
        let end = offset
            .zip(bytes)
            .and_then(|(offset, bytes)| offset.checked_add(bytes)?.checked_next_multiple_of(8));
        match (offset, end) {
            (Some(offset), Some(end)) => {
                self.stack = end;
                ArgumentPlace::Stack(offset)
            }
            _ => ArgumentPlace::Unreadable("its size makes no sense".to_owned()),
        }
    }
}

fn is_long_double(of: &Type) -> bool {
    matches!(of, Type::Foreign(foreign) if *foreign.kind() == ForeignKind::Floating(16))
}

fn passed(parameter: &Parameter, rust: bool) -> Passed {
    if parameter.by_reference {
        return Passed::Address;
    }
    let of = &parameter.value_type;
    match of {
        Type::Integer(_) | Type::Pointer(_) => return Passed::Registers([Class::Integer, Class::None]),
        Type::Structure(_) | Type::Array { .. } | Type::Foreign(_) => {}
        Type::Void | Type::String | Type::Bytes { .. } => return Passed::Unknown("its type is not known"),
    }
    let Some(bytes) = size_of(of) else {
        return Passed::Unknown("its type is not known");
    };
    if rust && matches!(of, Type::Structure(_) | Type::Array { .. }) {
        return rust_structure(of, bytes);
    }
    match bytes {
        0 => return Passed::Nothing,
        1..=16 => {}
        _ => return Passed::Memory,
    }
    let mut classes = [Class::None; 2];
    match classify(of, 0, &mut classes, DEPTH_MAX, &mut { MEMBERS_MAX }) {
        Classified::Yes => Passed::Registers(classes),
        Classified::Memory => Passed::Memory,
        Classified::Unknown => Passed::Unknown("how it, or an argument before it, is passed is not known"),
    }
}

/// A structure of Rust in two words, as one value, or of more than 16 bytes. For all others the way is not certain.
fn rust_structure(of: &Type, bytes: u64) -> Passed {
    const WHY: &str = "how Rust passes it, or an argument before it, is not known";
    let mut classes = [Class::None; 2];
    match bytes {
        0 => return Passed::Nothing,
        1..=16 => {}
        _ => return Passed::Address,
    }
    let scalars = scalars(of, DEPTH_MAX, &mut { MEMBERS_MAX });
    let plain = match scalars {
        Some(1) => true,
        Some(2) => bytes == 16,
        _ => false,
    };
    match classify(of, 0, &mut classes, DEPTH_MAX, &mut { MEMBERS_MAX }) {
        Classified::Yes if plain && !classes.contains(&Class::Vector) => Passed::Registers(classes),
        _ => Passed::Unknown(WHY),
    }
}

/// The number of values, other than structures, that a type consists of.
fn scalars(of: &Type, depth: u32, left: &mut u32) -> Option<u32> {
    *left = left.checked_sub(1)?;
    match of {
        Type::Structure(structure) => {
            let depth = depth.checked_sub(1)?;
            let members = &structure.body()?.members;
            // In a union, or an enumeration of Rust's, several values are at one place.
            let mut offsets: Vec<u64> = Vec::new();
            let mut count = 0;
            for member in members {
                if size_of(&member.member_type)? == 0 {
                    continue;
                }
                if offsets.contains(&member.offset) {
                    return None;
                }
                offsets.push(member.offset);
                count += scalars(&member.member_type, depth, left)?;
            }
            Some(count)
        }
        Type::Array { .. } => None,
        _ => Some(1),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Classified {
    Yes,
    Memory,
    Unknown,
}

/// Adds the classes of a value at an offset to the classes of its structure.
fn classify(of: &Type, offset: u64, classes: &mut [Class; 2], depth: u32, left: &mut u32) -> Classified {
    let Some(next) = left.checked_sub(1) else {
        return Classified::Unknown;
    };
    *left = next;
    let class = match of {
        Type::Integer(_) | Type::Pointer(_) => Class::Integer,
        Type::Foreign(foreign) => match foreign.kind() {
            ForeignKind::Enumeration { .. } => Class::Integer,
            ForeignKind::Floating(4 | 8) => Class::Vector,
            ForeignKind::Floating(16) => return Classified::Memory,
            // 128-bit integers and pointers to members are integers to the ABI.
            ForeignKind::Opaque(8 | 16) if is_integer_like(foreign.name()) => Class::Integer,
            _ => return Classified::Unknown,
        },
        Type::Structure(structure) => {
            let (Some(body), Some(depth)) = (structure.body(), depth.checked_sub(1)) else {
                return Classified::Unknown;
            };
            for member in &body.members {
                let at = offset.saturating_add(member.offset);
                let result = match member.bits {
                    // A bit-field counts at the position of its bits, not of its unit.
                    Some(bits) => mark(classes, at + u64::from(bits.shift / 8), Class::Integer),
                    None if size_of(&member.member_type) == Some(0) => Classified::Yes,
                    None if !at.is_multiple_of(alignment_of(&member.member_type).max(1)) => Classified::Memory,
                    None => classify(&member.member_type, at, classes, depth, left),
                };
                if result != Classified::Yes {
                    return result;
                }
            }
            return Classified::Yes;
        }
        Type::Array { of, count } => {
            let (Some(bytes), Some(depth)) = (size_of(of), depth.checked_sub(1)) else {
                return Classified::Unknown;
            };
            for index in 0..u64::from(*count) {
                let at = offset.saturating_add(index.saturating_mul(bytes));
                match classify(of, at, classes, depth, left) {
                    Classified::Yes => {}
                    other => return other,
                }
            }
            return Classified::Yes;
        }
        Type::Void | Type::String | Type::Bytes { .. } => return Classified::Unknown,
    };
    let bytes = size_of(of).unwrap_or(8);
    let first = mark(classes, offset, class);
    match bytes > 8 {
        true if first == Classified::Yes => mark(classes, offset + 8, class),
        _ => first,
    }
}

fn mark(classes: &mut [Class; 2], offset: u64, class: Class) -> Classified {
    let half = usize::try_from(offset / 8).ok().and_then(|half| classes.get_mut(half));
    match half {
        Some(half) => {
            if *half != Class::Integer {
                *half = class;
            }
            Classified::Yes
        }
        None => Classified::Unknown,
    }
}

fn is_integer_like(name: &str) -> bool {
    name.contains("int128") || matches!(name, "i128" | "u128" | "a pointer to a member")
}
