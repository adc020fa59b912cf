//! From a frame of HotSpot's code to its caller. See `agent/hotspot.c`.
//!
//! ```text
//!     prologue   [mov [rsp - distance], eax]  push rbp  sub rsp, size
//!         or     sub rsp, size  mov [rsp + size - 16], rbp
//!     epilogue   add rsp, size  pop rbp  [cmp rsp, [r15 + poll]  ja slow]  ret                 up to version 15:
//!                add rsp, size  pop rbp  mov r10, [r15 + poll]  test [r10], eax  ret
//! ```

use super::code::{CodeCache, FRAME_BYTES_MAX, Kind, Piece};
use crate::Cursor;
use crate::memory::array;

const INTERPRETED_SENDER: u64 = 8;
/// How many bytes before the interrupted instruction are looked at.
const BEFORE: usize = 8;

/// Where a frame stands between its prologue and its epilogue.
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    /// The return address is at the stack pointer, and rbp is the caller's.
    Bare,
    /// The caller's rbp is at the stack pointer.
    Pushed,
    /// The whole frame is there, and rbp is still the caller's.
    Unsaved,
    Whole,
}

/// Which part of a compiled method is executed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The first instructions, up to where the frame is complete.
    Entered,
    Within,
    /// The last instructions, which remove the frame.
    Left,
}

impl CodeCache<'_> {
    /// The caller of a frame of the code cache. `None`: it is not known.
    pub fn caller(&self, piece: &Piece, cursor: &Cursor) -> Option<Cursor> {
        let caller = step(self, piece, cursor)?;
        let is_code = match self.find(caller.at()) {
            // A function that Java has called returns to a call that is described. The call of a leaf function is not
            // described.
            Some(found) if found.kind == Kind::Compiled && piece.kind != Kind::Stub => {
                self.agent().has_scopes == 0 || self.scope(&found, &caller).is_some()
            }
            Some(found) => found.kind == Kind::Interpreter || found.blob != 0,
            None => piece.kind == Kind::Stub && (self.is_of_module)(caller.at()),
        };
        is_code.then_some(caller)
    }
}

fn step(code: &CodeCache<'_>, piece: &Piece, cursor: &Cursor) -> Option<Cursor> {
    if piece.blob != 0 && piece.frame_bytes >= 16 {
        let cfa = |bytes: u64| cursor.rsp.checked_add(bytes);
        let stage = match cursor.exact {
            true => interrupted(code, piece, cursor)?.1,
            false => Stage::Whole,
        };
        return match stage {
            Stage::Bare => to(code, cursor, cfa(8)?, None),
            Stage::Pushed => to(code, cursor, cfa(16)?, Some(cursor.rsp)),
            Stage::Unsaved => to(code, cursor, cfa(piece.frame_bytes)?, None),
            Stage::Whole => {
                let cfa = cfa(piece.frame_bytes)?;
                to(code, cursor, cfa, Some(cfa - 16))
            }
        };
    }
    if cursor.rbp < cursor.rsp {
        return None;
    }
    let mut caller = to(code, cursor, cursor.rbp.checked_add(16)?, Some(cursor.rbp))?;
    // A compiled caller has the stack pointer that it had before its arguments were moved for the interpreter.
    let sender = (code.stack)(cursor.rbp.wrapping_sub(INTERPRETED_SENDER));
    if piece.kind == Kind::Interpreter
        && let Some(sender) = sender
        && sender.is_multiple_of(8)
        && sender > caller.rsp
        && sender - caller.rsp < FRAME_BYTES_MAX
    {
        caller.rsp = sender;
    }
    Some(caller)
}

fn to(code: &CodeCache<'_>, cursor: &Cursor, cfa: u64, saved_rbp: Option<u64>) -> Option<Cursor> {
    if cfa <= cursor.rsp || !cfa.is_multiple_of(8) {
        return None;
    }
    let rbp = match saved_rbp {
        Some(address) => (code.stack)(address)?,
        None => cursor.rbp,
    };
    Some(Cursor {
        pc: (code.stack)(cfa - 8)?,
        rsp: cfa,
        rbp,
        exact: false,
    })
}

/// Which part of a compiled method was interrupted.
pub(super) fn moment(code: &CodeCache<'_>, piece: &Piece, cursor: &Cursor) -> Option<Moment> {
    Some(interrupted(code, piece, cursor)?.0)
}

/// Where compiled code was interrupted, it may not have its frame yet, or no longer.
fn interrupted(code: &CodeCache<'_>, piece: &Piece, cursor: &Cursor) -> Option<(Moment, Stage)> {
    let start = code.place(piece.blob, code.agent().code)?;
    let offset = cursor.pc.checked_sub(start)?;
    let text = array::<16>(code.memory, cursor.pc.checked_sub(BEFORE as u64)?)?;
    let (before, text) = text.split_first_chunk::<BEFORE>()?;
    if let Some(stage) = of_epilogue(before, text) {
        return Some((Moment::Left, stage));
    }
    let complete = code.complete(piece)?;
    if u64::try_from(complete).is_ok_and(|complete| offset < complete) {
        return Some((Moment::Entered, of_prologue(before, text)?));
    }
    Some((Moment::Within, Stage::Whole))
}

