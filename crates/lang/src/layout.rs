//! Where values lie: the storage of variables, and the payload of records.
//!
//! Three parts share this description. The code generator writes values at these offsets in the
//! target, the interpreter writes the same bytes in the tracer, and the printer reads them back.
//! Everything is aligned to 8 bytes.
//!
//! ```text
//! a record    0          8          16        24                           bytes
//!             +----------+----------+---------+---------+---------+-----+
//!             | epid len | tsc      | cpu tid | field 0 | field 1 | ... |
//!             +----------+----------+---------+---------+---------+-----+
//!             |<--------- struct np_record -->|<---- RecordLayout::fields
//!
//! a field     Integer   8 bytes, sign- or zero-extended from its type
//!             String    strsize bytes, rounded up to a multiple of 8: the text, a NUL, then anything
//!             Stack     u64 count of frames, then room for `frames` of them, innermost first
//!             Bytes     as many bytes as the value has; the gap up to the next multiple of 8 holds anything
//! ```

use crate::program::{
    Builtin, Clause, Expression, ExpressionKind, IntegerType, Program, RecordKind, Side, Stack, Statement, Type,
    Variable,
};

/// The options that decide the sizes of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limits {
    /// The size of a string with its NUL (option `strsize`).
    pub strsize: u32,
    /// The number of frames of a `ustack()` without an argument (option `ustackframes`).
    pub ustackframes: u32,
    /// The number of frames of a `jstack()` without an argument (option `jstackframes`).
    pub jstackframes: u32,
    /// The number of frames of a `stack()` without an argument (option `stackframes`).
    pub stackframes: u32,
    /// The most frames of any stack, whatever its call says (option `maxframes`).
    pub maxframes: u32,
}

/// Stands for the number of frames of a `jstack()` without an argument.
pub const JSTACK_FRAMES: u32 = u32::MAX;

impl Limits {
    /// Bytes that a string takes up in storage and in records: `strsize` rounded up to a multiple of 8, at least 8.
    pub fn string_bytes(self) -> u32 {
        round_up(self.strsize).max(8)
    }

    /// Offset, after the text of a string variable, of the word that tells NULL from the empty string. 0
    /// is the initial state, which is NULL for a thread's variables and the empty string for others; 1
    /// means the opposite.
    pub fn string_mark(self) -> u32 {
        self.string_bytes()
    }

    /// The most bytes of a string with its NUL; a longer one is cut to one byte less.
    pub fn string_limit(self) -> u32 {
        self.strsize.max(2)
    }

    /// The number of frames that a stack records: 0 stands for the option `ustackframes` or `stackframes`,
    /// [`JSTACK_FRAMES`] for `jstackframes`. Never more than `maxframes`.
    pub fn stack_frames(self, stack: Stack) -> u32 {
        let wanted = match (stack.side, stack.frames) {
            (Side::Program, 0) => self.ustackframes,
            (Side::Kernel, 0) => self.stackframes,
            (_, JSTACK_FRAMES) => self.jstackframes,
            (_, frames) => frames,
        };
        wanted.min(self.maxframes)
    }
}

impl Default for Limits {
    /// 256 bytes for a string; 100 frames for a stack, 50 for a `jstack()`, 20 for one of the kernel.
    fn default() -> Limits {
        Limits {
            strsize: 256,
            ustackframes: 100,
            jstackframes: 50,
            stackframes: 20,
            maxframes: 2048,
        }
    }
}

/// The offset of an associative array, which has no fixed place.
pub const NO_OFFSET: u32 = u32::MAX;

/// Byte offsets of scalar variables, indexed by `VariableId`; [`NO_OFFSET`] for associative arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Storage {
    /// Offsets of global variables.
    pub globals: Vec<u32>,
    /// The size of all global scalars.
    pub globals_bytes: u32,
    /// Offsets of `self->` variables in a thread's block.
    pub thread_locals: Vec<u32>,
    /// The size of all `self->` scalars of one thread.
    pub thread_locals_bytes: u32,
    /// Offsets of `this->` variables.
    pub clause_locals: Vec<u32>,
    /// The size of all `this->` scalars.
    pub clause_locals_bytes: u32,
}

