//! The memory of messages, and of the arguments of select.

use super::{ADDRESS, Capture, Count, IOVECS, Wish};
use crate::meaning::{Direction, Meaning};
use crate::structures;

/// The pieces of a message beside its `struct msghdr`.
pub(crate) const NAME: usize = 1;
pub(crate) const LIST: usize = 2;
/// The first buffer.
pub(crate) const BUFFERS: usize = 3;
pub(crate) const CONTROL: usize = BUFFERS + IOVECS;
/// The bytes of a `struct msghdr`.
const HEADER: u32 = 56;

/// The pieces of such an argument. `one`: a piece at the argument itself.
pub(super) fn led_to(meaning: Meaning, one: &dyn Fn(Count, u32, bool) -> Capture, wish: Wish) -> Vec<Capture> {
    let member = |at, length, unit, is_narrow| Count::Member {
        at,
        length,
        unit,
        is_narrow,
    };
    match meaning {
        Meaning::Message(direction) => {
            // A call that has failed has received nothing.
            let is_out = direction == Direction::Out;
            let header = one(Count::Fixed(HEADER), HEADER, false);
            let mut all = vec![
                header,
                one(member(0, 8, 1, true), ADDRESS, is_out).beside(NAME),
                one(member(16, 24, 16, false), 16 * IOVECS as u32, is_out).beside(LIST),
                one(Count::MemberVectors(16, 24), wish.buffer, is_out).beside(BUFFERS),
                one(member(32, 40, 1, false), 2 * ADDRESS, is_out).beside(CONTROL),
            ];
            all.extend(is_out.then(|| header.before()));
            all
        }
        Meaning::DescriptorSet(below) => {
            let set = |needs_success| one(Count::Bits(below), ADDRESS, needs_success);
            vec![set(false).before(), set(true).beside(1)]
        }
        Meaning::Timeout(name) => structures::size(name).map_or_else(Vec::new, |bytes| {
            let time = one(Count::Fixed(bytes), bytes, false);
            vec![time.before(), time.beside(1)]
        }),
        Meaning::Mask => {
            let mask = one(member(0, 8, 1, false), 8, false);
            vec![one(Count::Fixed(16), 16, false), mask.beside(NAME)]
        }
        _ => Vec::new(),
    }
}
