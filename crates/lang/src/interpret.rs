//! The reference interpreter of the program form.
//!
//! It has two uses. The tracer interprets the clauses that no thread of the target runs (BEGIN, END, ERROR, tick-N,
//! profile-N). And tests compare the code generator with the interpreter. So in everything that can be observed the
//! interpreter does the same as the machine code: the order of evaluation (the value before the place's keys; keys,
//! value, weight of an aggregation), where strings are cut, the state after a fault, the bytes of a record.
//!
//! It knows no process: [`World`] provides variables, built-in variables, memory, stacks and aggregations.
//!
//! # Scratch memory
//!
//! In the target `copyin` yields an address in scratch memory. A program may cast it to a pointer and load from it.
//! Here scratch memory is a buffer of the interpreter that appears at [`SCRATCH_ADDRESS`]. That address is not
//! canonical on x86-64, so no program can have memory there. Loads from there read the buffer, and the world serves
//! all others. A clause starts with empty scratch memory. As in the target, an address kept from an earlier clause
//! faults, or reads the present content.

mod addresses;
mod arithmetic;
mod evaluate;
pub mod json;
pub mod key;
mod memory;
mod subroutines;
pub mod text;
mod value;

pub use addresses::VARIABLES_ADDRESS;
pub use arithmetic::{normalise, wide};
pub use value::{Value, read_field};

use crate::layout::{FieldKind, Limits, RECORD_HEADER_BYTES, RecordLayout, record_layout, recorded_values};
use crate::program::{AggregationId, Builtin, Clause, Program, RecordKind, Scope, Side, Statement, VariableId};
use evaluate::Evaluator;

/// The address at which scratch memory appears to lie.
pub const SCRATCH_ADDRESS: u64 = 0x4e50_0000_0000_0000;

/// The longest record that is made. The program chooses the size, and no ring has room for a longer one.
const RECORD_BYTES_MAX: u32 = 64 << 20;

/// The faults of a running clause; the codes are those of `enum np_fault`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FaultKind {
    /// There is no memory at the address, or it cannot be read.
    #[error("invalid address")]
    BadAddress,
    /// Division or remainder by zero.
    #[error("divide-by-zero")]
    Divide,
    /// `copyin` and `copyinstr` together asked for more scratch memory than there is.
    #[error("out of scratch space")]
    Scratch,
    /// The key of an aggregation or an associative array is too long.
    #[error("key too long")]
    KeyTooLong,
    /// An impossible number of bytes.
    #[error("invalid size")]
    BadSize,
    /// An operation that makes no sense here, such as a register in BEGIN, or a program form
    /// that contradicts itself.
    #[error("illegal operation")]
    Illegal,
    /// A code of a fault that no version of the agent writes.
    #[error("unknown fault")]
    Unknown,
}

impl FaultKind {
    /// The fault that a code in an error record means.
    pub fn from_code(code: u32) -> FaultKind {
        match code {
            1 => FaultKind::BadAddress,
            2 => FaultKind::Divide,
            3 => FaultKind::Scratch,
            4 => FaultKind::KeyTooLong,
            5 => FaultKind::BadSize,
            6 => FaultKind::Illegal,
            _ => FaultKind::Unknown,
        }
    }

    /// The fault's number in `arg4` of ERROR: `DTRACEFLT_...` of `<sys/dtrace.h>`.
    pub fn dtrace_code(self) -> u32 {
        match self {
            FaultKind::Unknown => 0,
            FaultKind::BadAddress => 1,
            FaultKind::BadSize | FaultKind::Illegal => 3,
            FaultKind::Divide => 4,
            FaultKind::Scratch => 5,
            FaultKind::KeyTooLong => 8,
        }
    }

    /// The fault's code in an error record; 0 for [`FaultKind::Unknown`].
    pub fn code(self) -> u32 {
        match self {
            FaultKind::BadAddress => 1,
            FaultKind::Divide => 2,
            FaultKind::Scratch => 3,
            FaultKind::KeyTooLong => 4,
            FaultKind::BadSize => 5,
            FaultKind::Illegal => 6,
            FaultKind::Unknown => 0,
        }
    }
}

/// A fault whose place in the text is not known yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    pub kind: FaultKind,
    /// The address, for [`FaultKind::BadAddress`].
    pub value: u64,
}

impl Fault {
    /// A fault without an address.
    pub fn new(kind: FaultKind) -> Fault {
        Fault { kind, value: 0 }
    }

    /// The fault of an address at which nothing can be read.
    pub fn bad_address(address: u64) -> Fault {
        Fault {
            kind: FaultKind::BadAddress,
            value: address,
        }
    }
}

