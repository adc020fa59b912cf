//! Where the arguments of a static probe are: assembler operands, as `sys/sdt.h` records them, made into data.
//!
//! They hold at the probe's site, for the registers as they are there, so a static probe's handler is compiled for its
//! operands. Sites that have the same operands share it.

use crate::ProbeKind;
use crate::error::Error;

/// A general register, by its number in machine code: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 ... r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(pub u8);

/// In which Go passes integers and pointers, and returns them (ABIInternal).
const GO: [Register; 9] = [
    Register(0),
    Register(3),
    Register(1),
    Register(7),
    Register(6),
    Register(8),
    Register(9),
    Register(10),
    Register(11),
];

/// The stack pointer.
pub const RSP: Register = Register(4);

/// Where the value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// Known already: an immediate, or a symbol's address.
    Constant(i64),
    /// In a register, from this bit on: 8 for `%ah` and its like, else 0.
    Register {
        /// The one that holds it.
        register: Register,
        /// The value's lowest bit in it.
        shift: u8,
    },
    /// In memory, at the sum of these, modulo 2^64.
    Memory {
        /// Added as it is.
        base: Option<Register>,
        /// Multiplied by 1, 2, 4 or 8, and added.
        index: Option<(Register, u8)>,
        /// Added.
        displacement: i64,
    },
}

/// One argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// Where the value is.
    pub location: Location,
    /// Its size: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether it is extended to 64 bits by its sign.
    pub signed: bool,
}

/// An argument, or why it cannot be read.
pub type Argument = Result<Operand, String>;

/// All arguments of a static probe at a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StaticArguments {
    /// In order. Those after the last are 0, as in DTrace.
    pub list: Vec<Argument>,
}

/// Argument number `index` of a function of Go's; `None` for one that is in no register and not in memory.
pub(crate) fn go_argument(kind: ProbeKind, index: u8) -> Result<Option<Operand>, Error> {
    let whole = |location| {
        Some(Operand {
            location,
            bytes: 8,
            signed: true,
        })
    };
    let register = |number: usize| {
        let register = GO.get(number).copied();
        register.and_then(|register| whole(Location::Register { register, shift: 0 }))
    };
    // After the return address.
    let on_stack = |number: usize| {
        whole(Location::Memory {
            base: Some(RSP),
            index: None,
            displacement: 8 + 8 * number as i64,
        })
    };
    let number = usize::from(index);
    let unreadable = |reason: &str| {
        Err(Error::StaticArgument {
            index,
            reason: reason.to_owned(),
        })
    };
    match (kind, number) {
        (ProbeKind::Go, _) => Ok(match number.checked_sub(GO.len()) {
            None => register(number),
            Some(behind) => on_stack(behind),
        }),
        (ProbeKind::GoStack, _) => Ok(on_stack(number)),
        (ProbeKind::GoReturn, 1..) => Ok(register(number - 1)),
        (ProbeKind::GoStackReturn, 1..) => unreadable(
            "assembly of Go's leaves its results on the stack, behind its arguments: copyin them from uregs[R_SP] + 8 and on",
        ),
        (ProbeKind::GoUnknown, _) => unreadable(
            "nothing in the program tells how this function of Go's runtime takes its arguments: see uregs[ ] and the stack",
        ),
        _ => Ok(None),
    }
}

impl Operand {
    /// The registers that it is made of.
    fn registers(&self) -> impl Iterator<Item = Register> {
        let (first, second) = match self.location {
            Location::Constant(_) => (None, None),
            Location::Register { register, .. } => (Some(register), None),
            Location::Memory { base, index, .. } => (base, index.map(|(register, _)| register)),
        };
        first.into_iter().chain(second)
    }

    /// Whether it is made of registers that only a full frame has.
    pub(crate) fn needs_full_frame(&self) -> bool {
        self.registers().any(|register| Held::of(register) == Held::FullFrame)
    }

    /// Whether reading it may fail.
    pub(crate) fn may_fault(&self) -> bool {
        matches!(self.location, Location::Memory { .. })
    }
}

/// Where a handler finds a register's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// It is the handler's parameter of this number.
    Parameter(usize),
    /// In the context: the stack pointer.
    Context,
    /// In any frame.
    Frame,
    /// In a full frame.
    FullFrame,
}

impl Held {
    pub(crate) fn of(register: Register) -> Held {
        // rdi, rsi, rdx, rcx, r8, r9: the order in which the ABI passes arguments.
        const PARAMETERS: [u8; crate::contract::REGISTER_PARAMETERS] = [7, 6, 2, 1, 8, 9];
        match register {
            Register(number) if PARAMETERS.contains(&number) => {
                Held::Parameter(PARAMETERS.iter().position(|known| *known == number).unwrap_or(0))
            }
            RSP => Held::Context,
            Register(0 | 15) => Held::Frame,
            Register(_) => Held::FullFrame,
        }
    }
}
