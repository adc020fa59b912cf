//! Inlined copies of functions as sites: what `arg0` to `arg9` are there. Pure.
//!
//! A copy has no calling convention, but debug information may say where its parameters are. So the words that a call
//! would pass in registers become operands, like the operands of a static probe's site. Everything that reads `arg0` or
//! `args[0]` then works as at an entry. A parameter that is not passed in one integer register, or whose place is
//! complicated, cannot be read there.

use std::cell::OnceCell;

use nanoprobe_arena::layout::{CFA_RBP, CFA_RSP, UnwindRow};
use nanoprobe_codegen::{Location, Operand, Register, StaticArguments};
use nanoprobe_lang::program::{IntegerType, Type};
use nanoprobe_lang::target::ArgumentPlace;
use nanoprobe_symbols::{ImageAddress, Module, unwind_rows};
use nanoprobe_types::{Held, InlinedCopy, Signature, at_entry};

/// The number of words that a call passes in registers.
const WORDS: u8 = 6;
/// `arg0` to `arg9`.
const ARGUMENTS: usize = 10;
/// The general registers in DWARF's order, each by its number in machine code.
const REGISTERS: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
const RBP: u8 = 6;
const RSP: u8 = 7;

/// The inlined copies of functions in one module.
pub struct Copies<'m> {
    module: &'m Module,
    /// The unwinding rows, which say where frames are. They are read only when a parameter lies in a frame.
    rows: OnceCell<Vec<UnwindRow>>,
}

