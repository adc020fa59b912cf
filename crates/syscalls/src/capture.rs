//! Which memory must be recorded for each call, and the program in D that records it.
//!
//! ```text
//! before the call   its six arguments                             the memory of calls that do not return, and lengths
//! after the call    its result                                    all other memory: by then no page of it is untouched
//! ```
//!
//! Each piece of memory has a clause of its own, so an address that leads nowhere loses only that piece: the line then
//! shows the address, as strace does. Pieces of the same form share a clause. A record begins with a number that says
//! which piece it is ([`Part::number`]), and the thread.

mod frame;
mod messages;
mod paths;
mod signals;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::meaning::{Bytes, Direction, Meaning};
use crate::prototypes::{Call, Parameter, calls};
use crate::structures;
pub(crate) use frame::{MASK, RESTORED};
pub(crate) use messages::{ELEMENT, MESSAGE, Place, of_message};
use messages::{Each, each};
pub(crate) use paths::{is_descriptor, of_argument, of_result};

/// Before a call or after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum End {
    Entry,
    Return,
}

/// A piece of memory of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// When it was recorded.
    pub end: End,
    /// The argument that points to it.
    pub argument: usize,
    /// 0: the memory itself. Others: where the pointers in it lead.
    pub index: usize,
}

/// The numbers of the records that are no piece of memory.
pub const ENTRY: u64 = 0;
pub const RETURN: u64 = 1;
/// Above those of all pieces.
pub const SIGNAL: u64 = (2 + 2 * ARGUMENTS * PARTS) as u64;

const ARGUMENTS: usize = 6;
/// The most pieces of one argument: those of several messages, and a path.
const PARTS: usize = 64;
pub(crate) const STRINGS: usize = 16;
const IOVECS: usize = 8;
/// The most elements of other arrays.
pub(crate) const ELEMENTS: u32 = 32;
/// The most bytes of an address.
const ADDRESS: u32 = 128;
/// The most bytes of a folder's entries, which are counted.
const ENTRIES: u32 = 32 << 10;
/// Calls that do not come back, so their memory is read before.
const LEAVING: [&str; 2] = ["execve", "execveat"];
/// Calls that often wait for long, so their memory is read before, too: to show what a thread waits for.
const WAITING: [&str; 3] = ["connect", "poll", "ppoll"];

impl Part {
    pub(crate) fn new(end: End, argument: usize) -> Part {
        Part {
            end,
            argument,
            index: 0,
        }
    }

    /// The number by which a record names this piece.
    #[must_use]
    pub fn number(self) -> u64 {
        let end = usize::from(self.end == End::Return);
        (2 + (end * ARGUMENTS + self.argument) * PARTS + self.index) as u64
    }

    /// The piece of this number.
    #[must_use]
    pub fn of_number(number: u64) -> Option<Part> {
        let rest = usize::try_from(number).ok()?.checked_sub(2)?;
        let (rest, index) = (rest / PARTS, rest % PARTS);
        let end = [End::Entry, End::Return].get(rest / ARGUMENTS).copied()?;
        Some(Part {
            end,
            argument: rest % ARGUMENTS,
            index,
        })
    }
}

/// How many bytes are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Count {
    /// A string up to its NUL.
    Text,
    Fixed(u32),
    /// As many units as this argument says; whether it has 32 bits.
    Argument {
        index: usize,
        unit: u32,
        is_narrow: bool,
    },
    /// As many units as the result says.
    Result {
        unit: u32,
    },
    /// As many bytes as the integer says to which this argument points.
    Pointed(usize),
    /// What the pointers of an argv lead to: several strings.
    Strings,
    /// What the elements of a list of buffers lead to: several lengths and buffers.
    Vectors,
    /// The same of a list that members of a structure name: where its address is, and its length.
    MemberVectors(u32, u32),
    /// What members of a structure name: where its address is, and how many units it has. The length may have 32 bits.
    Member {
        at: u32,
        length: u32,
        unit: u32,
        is_narrow: bool,
    },
    /// A bit for each number below this argument, in whole words.
    Bits(usize),
    /// What several messages lead to.
    Messages(Direction, Each),
}

/// A piece of memory, and how it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Capture {
    part: Part,
    count: Count,
    limit: u32,
    /// Only after a call that has succeeded.
    needs_success: bool,
}

/// What is wanted of the program.
#[derive(Clone, Copy, Debug)]
pub struct Wish {
    /// The most bytes of a buffer.
    pub buffer: u32,
    /// Whether descriptors are shown with their paths.
    pub has_paths: bool,
    /// Whether only the calls and their results are wanted.
    pub has_no_memory: bool,
    /// The signals whose handling is recorded: a bit for each number, from 1 on.
    pub signals: u64,
}

