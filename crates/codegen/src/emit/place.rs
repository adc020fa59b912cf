//! Variables: scalars at fixed places in memory, elements of associative arrays through the agent.

use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::{self, Block, InstBuilder, Value, types};
use nanoprobe_lang::Span;
use nanoprobe_lang::interpret::wide;
use nanoprobe_lang::layout::{NO_OFFSET, element_bytes};
use nanoprobe_lang::program::{BinaryOperator, Expression, IntegerType, Place, Scope, Type, Variable, VariableId};
use nanoprobe_lang::types::common;

use super::Emitter;
use super::arithmetic::integer_type;
use crate::AgentFunction;
use crate::contract::{THREAD_LOCAL_VARIABLE, context};
use crate::error::Error;
use crate::facts::literal;

/// An evaluated element of a key.
pub(super) struct KeyValue {
    pub value: Value,
    pub is_string: bool,
}

/// A place whose keys or address are evaluated. Reading and writing it has no further side effects.
pub(super) struct Slot<'a> {
    value_type: &'a Type,
    location: Location,
    span: Span,
}

enum Location {
    /// A variable in memory: its address, and its scope.
    Memory(Value, Scope),
    Element {
        variable: u32,
        keys: Vec<KeyValue>,
    },
    /// The address of an integer within a variable.
    Field(Value),
    /// An address that only the agent may follow.
    Unknown(Value),
}

