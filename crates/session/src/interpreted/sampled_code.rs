//! Java and JavaScript in samples: their frames lie on the C stack, of which a sample has a copy.

use nanoprobe_arena::Mapping;
use nanoprobe_arena::layout::RUNTIME_JAVASCRIPT;
use nanoprobe_patch::TargetAddress;
use nanoprobe_runtimes::hotspot::{CodeCache, JavaFrame, Layout, Piece};
use nanoprobe_runtimes::v8::{JavaScriptFrame, Place, frame_at};
use nanoprobe_runtimes::{Cursor, Frame, Memory};
use nanoprobe_target::UserState;
use nanoprobe_text::modules::Modules;

use super::{Interpreted, hotspot};
use crate::stack::{Described, Made, NativeFrame};

/// The sources from which the frames of a sample are read.
#[derive(Clone, Copy)]
pub struct Sources<'a> {
    /// The arena, if the process has it.
    pub arena: Option<&'a Mapping>,
    /// The memory of the process.
    pub target: &'a nanoprobe_target::Memory,
    /// The same, of which each page is read once.
    pub memory: &'a dyn Memory,
    /// The modules that the process has mapped.
    pub modules: &'a Modules,
    /// The sample.
    pub user: &'a UserState,
}

impl Sources<'_> {
    /// Calls a function with the code cache of HotSpot.
    fn with_code<T>(&self, layout: &Layout, act: impl FnOnce(&CodeCache<'_>) -> T) -> T {
        act(&CodeCache {
            layout,
            memory: self.memory,
            stack: &|address| self.user.stack_word(address),
            bytecode: self.user.register("r13"),
            is_of_module: &|address| self.modules.find(TargetAddress(address)).is_some(),
        })
    }

    fn piece(&self, layout: &Layout, address: u64) -> Option<Piece> {
        self.with_code(layout, |code| code.find(address))
    }
}

impl Interpreted {
    /// The caller of a frame of HotSpot's code, which no module describes.
    pub fn caller_in_code(&self, sources: &Sources<'_>, cursor: &Cursor) -> Made {
        let Some(layout) = self.hotspot.as_ref().and_then(hotspot::Library::located) else {
            return Made::ByNone;
        };
        sources.with_code(layout, |code| match code.find(cursor.at()) {
            Some(piece) => Made::By(code.caller(&piece, cursor)),
            None => Made::ByNone,
        })
    }

    /// The frames of Java that a frame of HotSpot's code stands for, innermost first; `None`: it is none of HotSpot's.
    pub(super) fn java_frames(&mut self, sources: &Sources<'_>, native: &NativeFrame) -> Option<Vec<u64>> {
        if native.code != Described::ByRuntime {
            return None;
        }
        let layout = *self.hotspot.as_ref()?.located()?;
        let piece = sources.piece(&layout, native.at)?;
        let functions = sources.with_code(&layout, |code| code.functions(&piece, &native.cursor()));
        let mut frames: Vec<u64> = Vec::new();
        for function in functions {
            let frame = match function {
                JavaFrame::Unknown(kind) => Frame::Unknown { kind },
                JavaFrame::Known(object, position) => match self.number_of(sources.arena, sources.target, object) {
                    Some(object) => Frame::Known {
                        object,
                        position: Some(position),
                    },
                    None => Frame::Unknown { kind: object.kind },
                },
            };
            frames.push(frame.number());
        }
        if native.high.is_none() {
            frames.push(JavaFrame::unknown_callers().number());
        }
        Some(frames)
    }

    /// The frames that a frame of V8's code stands for, innermost first; `None`: it is none of JavaScript.
    pub(super) fn javascript_frames(&mut self, sources: &Sources<'_>, native: &NativeFrame) -> Option<Vec<u64>> {
        let layout = self.javascript.layout()?;
        let is_made = native.code == Described::InNoModule;
        if !is_made && native.code != Described::NotAtAll {
            return None;
        }
        let stack = |address| sources.user.stack_word(address);
        let cursor = native.cursor();
        // A builtin that has no frame of its own works for the function whose frame it is.
        let is_in_builtin = cursor.exact && !is_made;
        let place = Place {
            fp: cursor.rbp,
            pc: match is_in_builtin {
                true => stack(cursor.rsp).unwrap_or(0),
                false => cursor.pc,
            },
            is_made,
            is_exact: cursor.exact && is_made,
        };
        let found = frame_at(layout, sources.memory, &stack, place)?;
        let mut frames: Vec<u64> = if is_in_builtin { vec![native.pc] } else { Vec::new() };
        for function in found {
            let known = match function {
                JavaScriptFrame::Unknown => None,
                JavaScriptFrame::Known { key, address, position } => {
                    let object = self.javascript.note(sources.arena, sources.memory, key, address);
                    object.map(|object| Frame::Known {
                        object,
                        position: Some(position),
                    })
                }
            };
            let kind = RUNTIME_JAVASCRIPT;
            frames.push(known.unwrap_or(Frame::Unknown { kind }).number());
        }
        Some(frames)
    }
}