/// The program that records these calls. An empty list means all.
#[must_use]
pub fn program(names: &[String], wish: Wish) -> String {
    let is_meant = |name: &str| names.is_empty() || names.iter().any(|known| known == name);
    let each = |end: &str| match names {
        [] => format!("syscall:::{end}"),
        names => descriptions(names.iter().map(String::as_str), end),
    };
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{}\n{{\n\ttrace({ENTRY});\n\ttrace(tid);\n\ttrace(pid);\n\ttrace(timestamp);\n\ttrace(walltimestamp);\n\
         \ttrace(arg0);\n\ttrace(arg1);\n\ttrace(arg2);\n\ttrace(arg3);\n\ttrace(arg4);\n\ttrace(arg5);\n}}\n",
        each("entry")
    );
    let mut shared: BTreeMap<Capture, Vec<&'static str>> = BTreeMap::new();
    for call in calls().filter(|call| is_meant(call.name) && !wish.has_no_memory) {
        for capture in captures(&call, wish) {
            shared.entry(capture).or_default().push(call.name);
        }
    }
    for (capture, names) in &shared {
        let end = if capture.part.end == End::Entry {
            "entry"
        } else {
            "return"
        };
        let of = descriptions(names.iter().copied(), end);
        let _ = writeln!(text, "{of}\n{}", capture.clause());
    }
    if wish.has_paths {
        text += &paths::clauses(is_meant);
    }
    if is_meant("rt_sigreturn") {
        text += &frame::clause();
    }
    text += &signals::clause(wish.signals);
    // The last record of a call completes it.
    let _ = writeln!(
        text,
        "{}\n{{\n\ttrace({RETURN});\n\ttrace(tid);\n\ttrace(timestamp);\n\ttrace(arg0);\n\ttrace(errno);\n}}",
        each("return")
    );
    text
}

fn descriptions<'n>(names: impl Iterator<Item = &'n str>, end: &str) -> String {
    let all: Vec<String> = names.map(|name| format!("syscall::{name}:{end}")).collect();
    all.join(",\n")
}

impl Capture {
    /// What lies beside the memory itself: a piece with another number.
    fn beside(self, index: usize) -> Capture {
        Capture {
            part: Part { index, ..self.part },
            ..self
        }
    }

    /// The same before the call.
    fn before(self) -> Capture {
        Capture {
            part: Part {
                end: End::Entry,
                ..self.part
            },
            ..self
        }
    }

    fn clause(&self) -> String {
        let own = word(self.part.end, self.part.argument);
        let mut conditions = vec![format!("{own} != 0")];
        if self.needs_success {
            conditions.push("arg0 != -1".to_owned());
        }
        let count = match self.count {
            Count::Text | Count::Fixed(_) | Count::Strings | Count::Vectors => None,
            Count::MemberVectors(at, _) => {
                conditions.push(format!("{} != 0", member(&own, at)));
                None
            }
            Count::Messages(direction, what) => {
                conditions.extend(messages::condition(&own, direction, what));
                None
            }
            Count::Member {
                at,
                length,
                unit,
                is_narrow,
            } => {
                conditions.push(format!("{} != 0", member(&own, at)));
                let of = member(&own, length);
                let of = if is_narrow {
                    format!("(uint64_t)(uint32_t){of}")
                } else {
                    of
                };
                Some(times(of, unit))
            }
            Count::Bits(index) => {
                let of = word(self.part.end, index);
                conditions.push(format!("(int){of} > 0"));
                Some(format!("((uint64_t)(uint32_t){of} + 63) / 64 * 8"))
            }
            Count::Argument { index, unit, is_narrow } => {
                let of = word(self.part.end, index);
                let of = if is_narrow {
                    format!("(uint64_t)(uint32_t){of}")
                } else {
                    of
                };
                Some(times(of, unit))
            }
            Count::Result { unit } => Some(times("(uint64_t)arg0".to_owned(), unit)),
            Count::Pointed(index) => {
                let of = word(self.part.end, index);
                conditions.push(format!("{of} != 0"));
                Some(format!("(uint64_t)*(uint32_t *)copyin({of}, 4)"))
            }
        };
        let number = self.part.number();
        let limit = self.limit;
        let body = match (self.count, count) {
            (Count::Text, _) => format!("\ttrace(copyinstr((uintptr_t){own}));\n"),
            (Count::Fixed(bytes), _) => {
                format!("\ttrace({bytes});\n\ttracemem(copyin({own}, {bytes}), {bytes});\n")
            }
            (Count::Strings, _) => strings(&own),
            (Count::MemberVectors(at, length), _) => vectors(&member(&own, at), &member(&own, length), IOVECS, limit),
            (Count::Member { at, .. }, Some(count)) => bounded(&member(&own, at), &count, limit),
            (Count::Vectors, _) => vectors(&own, &word(self.part.end, self.part.argument + 1), IOVECS, limit),
            (Count::Messages(direction, what), _) => each(&own, direction, what, limit),
            (_, Some(count)) => bounded(&own, &count, limit),
            (_, None) => String::new(),
        };
        format!(
            "/{}/\n{{\n\ttrace({number});\n\ttrace(tid);\n{body}}}\n",
            conditions.join(" && ")
        )
    }
}