impl<'m> Copies<'m> {
    /// The copies of a module.
    pub fn of(module: &'m Module) -> Copies<'m> {
        Copies {
            module,
            rows: OnceCell::new(),
        }
    }

    /// The canonical frame address at an instruction: a register and a distance from it.
    fn frame_address(&self, address: u64) -> Option<(u8, i64)> {
        let rows = self.rows.get_or_init(|| unwind_rows(self.module));
        let at = u32::try_from(address.checked_sub(self.module.unwind_base().0)?).ok()?;
        let row = rows.get(rows.partition_point(|row| row.pc <= at).checked_sub(1)?)?;
        let register = match row.cfa {
            CFA_RSP => RSP,
            CFA_RBP => RBP,
            _ => return None,
        };
        Some((register, i64::from(row.cfa_offset)))
    }
}

/// The operands of a copy's parameters.
pub fn operands(copies: &Copies<'_>, signature: &Signature, copy: &InlinedCopy) -> StaticArguments {
    let arguments = at_entry(signature);
    let mut list = Vec::new();
    let passed = |word: u8| {
        let here = |place: &ArgumentPlace| *place == ArgumentPlace::Words(word);
        arguments.iter().position(|argument| here(&argument.place))
    };
    let last = (0..WORDS).rev().find(|word| passed(*word).is_some());
    let is_more = arguments.len() > last.map_or(0, |word| usize::from(word) + 1);
    for word in 0..=last.unwrap_or(0) {
        let operand = match passed(word) {
            None if last.is_none() => break,
            None => Err("it is a part of a structure, or not in an integer register".to_owned()),
            Some(number) => {
                let held = copy
                    .parameters
                    .get(number)
                    .copied()
                    .unwrap_or(Err("it is not described"));
                let of = arguments
                    .get(number)
                    .and_then(|argument| integer_of(&argument.value_type));
                match (held, of) {
                    (Ok(held), Some(of)) => operand(copies, copy.address, held, of),
                    (Err(reason), _) => Err(reason.to_owned()),
                    (Ok(_), None) => Err("it is no integer and no pointer".to_owned()),
                }
            }
        };
        list.push(operand);
    }
    if is_more {
        // A parameter that a call passes on the stack, or in other registers, has no known place.
        while list.len() < ARGUMENTS {
            list.push(Err("an inlined copy has no arguments on the stack".to_owned()));
        }
    }
    StaticArguments { list }
}

fn integer_of(of: &Type) -> Option<IntegerType> {
    match of {
        Type::Integer(integer) => Some(*integer),
        Type::Pointer(_) => Some(IntegerType {
            bytes: 8,
            signed: false,
        }),
        Type::Foreign(foreign) => foreign.integer(),
        _ => None,
    }
}

fn operand(copies: &Copies<'_>, address: u64, held: Held, of: IntegerType) -> Result<Operand, String> {
    let register = |number: u8| {
        let number = REGISTERS.get(usize::from(number)).copied();
        number
            .map(Register)
            .ok_or_else(|| "it is in a register that D does not read".to_owned())
    };
    let memory = |base: Option<Register>, displacement: i64| Location::Memory {
        base,
        index: None,
        displacement,
    };
    let location = match held {
        Held::Constant(value) => Location::Constant(value),
        Held::Register(number) => Location::Register {
            register: register(number)?,
            shift: 0,
        },
        Held::At(number, offset) => memory(Some(register(number)?), offset),
        Held::Image(address) => memory(None, copies.module.bias().to_target(ImageAddress(address)).0 as i64),
        Held::InFrame(offset) => {
            let (number, distance) = copies
                .frame_address(address)
                .ok_or("the position of its frame is not known")?;
            memory(Some(register(number)?), offset.wrapping_add(distance))
        }
    };
    Ok(Operand {
        location,
        bytes: of.bytes,
        signed: of.signed,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nanoprobe_types::Parameter;

    use super::*;

    fn module() -> Module {
        let program = std::env::current_exe().unwrap();
        Module::parse(Arc::new(std::fs::read(program).unwrap()), "program").unwrap()
    }

    fn signature(types: &[Type]) -> Signature {
        let parameter = |of: &Type| Parameter {
            name: "x".to_owned(),
            value_type: of.clone(),
            by_reference: false,
        };
        Signature {
            parameters: types.iter().map(parameter).collect(),
            result: None,
            rust: false,
            go: false,
            results: Vec::new(),
            dictionary: None,
            changed: false,
            entered: Vec::new(),
        }
    }

    #[test]
    fn words_become_operands_by_the_registers_that_a_call_would_pass() {
        let module = module();
        let copy = InlinedCopy {
            address: 0x1000,
            parameters: vec![
                Ok(Held::Constant(-1)),
                Ok(Held::Register(4)),
                Err("gone"),
                Ok(Held::At(7, -16)),
                Ok(Held::Register(16)),
            ],
        };
        let types = [Type::I32, Type::I64, Type::I64, Type::I64, Type::I64];
        let found = operands(&Copies::of(&module), &signature(&types), &copy).list;
        let operand = |location, bytes| {
            Ok(Operand {
                location,
                bytes,
                signed: true,
            })
        };
        let (rsi, rsp) = (Register(6), Register(4));
        let register = Location::Register {
            register: rsi,
            shift: 0,
        };
        let memory = Location::Memory {
            base: Some(rsp),
            index: None,
            displacement: -16,
        };
        assert_eq!(found[0], operand(Location::Constant(-1), 4));
        assert_eq!(found[1], operand(register, 8));
        assert_eq!(found[2], Err("gone".to_owned()));
        assert_eq!(found[3], operand(memory, 8));
        assert!(found[4].is_err());
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn an_argument_on_a_calls_stack_has_no_place_in_a_copy() {
        let module = module();
        let copy = InlinedCopy {
            address: 0x1000,
            parameters: vec![Ok(Held::Constant(1)); 7],
        };
        let found = operands(
            &Copies::of(&module),
            &signature(&std::array::from_fn::<_, 7, _>(|_| Type::I64)),
            &copy,
        )
        .list;
        assert_eq!(found.len(), ARGUMENTS);
        assert!(found[..6].iter().all(Result::is_ok));
        assert!(found[6..].iter().all(Result::is_err));
        assert!(operands(&Copies::of(&module), &signature(&[]), &copy).list.is_empty());
    }
}