impl<'a> Emitter<'a, '_> {
    /// Evaluates the parts of a place: the address of a scalar, the keys of an element.
    pub(super) fn slot<'p>(&mut self, place: &'p Place, span: Span) -> Result<Slot<'p>, Error>
    where
        'a: 'p,
    {
        match place {
            Place::Scalar {
                scope: Scope::ThreadLocal,
                variable,
            } if self.source.program.self_is_task => self.element(Scope::ThreadLocal, *variable, &[], span),
            Place::Scalar { scope, variable } => {
                let found = self.variable(*scope, *variable, span)?;
                let address = self.variable_address(*scope, *variable, span)?;
                Ok(Slot {
                    value_type: &found.value_type,
                    location: Location::Memory(address, *scope),
                    span,
                })
            }
            Place::Element { scope, variable, keys } => self.element(*scope, *variable, keys, span),
            Place::Field {
                scope,
                variable,
                offset,
                value_type,
            } => {
                let Type::Bytes { size: Some(size) } = self.variable(*scope, *variable, span)?.value_type else {
                    return Err(Error::Malformed {
                        what: "a member of what has none",
                        span,
                    });
                };
                let last = i64::from(size) - i64::from(integer_type(value_type).bytes);
                let address = self.variable_address(*scope, *variable, span)?;
                let value = self.value(offset)?;
                match literal(offset) {
                    Some(known) if (0..=last).contains(&known) => {}
                    _ => self.check_offset(value, last),
                }
                let location = Location::Field(self.builder.ins().iadd(address, value));
                Ok(Slot {
                    value_type,
                    location,
                    span,
                })
            }
            Place::Memory { address, value_type } => {
                let location = Location::Unknown(self.value(address)?);
                Ok(Slot {
                    value_type,
                    location,
                    span,
                })
            }
        }
    }

    /// An element of the table of dynamic variables, with its keys evaluated.
    fn element<'p>(
        &mut self,
        scope: Scope,
        variable: VariableId,
        keys: &'p [Expression],
        span: Span,
    ) -> Result<Slot<'p>, Error>
    where
        'a: 'p,
    {
        let found = self.variable(scope, variable, span)?;
        let mut values = Vec::new();
        let mut id = variable.0;
        if scope == Scope::ThreadLocal {
            // The number of the thread, or of the task, precedes the key, so that one table serves all threads.
            id |= THREAD_LOCAL_VARIABLE;
            let value = match self.source.program.self_is_task {
                true => self.task(),
                false => self.load_u32(self.context, context::TID),
            };
            values.push(KeyValue {
                value,
                is_string: false,
            });
        }
        for key in keys {
            let value = self.present(key)?;
            values.push(KeyValue {
                value,
                is_string: key.value_type == Type::String,
            });
        }
        Ok(Slot {
            value_type: &found.value_type,
            location: Location::Element {
                variable: id,
                keys: values,
            },
            span,
        })
    }

    fn variable(&self, scope: Scope, variable: VariableId, span: Span) -> Result<&'a Variable, Error> {
        let program = self.source.program;
        let list = match scope {
            Scope::Global => &program.globals,
            Scope::ThreadLocal => &program.thread_locals,
            Scope::ClauseLocal => &program.clause_locals,
        };
        list.get(variable.0 as usize).ok_or(Error::Malformed {
            what: "a variable that is not declared",
            span,
        })
    }

    pub(super) fn variable_address(&mut self, scope: Scope, variable: VariableId, span: Span) -> Result<Value, Error> {
        if scope == Scope::ThreadLocal && self.source.program.self_is_task {
            return Err(Error::Unsupported {
                what: "an array or structure in self-> of goroutines; -x self=thread makes it belong to the thread",
                span,
            });
        }
        let storage = self.source.storage;
        let (base, base_offset, offsets) = match scope {
            Scope::Global => (context::CONTROL, self.source.arena.globals_offset, &storage.globals),
            Scope::ThreadLocal => (context::LOCALS, 0, &storage.thread_locals),
            Scope::ClauseLocal => (context::CLAUSE_LOCALS, 0, &storage.clause_locals),
        };
        let offset = offsets
            .get(variable.0 as usize)
            .filter(|offset| **offset != NO_OFFSET)
            .ok_or(Error::Malformed {
                what: "a variable without a place",
                span,
            })?;
        let offset = base_offset.checked_add(*offset).ok_or(Error::TooLarge {
            what: "the variables' storage",
        })?;
        let base = self.context_load(base);
        Ok(self.address_plus(base, offset))
    }

    /// Faults with a bad address if an offset into a variable is greater than `last`.
    fn check_offset(&mut self, offset: Value, last: i64) {
        let (failed, on) = (self.builder.create_block(), self.builder.create_block());
        self.builder.set_cold_block(failed);
        let last = self.constant(last);
        let outside = self.builder.ins().icmp(IntCC::UnsignedGreaterThan, offset, last);
        self.branch(outside, failed, on);
        self.enter(failed);
        self.raise_at(crate::contract::fault::BAD_ADDRESS, offset);
        self.enter(on);
    }

    /// The value of a place.
    pub(super) fn read(&mut self, slot: &Slot<'_>) -> Result<Value, Error> {
        match &slot.location {
            Location::Memory(address, scope) => Ok(match slot.value_type {
                Type::String => self.read_string(*address, *scope),
                Type::Bytes { size: Some(_) } => *address,
                _ => self.load(*address, 0),
            }),
            Location::Field(address) => {
                let integer = integer_type(slot.value_type);
                let value = self.load_type(integer_width(integer), *address, 0);
                Ok(match (integer.bytes, integer.signed) {
                    (8, _) => value,
                    (_, true) => self.builder.ins().sextend(types::I64, value),
                    (_, false) => self.builder.ins().uextend(types::I64, value),
                })
            }
            Location::Unknown(address) => {
                let integer = integer_type(slot.value_type);
                let bytes = self.constant(i64::from(integer.bytes));
                let value = self.call_fallible(AgentFunction::Load, &[*address, bytes]);
                Ok(self.normalise(value, integer))
            }
            Location::Element { variable, keys } => {
                refuse_bytes(slot)?;
                self.build_key(keys);
                let (variable, bytes) = self.dynamic_identity(*variable, slot);
                if *slot.value_type == Type::String {
                    // Other threads may assign at the same time, so the agent returns a copy in scratch memory.
                    let address = self.call_fallible(AgentFunction::DynamicGet, &[variable, bytes]);
                    return Ok(self.or_null(address));
                }
                let address = self.call_for_result(AgentFunction::DynamicGet, &[variable, bytes]);
                let (found, end) = (self.builder.create_block(), self.builder.create_block());
                let result = self.builder.append_block_param(end, types::I64);
                // An element that was never assigned is 0.
                self.builder.ins().brif(address, found, &[], end, &[address.into()]);
                self.enter(found);
                let value = self.load(address, 0);
                self.builder.ins().jump(end, &[value.into()]);
                self.enter(end);
                Ok(result)
            }
        }
    }

    /// Stores a value of the place's type; yields the value that the place then holds.
    fn write(&mut self, slot: &Slot<'_>, value: Value) -> Result<Value, Error> {
        match &slot.location {
            Location::Memory(address, scope) => match slot.value_type {
                Type::String => {
                    let capacity = self.constant(i64::from(self.string_limit()));
                    self.call(AgentFunction::StringCopy, &[*address, value, capacity]);
                    self.mark_string(*address, *scope, value);
                    Ok(self.read_string(*address, *scope))
                }
                Type::Bytes { size: Some(size) } => {
                    self.copy_bytes(*address, value, *size);
                    Ok(*address)
                }
                _ => {
                    self.store(value, *address, 0);
                    Ok(value)
                }
            },
            Location::Field(address) => {
                self.write_integer(*address, slot.value_type, value);
                Ok(value)
            }
            Location::Unknown(address) => {
                let (done, otherwise) = (self.builder.create_block(), self.builder.create_block());
                self.write_by_address(*address, slot, value, done)?;
                self.jump(otherwise);
                self.enter(otherwise);
                let bytes = self.constant(i64::from(integer_type(slot.value_type).bytes));
                self.call(AgentFunction::StoreScratch, &[*address, bytes, value]);
                self.check_fault();
                self.jump(done);
                self.enter(done);
                Ok(value)
            }
            Location::Element { variable, keys } => {
                refuse_bytes(slot)?;
                // Zero deletes an element, and so does the string NULL.
                let held = match slot.value_type {
                    Type::String => self.zero_if_null(value),
                    _ => value,
                };
                self.build_key(keys);
                let (variable, bytes) = self.dynamic_identity(*variable, slot);
                self.call(AgentFunction::DynamicStore, &[variable, bytes, held]);
                Ok(value)
            }
        }
    }

    /// Stores an integer of this type in our memory.
    fn write_integer(&mut self, address: Value, value_type: &Type, value: Value) {
        let width = integer_width(integer_type(value_type));
        let narrow = if width == types::I64 {
            value
        } else {
            self.builder.ins().ireduce(width, value)
        };
        self.store(narrow, address, 0);
    }

    /// If an address lies in one of D's own arrays or structures, stores there and jumps to `done`. Otherwise, control
    /// continues with the code that is emitted next.
    fn write_by_address(&mut self, address: Value, slot: &Slot<'_>, value: Value, done: Block) -> Result<(), Error> {
        let program = self.source.program;
        let wanted = u32::from(integer_type(slot.value_type).bytes);
        for (scope, list) in [
            (Scope::Global, &program.globals),
            (Scope::ThreadLocal, &program.thread_locals),
            (Scope::ClauseLocal, &program.clause_locals),
        ] {
            if scope == Scope::ThreadLocal && program.self_is_task {
                continue;
            }
            for (variable, id) in list.iter().zip(0..) {
                let (Type::Bytes { size: Some(size) }, None) = (&variable.value_type, &variable.keys) else {
                    continue;
                };
                let Some(last) = size.checked_sub(wanted) else { continue };
                let (inside, outside) = (self.builder.create_block(), self.builder.create_block());
                let base = self.variable_address(scope, VariableId(id), slot.span)?;
                let offset = self.builder.ins().isub(address, base);
                let last = self.constant(i64::from(last));
                let lies_there = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, offset, last);
                self.branch(lies_there, inside, outside);
                self.enter(inside);
                self.write_integer(address, slot.value_type, value);
                self.jump(done);
                self.enter(outside);
            }
        }
        Ok(())
    }

    fn dynamic_identity(&mut self, variable: u32, slot: &Slot<'_>) -> (Value, Value) {
        let bytes = element_bytes(slot.value_type, self.source.limits);
        (self.constant(i64::from(variable)), self.constant(i64::from(bytes)))
    }

    /// `place = value`.
    pub(super) fn assign(&mut self, place: &Place, value: &Expression, span: Span) -> Result<Value, Error> {
        let new = self.value(value)?;
        let slot = self.slot(place, span)?;
        self.write(&slot, new)
    }

    /// `place operator= value`.
    pub(super) fn assign_operator(
        &mut self,
        place: &Place,
        operator: BinaryOperator,
        value: &Expression,
        span: Span,
    ) -> Result<Value, Error> {
        let right = self.value(value)?;
        let slot = self.slot(place, span)?;
        let left = self.read(&slot)?;
        let (place_type, right_type) = (integer_type(slot.value_type), integer_type(&value.value_type));
        let is_shift = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let operands = if is_shift {
            wide(place_type)
        } else {
            wide(common(place_type, right_type))
        };
        let left = self.normalise(left, operands);
        let right = if is_shift {
            right
        } else {
            self.normalise(right, operands)
        };
        let result = self.arithmetic(operator, left, right, operands, operands, literal(value));
        let new = self.normalise(result, place_type);
        self.write(&slot, new)
    }

    /// `++` and `--`.
    pub(super) fn increment(&mut self, place: &Place, delta: i64, post: bool, span: Span) -> Result<Value, Error> {
        let slot = self.slot(place, span)?;
        let old = self.read(&slot)?;
        let sum = self.builder.ins().iadd_imm_s(old, delta);
        let new = self.normalise(sum, integer_type(slot.value_type));
        self.write(&slot, new)?;
        Ok(if post { old } else { new })
    }

    /// Puts evaluated elements together as a key in `context->key`. There is one key buffer for each thread, so
    /// nothing may be evaluated between this call and the use of the key.
    ///
    /// Leading integers are stored here, after one check of the capacity. The agent appends the rest.
    pub(super) fn build_key(&mut self, keys: &[KeyValue]) {
        let integers = keys.iter().take_while(|key| !key.is_string).count();
        let bytes = 8 * integers as i64;
        if integers > 0 {
            let capacity = self.context_load(context::KEY_CAPACITY);
            let short = self.builder.ins().icmp_imm_s(IntCC::UnsignedLessThan, capacity, bytes);
            self.fault_if(short, crate::contract::fault::KEY_TOO_LONG);
            let buffer = self.context_load(context::KEY);
            for (index, key) in keys.iter().take(integers).enumerate() {
                self.store(key.value, buffer, 8 * index as i32);
            }
        }
        let bytes = self.constant(bytes);
        self.context_store(bytes, context::KEY_BYTES);
        for key in keys.iter().skip(integers) {
            let function = if key.is_string {
                AgentFunction::KeyString
            } else {
                AgentFunction::KeyInteger
            };
            self.call(function, &[key.value]);
        }
        if integers < keys.len() {
            self.check_fault();
        }
    }

    /// Copies bytes within our memory: eight at a time and then the rest; in a loop if there are many.
    pub(super) fn copy_bytes(&mut self, to: Value, from: Value, bytes: u32) {
        const UNROLLED_WORDS: u32 = 8;
        let words = bytes / 8;
        let mut offset = 0;
        if words > UNROLLED_WORDS {
            let (head, end) = (self.builder.create_block(), self.builder.create_block());
            let position = self.builder.append_block_param(head, types::I64);
            let start = self.constant(0);
            self.builder.ins().jump(head, &[start.into()]);
            self.enter(head);
            let source = self.builder.ins().iadd(from, position);
            let word = self.load(source, 0);
            let destination = self.builder.ins().iadd(to, position);
            self.store(word, destination, 0);
            let next = self.builder.ins().iadd_imm_s(position, 8);
            let done = self.builder.ins().icmp_imm_s(IntCC::Equal, next, i64::from(words) * 8);
            self.builder.ins().brif(done, end, &[], head, &[next.into()]);
            self.enter(end);
            offset = words * 8;
        }
        let rest_from = self.address_plus(from, offset);
        let rest_to = self.address_plus(to, offset);
        let mut done = 0;
        for (value_type, width) in [(types::I64, 8), (types::I32, 4), (types::I16, 2), (types::I8, 1)] {
            while bytes - offset - done >= width {
                let value = self.load_type(value_type, rest_from, done as i32);
                self.store(value, rest_to, done as i32);
                done += width;
            }
        }
    }
}

/// The machine's type for an integer.
fn integer_width(integer: IntegerType) -> ir::Type {
    match integer.bytes {
        1 => types::I8,
        2 => types::I16,
        4 => types::I32,
        _ => types::I64,
    }
}

fn refuse_bytes(slot: &Slot<'_>) -> Result<(), Error> {
    match slot.value_type {
        Type::Bytes { .. } => Err(Error::Unsupported {
            what: "an associative array of copied-in bytes",
            span: slot.span,
        }),
        _ => Ok(()),
    }
}
