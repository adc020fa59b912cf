//! Inlined copies of functions as sites: what `arg0` to `arg9` are there. Pure.
//!
//! A copy has no calling convention, but debug information may say where its parameters are. So the words that a call would
//! pass in registers become operands, as those of a static probe's site, and everything that reads `arg0` or `args[0]` goes
//! on as at an entry. What is not passed in one word of an integer register, or has no plain place, cannot be read there.

use nanoprobe_codegen::{Location, Operand, Register, StaticArguments};
use nanoprobe_lang::program::{IntegerType, Type};
use nanoprobe_lang::target::ArgumentPlace;
use nanoprobe_symbols::{ImageAddress, Module, unwind_rows};
use nanoprobe_types::{Held, InlinedCopy, Signature, at_entry};

/// Words that are passed in registers.
const WORDS: u8 = 6;
/// `arg0` to `arg9`.
const ARGUMENTS: usize = 10;
/// The general registers by their numbers in DWARF: their numbers in machine code.
const REGISTERS: [u8; 16] = [0, 2, 1, 3, 6, 7, 5, 4, 8, 9, 10, 11, 12, 13, 14, 15];
const RBP: u8 = 6;
const RSP: u8 = 7;

/// The operands of a copy's parameters.
pub fn operands(module: &Module, signature: &Signature, copy: &InlinedCopy) -> StaticArguments {
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
                    (Ok(held), Some(of)) => operand(module, copy.address, held, of),
                    (Err(reason), _) => Err(reason.to_owned()),
                    (Ok(_), None) => Err("it is no integer and no pointer".to_owned()),
                }
            }
        };
        list.push(operand);
    }
    if is_more {
        // What a call has on the stack, or in other registers, is nowhere in particular.
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

fn operand(module: &Module, address: u64, held: Held, of: IntegerType) -> Result<Operand, String> {
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
        Held::Image(address) => memory(None, module.bias().to_target(ImageAddress(address)).0 as i64),
        Held::InFrame(offset) => {
            let (number, distance) = frame_address(module, address).ok_or("where its frame is, is not known")?;
            memory(Some(register(number)?), offset.wrapping_add(distance))
        }
    };
    Ok(Operand {
        location,
        bytes: of.bytes,
        signed: of.signed,
    })
}

/// The canonical frame address at an instruction: a register and a distance from it.
fn frame_address(module: &Module, address: u64) -> Option<(u8, i64)> {
    let rows = unwind_rows(module);
    let at = u32::try_from(address.checked_sub(module.unwind_base().0)?).ok()?;
    let row = rows.get(rows.partition_point(|row| row.pc <= at).checked_sub(1)?)?;
    let register = match row.cfa {
        nanoprobe_arena::layout::CFA_RSP => RSP,
        nanoprobe_arena::layout::CFA_RBP => RBP,
        _ => return None,
    };
    Some((register, i64::from(row.cfa_offset)))
}