/// As many bytes, but at most `limit`.
fn bounded(address: &str, count: &str, limit: u32) -> String {
    format!(
        "\tthis->bytes = {count};\n\tthis->bytes = this->bytes > {limit} ? {limit} : this->bytes;\n\
         \ttrace(this->bytes);\n\ttracemem(copyin({address}, this->bytes), {limit});\n"
    )
}

/// A word of the structure at an address.
fn member(address: &str, offset: u32) -> String {
    format!("*(uint64_t *)copyin({address} + {offset}, 8)")
}

/// The strings of an array that ends with NULL. Behind its end all are empty.
fn strings(array: &str) -> String {
    let element = |index: usize| format!("*(uint64_t *)copyin({array} + {}, 8)", 8 * index);
    let mut text = format!("\tthis->at = {};\n", element(0));
    for index in 0..STRINGS {
        if index > 0 {
            text += &format!("\tthis->at = this->at != 0 ? {} : 0;\n", element(index));
        }
        text += "\ttrace(this->at != 0 ? copyinstr((uintptr_t)this->at) : \"\");\n";
    }
    text
}

/// The buffers of a list of `count` elements, each of an address and a length; at most so many.
fn vectors(list: &str, count: &str, most: usize, limit: u32) -> String {
    let mut text = format!("\tthis->list = {list};\n\tthis->count = {count};\n");
    let (list, count) = ("this->list", "this->count");
    for index in 0..most {
        let offset = 16 * index;
        text += &format!(
            "\tthis->bytes = {count} > {index} ? *(uint64_t *)copyin({list} + {}, 8) : 0;\n\
             \tthis->bytes = this->bytes > {limit} ? {limit} : this->bytes;\n\
             \tthis->from = this->bytes != 0 ? *(uint64_t *)copyin({list} + {offset}, 8) : {list};\n\
             \ttrace(this->bytes);\n\ttracemem(copyin(this->from, this->bytes), {limit});\n",
            offset + 8
        );
    }
    text
}

fn times(of: String, unit: u32) -> String {
    match unit {
        1 => of,
        _ => format!("{of} * {unit}"),
    }
}

/// An argument, as D names it. After the call the registers still hold the arguments.
fn word(end: End, index: usize) -> String {
    const REGISTERS: [&str; ARGUMENTS] = ["R_RDI", "R_RSI", "R_RDX", "R_R10", "R_R8", "R_R9"];
    match end {
        End::Entry => format!("arg{index}"),
        End::Return => format!("uregs[{}]", REGISTERS.get(index).unwrap_or(&"R_RDI")),
    }
}

/// All pieces of a call's memory.
fn captures(call: &Call, wish: Wish) -> Vec<Capture> {
    let of = |(index, parameter)| of_parameter(call, index, parameter, wish);
    let mut all: Vec<Capture> = call.parameters.iter().enumerate().flat_map(of).collect();
    if WAITING.contains(&call.name) {
        let before: Vec<Capture> = all.iter().map(|capture| capture.before()).collect();
        all.extend(
            before
                .into_iter()
                .filter(|before| !all.contains(before))
                .collect::<Vec<_>>(),
        );
    }
    all
}

