//! Unwinding tables for the agent, compiled from call frame information.
//!
//! The agent walks stacks inside a handler, so its tables must be plain: sorted rows of 12 bytes, found by binary
//! search. Each row says where the caller's frame (the CFA) and the caller's rbp are. This suffices for x86-64 code
//! that is compiled from any language. Each of the few exceptions has a kind of row of its own:
//!
//! ```text
//!   DW_CFA_def_cfa rsp/rbp, n           RSP, RBP     cfa = register + n
//!   the .plt's expression               PLT          cfa = rsp + 8 or + 16, by the position in the stub
//!   DW_OP_breg6 n; DW_OP_deref          RBP_DEREF    cfa = *(rbp + n): the stack was realigned
//!   augmentation 'S'                    SIGNAL       the registers are in the ucontext at rsp
//!   return address undefined            END          _start, clone: the first frame of a thread
//!   anything else, or no FDE            UNKNOWN      the chain of saved rbp is tried
//! ```
//!
//! A gap that is shorter than a function's alignment belongs to the function before it, because the return address of
//! a last call that does not return points there. Longer gaps are UNKNOWN, except the code that restores the
//! registers after a signal (`mov $15, %eax; syscall`). musl and Go have it without an FDE, so it is recognised by
//! its bytes.

use gimli::{
    BaseAddresses, CfaRule, FrameDescriptionEntry, Register, RegisterRule, UnwindContext, UnwindExpression,
    UnwindSection, UnwindTable, UnwindTableRow,
};
use nanoprobe_arena::layout::{CFA_END, CFA_PLT, CFA_RBP, CFA_RBP_DEREF, CFA_RSP, CFA_SIGNAL, CFA_UNKNOWN, UnwindRow};

use crate::elf::Elf;
use crate::frames::{Frame, RSP, Slice, Visitor};
use crate::module::Module;

/// [`UnwindRow::rbp`]: the caller's rbp is still in rbp.
pub const RBP_UNCHANGED: u8 = 0;
/// [`UnwindRow::rbp`]: the caller's rbp is at `cfa + rbp_offset`.
pub const RBP_AT_CFA: u8 = 1;
/// [`UnwindRow::rbp`]: the caller's rbp is lost.
pub const RBP_UNDEFINED: u8 = 2;
/// [`UnwindRow::rbp`]: the caller's rbp is at `rbp + rbp_offset`: the stack was realigned.
pub const RBP_AT_RBP: u8 = 3;

const RBP: Register = Register(6);
/// Shorter gaps are padding before the next function.
const GAP_BYTES_MIN: u64 = 16;
/// The most lazy-binding stubs that get rows of their own because their expression is unusual.
const STUBS_MAX: u64 = 16 * 1024;
/// `mov $15, %rax` or `mov $15, %eax`, and `syscall`: rt_sigreturn.
const SIGNAL_RETURNS: [&[u8]; 2] = [
    &[0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05],
    &[0xb8, 15, 0, 0, 0, 0x0f, 0x05],
];

/// The rows of a module, sorted by `pc`, which counts from [`Module::unwind_base`]. Each row is valid up to the next
/// one; the last row is UNKNOWN and valid to the end. There is at least one row.
///
/// Code more than 4 GiB after the base cannot be expressed, and is left out.
pub fn unwind_rows(module: &Module) -> Vec<UnwindRow> {
    let frames = &module.frames().list;
    let mut compiler = Compiler {
        elf: &module.elf,
        frames,
        base: module.unwind_base().0,
        end: module.unwind_base().0,
        rows: Vec::with_capacity(frames.len().saturating_mul(3)),
        context: UnwindContext::new(),
    };
    compiler.push(compiler.base, unknown());
    module.frames().with_descriptions(&module.elf, frames, &mut compiler);
    compiler.gap(module.image_range().end.0);
    compiler.rows.shrink_to_fit();
    compiler.rows
}

struct Compiler<'m> {
    elf: &'m Elf,
    frames: &'m [Frame],
    base: u64,
    /// The end of the address range that the rows describe so far.
    end: u64,
    rows: Vec<UnwindRow>,
    context: UnwindContext<usize>,
}