/// A fault with its place: the content of `struct np_error`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClauseFault {
    pub fault: Fault,
    /// Index of the statement in the clause, from 1; 0: the predicate.
    pub action: u32,
}

/// The result of running a clause, apart from its effects on the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the predicate held.
    pub fired: bool,
    /// The payload of the record: the bytes after the header, laid out by [`record_layout`], with
    /// zeros in the gaps. `None`: the clause records nothing.
    pub payload: Option<Vec<u8>>,
    /// The status of an `exit()`.
    pub exit: Option<i32>,
}

/// The variables, memory and aggregations on which a clause acts. Strings are without their NUL.
pub trait World {
    /// The value of a built-in variable: [`Value::Integer`] or [`Value::String`].
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] for a variable that has no meaning where the clause runs.
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault>;

    /// `uregs[index]`.
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where there are no registers, or no such register.
    fn register(&mut self, index: i64) -> Result<i64, Fault>;

    /// A variable; with `key` (encoded by [`key`], without the thread's id) an element of an associative array.
    /// `None`: the variable was never assigned.
    fn get(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>) -> Option<Value>;

    /// Assigns a variable or an element; the value is already cut and normalised. `None` deletes the element, and so
    /// do the integer 0 and the string NULL. Missing room is not a fault: it is counted as a dynamic variable drop.
    fn set(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>, value: Option<Value>);

    /// Fills `bytes` from the target's memory at `address`.
    ///
    /// # Errors
    /// [`Fault::bad_address`].
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Address in the target of the global variables that are not arrays; `None`: they have no memory in the target.
    fn globals_address(&self) -> Option<u64> {
        None
    }

    /// The text at `address` up to its NUL, at most `limit` bytes of it.
    ///
    /// # Errors
    /// [`Fault::bad_address`].
    fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault>;

    /// At most `frames` return addresses of the current thread, in its program or in the kernel, innermost first; empty
    /// if there is no stack.
    fn stack(&mut self, side: Side, frames: u32) -> Vec<u64>;

    /// `@aggregation[key] = function(value, weight)`; `value` is 0 for a `count()`, `weight` is 1 by default.
    fn aggregate(&mut self, aggregation: AggregationId, key: &[u8], value: i64, weight: i64);

    /// `rand()`: a number from 0 to 2^31 - 1.
    fn random(&mut self) -> i64 {
        use std::hash::{BuildHasher, RandomState};
        (RandomState::new().hash_one(0) & 0x7fff_ffff) as i64
    }

    /// Writes into the target's memory.
    ///
    /// # Errors
    /// [`Fault::bad_address`].
    fn write(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let _ = bytes;
        Err(Fault::bad_address(address))
    }

    /// `progenyof(pid)`.
    fn is_progeny_of(&mut self, pid: i64) -> bool {
        let _ = pid;
        false
    }

    /// The path of an open file, or of a directory ([`crate::program::Function::Path`]).
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where the clause does not belong to a process with files.
    fn path(&mut self, descriptor: i64) -> Result<Vec<u8>, Fault> {
        let _ = descriptor;
        Err(Fault::new(FaultKind::Illegal))
    }

    /// The file system of an open file: its name, and where it is mounted ([`crate::program::Function::FileSystem`]).
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where the clause does not belong to a process with files.
    fn file_system(&mut self, descriptor: i64, part: i64) -> Result<Vec<u8>, Fault> {
        let _ = (descriptor, part);
        Err(Fault::new(FaultKind::Illegal))
    }

    /// `threadname`.
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where the clause does not belong to a thread of a process.
    fn thread_name(&mut self) -> Result<Vec<u8>, Fault> {
        Err(Fault::new(FaultKind::Illegal))
    }

    /// `speculation()`: the number of a free speculation, which is now taken; 0: none is free.
    fn speculation(&mut self) -> i64 {
        0
    }

    /// Whether a taken speculation has this number, and room for a record of this many bytes. If so, the room is used
    /// up. A lack of room counts as a drop.
    fn speculate(&mut self, id: i64, bytes: u64) -> bool {
        let _ = (id, bytes);
        false
    }

    /// Commits or discards the speculation; yields whether there was a speculation of this number.
    fn end_speculation(&mut self, id: i64) -> bool {
        let _ = id;
        false
    }

    /// The largest number that `speculation()` yields.
    fn speculations(&self) -> u64 {
        0
    }

    /// The size of a clause's scratch memory.
    fn scratch_bytes(&self) -> usize {
        64 << 10
    }

    /// The longest key, in bytes.
    fn key_bytes_max(&self) -> usize {
        16 << 10
    }
}

