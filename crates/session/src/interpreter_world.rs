//! The world of the clauses that fire in the tracer (BEGIN, END, ERROR, tick, profile). They share the globals and
//! associative arrays with the target's threads, have other variables of their own, and see no registers and no stack.
//! A `profile` clause that fires for a thread of the target sees its sample, and its thread-local variables.

use std::borrow::Cow;

use nanoprobe_arena::layout::{SPECULATION_ENDED, SPECULATION_SHIFT, SPECULATION_TAKEN};
use nanoprobe_arena::{DynamicError, DynamicVariables, Mapping, Memory as _, variables};
use nanoprobe_codegen::{ProgramStart, THREAD_LOCAL_VARIABLE};
use nanoprobe_export::symbols_in;
use nanoprobe_lang::Program;
use nanoprobe_lang::interpret::{Fault, FaultKind, Value, World};
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::program::{AggregationId, Builtin, KeyType, Scope, Side, Type, Variable, VariableId};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;

use crate::layout::{ArenaLayout, SPECULATIONS_OFFSET};
use crate::sampled::SampledThread;
use crate::tracer_state::{Elsewhere, Own, TracerState};
use crate::{clock, identity, mounts, sampled};

/// How often to try to change a speculation's word, which threads of the target change at the same time.
const ATTEMPTS_MAX: usize = 1000;

/// Where the value of a variable is kept.
enum Home {
    /// In the tracer's own memory.
    Own(Own),
    /// In the arena, at an offset.
    Storage(u64),
    /// In the arena's table of elements, by the variable's number and the key.
    Table(u32, Vec<u8>),
}

/// One firing.
pub struct TracerWorld<'a> {
    /// The arena.
    pub memory: &'a Mapping,
    /// Its layout.
    pub layout: &'a ArenaLayout,
    /// The program.
    pub program: &'a Program,
    /// Where the program's variables lie.
    pub storage: &'a Storage,
    /// Sizes.
    pub limits: Limits,
    /// The option `aggsize`.
    pub aggregation_bytes: u64,
    /// The option `specsize`.
    pub speculation_bytes: u64,
    /// The state that lasts from one firing to the next.
    pub state: &'a mut TracerState,
    /// The arena's address in the target, once the arena is mapped.
    pub arena: Option<TargetAddress>,
    /// The target's memory, if there is a target.
    pub target: Option<&'a Memory>,
    /// The target's number.
    pub target_pid: i64,
    /// The provider and the name of the probe.
    pub provider: &'a str,
    /// The name of the probe.
    pub name: &'a str,
    /// The id of the probe.
    pub probe_id: u32,
    /// The enabling.
    pub epid: u32,
    /// `arg0` to `arg9`.
    pub arguments: [i64; 10],
    /// The time in ns since boot. It stays the same for the whole clause.
    pub timestamp: u64,
    /// The thread for which the clause fires, if there is one.
    pub thread: Option<SampledThread<'a>>,
    /// The names of that thread's code, where the process has no session.
    pub elsewhere: Option<&'a dyn Elsewhere>,
}

