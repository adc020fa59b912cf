//! Expressions: the value of each node, in D's order.

use super::arithmetic::{binary, holds, integer_type, is_comparison, normalise, wide};
use super::value::until_nul;
use super::{Fault, FaultKind, Value, World, key};
use crate::layout::{Limits, Storage};
use crate::program::{
    AggregationId, BinaryOperator, Expression, ExpressionKind, IntegerType, KeyExpression, LogicalOperator, Place,
    Program, Scope, Side, Type, UnaryOperator, Variable, VariableId,
};
use crate::types;

/// The string NULL.
pub(super) const NULL: Value = Value::Integer(0);

/// The state of one run of a clause.
pub(super) struct Evaluator<'a, W: ?Sized> {
    pub(super) program: &'a Program,
    pub(super) limits: Limits,
    pub(super) world: &'a mut W,
    /// Scratch memory used so far; it appears at [`SCRATCH_ADDRESS`].
    pub(super) scratch: Vec<u8>,
    /// Where the variables lie. This is computed at the first use.
    pub(super) storage: std::cell::OnceCell<Storage>,
}

/// A place whose keys or address are already evaluated.
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
    /// An integer within a variable, at this offset in bytes.
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
            storage: std::cell::OnceCell::new(),
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

    pub(super) fn stack(&mut self, side: Side, frames: u32) -> Vec<u64> {
        let mut stack = self.world.stack(side, frames);
        stack.truncate(frames as usize);
        stack
    }

    /// The value of an expression, normalised to its type.
    pub(super) fn value(&mut self, expression: &Expression) -> Result<Value, Fault> {
        let value_type = &expression.value_type;
        let value = match &expression.kind {
            ExpressionKind::Integer(value) => Value::Integer(*value),
            ExpressionKind::String(text) => Value::String(text.clone()),
            ExpressionKind::Builtin(builtin) => match self.world.builtin(*builtin)? {
                Value::Integer(value) => Value::Integer(normalise(value, integer_type(value_type))),
                other => other,
            },
            ExpressionKind::Register(index) => {
                let index = self.integer(index)?;
                Value::Integer(self.world.register(index)?)
            }
            // The address of bytes of unknown size.
            ExpressionKind::Variable(Place::Scalar { scope, variable })
                if *value_type == (Type::Bytes { size: None }) =>
            {
                super::addresses::pointer(self.variable_address(*scope, *variable)?)
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
        if left.value_type == Type::String {
            if !is_comparison(operator) {
                return Err(Fault::new(FaultKind::Illegal));
            }
            let order = self.kept(left_value.as_bytes()).cmp(self.kept(right_value.as_bytes()));
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

    fn cast(&mut self, operand: &Expression, to: &Type) -> Result<Value, Fault> {
        let value = self.value(operand)?;
        Ok(match (value, to) {
            (value, Type::String) if operand.value_type == Type::String => value,
            // The address of a string: a copy that ends in zeros.
            (Value::String(mut text), _) => {
                let room = self.room(u64::from(self.limits.string_bytes()))?;
                text.resize(room, 0);
                Value::Integer(self.in_scratch(text).as_integer())
            }
            (Value::Bytes { bytes, .. }, Type::String) => Value::String(self.kept(&bytes).to_vec()),
            (value, Type::String) => {
                let limit = self.limits.string_limit() as usize;
                Value::String(self.read_string(value.as_integer() as u64, limit - 1)?)
            }
            (value, Type::Integer(integer)) => Value::Integer(normalise(value.as_integer(), *integer)),
            (value, Type::Pointer(_)) => Value::Integer(value.as_integer()),
            (value, _) => value,
        })
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
                let values = keys
                    .iter()
                    .map(|key| self.present(key))
                    .collect::<Result<Vec<_>, _>>()?;
                Some(self.key(&values)?)
            }
        };
        let value_type = &self.variable(scope, variable)?.value_type;
        Ok(Slot {
            value_type,
            location: Location::Variable { scope, variable, key },
        })
    }

    /// The bytes of a variable, and the range of these bytes that holds an integer.
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

    pub(super) fn variable(&self, scope: Scope, variable: VariableId) -> Result<&'a Variable, Fault> {
        let list = match scope {
            Scope::Global => &self.program.globals,
            Scope::ThreadLocal => &self.program.thread_locals,
            Scope::ClauseLocal => &self.program.clause_locals,
        };
        list.get(variable.0 as usize).ok_or(Fault::new(FaultKind::Illegal))
    }

    fn key(&self, elements: &[Value]) -> Result<Vec<u8>, Fault> {
        let key = key::key_bytes(elements, self.limits.string_limit());
        if key.len() > self.world.key_bytes_max() {
            Err(Fault::new(FaultKind::KeyTooLong))
        } else {
            Ok(key)
        }
    }

    /// The value of a string that is recorded, part of a key, or passed to a subroutine. In these uses
    /// NULL is a bad address.
    pub(super) fn present(&mut self, expression: &Expression) -> Result<Value, Fault> {
        match self.value(expression)? {
            Value::Integer(_) if expression.value_type == Type::String => Err(Fault::bad_address(0)),
            value => Ok(value),
        }
    }

    /// The value of a place. A variable that was never assigned is 0 or empty. An element, or a thread's
    /// string, that was never assigned is NULL.
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
            (Type::String, Some(Value::String(text))) => Value::String(self.kept(&text).to_vec()),
            (Type::String, Some(_)) => NULL,
            (Type::String, None) => match slot.location {
                Location::Variable {
                    scope: Scope::Global | Scope::ClauseLocal,
                    key: None,
                    ..
                } => Value::String(Vec::new()),
                _ => NULL,
            },
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

    /// Stores a value of the place's type; yields the value that the place then holds.
    pub(super) fn write(&mut self, slot: &Slot<'_>, value: Value) -> Result<Value, Fault> {
        let value = match (slot.value_type, value) {
            (Type::String, Value::Integer(_)) => NULL,
            (Type::String, value) => Value::String(self.kept(value.as_bytes()).to_vec()),
            (Type::Bytes { size: Some(_) }, value) => value,
            (other, value) => Value::Integer(normalise(value.as_integer(), integer_type(other))),
        };
        match &slot.location {
            Location::Memory(address) => {
                let bytes = value.as_integer().to_le_bytes();
                let count = usize::from(integer_type(slot.value_type).bytes);
                let bytes = bytes.get(..count).unwrap_or_default();
                if !self.store_in_variable(*address, bytes) {
                    self.store(*address, bytes)?;
                }
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
                // Zero, and the string NULL, delete an element.
                let is_zero = key.is_some() && value == Value::Integer(0);
                self.world
                    .set(*scope, *variable, key.as_deref(), (!is_zero).then(|| value.clone()));
            }
        }
        Ok(value)
    }

    /// The part of a string that a variable or a record keeps, and that comparisons and lengths take into
    /// account. One byte is left for the NUL.
    pub(super) fn kept<'t>(&self, text: &'t [u8]) -> &'t [u8] {
        let text = until_nul(text);
        text.get(..self.limits.string_limit() as usize - 1).unwrap_or(text)
    }

    fn assign(&mut self, place: &Place, value: &Expression) -> Result<Value, Fault> {
        let new = self.value(value)?;
        let slot = self.slot(place)?;
        self.write(&slot, new)
    }

    fn assign_operator(&mut self, place: &Place, operator: BinaryOperator, value: &Expression) -> Result<Value, Fault> {
        let right = self.integer(value)?;
        let slot = self.slot(place)?;
        let left = self.read(&slot)?.as_integer();
        let (place_type, right_type) = (integer_type(slot.value_type), integer_type(&value.value_type));
        let is_shift = matches!(operator, BinaryOperator::ShiftLeft | BinaryOperator::ShiftRight);
        let operands = if is_shift {
            wide(place_type)
        } else {
            wide(types::common(place_type, right_type))
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
        // The stack is walked last, after all other elements are evaluated.
        let mut elements = Vec::new();
        for key in keys {
            elements.push(match key {
                KeyExpression::Value(expression) => Ok(self.present(expression)?),
                KeyExpression::Stack(stack) => Err(*stack),
            });
        }
        let value = value.map(|value| self.integer(value)).transpose()?.unwrap_or(0);
        let weight = weight.map(|weight| self.integer(weight)).transpose()?.unwrap_or(1);
        let elements: Vec<Value> = elements
            .into_iter()
            .map(|element| {
                element.unwrap_or_else(|stack| Value::Stack(self.stack(stack.side, self.limits.stack_frames(stack))))
            })
            .collect();
        let key = self.key(&elements)?;
        self.world.aggregate(aggregation, &key, value, weight);
        Ok(())
    }
}
