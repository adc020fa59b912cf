//! The places of a static probe's arguments: assembler operands, as `sys/sdt.h` records them, in the form
//! of data.
//!
//! Operands refer to registers as they are at the probe's site. So the handler of a static probe is
//! compiled for its operands. Sites with the same operands share a handler.

use crate::ProbeKind;
use crate::error::Error;

/// A general register, by its number in machine code: rax, rcx, rdx, rbx, rsp, rbp, rsi, rdi, r8 ... r15.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Register(pub u8);

/// The registers in which Go passes and returns integers and pointers (ABIInternal).
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

/// The place of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Location {
    /// A value that is known already: an immediate, or a symbol's address.
    Constant(i64),
    /// In a register.
    Register {
        /// The register.
        register: Register,
        /// The position of the value's lowest bit in the register: 8 for `%ah` and the like, otherwise 0.
        shift: u8,
    },
    /// In memory, at the sum of these values modulo 2^64.
    Memory {
        /// A register that is added without a factor.
        base: Option<Register>,
        /// A register that is multiplied by 1, 2, 4 or 8 and added.
        index: Option<(Register, u8)>,
        /// A number that is added.
        displacement: i64,
    },
}

/// One argument of a static probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Operand {
    /// The place of the value.
    pub location: Location,
    /// The size of the value in bytes: 1, 2, 4 or 8.
    pub bytes: u8,
    /// Whether the value is extended to 64 bits by its sign.
    pub signed: bool,
}

/// The place of an argument, or why it cannot be read.
pub type Argument = Result<Operand, String>;

/// All arguments of a static probe at a site.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StaticArguments {
    /// The arguments in order. As in DTrace, further arguments are 0.
    pub list: Vec<Argument>,
}

/// The place of argument number `index` of a Go function; `None`: there is no such argument.
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
    // The first word on the stack follows the return address.
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
            "assembly of Go leaves its results on the stack, after its arguments: use copyin from uregs[R_SP] + 8 on",
        ),
        (ProbeKind::GoUnknown, _) => unreadable(
            "it is not known how this function of Go's runtime takes its arguments: use uregs[ ] and the stack",
        ),
        _ => Ok(None),
    }
}

impl Operand {
    /// The registers that the operand consists of.
    fn registers(&self) -> impl Iterator<Item = Register> {
        let (first, second) = match self.location {
            Location::Constant(_) => (None, None),
            Location::Register { register, .. } => (Some(register), None),
            Location::Memory { base, index, .. } => (base, index.map(|(register, _)| register)),
        };
        first.into_iter().chain(second)
    }

    /// Whether the operand uses registers that only a full frame has.
    pub(crate) fn needs_full_frame(&self) -> bool {
        self.registers().any(|register| Held::of(register) == Held::FullFrame)
    }

    /// Whether reading the operand may fail.
    pub(crate) fn may_fault(&self) -> bool {
        matches!(self.location, Location::Memory { .. })
    }
}

/// Where a handler finds the value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// In the handler's parameter with this number.
    Parameter(usize),
    /// In the context. Only the stack pointer is there.
    Context,
    /// In every frame.
    Frame,
    /// Only in a full frame.
    FullFrame,
}

impl Held {
    pub(crate) fn of(register: Register) -> Held {
        // The numbers of rdi, rsi, rdx, rcx, r8, r9: the order in which the ABI passes arguments.
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
