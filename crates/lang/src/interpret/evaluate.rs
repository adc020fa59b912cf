//! Expressions: the value of each node, in D's order.

use super::arithmetic::{binary, common_type, holds, integer_type, is_comparison, normalise, promoted, wide};
use super::value::until_nul;
use super::{Fault, FaultKind, SCRATCH_ADDRESS, Value, World, key};
use crate::layout::Limits;
use crate::program::{
    AggregationId, BinaryOperator, Expression, ExpressionKind, IntegerType, KeyExpression, LogicalOperator, Place,
    Program, Scope, Type, UnaryOperator, Variable, VariableId,
};

/// One run of a clause.
pub(super) struct Evaluator<'a, W: ?Sized> {
    program: &'a Program,
    limits: Limits,
    world: &'a mut W,
    /// Scratch memory used so far; it appears at [`SCRATCH_ADDRESS`].
    scratch: Vec<u8>,
}

/// A place whose parts are evaluated.
pub(super) struct Slot<'a> {
    value_type: &'a Type,
    location: Location,
}

enum Location {
    Variable {
        scope: Scope,
        variable: VariableId,
        key: Option<Vec<u8>>,
    },
    /// An integer at an address.
    Memory(u64),
    /// An integer in a variable, from a byte on.
    Field {
        scope: Scope,
        variable: VariableId,
        offset: u64,
    },
}

