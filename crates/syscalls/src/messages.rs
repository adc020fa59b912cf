//! Messages of sendmsg and recvmsg, and the sets of descriptors of select.

use crate::capture::{BUFFERS, CONTROL, End, LIST, NAME, Part};
use crate::made::Made;
use crate::meaning::Direction;
use crate::sockets;
use crate::structures::{half, of_timespec, of_timeval, word};
use crate::text::quoted;
use crate::values::{self, address};

/// A `struct msghdr` with all that it leads to. `None`: the memory is cut.
pub(crate) fn message(made: &Made, index: usize, direction: Direction) -> Option<String> {
    let header = made.bytes(index)?;
    let length = half(header, 8)? as i32;
    let before = || half(made.at(Part::new(End::Entry, index))?, 8).map(|length| length as i32);
    let left = match (direction, made.result()) {
        (Direction::In, _) => u64::MAX,
        (Direction::Out, Some(moved)) => moved as u64,
        (Direction::Out, None) => return Some(format!("{{msg_namelen={}}}", before()?)),
    };
    let name = match (word(header, 0)?, made.piece(index, NAME)) {
        (0, _) => "NULL".to_owned(),
        (pointer, piece) => piece
            .and_then(|piece| sockets::address(&piece.bytes))
            .unwrap_or_else(|| address(pointer)),
    };
    let length = match before().filter(|before| direction == Direction::Out && *before != length) {
        Some(before) => format!("{before} => {length}"),
        None => length.to_string(),
    };
    let (list, count) = (word(header, 16)?, word(header, 24)?);
    let buffers = made
        .piece(index, LIST)
        .and_then(|piece| vectors(made, (index, BUFFERS), &piece.bytes, left, count));
    let buffers = buffers.unwrap_or_else(|| address(list));
    let (control, bytes) = (word(header, 32)?, word(header, 40)?);
    let control = match (bytes, made.piece(index, CONTROL)) {
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
    let left = after(4).and_then(|memory| match made.name.as_str() {
        "select" => of_timeval(memory),
        _ => of_timespec(memory),
    });
    all.extend(left.map(|left| format!("left {left}")));
    all.join(", ")
}

/// The mask of pselect6, and its size.
pub(crate) fn mask(made: &Made, index: usize) -> Option<String> {
    let memory = made.bytes(index)?;
    let (pointer, bytes) = (word(memory, 0)?, word(memory, 8)?);
    let set = match made.piece(index, NAME) {
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