impl TracerWorld<'_> {
    /// Whose files and names a clause means: those of the thread that was sampled, else our own.
    fn process_and_thread(&self) -> (u32, u32) {
        let own = std::process::id();
        self.thread.map_or((own, own), |thread| {
            (thread.sample.process as u32, thread.sample.thread as u32)
        })
    }

    /// The offset of a speculation's word in the arena.
    fn speculation_at(&self, id: i64) -> Option<u64> {
        let index = u64::try_from(id).ok()?.checked_sub(1)?;
        (index < self.layout.speculations).then_some(SPECULATIONS_OFFSET + 8 * index)
    }

    /// Changes the word of a speculation in use, if `next` yields a new value. Yields whether the word was changed.
    fn change_speculation(&self, id: i64, mut next: impl FnMut(u64) -> Option<u64>) -> bool {
        let Some(at) = self.speculation_at(id) else {
            return false;
        };
        for _ in 0..ATTEMPTS_MAX {
            let word = self.memory.load_u64(at).unwrap_or(0);
            if word & SPECULATION_TAKEN == 0 {
                return false;
            }
            let Some(other) = next(word) else {
                return false;
            };
            if self.memory.compare_exchange_u64(at, word, other).unwrap_or(false) {
                return true;
            }
        }
        false
    }

    fn variable(&self, scope: Scope, id: VariableId) -> Option<&Variable> {
        let list = match scope {
            Scope::Global => &self.program.globals,
            Scope::ThreadLocal => &self.program.thread_locals,
            Scope::ClauseLocal => &self.program.clause_locals,
        };
        list.get(id.0 as usize)
    }

    /// Where a variable is kept; `None` if the variable has no room because nothing reads it.
    fn home(&self, scope: Scope, id: VariableId, key: Option<&[u8]>) -> Option<Home> {
        let thread = self.thread.filter(|_| scope == Scope::ThreadLocal);
        let place = |list: &[u32]| list.get(id.0 as usize).copied().filter(|offset| *offset != u32::MAX);
        match (scope, key) {
            (Scope::Global, None) => {
                let offset = place(&self.storage.globals)?;
                Some(Home::Storage(self.layout.globals_offset + u64::from(offset)))
            }
            (Scope::Global, Some(key)) => Some(Home::Table(id.0, key.to_vec())),
            (_, Some(key)) if let Some(thread) = thread => {
                // As in handlers, all threads share one table, and the thread's number precedes the key.
                let mut whole = i64::from(thread.tid).to_le_bytes().to_vec();
                whole.extend_from_slice(key);
                Some(Home::Table(id.0 | THREAD_LOCAL_VARIABLE, whole))
            }
            (_, None) if let Some(thread) = thread => {
                let offset = u64::from(place(&self.storage.thread_locals)?);
                let context = sampled::context_of(self.memory, self.layout, thread.tid);
                Some(match context {
                    Some(context) => Home::Storage(context + self.layout.context.locals + offset),
                    // The thread has hit no probe yet.
                    None => Home::Own((scope, id, Some(thread.tid.to_le_bytes().to_vec()))),
                })
            }
            _ => Some(Home::Own((scope, id, key.map(<[u8]>::to_vec)))),
        }
    }

    /// The addresses of a thread's frames.
    fn addresses<'t>(&'t self, thread: SampledThread<'t>) -> &'t [u64] {
        self.elsewhere.map_or(thread.frames, Elsewhere::addresses)
    }

    /// The memory of the process that the clause fires for.
    fn process_memory(&self) -> Option<&Memory> {
        self.elsewhere.map_or(self.target, Elsewhere::memory)
    }

    fn value_bytes(&self, value_type: &Type) -> u64 {
        u64::from(nanoprobe_lang::layout::value_bytes(value_type, self.limits))
    }

    /// Whether an aggregation has this key, or room for it. The tracer's aggregations have no table of their own,
    /// but `aggsize` must bound them within one `aggrate`, too.
    fn has_room(&mut self, aggregation: AggregationId, key: &[u8]) -> bool {
        if self.state.aggregates.contains(aggregation, key) {
            return true;
        }
        let found = self.program.aggregations.get(aggregation.0 as usize);
        let elements = found.map_or(&[][..], |found| &found.keys);
        let element = |element: &KeyType| match element {
            KeyType::String | KeyType::Function => u64::from(self.limits.string_bytes()),
            other => 8 * u64::from(other.words().unwrap_or(1)),
        };
        // Eight bytes for the value: most aggregating functions have one word.
        let bytes = 8 + elements.iter().map(element).sum::<u64>();
        let taken = self.state.aggregated_bytes.saturating_add(bytes);
        let fits = taken <= self.aggregation_bytes;
        if fits {
            self.state.aggregated_bytes = taken;
        }
        fits
    }

    /// The key, in which numbers stand for the addresses of a process without a session.
    fn named<'k>(&self, aggregation: AggregationId, key: &'k [u8]) -> Cow<'k, [u8]> {
        let found = self.program.aggregations.get(aggregation.0 as usize);
        let (Some(elsewhere), Some(found)) = (self.elsewhere, found) else {
            return Cow::Borrowed(key);
        };
        let mut key = Cow::Borrowed(key);
        for (offset, kind) in symbols_in(&found.keys, &key) {
            if let Some(word) = key.to_mut().get_mut(offset..).and_then(<[u8]>::first_chunk_mut::<8>) {
                *word = elsewhere.symbol(u64::from_le_bytes(*word), kind).to_le_bytes();
            }
        }
        key
    }

    fn element_bytes(&self, value_type: &Type) -> u64 {
        u64::from(nanoprobe_lang::layout::element_bytes(value_type, self.limits))
    }

    fn start(&self) -> ProgramStart {
        identity::start_of(u32::try_from(self.target_pid).unwrap_or(0))
    }

    fn dynamic(&self) -> DynamicVariables {
        DynamicVariables::new(self.layout.dynamic_offset, self.layout.dynamic_bytes)
    }
}

