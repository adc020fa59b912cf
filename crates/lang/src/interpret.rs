//! The reference interpreter of the program form.
//!
//! Two uses: the tracer runs by it the clauses that no thread of the target runs (BEGIN, END, ERROR, tick-N,
//! profile-N), and tests hold the code generator against it. So it follows the machine code in everything that can be
//! seen from outside: the order of evaluation (the value before the place's keys; keys, value, weight of an
//! aggregation), where strings are cut, what a fault leaves behind, which bytes a record holds.
//!
//! It knows no process: variables, built-in variables, memory, stacks and aggregations are the [`World`]'s.
//!
//! # Scratch memory
//!
//! In the target `copyin` yields an address in scratch memory, and a program may well turn it into a pointer and load
//! from it. Here scratch memory is a buffer of the interpreter that appears at [`SCRATCH_ADDRESS`], which no program on
//! x86-64 can have anything at (it is no canonical address): loads from there are served from the buffer, all others by
//! the world. A clause starts with empty scratch memory; an address kept from an earlier clause faults or reads what is
//! there now, as in the target.

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
use crate::program::{AggregationId, Builtin, Clause, Program, RecordKind, Scope, Statement, VariableId};
use evaluate::Evaluator;

/// Where scratch memory appears to lie.
pub const SCRATCH_ADDRESS: u64 = 0x4e50_0000_0000_0000;

/// The longest record that is made here: no ring would have room for more, and the size is the program's to choose.
const RECORD_BYTES_MAX: u32 = 64 << 20;

/// What can go wrong while a clause runs; the codes are `enum np_fault`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FaultKind {
    /// There is no memory at the address, or it cannot be read.
    #[error("invalid address")]
    BadAddress,
    /// Division or remainder by zero.
    #[error("divide-by-zero")]
    Divide,
    /// `copyin` and `copyinstr` together asked for more than there is.
    #[error("out of scratch space")]
    Scratch,
    /// The key of an aggregation or an associative array is too long.
    #[error("key too long")]
    KeyTooLong,
    /// An impossible number of bytes.
    #[error("invalid size")]
    BadSize,
    /// An operation that makes no sense here (a register in BEGIN, a program form that contradicts itself).
    #[error("illegal operation")]
    Illegal,
    /// A code that no version of the agent writes.
    #[error("unknown fault")]
    Unknown,
}

impl FaultKind {
    /// The fault of a code in an error record.
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

    /// Its number in `arg4` of ERROR: `DTRACEFLT_...` of `<sys/dtrace.h>`.
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

    /// Its code in an error record; 0 for [`FaultKind::Unknown`].
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

/// A fault, as the operation sees it that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Which.
    pub kind: FaultKind,
    /// The address, where there is one.
    pub value: u64,
}

impl Fault {
    /// A fault without an address.
    pub fn new(kind: FaultKind) -> Fault {
        Fault { kind, value: 0 }
    }

    /// Nothing can be read at this address.
    pub fn bad_address(address: u64) -> Fault {
        Fault {
            kind: FaultKind::BadAddress,
            value: address,
        }
    }
}

/// A fault with its place: what `struct np_error` holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClauseFault {
    /// What went wrong.
    pub fault: Fault,
    /// Index of the statement in the clause, from 1; 0: the predicate.
    pub action: u32,
}

/// What a clause did, apart from its effects on the world.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Whether the predicate held.
    pub fired: bool,
    /// The payload of the record: the bytes behind the header, as [`record_layout`] lays them out, gaps zeroed. `None`
    /// when the clause records nothing.
    pub payload: Option<Vec<u8>>,
    /// The status of an `exit()`.
    pub exit: Option<i32>,
}

