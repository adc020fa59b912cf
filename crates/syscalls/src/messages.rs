//! Messages of sendmsg and recvmsg, and the sets of descriptors of select.

use crate::capture::{ELEMENT, End, MESSAGE, Part, Place, of_message};
use crate::made::Made;
use crate::meaning::Direction;
use crate::sockets;
use crate::structures::{half, of_timespec, of_timeval, word};
use crate::text::quoted;
use crate::values::{self, address};

/// The argument of sendmsg or recvmsg. `None`: the memory is cut.
pub(crate) fn message(made: &Made, index: usize, direction: Direction) -> Option<String> {
    let header = made.bytes(index)?;
    let before = made.at(Part::new(End::Entry, index)).and_then(|before| half(before, 8));
    let (before, left) = match (direction, made.result()) {
        (Direction::In, _) => (None, u64::MAX),
        (Direction::Out, Some(moved)) => (before, moved as u64),
        (Direction::Out, None) => return Some(format!("{{msg_namelen={}}}", before? as i32)),
    };
    of_header(made, (index, MESSAGE), header, before, left)
}

/// The messages of sendmmsg, or those that recvmmsg has received.
pub(crate) fn messages(made: &Made, index: usize, direction: Direction) -> Option<String> {
    const BYTES: usize = ELEMENT as usize;
    let moved = made.result().and_then(|moved| usize::try_from(moved).ok());
    let count = match direction {
        Direction::In => made.argument(index + 1) as u32 as usize,
        Direction::Out => moved?,
    };
    let memory = match (made.argument(index), count) {
        (0, _) => return None,
        (_, 0) => return Some("[]".to_owned()),
        _ => made.bytes(index)?,
    };
    let mut all = Vec::new();
    for (number, element) in memory.chunks_exact(BYTES).take(count).enumerate() {
        let bytes = half(element, 56)?;
        let (before, left) = match direction {
            Direction::In => (None, u64::MAX),
            Direction::Out => {
                let before = made.at(Part::new(End::Entry, index));
                let before = before.and_then(|before| half(before, BYTES * number + 8));
                (before, u64::from(bytes))
            }
        };
        let header = of_header(made, (index, of_message(number)), element, before, left)?;
        all.push(match moved {
            Some(moved) if number < moved => format!("{{msg_hdr={header}, msg_len={bytes}}}"),
            _ => format!("{{msg_hdr={header}}}"),
        });
    }
    if all.len() < count {
        all.push("...".to_owned());
    }
    Some(format!("[{}]", all.join(", ")))
}

/// A `struct msghdr` with all that it leads to. `before`: the length of the name before the call.
fn of_header(
    made: &Made,
    (index, place): (usize, Place),
    header: &[u8],
    before: Option<u32>,
    left: u64,
) -> Option<String> {
    let length = half(header, 8)?;
    let name = match (word(header, 0)?, made.piece(index, place.name)) {
        (0, _) => "NULL".to_owned(),
        (pointer, piece) => piece
            .and_then(|piece| sockets::address(made, &piece.bytes))
            .unwrap_or_else(|| address(pointer)),
    };
    let length = match before.filter(|before| *before != length) {
        Some(before) => format!("{} => {}", before as i32, length as i32),
        None => (length as i32).to_string(),
    };
    let (list, count) = (word(header, 16)?, word(header, 24)?);
    let buffers = made
        .piece(index, place.list)
        .and_then(|piece| vectors(made, (index, place.buffers), &piece.bytes, left, count));
    let buffers = buffers.unwrap_or_else(|| address(list));
    let (control, bytes) = (word(header, 32)?, word(header, 40)?);
    let control = match (bytes, made.piece(index, place.control)) {
        (0, _) => String::new(),
        (_, Some(piece)) => format!("msg_control=[{}], ", controls(&piece.bytes)),
        (_, None) => format!("msg_control={}, ", address(control)),
    };
    let flags = values::flags("msg", u64::from(half(header, 48)?));
    Some(format!(
        "{{msg_name={name}, msg_namelen={length}, msg_iov={buffers}, msg_iovlen={count}, {control}msg_controllen={bytes}, \
         msg_flags={flags}}}"
    ))
}

/// A list of buffers. `first`: the argument and the piece of the first buffer. `left`: how many bytes they have.
pub(crate) fn vectors(made: &Made, first: (usize, usize), memory: &[u8], mut left: u64, count: u64) -> Option<String> {
    let mut all = Vec::new();
    for (number, vector) in memory.chunks_exact(16).enumerate() {
        let (base, length) = (word(vector, 0)?, word(vector, 8)?);
        let filled = left.min(length);
        left = left.saturating_sub(filled);
        let shown = match made.piece(first.0, first.1 + number) {
            _ if length == 0 || filled == 0 => "\"\"".to_owned(),
            Some(piece) => {
                let bytes = piece.bytes.get(..filled as usize).unwrap_or(&piece.bytes);
                quoted(bytes, (bytes.len() as u64) < filled)
            }
            None => address(base),
        };
        all.push(format!("{{iov_base={shown}, iov_len={length}}}"));
    }
    let is_cut = (all.len() as u64) < count;
    if is_cut {
        all.push("...".to_owned());
    }
    Some(format!("[{}]", all.join(", ")))
}

