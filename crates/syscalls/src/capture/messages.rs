//! The memory of messages, and of the arguments of select.

use super::{ADDRESS, Capture, Count, End, IOVECS, Wish, member, vectors, word};
use crate::meaning::{Direction, Meaning};
use crate::structures;

/// Where the pieces of a message beside its `struct msghdr` are: their indexes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) name: usize,
    pub(crate) list: usize,
    /// The first buffer.
    pub(crate) buffers: usize,
    pub(crate) control: usize,
}

/// The only message of a call.
pub(crate) const MESSAGE: Place = Place {
    name: 1,
    list: 2,
    buffers: 3,
    control: 3 + IOVECS,
};

/// The bytes of a `struct msghdr`.
const HEADER: u32 = 56;
/// The bytes of a `struct mmsghdr`: with the number of bytes that were moved.
pub(crate) const ELEMENT: u32 = 64;
/// The most messages of a call, and the most buffers of each.
pub(crate) const MESSAGES: usize = 8;
const EACH_IOVECS: usize = 4;

/// One of the messages of a call.
pub(crate) fn of_message(number: usize) -> Place {
    Place {
        name: 1 + number,
        list: 1 + MESSAGES + number,
        control: 1 + 2 * MESSAGES + number,
        buffers: 1 + 3 * MESSAGES + EACH_IOVECS * number,
    }
}

/// What all messages of a call lead to, in one clause each; buffers may be large, so those of each message have one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Each {
    Name,
    List,
    Control,
    Buffers(usize),
}

/// The pieces of such an argument. `one`: a piece at the argument itself.
pub(super) fn led_to(meaning: Meaning, one: &dyn Fn(Count, u32, bool) -> Capture, wish: Wish) -> Vec<Capture> {
    match meaning {
        Meaning::Message(direction) => of_one(direction, one, wish),
        Meaning::Messages(direction) => of_several(direction, one, wish),
        Meaning::DescriptorSet(below) => {
            let set = |needs_success| one(Count::Bits(below), ADDRESS, needs_success);
            vec![set(false).before(), set(true).beside(1)]
        }
        Meaning::Timeout(name) => structures::size(name).map_or_else(Vec::new, |bytes| {
            let time = one(Count::Fixed(bytes), bytes, false);
            vec![time.before(), time.beside(1)]
        }),
        Meaning::Mask => {
            let mask = one(of_member(0, 8, 1, false), 8, false);
            vec![one(Count::Fixed(16), 16, false), mask.beside(MESSAGE.name)]
        }
        _ => Vec::new(),
    }
}

fn of_member(at: u32, length: u32, unit: u32, is_narrow: bool) -> Count {
    Count::Member {
        at,
        length,
        unit,
        is_narrow,
    }
}

fn of_one(direction: Direction, one: &dyn Fn(Count, u32, bool) -> Capture, wish: Wish) -> Vec<Capture> {
    // A call that has failed has received nothing.
    let is_out = direction == Direction::Out;
    let header = one(Count::Fixed(HEADER), HEADER, false);
    let mut all = vec![
        header,
        one(of_member(0, 8, 1, true), ADDRESS, is_out).beside(MESSAGE.name),
        one(of_member(16, 24, 16, false), 16 * IOVECS as u32, is_out).beside(MESSAGE.list),
        one(Count::MemberVectors(16, 24), wish.buffer, is_out).beside(MESSAGE.buffers),
        one(of_member(32, 40, 1, false), 2 * ADDRESS, is_out).beside(MESSAGE.control),
    ];
    all.extend(is_out.then(|| header.before()));
    all
}

fn of_several(direction: Direction, one: &dyn Fn(Count, u32, bool) -> Capture, wish: Wish) -> Vec<Capture> {
    let is_out = direction == Direction::Out;
    let (first, unit) = (of_message(0), ELEMENT);
    let sized = Count::Argument {
        index: 2,
        unit,
        is_narrow: true,
    };
    let header = one(sized, unit * MESSAGES as u32, false);
    let each = |what, limit, index| one(Count::Messages(direction, what), limit, is_out).beside(index);
    let mut all = vec![
        header,
        each(Each::Name, ADDRESS, first.name),
        each(Each::List, 16 * EACH_IOVECS as u32, first.list),
        each(Each::Control, 2 * ADDRESS, first.control),
    ];
    all.extend(is_out.then(|| header.before()));
    all.extend((0..MESSAGES).map(|number| each(Each::Buffers(number), wish.buffer, of_message(number).buffers)));
    all
}

/// How many messages there are: those that the program passes, or those that it has received.
fn count(direction: Direction) -> String {
    match direction {
        Direction::In => format!("(uint64_t)(uint32_t){}", word(End::Return, 2)),
        Direction::Out => "(uint64_t)arg0".to_owned(),
    }
}

/// When the clause applies, beside the conditions that all have.
pub(super) fn condition(array: &str, direction: Direction, what: Each) -> Vec<String> {
    let Each::Buffers(number) = what else { return Vec::new() };
    let list = member(array, ELEMENT * number as u32 + 16);
    vec![format!("{} > {number}", count(direction)), format!("{list} != 0")]
}

/// The body of a clause.
pub(super) fn each(array: &str, direction: Direction, what: Each, limit: u32) -> String {
    let (at, length) = match what {
        Each::Name => (0, "(uint64_t)*(uint32_t *)copyin(this->array + LENGTH, 4)"),
        Each::List => (16, "*(uint64_t *)copyin(this->array + LENGTH, 8) * 16"),
        Each::Control => (32, "*(uint64_t *)copyin(this->array + LENGTH, 8)"),
        Each::Buffers(number) => {
            let header = ELEMENT * number as u32;
            let (list, count) = (member(array, header + 16), member(array, header + 24));
            return vectors(&list, &count, EACH_IOVECS, limit);
        }
    };
    let mut text = format!("\tthis->array = {array};\n\tthis->count = {};\n", count(direction));
    for number in 0..MESSAGES {
        let address = ELEMENT * number as u32 + at;
        let length = length.replace("LENGTH", &(address + 8).to_string());
        // Without memory, no bytes of the array itself.
        text += &format!(
            "\tthis->bytes = this->count > {number} ? {length} : 0;\n\
             \tthis->bytes = this->bytes > {limit} ? {limit} : this->bytes;\n\
             \tthis->from = this->bytes != 0 ? *(uint64_t *)copyin(this->array + {address}, 8) : 0;\n\
             \tthis->bytes = this->from != 0 ? this->bytes : 0;\n\
             \tthis->from = this->from != 0 ? this->from : this->array;\n\
             \ttrace(this->bytes);\n\ttracemem(copyin(this->from, this->bytes), {limit});\n"
        );
    }
    text
}
