//! The order of the parts of a clause: see the crate's documentation.

use cranelift_codegen::ir::InstBuilder;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types;
use nanoprobe_lang::program::Statement;

use super::Emitter;
use super::record::Afterwards;
use crate::AgentFunction;
use crate::contract::{context, control};
use crate::error::Error;

impl Emitter<'_, '_> {
    /// Emits the whole function.
    pub(super) fn clause(&mut self) -> Result<(), Error> {
        let (clause, needs) = (self.source.clause, self.source.needs);
        if self.source.follows_exit {
            let control = self.context_load(context::CONTROL);
            let requested = self.load_u32(control, control::EXIT_REQUESTED);
            let on = self.builder.create_block();
            self.branch(requested, self.return_block, on);
            self.enter(on);
        }
        if needs.fault {
            let none = self.constant(0);
            self.context_store(none, context::FAULT);
        }
        if needs.scratch {
            let empty = self.constant(0);
            self.context_store(empty, context::SCRATCH_USED);
        }
        if needs.tid_in_predicate {
            self.check_thread();
        }
        if let Some(predicate) = &clause.predicate {
            let body = self.builder.create_block();
            self.branch_on(predicate, body, self.return_block)?;
            self.enter(body);
        }
        if needs.tid_in_body && !needs.tid_in_predicate {
            self.check_thread();
        }
        let record = if clause.records() { Some(self.reserve()?) } else { None };

        let mut afterwards = Vec::new();
        for (index, statement) in clause.statements.iter().enumerate() {
            self.action = u32::try_from(index).unwrap_or(u32::MAX).saturating_add(1);
            match statement {
                Statement::Expression(expression) => {
                    self.value(expression)?;
                }
                Statement::Aggregate {
                    aggregation,
                    keys,
                    value,
                    weight,
                    span,
                } => {
                    self.aggregate(index, *aggregation, keys, value.as_ref(), weight.as_ref(), *span)?;
                }
                Statement::Record(action) => {
                    if let Some(record) = &record {
                        afterwards.extend(self.record_action(record, index, action)?);
                    }
                }
            }
        }
        if let Some(record) = &record {
            for after in &afterwards {
                if let Afterwards::EndSpeculation(id, field) = after {
                    self.end_speculation(record, *id, field);
                }
            }
            self.call(AgentFunction::Commit, &[]);
        }
        for after in &afterwards {
            if let Afterwards::Exit(status) = after {
                self.call(AgentFunction::Exit, &[*status]);
            }
        }
        self.jump(self.return_block);

        self.enter(self.return_block);
        self.builder.ins().return_(&[]);
        self.fault_exit();
        Ok(())
    }

    /// The only place that reports a fault.
    fn fault_exit(&mut self) {
        let block = self.fault_block;
        self.enter(block);
        let action = self.builder.block_params(block).first().copied();
        if let Some(action) = action {
            // The error record carries the thread's id, too.
            self.check_thread();
            self.call(AgentFunction::Error, &[action]);
        }
        // The fault path has its own return. A jump to the common end would cost the hot path a jump.
        self.builder.ins().return_(&[]);
    }

    /// The thread pointer that led to this context may by now belong to another thread, because stacks are
    /// used again. Then the id is read again, and thread-local variables start at zero.
    fn check_thread(&mut self) {
        let address = self.context_load(context::TID_ADDRESS);
        let now = self.load_type(types::I32, address, 0);
        let known = self.load_type(types::I32, self.context, context::TID);
        let differs = self.builder.ins().icmp(IntCC::NotEqual, now, known);
        let changed = self.builder.create_block();
        self.builder.set_cold_block(changed);
        let on = self.builder.create_block();
        self.branch(differs, changed, on);
        self.enter(changed);
        self.call(AgentFunction::ThreadChanged, &[]);
        self.jump(on);
        self.enter(on);
    }
}