/// The control messages.
fn controls(mut memory: &[u8]) -> String {
    let mut all = Vec::new();
    while let (Some(length @ 16..), Some(level), Some(kind)) = (word(memory, 0), half(memory, 8), half(memory, 12)) {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let data = memory.get(16..length.min(memory.len())).unwrap_or_default();
        let shown = |level: &str, kind: &str, data: &str| {
            format!("{{cmsg_len={length}, cmsg_level={level}, cmsg_type={kind}, cmsg_data={data}}}")
        };
        let numbers: Vec<u32> = data.chunks_exact(4).filter_map(|number| half(number, 0)).collect();
        all.push(match (level as i32, kind as i32, numbers.as_slice()) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS, descriptors) => {
                let all: Vec<String> = descriptors.iter().map(|fd| (*fd as i32).to_string()).collect();
                shown("SOL_SOCKET", "SCM_RIGHTS", &format!("[{}]", all.join(", ")))
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS, [pid, uid, gid]) => shown(
                "SOL_SOCKET",
                "SCM_CREDENTIALS",
                &format!("{{pid={pid}, uid={uid}, gid={gid}}}"),
            ),
            _ => shown(
                &values::one("level", u64::from(level)),
                &values::hexadecimal(u64::from(kind)),
                &quoted(data, false),
            ),
        });
        memory = memory.get(length.saturating_add(7) & !7..).unwrap_or_default();
    }
    all.join(", ")
}

/// The descriptors in a set: `[3 4]`.
fn set(memory: &[u8]) -> String {
    let all = memory.iter().enumerate().flat_map(|(byte, bits)| {
        (0..8)
            .filter(move |bit| bits >> bit & 1 == 1)
            .map(move |bit| (byte * 8 + bit).to_string())
    });
    format!("[{}]", all.collect::<Vec<_>>().join(" "))
}

/// The set that the program passes.
pub(crate) fn descriptors(made: &Made, index: usize) -> Option<String> {
    Some(set(made.at(Part::new(End::Entry, index))?))
}

/// What select has found: the sets that are not empty, and the time that is left.
pub(crate) fn ready(made: &Made) -> String {
    let after = |argument| {
        made.at(Part {
            index: 1,
            ..Part::new(End::Return, argument)
        })
    };
    let mut all = Vec::new();
    for (argument, name) in [(1, "in"), (2, "out"), (3, "except")] {
        if let Some(memory) = after(argument).filter(|memory| memory.iter().any(|byte| *byte != 0)) {
            all.push(format!("{name} {}", set(memory)));
        }
    }
    all.extend(left(made));
    all.join(", ")
}

/// The time that is left of a call with a timeout.
pub(crate) fn left(made: &Made) -> Option<String> {
    let memory = made.at(Part {
        index: 1,
        ..Part::new(End::Return, 4)
    })?;
    let left = match made.name.as_str() {
        "select" => of_timeval(memory),
        _ => of_timespec(memory),
    };
    left.map(|left| format!("left {left}"))
}

/// The mask of pselect6, and its size.
pub(crate) fn mask(made: &Made, index: usize) -> Option<String> {
    let memory = made.bytes(index)?;
    let (pointer, bytes) = (word(memory, 0)?, word(memory, 8)?);
    let set = match made.piece(index, MESSAGE.name) {
        Some(piece) if pointer != 0 => values::signal_set(word(&piece.bytes, 0)?),
        _ => address(pointer),
    };
    Some(format!("{{sigmask={set}, sigsetsize={bytes}}}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of strace 6.1; a length that leads nowhere ends the list.
    #[test]
    fn control_messages_are_those_of_strace() {
        let mut memory = [24_u64.to_le_bytes(), [1, 0, 0, 0, 1, 0, 0, 0], [3, 0, 0, 0, 4, 0, 0, 0]].concat();
        let rights = "{cmsg_len=24, cmsg_level=SOL_SOCKET, cmsg_type=SCM_RIGHTS, cmsg_data=[3, 4]}";
        assert_eq!(controls(&memory), rights);
        memory.extend([u64::MAX.to_le_bytes(), [1, 0, 0, 0, 2, 0, 0, 0]].concat());
        assert_eq!(controls(&memory).matches("cmsg_len").count(), 2);
        for cut in 0..memory.len() {
            let _ = controls(&memory[..cut]);
        }
        assert_eq!((controls(&[]), controls(&[0; 64])), (String::new(), String::new()));
        assert_eq!(set(&[0b1001, 0, 1]), "[0 3 16]");
    }
}