/// The memory to which an argument points.
fn of_parameter(call: &Call, argument: usize, parameter: &Parameter, wish: Wish) -> Vec<Capture> {
    let end = match LEAVING.contains(&call.name) {
        true => End::Entry,
        false => End::Return,
    };
    let one = |count, limit, needs_success| Capture {
        part: Part::new(end, argument),
        count,
        limit,
        needs_success,
    };
    let sized = |index: usize, unit| Count::Argument {
        index,
        unit,
        is_narrow: is_narrow(call.parameters.get(index)),
    };
    match parameter.meaning {
        Meaning::Path => vec![one(Count::Text, 0, false)],
        Meaning::BytesIn(index) => vec![one(sized(index, 1), wish.buffer, false)],
        Meaning::BytesOut(Bytes::Terminated) => vec![one(Count::Text, 0, true)],
        Meaning::BytesOut(_) => vec![one(Count::Result { unit: 1 }, wish.buffer, true)],
        Meaning::Structure(direction, name) => match (structures::element(name), structures::size(name), direction) {
            (Some(unit), ..) => vec![one(Count::Result { unit }, ELEMENTS * unit, true)],
            (_, Some(bytes), Direction::Out) => vec![one(Count::Fixed(bytes), bytes, true)],
            // The kernel may write over what it has read: the time that is left, another mask.
            (_, Some(bytes), Direction::In) => vec![one(Count::Fixed(bytes), bytes, false).before()],
            (None, None, _) => Vec::new(),
        },
        Meaning::PollFds(index) => vec![one(sized(index, 8), 8 * ELEMENTS, false)],
        Meaning::EpollEvents => vec![one(Count::Result { unit: 12 }, 12 * ELEMENTS, true)],
        Meaning::SocketAddress(Direction::In, index) => vec![one(sized(index, 1), ADDRESS, false)],
        Meaning::SocketAddress(Direction::Out, index) => vec![one(Count::Pointed(index), ADDRESS, true)],
        Meaning::Length => {
            vec![one(Count::Fixed(4), 4, false).before(), one(Count::Fixed(4), 4, true)]
        }
        Meaning::Message(_)
        | Meaning::Messages(_)
        | Meaning::DescriptorSet(_)
        | Meaning::Timeout(_)
        | Meaning::Mask => messages::led_to(parameter.meaning, &one, wish),
        Meaning::Status => vec![one(Count::Fixed(4), 4, true)],
        Meaning::DirectoryEntries => vec![one(Count::Result { unit: 1 }, ENTRIES, true)],
        Meaning::Processors => vec![one(Count::Result { unit: 1 }, ADDRESS, true)],
        Meaning::Clone3 => vec![one(sized(1, 1), 88, false)],
        Meaning::FutexTimeout => vec![one(Count::Fixed(16), 16, false)],
        // The argument after the command: an integer or a window's size, or a terminal's settings.
        Meaning::Ioctl => [(0, 8), (1, 36)]
            .map(|(index, bytes)| Capture {
                part: Part {
                    index,
                    ..Part::new(end, argument + 1)
                },
                ..one(Count::Fixed(bytes), bytes, true)
            })
            .to_vec(),
        Meaning::Iovecs(direction, index) => vec![
            one(sized(index, 16), 16 * IOVECS as u32, false),
            one(Count::Vectors, wish.buffer, direction == Direction::Out).beside(1),
        ],
        Meaning::Strings => {
            let bytes = 8 * (STRINGS as u32 + 1);
            let array = one(Count::Fixed(bytes), bytes, false);
            vec![array, one(Count::Strings, 0, false).beside(1)]
        }
        Meaning::Environment => [(0, 1024), (1, 128)]
            .map(|(index, bytes)| one(Count::Fixed(bytes), bytes, false).beside(index))
            .to_vec(),
        _ => Vec::new(),
    }
}

fn is_narrow(parameter: Option<&Parameter>) -> bool {
    matches!(parameter.map(|of| of.meaning), Some(Meaning::Number { bytes: 4, .. }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_names_one_part() {
        for end in [End::Entry, End::Return] {
            for argument in 0..ARGUMENTS {
                for index in 0..PARTS {
                    let part = Part { end, argument, index };
                    assert_eq!(Part::of_number(part.number()), Some(part));
                }
            }
        }
        assert_eq!([ENTRY, RETURN, SIGNAL].map(Part::of_number), [None; 3]);
        assert_eq!(Part::of_number(u64::MAX), None);
    }

    #[test]
    fn the_program_of_a_call_reads_what_the_call_points_to() {
        let text = program(
            &["read".to_owned()],
            Wish {
                buffer: 32,
                has_paths: false,
                has_no_memory: false,
                signals: 0,
            },
        );
        assert!(
            text.contains("syscall::read:return\n/uregs[R_RSI] != 0 && arg0 != -1/"),
            "{text}"
        );
        assert!(
            text.contains("tracemem(copyin(uregs[R_RSI], this->bytes), 32);"),
            "{text}"
        );
        assert!(!text.contains("write") && !text.contains("signal"), "{text}");
    }
}