impl Storage {
    /// Gives every scalar variable of `program` its place.
    pub fn new(program: &Program, limits: Limits) -> Storage {
        let (globals, globals_bytes) = place(&program.globals, limits);
        let (thread_locals, thread_locals_bytes) = place(&program.thread_locals, limits);
        let (clause_locals, clause_locals_bytes) = place(&program.clause_locals, limits);
        Storage {
            globals,
            globals_bytes,
            thread_locals,
            thread_locals_bytes,
            clause_locals,
            clause_locals_bytes,
        }
    }
}

fn place(variables: &[Variable], limits: Limits) -> (Vec<u32>, u32) {
    let mut end = 0u32;
    let offsets = variables
        .iter()
        .map(|variable| {
            if variable.keys.is_some() {
                return NO_OFFSET;
            }
            let offset = end;
            let mark = if variable.value_type == Type::String { 8 } else { 0 };
            end = end
                .saturating_add(value_bytes(&variable.value_type, limits))
                .saturating_add(mark);
            offset
        })
        .collect();
    (offsets, end)
}

/// The size of a value of this type as an element of an associative array. The agent distinguishes a
/// string from a word by its size, so the size of a string is never that of a word.
pub fn element_bytes(value_type: &Type, limits: Limits) -> u32 {
    match value_type {
        Type::String => value_bytes(value_type, limits).max(16),
        _ => value_bytes(value_type, limits),
    }
}

/// The size of a value of this type in storage, always a multiple of 8. An integer, a pointer and
/// bytes of unknown size (stored as their address) take 8. A string takes `strsize`, rounded up. Bytes
/// of a known size take that size, rounded up. Void takes 0.
pub fn value_bytes(value_type: &Type, limits: Limits) -> u32 {
    match value_type {
        Type::Void | Type::Structure(_) | Type::Array { .. } | Type::Foreign(_) => 0,
        Type::Integer(_) | Type::Pointer(_) | Type::Bytes { size: None } => 8,
        Type::String => limits.string_bytes(),
        Type::Bytes { size: Some(size) } => round_up(*size),
    }
}

/// `struct np_record`: the header before a record's fields.
pub const RECORD_HEADER_BYTES: u32 = 24;

/// The fields of a clause's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordLayout {
    /// The fields, in the order of the statements, and of the arguments within a statement.
    pub fields: Vec<RecordField>,
    /// The size of the record with its header, a multiple of 8.
    pub bytes: u32,
}

/// One recorded value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordField {
    /// Index of the recording action in [`Clause::statements`].
    pub statement: usize,
    /// The index of the field's value among the values that this action records.
    pub argument: usize,
    /// Offset from the record's start (so at least [`RECORD_HEADER_BYTES`]), a multiple of 8.
    pub offset: u32,
    /// The size: a multiple of 8, except for [`FieldKind::Bytes`], where it is the value's own size.
    pub bytes: u32,
    /// How to read the field.
    pub kind: FieldKind,
}

/// How to read a field's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// 8 bytes, extended from this type. A pointer is an unsigned integer of 8 bytes.
    Integer(IntegerType),
    /// A NUL-terminated string in `strsize` bytes.
    String,
    /// u64 count of frames, then at most `frames` return addresses.
    Stack {
        /// Whose frames they are.
        side: Side,
        /// The most frames that the field has room for.
        frames: u32,
    },
    /// Bytes of the target's memory.
    Bytes,
}

/// The layout of the record that `clause` writes. If [`Clause::records`] is false, it is the header only.
pub fn record_layout(clause: &Clause, limits: Limits) -> RecordLayout {
    let mut layout = RecordLayout {
        fields: Vec::new(),
        bytes: RECORD_HEADER_BYTES,
    };
    for (statement, action) in clause.statements.iter().enumerate() {
        let Statement::Record(action) = action else { continue };
        let values: Vec<(FieldKind, u32)> = match &action.kind {
            RecordKind::Stack(stack) => vec![stack_field(*stack, limits)],
            kind => recorded_values(kind)
                .iter()
                .map(|value| value_field(value, limits))
                .collect(),
        };
        for (argument, (kind, bytes)) in values.into_iter().enumerate() {
            layout.fields.push(RecordField {
                statement,
                argument,
                offset: layout.bytes,
                bytes,
                kind,
            });
            layout.bytes = layout.bytes.saturating_add(round_up(bytes));
        }
    }
    layout
}

