//! Aggregations: finds the value words, at a fixed place or through the agent by their key, and updates them.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{InstBuilder, Value};
use nanoprobe_lang::Span;
use nanoprobe_lang::program::{AggregatingFunction, AggregationId, Expression, KeyExpression, Type};

use super::Emitter;
use super::place::KeyValue;
use crate::contract::{context, enabling};
use crate::error::Error;
use crate::{AgentFunction, value_words};

/// Offset of the second value word.
const SECOND: i32 = 8;
/// For minima and maxima: offset of the epoch to which the value belongs.
const EPOCH: i32 = 16;
/// For minima and maxima: offset of the current epoch, which the tracer sets.
const WANTED: i32 = 24;

/// An element of an aggregation's key, evaluated.
enum Element {
    Value(KeyValue),
    Stack { frames: u32 },
}

impl Emitter<'_, '_> {
    /// `@aggregation[keys] = function(value, weight)`.
    pub(super) fn aggregate(
        &mut self,
        statement: usize,
        aggregation: AggregationId,
        keys: &[KeyExpression],
        value: Option<&Expression>,
        weight: Option<&Expression>,
        span: Span,
    ) -> Result<(), Error> {
        let function = self
            .source
            .program
            .aggregations
            .get(aggregation.0 as usize)
            .ok_or(Error::Malformed {
                what: "an aggregation that is not declared",
                span,
            })?
            .function;
        let slot = self.source.slots.statements.get(statement).copied().flatten();
        // All operands are evaluated before the key is put together, because an operand may need the key buffer itself.
        let elements = if slot.is_some() {
            Vec::new()
        } else {
            self.elements(keys)?
        };
        let value = match value {
            Some(value) => Some(self.value(value)?),
            None => None,
        };
        let weight = match weight {
            Some(weight) => Some(self.value(weight)?),
            None => None,
        };
        if let Some((offset, _)) = slot {
            let address = self.context_load(context::ENABLING);
            let base = self.load(address, enabling::SLOT_BASE);
            let words = self.builder.ins().iadd(self.context, base);
            let words = self.address_plus(words, offset);
            return self.update(function, words, value, weight, span);
        }
        self.aggregation_key(elements);
        let id = self.constant(i64::from(aggregation.0));
        let count = self.constant(i64::from(value_words(function)));
        let words = self.call_for_result(AgentFunction::Aggregate, &[id, count]);
        let (found, end) = (self.builder.create_block(), self.builder.create_block());
        // 0 means that there was no room; the agent has already counted the drop.
        self.branch(words, found, end);
        self.enter(found);
        self.update(function, words, value, weight, span)?;
        self.jump(end);
        self.enter(end);
        Ok(())
    }

    fn elements(&mut self, keys: &[KeyExpression]) -> Result<Vec<Element>, Error> {
        keys.iter()
            .map(|key| match key {
                KeyExpression::Value(expression) => {
                    let value = self.present(expression)?;
                    Ok(Element::Value(KeyValue {
                        value,
                        is_string: expression.value_type == Type::String,
                    }))
                }
                KeyExpression::Stack(stack) => Ok(Element::Stack {
                    frames: self.source.limits.stack_frames(*stack),
                }),
            })
            .collect()
    }

    fn aggregation_key(&mut self, elements: Vec<Element>) {
        let mut elements = elements.into_iter().peekable();
        let mut values = Vec::new();
        while let Some(Element::Value(value)) = elements.next_if(|element| matches!(element, Element::Value(_))) {
            values.push(value);
        }
        self.build_key(&values);
        let mut appended = false;
        for element in elements {
            appended = true;
            match element {
                Element::Value(KeyValue { value, is_string: true }) => self.call(AgentFunction::KeyString, &[value]),
                Element::Value(KeyValue {
                    value,
                    is_string: false,
                }) => self.call(AgentFunction::KeyInteger, &[value]),
                Element::Stack { frames } => {
                    let frames = self.constant(i64::from(frames));
                    self.call(AgentFunction::KeyStack, &[frames]);
                }
            }
        }
        if appended {
            self.check_fault();
        }
    }

    /// Updates value words, laid out as `agent/contract.h` says. The words belong to this thread alone, so neither a
    /// lock nor an atomic access is needed.
    fn update(
        &mut self,
        function: AggregatingFunction,
        words: Value,
        value: Option<Value>,
        weight: Option<Value>,
        span: Span,
    ) -> Result<(), Error> {
        if function == AggregatingFunction::Count {
            self.add_at(words, 0, None);
            return Ok(());
        }
        let value = value.ok_or(Error::Malformed {
            what: "an aggregating function without its value",
            span,
        })?;
        let weight = match weight {
            Some(weight) => weight,
            None => self.constant(1),
        };
        let parameters = self.constant(function.packed_parameters() as i64);
        match function {
            AggregatingFunction::Count => {}
            AggregatingFunction::Sum => {
                self.add_at(words, 0, Some(value));
                self.add_at(words, SECOND, None);
            }
            AggregatingFunction::Average => {
                self.add_at(words, 0, None);
                self.add_at(words, SECOND, Some(value));
            }
            AggregatingFunction::Minimum => self.extreme(words, value, IntCC::SignedLessThan),
            AggregatingFunction::Maximum => self.extreme(words, value, IntCC::SignedGreaterThan),
            AggregatingFunction::StandardDeviation => self.call(AgentFunction::StandardDeviation, &[words, value]),
            AggregatingFunction::Quantize => self.call(AgentFunction::Quantize, &[words, value, weight]),
            AggregatingFunction::LinearQuantize { .. } => {
                self.call(AgentFunction::LinearQuantize, &[words, value, weight, parameters]);
            }
            AggregatingFunction::LogLinearQuantize { .. } => {
                self.call(AgentFunction::LogLinearQuantize, &[words, value, weight, parameters]);
            }
        }
        Ok(())
    }

    /// Adds a value, or one, to the word at an address.
    fn add_at(&mut self, address: Value, offset: i32, value: Option<Value>) {
        let value = match value {
            Some(value) => value,
            None => self.constant(1),
        };
        let old = self.load(address, offset);
        let new = self.builder.ins().iadd(old, value);
        self.store(new, address, offset);
    }

    /// The first value, and the first value after a `clear()`, are always stored. A later value is stored if it is more
    /// extreme than the stored value.
    fn extreme(&mut self, words: Value, value: Value, better: IntCC) {
        let old = self.load(words, 0);
        let updates = self.load(words, SECOND);
        let is_better = self.builder.ins().icmp(better, value, old);
        let is_first = self.is_zero(updates);
        let epoch = self.load(words, EPOCH);
        let wanted = self.load(words, WANTED);
        let is_cleared = self.builder.ins().icmp(IntCC::NotEqual, epoch, wanted);
        let is_first = self.builder.ins().bor(is_first, is_cleared);
        let take = self.builder.ins().bor(is_better, is_first);
        self.store(wanted, words, EPOCH);
        let new = self.builder.ins().select(take, value, old);
        self.store(new, words, 0);
        let updates = self.builder.ins().iadd_imm_s(updates, 1);
        self.store(updates, words, SECOND);
    }
}