fn of_epilogue(before: &[u8], text: &[u8]) -> Option<Stage> {
    match text {
        // ret
        [0xc3, ..] => Some(Stage::Bare),
        // pop rbp
        [0x5d, ..] => Some(Stage::Pushed),
        // cmp rsp, [r15 + distance]
        [0x49, 0x3b, 0xa7 | 0x67, ..] => Some(Stage::Bare),
        // ja, after it
        [0x0f, 0x87, ..] | [0x77, ..]
            if matches!(before, [_, 0x49, 0x3b, 0xa7, ..] | [_, _, _, _, 0x49, 0x3b, 0x67, _]) =>
        {
            Some(Stage::Bare)
        }
        // mov r10, [r15 + distance], after pop rbp
        [0x4d, 0x8b, 0x97 | 0x57, ..] if before.last() == Some(&0x5d) => Some(Stage::Bare),
        // test [r10], eax; ret
        [0x41, 0x85, 0x02, 0xc3, ..] => Some(Stage::Bare),
        _ => None,
    }
}

fn of_prologue(before: &[u8], text: &[u8]) -> Option<Stage> {
    match text {
        // push rbp; mov [rsp + distance], eax
        [0x55, ..] | [0x89, 0x84, 0x24, ..] => Some(Stage::Bare),
        // sub rsp, size
        [0x48, 0x81 | 0x83, 0xec, ..] => match before.last() {
            Some(0x55) => Some(Stage::Pushed),
            _ => Some(Stage::Bare),
        },
        // cmp dword [r15 + distance], number: a barrier, the last part
        [0x41, 0x81 | 0x83, 0x7f | 0xbf, ..] => Some(Stage::Whole),
        // mov [rsp + distance], rbp
        [0x48, 0x89, 0x6c | 0xac, 0x24, ..] => Some(Stage::Unsaved),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epilogue(before: &[u8], text: &[u8]) -> Option<Stage> {
        let mut bytes = [0x90; BEFORE];
        let start = BEFORE - before.len();
        bytes.get_mut(start..)?.copy_from_slice(before);
        of_epilogue(&bytes, text)
    }

    #[test]
    fn an_epilogue_has_no_frame_from_pop_on() {
        let compare = [0x49, 0x3b, 0xa7, 0x38, 0x03, 0, 0];
        let short = [0x49, 0x3b, 0x67, 0x28];
        let add = [0x48, 0x83, 0xc4, 0x10];
        assert_eq!(epilogue(&[], &add), None, "the whole frame");
        assert_eq!(epilogue(&add, &[0x5d, 0x49]), Some(Stage::Pushed));
        assert_eq!(epilogue(&[0x5d], &compare), Some(Stage::Bare));
        assert_eq!(epilogue(&compare, &[0x0f, 0x87, 1, 0, 0, 0]), Some(Stage::Bare));
        assert_eq!(epilogue(&short, &[0x0f, 0x87, 1, 0, 0, 0]), Some(Stage::Bare));
        assert_eq!(
            epilogue(&[0x48, 0x3b, 0xc2], &[0x0f, 0x87, 1, 0, 0, 0]),
            None,
            "any comparison"
        );
        assert_eq!(epilogue(&[0x0f, 0x87, 1, 0, 0, 0], &[0xc3]), Some(Stage::Bare));
        let poll = [0x4d, 0x8b, 0x97, 0x08, 0x01, 0, 0];
        assert_eq!(epilogue(&[0x5d], &poll), Some(Stage::Bare));
        assert_eq!(epilogue(&[0x90], &poll), None, "the same in the middle");
        assert_eq!(epilogue(&poll, &[0x41, 0x85, 0x02, 0xc3]), Some(Stage::Bare));
    }

    #[test]
    fn a_prologue_makes_the_frame() {
        let sub = [0x48, 0x83, 0xec, 0x10];
        assert_eq!(
            of_prologue(&[0x90; BEFORE], &[0x89, 0x84, 0x24, 0, 0xc0]),
            Some(Stage::Bare)
        );
        assert_eq!(of_prologue(&[0x90; BEFORE], &[0x55, 0x48]), Some(Stage::Bare));
        assert_eq!(of_prologue(&[0x55; BEFORE], &sub), Some(Stage::Pushed));
        assert_eq!(of_prologue(&[0x90; BEFORE], &sub), Some(Stage::Bare));
        assert_eq!(of_prologue(&sub, &[0x48, 0x89, 0x6c, 0x24, 0x10]), Some(Stage::Unsaved));
        assert_eq!(
            of_prologue(&[0x90; BEFORE], &[0x90]),
            None,
            "anything else is not known"
        );
    }
}
