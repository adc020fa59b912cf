//! Addresses of variables: D's own structures and arrays.
//!
//! In the target a variable lies in the arena, and has its address there. The tracer's own
//! thread-local and clause-local variables have no memory. They appear from [`VARIABLES_ADDRESS`]
//! on, where no program on x86-64 can have memory. Each scope has its own range:
//!
//! ```text
//! VARIABLES_ADDRESS  + 0            global variables, unless the world gives them an address
//!                    + SCOPE_BYTES  self->
//!                    + 2 * ...      this->
//! ```
//!
//! Within a scope the variables lie as [`Storage`] says, and zeros follow the last one. As in the
//! target, an index after an array's end yields the bytes of another variable, or zeros.

use super::evaluate::Evaluator;
use super::{Fault, FaultKind, Value, World};
use crate::layout::{NO_OFFSET, Storage, value_bytes};
use crate::program::{Scope, Type, VariableId};

/// The address at which variables without memory of their own appear to lie.
pub const VARIABLES_ADDRESS: u64 = 0x4e51_0000_0000_0000;
/// An upper bound for the bytes of a scope.
const SCOPE_BYTES: u64 = 1 << 33;
const SCOPES: [Scope; 3] = [Scope::Global, Scope::ThreadLocal, Scope::ClauseLocal];

impl<W: World + ?Sized> Evaluator<'_, W> {
    /// The address of a variable's first byte.
    pub(super) fn variable_address(&mut self, scope: Scope, variable: VariableId) -> Result<u64, Fault> {
        let offset = offsets(self.storage(), scope).get(variable.0 as usize).copied();
        let offset = offset.filter(|offset| *offset != NO_OFFSET);
        let offset = offset.ok_or(Fault::new(FaultKind::Illegal))?;
        Ok(self.base(scope) + u64::from(offset))
    }

    /// The given number of bytes at an address, if variables lie there.
    pub(super) fn variables_at(&mut self, address: u64, bytes: usize) -> Option<Vec<u8>> {
        let (scope, start) = SCOPES.into_iter().find_map(|scope| {
            let base = self.base(scope);
            let room = match base {
                VARIABLES_ADDRESS.. if base < VARIABLES_ADDRESS + 3 * SCOPE_BYTES => SCOPE_BYTES,
                // After the global variables comes memory of the target.
                _ => u64::from(self.storage().globals_bytes),
            };
            let start = address.checked_sub(base).filter(|start| *start < room)?;
            Some((scope, start))
        })?;
        let end = start.checked_add(bytes as u64)?;
        let mut found = vec![0; bytes];
        let placed: Vec<u32> = offsets(self.storage(), scope).to_vec();
        for (index, offset) in placed
            .into_iter()
            .enumerate()
            .filter(|(_, offset)| *offset != NO_OFFSET)
        {
            let offset = u64::from(offset);
            let id = VariableId(u32::try_from(index).ok()?);
            let value_type = self.variable(scope, id).ok()?.value_type.clone();
            let held_bytes = u64::from(value_bytes(&value_type, self.limits));
            if offset >= end || offset + held_bytes <= start {
                continue;
            }
            let Some(held) = self.world().get(scope, id, None) else {
                continue;
            };
            let held = match (&held, value_type) {
                (_, Type::String | Type::Bytes { size: Some(_) }) => held.as_bytes().to_vec(),
                _ => held.as_integer().to_le_bytes().to_vec(),
            };
            for (at, byte) in (offset..offset + held_bytes).zip(held) {
                let place = at.checked_sub(start).and_then(|place| found.get_mut(place as usize));
                if let Some(place) = place {
                    *place = byte;
                }
            }
        }
        Some(found)
    }

    /// Stores bytes at an address within an array or a structure; `false`: no such variable lies at the address.
    pub(super) fn store_in_variable(&mut self, address: u64, bytes: &[u8]) -> bool {
        for scope in SCOPES {
            let Some(start) = address.checked_sub(self.base(scope)) else {
                continue;
            };
            for (index, offset) in (0..).zip(offsets(self.storage(), scope).to_vec()) {
                let Ok(Type::Bytes { size: Some(size) }) =
                    self.variable(scope, VariableId(index)).map(|of| &of.value_type)
                else {
                    continue;
                };
                let place = start.checked_sub(u64::from(offset));
                let place = place.filter(|place| *place + bytes.len() as u64 <= u64::from(*size));
                let Some(place) = place.filter(|_| offset != NO_OFFSET) else {
                    continue;
                };
                let held = self.world().get(scope, VariableId(index), None);
                let mut whole = held.map(|held| held.as_bytes().to_vec()).unwrap_or_default();
                whole.resize(*size as usize, 0);
                for (to, from) in whole.iter_mut().skip(place as usize).zip(bytes) {
                    *to = *from;
                }
                let whole = Value::Bytes {
                    address: 0,
                    bytes: whole,
                };
                self.world().set(scope, VariableId(index), None, Some(whole));
                return true;
            }
        }
        false
    }

    fn base(&self, scope: Scope) -> u64 {
        match scope {
            Scope::Global => self.world.globals_address().unwrap_or(VARIABLES_ADDRESS),
            Scope::ThreadLocal => VARIABLES_ADDRESS + SCOPE_BYTES,
            Scope::ClauseLocal => VARIABLES_ADDRESS + 2 * SCOPE_BYTES,
        }
    }

    fn storage(&self) -> &Storage {
        self.storage.get_or_init(|| Storage::new(self.program, self.limits))
    }
}

fn offsets(storage: &Storage, scope: Scope) -> &[u32] {
    match scope {
        Scope::Global => &storage.globals,
        Scope::ThreadLocal => &storage.thread_locals,
        Scope::ClauseLocal => &storage.clause_locals,
    }
}

/// The value of a variable's address.
pub(super) fn pointer(address: u64) -> Value {
    Value::Integer(address as i64)
}
