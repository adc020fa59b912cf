//! The functions of a frame of HotSpot's code.
//!
//! Most samples interrupt compiled code anywhere in it, and not where it has a description. So of an interrupted frame
//! only the outermost function is certain. The functions that are inlined there are those of the next description, as
//! HotSpot's own AsyncGetCallTrace has it, and their text says that they are not certain.

use nanoprobe_arena::layout::{
    POSITION_INLINED, POSITION_NEAR, POSITION_NONE, RUNTIME_JAVA_CODE, RUNTIME_JAVA_INTERPRETER, RUNTIME_JAVA_STUB,
};

use super::code::{CodeCache, JavaFrame, Kind, Piece};
use super::method::method_at;
use super::step::{Moment, moment};
use crate::{Cursor, Object};

/// Below the interpreter's frame pointer.
const INTERPRETED_METHOD: u64 = 24;
const INTERPRETED_BYTECODE: u64 = 64;

/// Where a compiled method was interrupted.
enum Interrupted {
    /// In these functions, innermost first.
    In(Vec<(Object, u32)>),
    /// At its first instructions.
    Entered,
    /// At its last ones.
    Left,
    Unknown,
}

fn known(functions: Vec<(Object, u32)>) -> Vec<JavaFrame> {
    let frames = functions.into_iter();
    frames
        .map(|(object, position)| JavaFrame::Known(object, position))
        .collect()
}

impl CodeCache<'_> {
    /// The functions of a frame, innermost first.
    pub fn functions(&self, piece: &Piece, cursor: &Cursor) -> Vec<JavaFrame> {
        let agent = self.agent();
        let method_of_blob = || self.object(self.at(piece.blob, agent.method)?);
        let one = |object: Option<Object>, position, kind| match object {
            Some(object) => vec![JavaFrame::Known(object, position)],
            None => vec![JavaFrame::Unknown(kind)],
        };
        match piece.kind {
            Kind::Interpreter => vec![
                self.interpreted(cursor)
                    .unwrap_or(JavaFrame::Unknown(RUNTIME_JAVA_INTERPRETER)),
            ],
            _ if piece.blob == 0 => vec![JavaFrame::Unknown(RUNTIME_JAVA_CODE)],
            Kind::Compiled if cursor.exact => match self.interrupted(piece, cursor) {
                Interrupted::In(functions) => known(functions),
                Interrupted::Entered => one(method_of_blob(), 0, RUNTIME_JAVA_CODE),
                Interrupted::Left => one(method_of_blob(), POSITION_NONE, RUNTIME_JAVA_CODE),
                Interrupted::Unknown => one(method_of_blob(), POSITION_INLINED, RUNTIME_JAVA_CODE),
            },
            Kind::Compiled => match self
                .scope(piece, cursor)
                .and_then(|scope| self.inlined(piece, scope, 0))
            {
                Some(functions) => known(functions),
                None => one(method_of_blob(), POSITION_INLINED, RUNTIME_JAVA_CODE),
            },
            Kind::Wrapper => one(method_of_blob(), POSITION_NONE, RUNTIME_JAVA_CODE),
            Kind::Stub => {
                let object = Object {
                    kind: RUNTIME_JAVA_STUB,
                    address: piece.blob,
                    check: piece.name as u32 & 0x1_ffff,
                };
                one(Some(object), POSITION_NONE, RUNTIME_JAVA_CODE)
            }
        }
    }

    fn object(&self, method: u64) -> Option<Object> {
        method_at(self.memory, self.layout, method)
    }

    /// A frame of the interpreter. In the innermost one, the place in the bytecodes is in a register.
    fn interpreted(&self, cursor: &Cursor) -> Option<JavaFrame> {
        let agent = self.agent();
        let method = (self.stack)(cursor.rbp.checked_sub(INTERPRETED_METHOD)?)?;
        let saved = (self.stack)(cursor.rbp.checked_sub(INTERPRETED_BYTECODE)?)?;
        let constant = self.at(method, agent.const_method)?;
        let count = u64::from(self.short(constant, agent.code_bytes)?);
        let start = constant.checked_add(agent.const_method_bytes.into())?;
        let place = |bytecode: u64| bytecode.checked_sub(start).filter(|place| *place < count);
        let position = match cursor.exact {
            true => place(self.bytecode),
            // A native method has no bytecodes.
            false if count == 0 && (saved == 0 || saved == start) => None,
            false => Some(place(saved)?),
        };
        let position = position.map_or(POSITION_NONE, |place| place as u32);
        Some(JavaFrame::Known(self.object(method)?, position))
    }

    /// The functions where a compiled method was interrupted.
    fn interrupted(&self, piece: &Piece, cursor: &Cursor) -> Interrupted {
        let functions = || {
            let place = self.code_place(piece, cursor)?;
            let (_, scope) = self.description_from(piece, place).filter(|(_, scope)| *scope > 0)?;
            let functions = self.inlined(piece, scope, POSITION_NEAR)?;
            // The outermost one is certain: it must be the method whose code it is.
            let own = self.object(self.at(piece.blob, self.agent().method)?)?;
            functions
                .last()
                .is_some_and(|(outermost, _)| *outermost == own)
                .then_some(functions)
        };
        match moment(self, piece, cursor) {
            Some(Moment::Within) => functions().map_or(Interrupted::Unknown, Interrupted::In),
            Some(Moment::Entered) => Interrupted::Entered,
            Some(Moment::Left) => Interrupted::Left,
            None => Interrupted::Unknown,
        }
    }
}