/// The expressions whose values an action records, in the order of its fields. A stack has no expression.
pub fn recorded_values(kind: &RecordKind) -> &[Expression] {
    match kind {
        RecordKind::Trace(value)
        | RecordKind::TraceName { value, .. }
        | RecordKind::Exit(value)
        | RecordKind::Symbol { address: value, .. }
        | RecordKind::Truncate { count: Some(value), .. }
        | RecordKind::Normalize { factor: value, .. }
        | RecordKind::Print { value, .. }
        | RecordKind::Raise(value)
        | RecordKind::Speculate(value)
        | RecordKind::CommitSpeculation(value)
        | RecordKind::DiscardSpeculation(value) => std::slice::from_ref(value),
        RecordKind::TraceMemory(arguments)
        | RecordKind::Printf { arguments, .. }
        | RecordKind::System { arguments, .. }
        | RecordKind::Reopen { arguments, .. }
        | RecordKind::PrintAt { values: arguments, .. }
        | RecordKind::SetOption(arguments) => arguments,
        RecordKind::Truncate { count: None, .. }
        | RecordKind::Printa { .. }
        | RecordKind::Stack(_)
        | RecordKind::Clear(_)
        | RecordKind::Denormalize(_)
        | RecordKind::TruncateOutput
        | RecordKind::Stop => &[],
    }
}

/// The kind and the size of the field for a stack.
fn stack_field(stack: Stack, limits: Limits) -> (FieldKind, u32) {
    let frames = limits.stack_frames(stack);
    let side = stack.side;
    (
        FieldKind::Stack { side, frames },
        frames.saturating_add(1).saturating_mul(8),
    )
}

fn value_field(value: &Expression, limits: Limits) -> (FieldKind, u32) {
    if let ExpressionKind::Builtin(Builtin::Stack(stack)) = value.kind {
        return stack_field(stack, limits);
    }
    match &value.value_type {
        Type::Integer(integer) => (FieldKind::Integer(*integer), 8),
        Type::String => (FieldKind::String, limits.string_bytes()),
        Type::Bytes { size: Some(size) } => (FieldKind::Bytes, *size),
        // The type checker refuses void and values in memory. Bytes of unknown size are recorded as an address.
        Type::Pointer(_)
        | Type::Void
        | Type::Bytes { size: None }
        | Type::Structure(_)
        | Type::Array { .. }
        | Type::Foreign(_) => (
            FieldKind::Integer(IntegerType {
                bytes: 8,
                signed: false,
            }),
            8,
        ),
    }
}