/// The result of converting one row of an FDE.
enum Rule {
    Row(UnwindRow),
    /// Lazy-binding stubs of 16 bytes, which push a word at this offset in the stub.
    Stubs(u64),
}

impl Visitor for Compiler<'_> {
    fn visit<'a, S: UnwindSection<Slice<'a>>>(
        &mut self,
        index: usize,
        section: &S,
        bases: &BaseAddresses,
        description: &FrameDescriptionEntry<Slice<'a>>,
    ) {
        let Some(frame) = self.frames.get(index) else { return };
        let next = self.frames.get(index + 1).map_or(u64::MAX, |next| next.start);
        let end = frame.end.min(next);
        if self.end == self.base || frame.start.saturating_sub(self.end) >= GAP_BYTES_MIN {
            self.gap(frame.start);
        }
        self.end = end;
        if description.is_signal_trampoline() {
            return self.push(frame.start, row(CFA_SIGNAL, 0));
        }
        let mut context = std::mem::take(&mut self.context);
        let mut at = frame.start;
        if let Ok(mut table) = UnwindTable::new(section, bases, &mut context, description) {
            while let Ok(Some(row)) = table.next_row() {
                if row.start_address() >= end {
                    break;
                }
                let row_end = row.end_address().min(end);
                // A row that ends before it begins has wrapped around the address space.
                if row_end < at {
                    break;
                }
                match convert(section, description, row) {
                    Rule::Row(row) => self.push(at, row),
                    Rule::Stubs(pushed_at) => self.push_stubs(at, row_end, pushed_at),
                }
                at = row_end;
            }
        }
        self.context = context;
        // The FDE is damaged, or too complicated: the rest of the function is not described.
        if at < end {
            self.push(at, unknown());
        }
    }
}

impl Compiler<'_> {
    fn push(&mut self, address: u64, rule: UnwindRow) {
        let Ok(pc) = u32::try_from(address.wrapping_sub(self.base)) else {
            return;
        };
        let rule = UnwindRow { pc, ..rule };
        self.rows.pop_if(|last| last.pc == pc);
        if self.rows.last().is_none_or(|last| UnwindRow { pc, ..*last } != rule) {
            self.rows.push(rule);
        }
    }

    /// Handles the addresses from the last described address up to `to`, which have no FDE.
    fn gap(&mut self, to: u64) {
        let from = self.end;
        let mut described = from;
        self.push(from, unknown());
        for range in &self.elf.executable {
            let (start, end) = (range.start.0.max(from), range.end.0.min(to));
            let Some(code) = end
                .checked_sub(start)
                .and_then(|bytes| self.elf.at_address(start, bytes))
            else {
                continue;
            };
            for (at, bytes) in signal_returns(code) {
                // A handler returns to the first byte of this code, and unwinders look up the byte before a return
                // address.
                self.push((start + at).saturating_sub(1).max(described), row(CFA_SIGNAL, 0));
                described = start + at + bytes;
                self.push(described, unknown());
            }
        }
    }

    fn push_stubs(&mut self, start: u64, end: u64, pushed_at: u64) {
        let first = start & !15;
        for stub in (first..end).step_by(16).take(STUBS_MAX as usize) {
            self.push(stub.max(start), row(CFA_RSP, 8));
            if let Some(pushed) = stub
                .checked_add(pushed_at)
                .filter(|pushed| (start..end).contains(pushed))
            {
                self.push(pushed, row(CFA_RSP, 16));
            }
        }
        let described = first.saturating_add(STUBS_MAX * 16);
        if described < end {
            self.push(described, unknown());
        }
    }
}

fn row(cfa: u8, cfa_offset: i32) -> UnwindRow {
    UnwindRow {
        cfa,
        cfa_offset,
        ..UnwindRow::default()
    }
}

fn unknown() -> UnwindRow {
    row(CFA_UNKNOWN, 0)
}