impl<'a, W: World + ?Sized> Evaluator<'a, W> {
    pub(super) fn new(program: &'a Program, limits: Limits, world: &'a mut W) -> Evaluator<'a, W> {
        Evaluator {
            program,
            limits,
            world,
            scratch: Vec::new(),
        }
    }

    /// Whether an expression is true: not zero, not an empty string.
    pub(super) fn truth(&mut self, expression: &Expression) -> Result<bool, Fault> {
        Ok(match self.value(expression)? {
            Value::String(text) => !until_nul(&text).is_empty(),
            value => value.as_integer() != 0,
        })
    }

    fn integer(&mut self, expression: &Expression) -> Result<i64, Fault> {
        Ok(self.value(expression)?.as_integer())
    }

    pub(super) fn stack(&mut self, frames: u32) -> Vec<u64> {
        let mut stack = self.world.stack(frames);
        stack.truncate(frames as usize);
        stack
    }

    /// The value of an expression, normalised to its type.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<Value, Fault> {
        let value_type = &expression.value_type;
        let value = match &expression.kind {
            // The string NULL.
            ExpressionKind::Integer(_) if *value_type == Type::String => Value::String(Vec::new()),
            ExpressionKind::Integer(value) => Value::Integer(*value),
            ExpressionKind::String(text) => Value::String(text.clone().into_bytes()),
            ExpressionKind::Builtin(builtin) => match self.world.builtin(*builtin)? {
                Value::Integer(value) => Value::Integer(normalise(value, integer_type(value_type))),
                other => other,
            },
            ExpressionKind::Register(index) => {
                let index = self.integer(index)?;
                Value::Integer(self.world.register(index)?)
            }
            ExpressionKind::Variable(place) => {
                let slot = self.slot(place)?;
                self.read(&slot)?
            }
            ExpressionKind::Unary { operator, operand } => self.unary(*operator, operand, value_type)?,
            ExpressionKind::Binary { operator, left, right } => self.binary(*operator, left, right, value_type)?,
            ExpressionKind::Logical { operator, left, right } => {
                let left = self.truth(left)?;
                let value = match operator {
                    LogicalOperator::And => left && self.truth(right)?,
                    LogicalOperator::Or => left || self.truth(right)?,
                    LogicalOperator::Xor => left != self.truth(right)?,
                };
                Value::Integer(i64::from(value))
            }
            ExpressionKind::Conditional {
                condition,
                then,
                otherwise,
            } => {
                let chosen = if self.truth(condition)? { then } else { otherwise };
                self.value(chosen)?
            }
            ExpressionKind::Cast(operand) | ExpressionKind::Narrow(operand) => self.cast(operand, value_type)?,
            ExpressionKind::Assign { place, value } => self.assign(place, value)?,
            ExpressionKind::AssignOperator { place, operator, value } => {
                self.assign_operator(place, *operator, value)?
            }
            ExpressionKind::Increment { place, delta, post } => {
                let slot = self.slot(place)?;
                let old = self.read(&slot)?.as_integer();
                let new = normalise(old.wrapping_add(*delta), integer_type(slot.value_type));
                self.write(&slot, Value::Integer(new))?;
                Value::Integer(if *post { old } else { new })
            }
            ExpressionKind::Comma { first, second } => {
                self.value(first)?;
                self.value(second)?
            }
            ExpressionKind::Call { function, arguments } => self.call(*function, arguments)?,
            ExpressionKind::Load(address) => {
                let address = self.integer(address)? as u64;
                self.load(address, integer_type(value_type))?
            }
        };
        Ok(value)
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &Expression, result: &Type) -> Result<Value, Fault> {
        let value = match operator {
            UnaryOperator::Not => return Ok(Value::Integer(i64::from(!self.truth(operand)?))),
            UnaryOperator::Negate => self.integer(operand)?.wrapping_neg(),
            UnaryOperator::Complement => !self.integer(operand)?,
        };
        Ok(Value::Integer(normalise(value, integer_type(result))))
    }

    fn binary(
        &mut self,
        operator: BinaryOperator,
        left: &Expression,
        right: &Expression,
        result: &Type,
    ) -> Result<Value, Fault> {
        let (left_value, right_value) = (self.value(left)?, self.value(right)?);
        if let (Value::String(left), Value::String(right)) = (&left_value, &right_value) {
            if !is_comparison(operator) {
                return Err(Fault::new(FaultKind::Illegal));
            }
            let order = self.compared(left).cmp(self.compared(right));
            return Ok(Value::Integer(i64::from(holds(operator, order))));
        }
        let operands = integer_type(&left.value_type);
        let value = binary(
            operator,
            left_value.as_integer(),
            right_value.as_integer(),
            operands,
            integer_type(result),
        )?;
        Ok(Value::Integer(value))
    }

    /// What of a string comparisons and lengths look at: up to its NUL, at most `strsize` bytes.
    pub(super) fn compared<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let text = until_nul(text);
        text.get(..self.limits.string_bytes() as usize).unwrap_or(text)
    }

    fn cast(&mut self, operand: &Expression, to: &Type) -> Result<Value, Fault> {
        let value = self.value(operand)?;
        Ok(match (value, to) {
            (Value::String(text), _) => Value::String(text),
            (Value::Bytes { bytes, .. }, Type::String) => Value::String(self.kept(&bytes).to_vec()),
            (value, Type::String) => {
                let limit = self.limits.string_bytes() as usize;
                Value::String(self.read_string(value.as_integer() as u64, limit - 1)?)
            }
            (value, Type::Integer(integer)) => Value::Integer(normalise(value.as_integer(), *integer)),
            (value, Type::Pointer(_)) => Value::Integer(value.as_integer()),
            (value, _) => value,
        })
    }

    // ---- memory ----------------------------------------------------------------------------------------------------

    /// So many bytes more are to be taken from scratch memory.
    pub(super) fn room(&self, bytes: u64) -> Result<usize, Fault> {
        let left = self.world.scratch_bytes().saturating_sub(self.scratch.len());
        let fits = usize::try_from(bytes).ok().filter(|bytes| *bytes <= left);
        fits.ok_or(Fault::new(FaultKind::Scratch))
    }

    /// Keeps bytes in scratch memory.
    pub(super) fn in_scratch(&mut self, bytes: Vec<u8>) -> Value {
        let address = SCRATCH_ADDRESS + self.scratch.len() as u64;
        self.scratch.extend_from_slice(&bytes);
        self.scratch.resize(self.scratch.len().next_multiple_of(8), 0);
        Value::Bytes { address, bytes }
    }

    /// The scratch memory from an address on, if it lies there.
    fn scratch_at(&self, address: u64) -> Option<&[u8]> {
        let offset = usize::try_from(address.checked_sub(SCRATCH_ADDRESS)?).ok()?;
        (offset < self.world.scratch_bytes()).then(|| self.scratch.get(offset..).unwrap_or_default())
    }

    /// Where in scratch memory an address lies, which the clause must have taken up to `bytes` behind it.
    pub(super) fn scratch_place(&self, address: u64, bytes: u64) -> Result<std::ops::Range<usize>, Fault> {
        let start = address.checked_sub(SCRATCH_ADDRESS);
        let end = start.and_then(|start| start.checked_add(bytes));
        match (start, end) {
            (Some(start), Some(end)) if end <= self.scratch.len() as u64 => Ok(start as usize..end as usize),
            _ => Err(Fault::bad_address(address)),
        }
    }

    pub(super) fn store(&mut self, address: u64, bytes: &[u8]) -> Result<(), Fault> {
        let place = self.scratch_place(address, bytes.len() as u64)?;
        if let Some(room) = self.scratch.get_mut(place) {
            room.copy_from_slice(bytes);
        }
        Ok(())
    }

    fn load(&mut self, address: u64, integer: IntegerType) -> Result<Value, Fault> {
        let mut word = [0; 8];
        let bytes = word
            .get_mut(..usize::from(integer.bytes))
            .ok_or(Fault::new(FaultKind::Illegal))?;
        self.read_memory(address, bytes)?;
        Ok(Value::Integer(normalise(i64::from_le_bytes(word), integer)))
    }

    pub(super) fn string_bytes(&self) -> usize {
        self.limits.string_bytes() as usize
    }

    pub(super) fn random(&mut self) -> i64 {
        self.world.random()
    }

    pub(super) fn world(&mut self) -> &mut W {
        self.world
    }

    /// `copyout`: of scratch memory the bytes from and to these places.
    pub(super) fn copy_out(&mut self, place: std::ops::Range<usize>, address: u64) -> Result<Value, Fault> {
        self.world.write(address, self.scratch.get(place).unwrap_or_default())?;
        Ok(Value::Integer(0))
    }

    pub(super) fn read_memory(&mut self, address: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        match self.scratch_at(address) {
            None => self.world.read(address, bytes),
            Some(scratch) => {
                bytes.copy_from_slice(scratch.get(..bytes.len()).ok_or(Fault::bad_address(address))?);
                Ok(())
            }
        }
    }

    pub(super) fn read_string(&mut self, address: u64, limit: usize) -> Result<Vec<u8>, Fault> {
        let mut text = match self.scratch_at(address) {
            None => self.world.read_string(address, limit)?,
            Some(scratch) => until_nul(scratch).to_vec(),
        };
        text.truncate(limit);
        Ok(until_nul(&text).to_vec())
    }

    // ---- variables -------------------------------------------------------------------------------------------------

    pub(super) fn slot<'p>(&mut self, place: &'p Place) -> Result<Slot<'p>, Fault>
    where
        'a: 'p,
    {
        let (scope, variable, keys) = match place {
            Place::Scalar { scope, variable } => (*scope, *variable, None),
            Place::Element { scope, variable, keys } => (*scope, *variable, Some(keys)),
            Place::Field {
                scope,
                variable,
                offset,
                value_type,
            } => {
                let location = Location::Field {
                    scope: *scope,
                    variable: *variable,
                    offset: self.integer(offset)? as u64,
                };
                return Ok(Slot { value_type, location });
            }
            Place::Memory { address, value_type } => {
                let address = self.integer(address)? as u64;
                return Ok(Slot {
                    value_type,
                    location: Location::Memory(address),
                });
            }
        };
        let key = match keys {
            None => None,
            Some(keys) => {
                let values = keys.iter().map(|key| self.value(key)).collect::<Result<Vec<_>, _>>()?;
                Some(self.key(&values)?)
            }
        };
        let value_type = &self.variable(scope, variable)?.value_type;
        Ok(Slot {
            value_type,
            location: Location::Variable { scope, variable, key },
        })
    }

    /// The bytes of a variable, and where in them an integer lies.
    fn field(
        &mut self,
        scope: Scope,
        variable: VariableId,
        offset: u64,
        integer: IntegerType,
    ) -> Result<(Vec<u8>, std::ops::Range<usize>), Fault> {
        let Type::Bytes { size: Some(size) } = self.variable(scope, variable)?.value_type else {
            return Err(Fault::new(FaultKind::Illegal));
        };
        let held = self.world.get(scope, variable, None);
        let mut bytes = held.map(|held| held.as_bytes().to_vec()).unwrap_or_default();
        bytes.resize(size as usize, 0);
        match offset.checked_add(u64::from(integer.bytes)) {
            Some(end) if end <= u64::from(size) => Ok((bytes, offset as usize..end as usize)),
            _ => Err(Fault::bad_address(offset)),
        }
    }

    fn variable(&self, scope: Scope, variable: VariableId) -> Result<&'a Variable, Fault> {
        let list = match scope {
            Scope::Global => &self.program.globals,
            Scope::ThreadLocal => &self.program.thread_locals,
            Scope::ClauseLocal => &self.program.clause_locals,
        };
        list.get(variable.0 as usize).ok_or(Fault::new(FaultKind::Illegal))
    }

    fn key(&self, elements: &[Value]) -> Result<Vec<u8>, Fault> {
        let key = key::key_bytes(elements, self.limits.string_bytes());
        if key.len() > self.world.key_bytes_max() {
            Err(Fault::new(FaultKind::KeyTooLong))
        } else {
            Ok(key)
        }
    }

    /// What was never assigned is 0, or empty.
    pub(super) fn read(&mut self, slot: &Slot<'_>) -> Result<Value, Fault> {
        let value = match &slot.location {
            Location::Variable { scope, variable, key } => self.world.get(*scope, *variable, key.as_deref()),
            Location::Memory(address) => return self.load(*address, integer_type(slot.value_type)),
            Location::Field {
                scope,
                variable,
                offset,
            } => {
                let integer = integer_type(slot.value_type);
                let (bytes, place) = self.field(*scope, *variable, *offset, integer)?;
                let mut word = [0; 8];
                for (to, from) in word.iter_mut().zip(bytes.get(place).unwrap_or_default()) {
                    *to = *from;
                }
                return Ok(Value::Integer(normalise(i64::from_le_bytes(word), integer)));
            }
        };
        Ok(match (slot.value_type, value) {
            (Type::String, value) => Value::String(
                value
                    .as_ref()
                    .map(|text| self.kept(text.as_bytes()).to_vec())
                    .unwrap_or_default(),
            ),
            (Type::Bytes { size: Some(size) }, value) => {
                let mut bytes = value
                    .as_ref()
                    .map(|bytes| bytes.as_bytes().to_vec())
                    .unwrap_or_default();
                bytes.resize(*size as usize, 0);
                self.in_scratch(bytes)
            }
            (_, Some(value)) => Value::Integer(value.as_integer()),
            (_, None) => Value::Integer(0),
        })
    }

    /// Stores a value of the place's type; yields what the place then holds.
    pub(super) fn write(&mut self, slot: &Slot<'_>, value: Value) -> Result<Value, Fault> {
        let value = match (slot.value_type, value) {
            (Type::String, value) => Value::String(self.kept(value.as_bytes()).to_vec()),
            (Type::Bytes { size: Some(_) }, value) => value,
            (other, value) => Value::Integer(normalise(value.as_integer(), integer_type(other))),
        };
        match &slot.location {
            Location::Memory(address) => {
                let bytes = value.as_integer().to_le_bytes();
                let count = usize::from(integer_type(slot.value_type).bytes);
                self.store(*address, bytes.get(..count).unwrap_or_default())?;
            }
            Location::Field {
                scope,
                variable,
                offset,
            } => {
                let integer = integer_type(slot.value_type);
                let (mut bytes, place) = self.field(*scope, *variable, *offset, integer)?;
                let new = value.as_integer().to_le_bytes();
                for (to, from) in bytes.get_mut(place).unwrap_or_default().iter_mut().zip(new) {
                    *to = from;
                }
                let whole = Value::Bytes { address: 0, bytes };
                self.world.set(*scope, *variable, None, Some(whole));
            }
            Location::Variable { scope, variable, key } => {
                let is_zero = key.is_some() && value == Value::Integer(0);
                self.world
                    .set(*scope, *variable, key.as_deref(), (!is_zero).then(|| value.clone()));
            }
        }
        Ok(value)
    }

    /// What of a string a variable or a record keeps: room for the NUL must be left.
    pub(super) fn kept<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let text = until_nul(text);
        text.get(..self.limits.string_bytes() as usize - 1).unwrap_or(text)
    }

    fn assign(&mut self, place: &Place, value: &Expression) -> Result<Value, Fault> {
        let new = self.value(value)?;
        let slot = self.slot(place)?;
        // Zero deletes an element; for a string that is NULL, not the empty string.
        if is_null(value)
            && *slot.value_type == Type::String
            && let Location::Variable {
                scope,
                variable,
                key: key @ Some(_),
            } = &slot.location
        {
            self.world.set(*scope, *variable, key.as_deref(), None);
            return Ok(new);
        }
        self.write(&slot, new)
    }

    fn assign_operator(&mut self, place: &Place, operator: BinaryOperator, value: &Expression) -> Result<Value, Fault> {
        let right = self.integer(value)?;
        let slot = self.slot(place)?;
        let left = self.read(&slot)?.as_integer();
        let (place_type, right_type) = (integer_type(slot.value_type), integer_type(&value.value_type));
        let is_shift = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let operands = if is_shift {
            wide(promoted(place_type))
        } else {
            wide(common_type(place_type, right_type))
        };
        let right = if is_shift { right } else { normalise(right, operands) };
        let result = binary(operator, normalise(left, operands), right, operands, operands)?;
        self.write(&slot, Value::Integer(result))
    }

    // ---- aggregations ----------------------------------------------------------------------------------------------

    pub(super) fn aggregate(
        &mut self,
        aggregation: AggregationId,
        keys: &[KeyExpression],
        value: Option<&Expression>,
        weight: Option<&Expression>,
    ) -> Result<(), Fault> {
        // A stack is taken when the key is put together: after everything is evaluated.
        let mut elements = Vec::new();
        for key in keys {
            elements.push(match key {
                KeyExpression::Value(expression) => Ok(self.value(expression)?),
                KeyExpression::UserStack { frames } => Err(self.limits.stack_frames(*frames)),
            });
        }
        let value = value.map(|value| self.integer(value)).transpose()?.unwrap_or(0);
        let weight = weight.map(|weight| self.integer(weight)).transpose()?.unwrap_or(1);
        let elements: Vec<Value> = elements
            .into_iter()
            .map(|element| element.unwrap_or_else(|frames| Value::Stack(self.stack(frames))))
            .collect();
        let key = self.key(&elements)?;
        self.world.aggregate(aggregation, &key, value, weight);
        Ok(())
    }
}

/// Whether an expression is the literal 0, converted or not.
fn is_null(expression: &Expression) -> bool {
    match &expression.kind {
        ExpressionKind::Integer(value) => *value == 0,
        ExpressionKind::Cast(operand) => is_null(operand),
        _ => false,
    }
}