/// Rounds up to a multiple of 8; sizes near 4 GiB do not overflow.
fn round_up(bytes: u32) -> u32 {
    bytes.saturating_add(7) & !7
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::{AggregationId, ExpressionKind, RecordAction};
    use crate::source::Span;

    const LIMITS: Limits = Limits {
        strsize: 250,
        ustackframes: 5,
        jstackframes: 5,
        stackframes: 3,
        maxframes: 2048,
    };

    fn expression(value_type: Type) -> Expression {
        Expression {
            kind: ExpressionKind::Integer(0),
            value_type,
            span: Span::default(),
        }
    }

    fn record(kind: RecordKind) -> Statement {
        Statement::Record(RecordAction {
            kind,
            span: Span::default(),
        })
    }

    fn clause(statements: Vec<Statement>) -> Clause {
        Clause {
            probes: Vec::new(),
            predicate: None,
            statements,
            span: Span::default(),
            derived: None,
        }
    }

    #[test]
    fn no_stack_is_deeper_than_maxframes() {
        let limits = Limits { maxframes: 4, ..LIMITS };
        let found = [0, JSTACK_FRAMES, 3, 25].map(|frames| limits.stack_frames(Stack::of_program(frames)));
        assert_eq!(found, [4, 4, 3, 4]);
    }

    #[test]
    fn values_are_words_but_for_strings_and_bytes() {
        assert_eq!(
            value_bytes(&Type::Integer(IntegerType { bytes: 1, signed: true }), LIMITS),
            8
        );
        assert_eq!(value_bytes(&Type::Pointer(None), LIMITS), 8);
        assert_eq!(value_bytes(&Type::String, LIMITS), 256);
        assert_eq!(
            value_bytes(
                &Type::String,
                Limits {
                    strsize: 0,
                    ustackframes: 1,
                    jstackframes: 1,
                    stackframes: 3,
                    maxframes: 1,
                }
            ),
            8
        );
        assert_eq!(value_bytes(&Type::Bytes { size: Some(9) }, LIMITS), 16);
        assert_eq!(value_bytes(&Type::Bytes { size: None }, LIMITS), 8);
        assert_eq!(value_bytes(&Type::Void, LIMITS), 0);
    }

    #[test]
    fn scalars_follow_each_other_and_arrays_have_no_place() {
        let variable = |value_type: Type, keys: Option<Vec<Type>>| Variable {
            name: String::new(),
            value_type,
            keys,
        };
        let program = Program {
            globals: vec![
                variable(Type::I32, None),
                variable(Type::String, None),
                variable(Type::I64, Some(vec![Type::String])),
                variable(Type::I64, None),
            ],
            thread_locals: vec![
                variable(Type::I64, None),
                variable(Type::Bytes { size: Some(20) }, None),
            ],
            ..Program::default()
        };
        let storage = Storage::new(&program, LIMITS);
        assert_eq!(storage.globals, [0, 8, NO_OFFSET, 272]);
        assert_eq!(storage.globals_bytes, 280);
        assert_eq!((storage.thread_locals, storage.thread_locals_bytes), (vec![0, 8], 32));
        assert_eq!((storage.clause_locals, storage.clause_locals_bytes), (vec![], 0));
    }

    #[test]
    fn a_record_has_a_field_for_every_value() {
        let format = crate::format::Format::parse("%d %s").unwrap();
        let arguments = vec![expression(Type::I32), expression(Type::String)];
        let layout = record_layout(
            &clause(vec![
                record(RecordKind::Trace(expression(Type::Pointer(None)))),
                Statement::Expression(expression(Type::I64)),
                record(RecordKind::Printf { format, arguments }),
                record(RecordKind::Clear(AggregationId(0))),
                record(RecordKind::Trace(expression(Type::Bytes { size: Some(5) }))),
                record(RecordKind::Stack(Stack::of_program(0))),
                record(RecordKind::Stack(Stack::of_program(2))),
                record(RecordKind::Exit(expression(Type::I32))),
            ]),
            LIMITS,
        );
        let fields: Vec<(usize, usize, u32, u32)> = layout
            .fields
            .iter()
            .map(|field| (field.statement, field.argument, field.offset, field.bytes))
            .collect();
        assert_eq!(
            fields,
            [
                (0, 0, 24, 8),
                (2, 0, 32, 8),
                (2, 1, 40, 256),
                (4, 0, 296, 5),
                (5, 0, 304, 48),
                (6, 0, 352, 24),
                (7, 0, 376, 8)
            ]
        );
        assert_eq!(layout.bytes, 384);
        assert_eq!(
            layout.fields[0].kind,
            FieldKind::Integer(IntegerType {
                bytes: 8,
                signed: false
            })
        );
        assert_eq!(
            layout.fields[1].kind,
            FieldKind::Integer(IntegerType { bytes: 4, signed: true })
        );
        assert_eq!(
            layout.fields[4].kind,
            FieldKind::Stack {
                side: Side::Program,
                frames: 5
            }
        );
    }

    #[test]
    fn an_empty_clause_has_a_bare_record() {
        let empty = clause(Vec::new());
        assert!(empty.records());
        assert_eq!(
            record_layout(&empty, LIMITS),
            RecordLayout {
                fields: Vec::new(),
                bytes: RECORD_HEADER_BYTES
            }
        );
    }
}
