//! Records. Room in the ring is reserved right after the predicate, and fields are written in place.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use nanoprobe_lang::layout::{FieldKind, RecordField, RecordLayout, record_layout, recorded_values};
use nanoprobe_lang::program::{RecordAction, RecordKind};

use super::Emitter;
use crate::AgentFunction;
use crate::contract::{context, control, fault};
use crate::error::Error;

/// The record being written.
pub(super) struct Record {
    /// The address of the record's header. It has a value of its own, because the agent's results overwrite each other.
    address: Value,
    layout: RecordLayout,
}

/// The work that remains for an action after it has recorded.
pub(super) enum Afterwards {
    /// `exit()` with this status, to be done when the record is published.
    Exit(Value),
    /// `commit()` or `discard()` of this number. The speculation is ended before the record is published, so that the
    /// record contains the result.
    EndSpeculation(Value, RecordField),
}

impl Emitter<'_, '_> {
    /// Reserves the clause's record. If there is no room, the clause ends, as in DTrace.
    pub(super) fn reserve(&mut self) -> Result<Record, Error> {
        let layout = record_layout(self.source.clause, self.source.limits);
        let is_possible = layout.bytes <= i32::MAX as u32;
        if !is_possible {
            return Err(Error::TooLarge {
                what: "the clause's record",
            });
        }
        let epid = self.epid();
        let bytes = self.constant(i64::from(layout.bytes));
        let address = self.call_for_result(AgentFunction::Reserve, &[epid, bytes]);
        let room = self.builder.create_block();
        self.branch(address, room, self.return_block);
        self.enter(room);
        self.record = Some(address);
        Ok(Record { address, layout })
    }

    /// Writes the fields of one action. Yields the work that remains, which can no longer fail.
    pub(super) fn record_action(
        &mut self,
        record: &Record,
        statement: usize,
        action: &RecordAction,
    ) -> Result<Option<Afterwards>, Error> {
        let values = recorded_values(&action.kind);
        let mut last = None;
        for field in record.layout.fields.iter().filter(|field| field.statement == statement) {
            if let FieldKind::Stack { frames, .. } = field.kind {
                let destination = self.address_plus(record.address, field.offset);
                let frames = self.constant(i64::from(frames));
                self.call(AgentFunction::UserStack, &[destination, frames]);
                continue;
            }
            let expression = values.get(field.argument).ok_or(Error::Malformed {
                what: "a recorded value without an expression",
                span: action.span,
            })?;
            let value = self.present(expression)?;
            self.write_field(record, field, value);
            last = Some(value);
        }
        Ok(match (&action.kind, last) {
            (RecordKind::Speculate(_), Some(id)) => {
                // If there is no such speculation or no room, the clause ends, and its record is not published.
                let bytes = self.constant(i64::from(record.layout.bytes));
                let goes_on = self.call_for_result(AgentFunction::Speculate, &[id, bytes]);
                let on = self.builder.create_block();
                self.branch(goes_on, on, self.return_block);
                self.enter(on);
                None
            }
            (RecordKind::CommitSpeculation(_) | RecordKind::DiscardSpeculation(_), Some(id)) => {
                let control = self.context_load(context::CONTROL);
                let count = self.load(control, control::SPECULATION_COUNT);
                let none = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, id, count);
                self.fault_if(none, fault::ILLEGAL);
                let mut fields = record.layout.fields.iter();
                let field = fields.find(|field| field.statement == statement);
                field.map(|field| Afterwards::EndSpeculation(id, field.clone()))
            }
            (RecordKind::Exit(_), Some(status)) => Some(Afterwards::Exit(status)),
            _ => None,
        })
    }

    /// Ends a speculation. If it was not taken, 0 is recorded, and the tracer has nothing to do.
    pub(super) fn end_speculation(&mut self, record: &Record, id: Value, field: &RecordField) {
        let ended = self.call_for_result(AgentFunction::EndSpeculation, &[id]);
        self.write_field(record, field, ended);
    }

    fn write_field(&mut self, record: &Record, field: &RecordField, value: Value) {
        match field.kind {
            FieldKind::Integer(_) => self.store(value, record.address, field.offset as i32),
            FieldKind::String => {
                let destination = self.address_plus(record.address, field.offset);
                let capacity = self.constant(i64::from(field.bytes.min(self.string_limit())));
                self.call(AgentFunction::StringCopy, &[destination, value, capacity]);
            }
            FieldKind::Bytes => {
                let destination = self.address_plus(record.address, field.offset);
                self.copy_bytes(destination, value, field.bytes);
            }
            FieldKind::Stack { .. } => {}
        }
    }
}