fn convert<'a, S: UnwindSection<Slice<'a>>>(
    section: &S,
    description: &FrameDescriptionEntry<Slice<'a>>,
    rules: &UnwindTableRow<usize>,
) -> Rule {
    match rules.register(description.cie().return_address_register()) {
        Some(RegisterRule::Offset(-8)) => {}
        Some(RegisterRule::Undefined) => return Rule::Row(row(CFA_END, 0)),
        _ => return Rule::Row(unknown()),
    }
    let frame = match rules.cfa() {
        CfaRule::RegisterAndOffset { register, offset } => match (*register, i32::try_from(*offset)) {
            (RSP, Ok(offset)) => row(CFA_RSP, offset),
            (RBP, Ok(offset)) => row(CFA_RBP, offset),
            _ => return Rule::Row(unknown()),
        },
        CfaRule::Expression(expression) => match cfa_expression(bytes_of(section, expression)) {
            Some(Rule::Row(row)) => row,
            Some(stubs) => return stubs,
            None => return Rule::Row(unknown()),
        },
    };
    let (rbp, rbp_offset) = match rules.register(RBP) {
        None | Some(RegisterRule::SameValue) => (RBP_UNCHANGED, 0),
        Some(RegisterRule::Offset(offset)) => (RBP_AT_CFA, offset),
        Some(RegisterRule::Expression(expression)) => match base_register_offset(bytes_of(section, &expression)) {
            Some((offset, [])) => (RBP_AT_RBP, offset),
            _ => (RBP_UNDEFINED, 0),
        },
        Some(_) => (RBP_UNDEFINED, 0),
    };
    let (rbp, rbp_offset) = i16::try_from(rbp_offset).map_or((RBP_UNDEFINED, 0), |offset| (rbp, offset));
    Rule::Row(UnwindRow {
        rbp,
        rbp_offset,
        ..frame
    })
}

fn bytes_of<'a, S: UnwindSection<Slice<'a>>>(section: &S, expression: &UnwindExpression<usize>) -> &'a [u8] {
    expression.get(section).map_or(&[], |expression| expression.0.slice())
}

/// The rule for one of the two expressions that define a CFA in practice.
fn cfa_expression(expression: &[u8]) -> Option<Rule> {
    // breg7(rsp) 8; breg16(rip) 0; lit15; and; lit(n); ge; lit3; shl; plus: n is 11 in plain stubs, 9 with endbr64.
    if let &[
        0x77,
        8,
        0x80,
        0,
        0x3f,
        0x1a,
        literal @ 0x30..=0x3f,
        0x2a,
        0x33,
        0x24,
        0x22,
    ] = expression
    {
        return Some(match literal - 0x30 {
            11 => Rule::Row(row(CFA_PLT, 0)),
            pushed_at => Rule::Stubs(pushed_at.into()),
        });
    }
    match base_register_offset(expression) {
        Some((offset, [0x06])) => Some(Rule::Row(row(CFA_RBP_DEREF, i32::try_from(offset).ok()?))),
        _ => None,
    }
}

/// Parses `DW_OP_breg6 offset` (rbp); yields the offset and the rest.
fn base_register_offset(expression: &[u8]) -> Option<(i64, &[u8])> {
    let [0x76, rest @ ..] = expression else { return None };
    let mut rest = Slice::new(rest, gimli::LittleEndian);
    let offset = gimli::Reader::read_sleb128(&mut rest).ok()?;
    Some((offset, rest.slice()))
}

/// The places of rt_sigreturn in `code`, and their lengths in bytes.
fn signal_returns(code: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let longest = SIGNAL_RETURNS.iter().map(|pattern| pattern.len()).max().unwrap_or(0);
    code.iter().enumerate().filter_map(move |(at, first)| {
        if *first != 0x48 && *first != 0xb8 {
            return None;
        }
        let here = code.get(at..)?;
        let here = here.get(..longest).unwrap_or(here);
        let pattern = SIGNAL_RETURNS.iter().find(|pattern| here.starts_with(pattern))?;
        Some((at as u64, pattern.len() as u64))
    })
}