/// Runs a clause once.
///
/// # Errors
/// The fault that ended the clause. The effects before it stay; the record is not written.
pub fn run_clause<W: World + ?Sized>(
    clause: &Clause,
    program: &Program,
    limits: Limits,
    world: &mut W,
) -> Result<Outcome, ClauseFault> {
    let mut evaluator = Evaluator::new(program, limits, world);
    let at = |action: usize| {
        move |fault| ClauseFault {
            fault,
            action: u32::try_from(action).unwrap_or(u32::MAX),
        }
    };
    if let Some(predicate) = &clause.predicate
        && !evaluator.truth(predicate).map_err(at(0))?
    {
        return Ok(Outcome::default());
    }
    let mut outcome = Outcome {
        fired: true,
        ..Outcome::default()
    };
    let layout = record_layout(clause, limits);
    if layout.bytes > RECORD_BYTES_MAX {
        return Err(at(1)(Fault::new(FaultKind::Scratch)));
    }
    let mut payload = clause
        .records()
        .then(|| vec![0; layout.bytes.saturating_sub(RECORD_HEADER_BYTES) as usize]);
    let bytes = u64::from(layout.bytes);
    let mut ended = Vec::new();
    for (index, statement) in clause.statements.iter().enumerate() {
        let at = at(index + 1);
        match statement {
            Statement::Expression(expression) => {
                evaluator.value(expression).map_err(at)?;
            }
            Statement::Aggregate {
                aggregation,
                keys,
                value,
                weight,
                ..
            } => {
                evaluator
                    .aggregate(*aggregation, keys, value.as_ref(), weight.as_ref())
                    .map_err(at)?;
            }
            Statement::Record(action) => {
                let payload = payload.as_deref_mut().unwrap_or_default();
                let recorded = record(&mut evaluator, &layout, index, &action.kind, payload).map_err(at)?;
                match action.kind {
                    RecordKind::Exit(_) => outcome.exit = recorded.map(|status| status as i32),
                    // A missing speculation is no fault: the clause ends here, and its record is dropped.
                    RecordKind::Speculate(_) if !evaluator.world().speculate(recorded.unwrap_or(0), bytes) => {
                        return Ok(outcome);
                    }
                    RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_) => {
                        let id = recorded.unwrap_or(0);
                        if id as u64 > evaluator.world().speculations() {
                            return Err(at(Fault::new(FaultKind::Illegal)));
                        }
                        ended.push((index, id));
                    }
                    _ => {}
                }
            }
        }
    }
    // Speculations are ended last, because a clause that faults must end no speculation.
    for (statement, id) in ended {
        if !evaluator.world().end_speculation(id) {
            record_zero(&layout, statement, payload.as_deref_mut().unwrap_or_default());
        }
    }
    outcome.payload = payload;
    Ok(outcome)
}

/// Records 0 for the number of a commit or discard without a speculation of this number.
fn record_zero(layout: &RecordLayout, statement: usize, payload: &mut [u8]) {
    if let Some(field) = layout.fields.iter().find(|field| field.statement == statement) {
        let start = field.offset.saturating_sub(RECORD_HEADER_BYTES) as usize;
        if let Some(room) = payload.get_mut(start..start + field.bytes as usize) {
            room.fill(0);
        }
    }
}

/// Writes the fields of one action; yields the last integer that was recorded.
fn record<W: World + ?Sized>(
    evaluator: &mut Evaluator<'_, W>,
    layout: &RecordLayout,
    statement: usize,
    kind: &RecordKind,
    payload: &mut [u8],
) -> Result<Option<i64>, Fault> {
    let values = recorded_values(kind);
    let mut last = None;
    for field in layout.fields.iter().filter(|field| field.statement == statement) {
        let start = field.offset.saturating_sub(RECORD_HEADER_BYTES) as usize;
        // The field of a string consists of whole words, but the string itself is limited to `strsize`.
        let bytes = match field.kind {
            FieldKind::String => (field.bytes as usize).min(evaluator.string_limit()),
            _ => field.bytes as usize,
        };
        let room = payload
            .get_mut(start..start + bytes)
            .ok_or(Fault::new(FaultKind::Illegal))?;
        let value = match field.kind {
            FieldKind::Stack { side, frames } => Value::Stack(evaluator.stack(side, frames)),
            _ => evaluator.present(values.get(field.argument).ok_or(Fault::new(FaultKind::Illegal))?)?,
        };
        if let Value::Integer(integer) = value {
            last = Some(integer);
        }
        value.write(room);
    }
    Ok(last)
}

#[cfg(test)]
mod tests;
