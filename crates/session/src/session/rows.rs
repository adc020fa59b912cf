//! How to walk through the frames of a process's modules.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use nanoprobe_arena::Mapping;
use nanoprobe_arena::layout::UnwindRow;
use nanoprobe_patch::TargetAddress;
use nanoprobe_runtimes::{CachedMemory, Cursor};
use nanoprobe_symbols::FileIdentity;
use nanoprobe_target::{ThreadId, UserState};
use nanoprobe_text::modules::Modules;

use super::known::Known;
use crate::interpreted::{Sources, TargetMemory};
use crate::stack::{self, FrameRule, Made, NativeFrame};

/// The rows of a module.
type Shared = Rc<Vec<UnwindRow>>;
/// The rows of files that several processes map.
pub(super) type OfFiles = Rc<RefCell<HashMap<FileIdentity, Shared>>>;

/// The rows of each module of a process, compiled when they are first needed.
#[derive(Default)]
pub(super) struct Rows {
    modules: HashMap<usize, Shared>,
    files: Option<OfFiles>,
}

impl Rows {
    /// Rows that other processes share.
    pub(super) fn shared(files: OfFiles) -> Rows {
        Rows {
            modules: HashMap::new(),
            files: Some(files),
        }
    }

    /// The rows of a module.
    pub(super) fn of(&mut self, modules: &Modules, index: usize) -> &[UnwindRow] {
        self.modules.entry(index).or_insert_with(|| {
            let Some(module) = modules.list().get(index) else {
                return Rc::default();
            };
            let compile = || Rc::new(nanoprobe_symbols::unwind_rows(module));
            match (&self.files, module.identity()) {
                (Some(files), Some(identity)) => files.borrow_mut().entry(identity).or_insert_with(compile).clone(),
                _ => compile(),
            }
        })
    }

    /// The frames of a thread, innermost first. `made`: see [`stack::walk`].
    pub(super) fn frames(
        &mut self,
        modules: &Modules,
        user: &UserState,
        made: impl FnMut(&Cursor) -> Made,
    ) -> Vec<NativeFrame> {
        let known = |pc: u64| {
            let Some((index, module)) = modules.find(TargetAddress(pc)) else {
                return FrameRule::Nothing;
            };
            let base = module.bias().to_target(module.unwind_base()).0;
            let rows = self.of(modules, index);
            let Some(relative) = pc.checked_sub(base) else {
                return FrameRule::Nothing;
            };
            let behind = rows.partition_point(|row| u64::from(row.pc) <= relative);
            let row = behind.checked_sub(1).and_then(|index| rows.get(index));
            row.map_or(FrameRule::Nothing, |row| FrameRule::Row(*row))
        };
        stack::walk(user, known, made)
    }
}

/// The frames of a thread of a process, with those of the runtimes that it has. `arena`: if the process has it.
pub(super) fn frames_of(
    known: &Known,
    rows: &mut Rows,
    arena: Option<&Mapping>,
    user: &UserState,
    thread: ThreadId,
) -> Vec<u64> {
    let Some(process) = known.process() else {
        return Vec::new();
    };
    let target = process.memory();
    let mut interpreted = known.interpreted.borrow_mut();
    if !interpreted.looks_for_runtimes(&known.modules, (arena, target)) {
        let native = rows.frames(&known.modules, user, |_| Made::ByNone);
        return native.iter().map(|frame| frame.pc).collect();
    }
    let memory = TargetMemory(target);
    let cached = CachedMemory::new(&memory);
    let sources = Sources {
        arena,
        target,
        memory: &cached,
        modules: &known.modules,
        user,
    };
    let inner = Some(process).filter(|process| process.facts().in_other_pid_namespace);
    let own = inner.and_then(|process| process.inner_tid(thread)).unwrap_or(thread);
    let reading = interpreted.read_thread(target, own.cast_unsigned());
    let of_code = |cursor: &Cursor| interpreted.caller_in_code(&sources, cursor);
    let native = rows.frames(&known.modules, user, of_code);
    interpreted.frames_of_sample(&sources, &native, reading.as_ref())
}