impl World for TracerWorld<'_> {
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault> {
        let text = |text: &str| Ok(Value::String(text.as_bytes().to_vec()));
        let number = |value: i64| Ok(Value::Integer(value));
        if let Some(thread) = self.thread {
            let constants = thread.constants;
            match builtin {
                Builtin::Pid => return number(i64::from(constants.pid)),
                Builtin::Tid => return number(i64::from(thread.tid)),
                Builtin::Ppid => return number(i64::from(constants.ppid)),
                Builtin::Uid => return number(i64::from(constants.uid)),
                Builtin::Gid => return number(i64::from(constants.gid)),
                Builtin::EffectiveUid => return number(i64::from(constants.effective_uid)),
                Builtin::EffectiveGid => return number(i64::from(constants.effective_gid)),
                Builtin::SystemCall => return number(thread.call.map_or(-1, |call| call as i64)),
                Builtin::ProcessGroup => return number(i64::from(constants.process_group)),
                Builtin::ProcessSession => return number(i64::from(constants.process_session)),
                Builtin::StartArgumentCount => return number(i64::from(constants.start.argument_count)),
                Builtin::StartArguments => return number(constants.start.arguments as i64),
                Builtin::StartEnvironment => return number(constants.start.environment as i64),
                Builtin::ExecName => return text(&constants.execname),
                Builtin::ProcessArguments => return text(&constants.arguments),
                Builtin::Cpu => return number(i64::from(thread.sample.processor)),
                Builtin::VirtualTimestamp => {
                    return number(identity::processor_time_of(thread.sample.process, thread.sample.thread) as i64);
                }
                Builtin::WallTimestamp => {
                    let ago = clock::monotonic_ns().saturating_sub(self.timestamp);
                    return number(clock::wall_ns().saturating_sub(ago) as i64);
                }
                Builtin::UserCaller => return number(self.addresses(thread).get(1).copied().unwrap_or(0) as i64),
                Builtin::UserStackDepth => {
                    let depth = self.addresses(thread).len();
                    return number(depth.min(self.limits.maxframes as usize) as i64);
                }
                // A sample has no thread pointer, by which errno and the goroutine would be found.
                Builtin::Errno | Builtin::Goroutine => return Err(Fault::new(FaultKind::Illegal)),
                _ => {}
            }
        }
        match builtin {
            Builtin::Argument(index) => number(self.arguments.get(usize::from(index)).copied().unwrap_or(0)),
            Builtin::Pid | Builtin::Tid => number(i64::from(std::process::id())),
            Builtin::Ppid => number(i64::from(nix::unistd::getppid().as_raw())),
            Builtin::Uid => number(i64::from(rustix::process::getuid().as_raw())),
            Builtin::Gid => number(i64::from(rustix::process::getgid().as_raw())),
            Builtin::EffectiveUid => number(i64::from(rustix::process::geteuid().as_raw())),
            Builtin::EffectiveGid => number(i64::from(rustix::process::getegid().as_raw())),
            Builtin::SystemCall => number(-1),
            Builtin::Other(part) => Ok(sampled::of_other(self.thread.and_then(|thread| thread.other), part)),
            Builtin::ProcessGroup => number(i64::from(identity::ids_of(std::process::id()).process_group)),
            Builtin::ProcessSession => number(i64::from(identity::ids_of(std::process::id()).process_session)),
            // The number of the target's arguments, not the tracer's, just as `copyin` reads the target's memory.
            Builtin::StartArgumentCount => number(i64::from(self.start().argument_count)),
            Builtin::StartArguments => number(self.start().arguments as i64),
            Builtin::StartEnvironment => number(self.start().environment as i64),
            Builtin::ExecName => text("nanoprobe"),
            Builtin::ProcessArguments => text(&identity::arguments_of(std::process::id())),
            Builtin::Cpu => number(i64::from(self.state.processor())),
            Builtin::ProbeProvider => text(self.provider),
            Builtin::ProbeModule | Builtin::ProbeFunction => text(""),
            Builtin::ProbeName => text(self.name),
            Builtin::Timestamp => number(self.timestamp as i64),
            Builtin::VirtualTimestamp => number(clock::thread_ns() as i64),
            Builtin::WallTimestamp => number(clock::wall_ns() as i64),
            Builtin::UserCaller | Builtin::UserStackDepth | Builtin::Stack(_) => number(0),
            Builtin::Errno | Builtin::Goroutine => number(0),
            Builtin::EnabledProbeId => number(i64::from(self.epid)),
            Builtin::ProbeId => number(i64::from(self.probe_id)),
            Builtin::TargetPid => number(self.target_pid),
        }
    }

    fn register(&mut self, index: i64) -> Result<i64, Fault> {
        // Without a sampled thread every register is 0, because the tracer's own registers would mean nothing.
        let register = self.thread.map_or(Some(0), |thread| thread.register(index));
        register.ok_or(Fault::new(FaultKind::Illegal))
    }

    fn get(&mut self, scope: Scope, id: VariableId, key: Option<&[u8]>) -> Option<Value> {
        let value_type = self.variable(scope, id)?.value_type.clone();
        match self.home(scope, id, key)? {
            Home::Own(place) => self.state.locals.get(&place).cloned(),
            Home::Storage(offset) => match value_type {
                Type::String => {
                    let mark = variables::read_integer(self.memory, offset + u64::from(self.limits.string_mark()));
                    if (mark.ok()? == 0) == (scope == Scope::ThreadLocal) {
                        return Some(Value::Integer(0));
                    }
                    variables::read_string(self.memory, offset, self.value_bytes(&value_type))
                        .ok()
                        .map(Value::String)
                }
                Type::Bytes { size: Some(size) } => {
                    let mut bytes = vec![0; size as usize];
                    nanoprobe_arena::Memory::read(self.memory, offset, &mut bytes).ok()?;
                    Some(Value::Bytes { address: 0, bytes })
                }
                _ => variables::read_integer(self.memory, offset).ok().map(Value::Integer),
            },
            Home::Table(number, key) => {
                let bytes = self.element_bytes(&value_type);
                let found = self.dynamic().get(self.memory, number, &key, bytes).ok()??;
                Some(match value_type {
                    Type::String => Value::String(found.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()),
                    _ => Value::Integer(i64::from_le_bytes(found.get(..8)?.try_into().ok()?)),
                })
            }
        }
    }

    fn set(&mut self, scope: Scope, id: VariableId, key: Option<&[u8]>, value: Option<Value>) {
        let Some(value_type) = self.variable(scope, id).map(|variable| variable.value_type.clone()) else {
            return;
        };
        match self.home(scope, id, key) {
            None => {}
            Some(Home::Own(place)) => {
                match value {
                    Some(value) => self.state.locals.insert(place, value),
                    None => self.state.locals.remove(&place),
                };
            }
            Some(Home::Storage(offset)) => {
                let value = value.unwrap_or(Value::Integer(0));
                // The offset lies in the arena by construction, so this does not fail.
                let _ = match value_type {
                    Type::String => {
                        let bytes = self.value_bytes(&value_type);
                        let is_null = matches!(value, Value::Integer(_));
                        let mark = i64::from(is_null == (scope != Scope::ThreadLocal));
                        variables::write_string(self.memory, offset, bytes, value.as_bytes()).and_then(|()| {
                            let place = offset + u64::from(self.limits.string_mark());
                            variables::write_integer(self.memory, place, mark)
                        })
                    }
                    Type::Bytes { size: Some(size) } => {
                        let mut whole = value.as_bytes().to_vec();
                        whole.resize(size as usize, 0);
                        nanoprobe_arena::Memory::write(self.memory, offset, &whole).map_err(Into::into)
                    }
                    _ => variables::write_integer(self.memory, offset, value.as_integer()),
                };
            }
            Some(Home::Table(number, key)) => {
                let bytes = self.element_bytes(&value_type);
                let value = value.map(|value| match value_type {
                    Type::String => value.as_bytes().to_vec(),
                    _ => value.as_integer().to_le_bytes().to_vec(),
                });
                match self.dynamic().store(self.memory, number, &key, bytes, value.as_deref()) {
                    Ok(()) => {}
                    Err(DynamicError::Busy | DynamicError::Full | DynamicError::Corrupt(_)) => {
                        self.state.dynamic_drops += 1;
                    }
                }
            }
        }
    }

    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let target = self.process_memory().ok_or(Fault::bad_address(address))?;
        target
            .read(TargetAddress(address), bytes)
            .map_err(|_| Fault::bad_address(address))
    }

    fn globals_address(&self) -> Option<u64> {
        Some(self.arena?.0 + self.layout.globals_offset)
    }

    fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
        let target = self.process_memory().ok_or(Fault::bad_address(address))?;
        let mut bytes = vec![0; limit];
        let read = target
            .read_some(TargetAddress(address), &mut bytes)
            .map_err(|_| Fault::bad_address(address))?;
        bytes.truncate(read);
        match bytes.iter().position(|byte| *byte == 0) {
            Some(end) => bytes.truncate(end),
            None if read < limit => return Err(Fault::bad_address(address.wrapping_add(read as u64))),
            None => {}
        }
        Ok(bytes)
    }

    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        use nix::sys::uio::{RemoteIoVec, process_vm_writev};
        // /proc/PID/mem is not used here: it would write memory that the program itself may not write.
        let pid = nix::unistd::Pid::from_raw(self.target_pid as i32);
        let remote = RemoteIoVec {
            base: address as usize,
            len: bytes.len(),
        };
        match process_vm_writev(pid, &[std::io::IoSlice::new(bytes)], &[remote]) {
            Ok(written) if self.target.is_some() && written == bytes.len() => Ok(()),
            _ => Err(Fault::bad_address(address)),
        }
    }

    fn path(&mut self, descriptor: i64) -> Result<Vec<u8>, Fault> {
        let (pid, tid) = self.process_and_thread();
        Ok(identity::path_of(pid, tid, descriptor))
    }

    fn file_system(&mut self, descriptor: i64, part: i64) -> Result<Vec<u8>, Fault> {
        let (pid, tid) = self.process_and_thread();
        Ok(mounts::of_file(pid, tid, descriptor, part).into_bytes())
    }

    fn thread_name(&mut self) -> Result<Vec<u8>, Fault> {
        let (pid, tid) = self.process_and_thread();
        Ok(identity::thread_name_of(pid, tid))
    }

    fn is_progeny_of(&mut self, pid: i64) -> bool {
        if let Some(thread) = self.thread {
            return thread
                .constants
                .ancestors
                .iter()
                .any(|ancestor| i64::from(*ancestor) == pid);
        }
        if self.state.ancestors.is_empty() {
            self.state.ancestors = identity::ancestors_of(std::process::id());
        }
        self.state.ancestors.iter().any(|ancestor| i64::from(*ancestor) == pid)
    }

    fn speculation(&mut self) -> i64 {
        for index in 0..self.layout.speculations {
            let at = SPECULATIONS_OFFSET + 8 * index;
            let taken = self.memory.compare_exchange_u64(at, 0, SPECULATION_TAKEN);
            if taken.unwrap_or(false) {
                return index as i64 + 1;
            }
        }
        self.state.failed_speculations += 1;
        0
    }

    fn speculate(&mut self, id: i64, bytes: u64) -> bool {
        let room = self.speculation_bytes;
        let mut is_full = false;
        let added = self.change_speculation(id, |word| {
            is_full = (word >> SPECULATION_SHIFT).saturating_add(bytes) > room;
            (!is_full).then(|| word.wrapping_add(bytes << SPECULATION_SHIFT))
        });
        self.state.speculation_drops += u64::from(is_full);
        added
    }

    fn end_speculation(&mut self, id: i64) -> bool {
        self.change_speculation(id, |_| Some(SPECULATION_ENDED))
    }

    fn speculations(&self) -> u64 {
        self.layout.speculations
    }

    fn stack(&mut self, side: Side, frames: u32) -> Vec<u64> {
        let known = match (side, self.elsewhere, self.thread) {
            // Its addresses mean the same in all processes.
            (Side::Kernel, _, thread) => thread.map_or(&[][..], |thread| &thread.sample.kernel),
            (Side::Program, Some(elsewhere), _) => elsewhere.frames(),
            (Side::Program, None, thread) => thread.map_or(&[][..], |thread| thread.frames),
        };
        known.get(..frames as usize).unwrap_or(known).to_vec()
    }

    fn aggregate(&mut self, aggregation: AggregationId, key: &[u8], value: i64, weight: i64) {
        let key = &*self.named(aggregation, key);
        if !self.has_room(aggregation, key) {
            self.state.aggregation_drops += 1;
            return;
        }
        // The result is false only for an aggregation that the program does not have.
        let _ = self
            .state
            .aggregates
            .update(self.program, aggregation, key, value, weight);
    }
}