/// All that a clause deals with. Strings are without their NUL.
pub trait World {
    /// The value of a built-in variable: [`Value::Integer`] or [`Value::String`].
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] for one that means nothing where the clause runs.
    fn builtin(&mut self, builtin: Builtin) -> Result<Value, Fault>;

    /// `uregs[index]`.
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where there are no registers, or not this one.
    fn register(&mut self, index: i64) -> Result<i64, Fault>;

    /// A variable; with `key` ([`key`]'s encoding, without the thread's id) an element of an associative array. `None`
    /// when it was never assigned.
    fn get(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>) -> Option<Value>;

    /// Assigns a variable or an element; the value is already cut and normalised. `None` deletes the element (the zero
    /// of an integer, the string NULL). No room is no fault: it is counted as a dynamic variable drop.
    fn set(&mut self, scope: Scope, variable: VariableId, key: Option<&[u8]>, value: Option<Value>);

    /// Fills `bytes` from the target's memory at `address`.
    ///
    /// # Errors
    /// [`Fault::bad_address`].
    fn read(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault>;

    /// Where global variables lie in the target, those without keys; `None` where there is none.
    fn globals_address(&self) -> Option<u64> {
        None
    }

    /// The text at `address` up to its NUL, at most `limit` bytes of it.
    ///
    /// # Errors
    /// [`Fault::bad_address`].
    fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault>;

    /// At most `frames` return addresses of the current thread, innermost first; empty where there is no stack.
    fn stack(&mut self, frames: u32) -> Vec<u64>;

    /// `@aggregation[key] = function(value, weight)`; `value` is 0 for a `count()`, `weight` 1 when not given.
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

    /// The path of an open file, or of a folder ([`crate::program::Function::Path`]).
    ///
    /// # Errors
    /// [`FaultKind::Illegal`] where the clause belongs to nobody who has files.
    fn path(&mut self, descriptor: i64) -> Result<Vec<u8>, Fault> {
        let _ = descriptor;
        Err(Fault::new(FaultKind::Illegal))
    }

    /// `threadname`.
    ///
    /// # Errors
    /// Likewise.
    fn thread_name(&mut self) -> Result<Vec<u8>, Fault> {
        Err(Fault::new(FaultKind::Illegal))
    }

    /// `speculation()`: the number of a speculation that was free, and is not any more; 0: there is none.
    fn speculation(&mut self) -> i64 {
        0
    }

    /// Whether `speculation()` has given this number away, nobody has committed or discarded it yet, and there is room
    /// under it for a record of so many bytes, which then count. That there is no room is a drop.
    fn speculate(&mut self, id: i64, bytes: u64) -> bool {
        let _ = (id, bytes);
        false
    }

    /// Commits or discards the speculation: whether there was one.
    fn end_speculation(&mut self, id: i64) -> bool {
        let _ = id;
        false
    }

    /// The largest number that `speculation()` gives away.
    fn speculations(&self) -> u64 {
        0
    }

    /// Bytes of scratch memory of a clause.
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
/// The fault that ended it. What came before has been done; the record is not written.
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
                    // Not a fault: the clause just ends, and what it has recorded goes nowhere.
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
    // Behind all that may fail: a record that is not written ends nothing.
    for (statement, id) in ended {
        let field = layout.fields.iter().find(|field| field.statement == statement);
        if let (false, Some(field), Some(payload)) = (evaluator.world().end_speculation(id), field, payload.as_mut()) {
            let start = field.offset.saturating_sub(RECORD_HEADER_BYTES) as usize;
            if let Some(room) = payload.get_mut(start..start + field.bytes as usize) {
                room.fill(0);
            }
        }
    }
    outcome.payload = payload;
    Ok(outcome)
}

/// Writes the fields of one action; yields the last integer among them.
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
        // A string's field is whole words; what a string may have is not.
        let bytes = match field.kind {
            FieldKind::String => (field.bytes as usize).min(evaluator.string_limit()),
            _ => field.bytes as usize,
        };
        let room = payload
            .get_mut(start..start + bytes)
            .ok_or(Fault::new(FaultKind::Illegal))?;
        let value = match field.kind {
            FieldKind::Stack { frames } => Value::Stack(evaluator.stack(frames)),
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
