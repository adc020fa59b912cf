//! Where rsp points to a stack, and where a function computes with it.
//!
//! Hand-written code that needs a sixteenth register saves rsp, computes with it, and restores it. In between, neither
//! a detour nor a signal handler can run.
//!
//! ```text
//!   mov rbp, rsp           rsp points to a stack
//!   lea rsp, [rsi*8]       .. still, in front of this instruction
//!   add rax, rsp           no stack: this instruction is not probed
//!   mov rsp, rbp           nor is this one, which restores rsp
//!   ret                    a stack again
//! ```
//!
//! Each register has one of three values, and where ways join the worse one counts:
//!
//! - *stack*: rsp at the entry, and values derived from it by moves, sums and alignment;
//! - *unknown*: arguments, and values from memory or from a vector register;
//! - *number*: constants, and all other computed values.
//!
//! Where rsp is a number, nothing is probed. Where rsp was set from an unknown value (a switch of stacks, or a loaded
//! number), its use decides. It points to a stack if, on every way before rsp is set again, a push, a pop, a call or
//! an exit uses it. A memory operand is no such proof, since rsp may be a pointer to data.

use std::collections::BTreeSet;

use std::rc::Rc;

use iced_x86::{Code, Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register};

use super::instruction::{ELSEWHERE, is_moved_by, is_relative};
use super::kind::Kind;
use super::map::FunctionMap;
use crate::order::{gather, sort_by_number};

/// Two bits for each register, by its number. Two states are joined by `|`.
type State = u32;
type Value = u32;

const STACK: Value = 0b00;
const UNKNOWN: Value = 0b01;
const NUMBER: Value = 0b11;

/// rsp's number.
const RSP: u32 = 4;
const RBP: u32 = 5;

/// Registers that a call leaves with unknown values: all but rbx, rsp, rbp and r12 to r15.
const CLOBBERED: [u32; 9] = [0, 1, 2, 6, 7, 8, 9, 10, 11];

/// Larger functions are not examined: no hand-written function is as large.
pub(super) const INSTRUCTIONS_MAX: usize = 1 << 20;

/// The state at a function's entry: rsp points to a stack, and the other registers are unknown.
fn entry() -> State {
    (0..16).fold(0, |state, register| set(state, register, UNKNOWN)) & !(NUMBER << (2 * RSP))
}

fn get(state: State, register: u32) -> Value {
    state >> (2 * register) & NUMBER
}

fn set(state: State, register: u32, value: Value) -> State {
    state & !(NUMBER << (2 * register)) | value << (2 * register)
}

pub(super) struct Node {
    pub code: iced_x86::Instruction,
    pub kind: Kind,
    pub offset: u32,
    pub part: usize,
    pub successors: Successors,
    /// Whether control leaves the function here, or continues at an unknown place.
    leaves: bool,
}

/// The instructions that may be executed after an instruction, by their indices.
pub(super) enum Successors {
    /// The next instruction, and the target of a branch.
    Direct([Option<usize>; 2]),
    /// The possible targets of computed jumps: the same for all computed jumps of a function.
    Computed(Rc<[usize]>),
}

impl Successors {
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        let (direct, computed): (&[Option<usize>], &[usize]) = match self {
            Successors::Direct(direct) => (direct, &[]),
            Successors::Computed(computed) => (&[], computed),
        };
        direct.iter().flatten().chain(computed).copied()
    }
}

/// Finds the instructions before which rsp points to no stack, in a function whose control flow was followed.
pub(super) fn follow(parts: &mut [FunctionMap]) {
    let code = |part: &FunctionMap| {
        part.instructions
            .iter()
            .take_while(|one| one.offset < part.size)
            .count()
    };
    let moved = parts
        .iter()
        .any(|part| part.instructions.iter().any(|one| one.moves_stack));
    if !moved || parts.iter().map(code).sum::<usize>() > INSTRUCTIONS_MAX {
        return;
    }
    let nodes = nodes(parts);
    let states = states(&nodes, &entries(parts, &nodes));
    let proven = proven(&nodes);
    for ((node, state), proven) in nodes.iter().zip(states).zip(proven) {
        let is_stack = match get(state, RSP) {
            STACK => true,
            UNKNOWN => proven,
            _ => false,
        };
        if !is_stack && let Some(part) = parts.get_mut(node.part) {
            part.fixed.stackless.push(node.offset);
        }
    }
}

/// The instructions of a function, each with its successors.
pub(super) fn nodes(parts: &[FunctionMap]) -> Vec<Node> {
    let mut nodes = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let code = part.instructions.iter().take_while(|one| one.offset < part.size);
        for one in code.filter(|one| !one.padding) {
            let ip = part.address(one.offset).0;
            nodes.push(Node {
                code: Decoder::with_ip(64, part.bytes_of(*one), ip, DecoderOptions::NONE).decode(),
                kind: one.kind,
                offset: one.offset,
                part: number,
                successors: Successors::Direct([None; 2]),
                leaves: true,
            });
        }
    }
    let at = |part: usize, offset: u32| {
        nodes
            .binary_search_by_key(&(part, offset), |node| (node.part, node.offset))
            .ok()
    };
    let marked: Rc<[usize]> = marked(parts, &nodes).into();
    let ways = |node: &Node| {
        let part = parts.get(node.part)?;
        if node.kind == Kind::IndirectJump {
            let leaves = !part.stays_inside.contains(&node.offset);
            return Some((Successors::Computed(marked.clone()), leaves));
        }
        // `None`: there is no way on; `Some(None)`: the way leads to an unknown place.
        let next = (!node.kind.is_transfer()).then(|| at(node.part, node.offset + node.code.len() as u32));
        let target = matches!(node.kind, Kind::Jump | Kind::Conditional).then(|| {
            let target = crate::TargetAddress(node.code.near_branch_target());
            let mut parts = parts.iter().enumerate();
            parts.find_map(|(number, part)| at(number, part.offset(target)?))
        });
        let leaves = next == Some(None) || target == Some(None) || next.is_none() && target.is_none();
        Some((Successors::Direct([next.flatten(), target.flatten()]), leaves))
    };
    let ways: Vec<Option<(Successors, bool)>> = nodes.iter().map(ways).collect();
    for (node, ways) in nodes.iter_mut().zip(ways) {
        if let Some((successors, leaves)) = ways {
            (node.successors, node.leaves) = (successors, leaves);
        }
    }
    nodes
}

/// The instructions to which something other than a direct branch of the function leads. Computed jumps may lead
/// there, too.
fn marked(parts: &[FunctionMap], nodes: &[Node]) -> Vec<usize> {
    let mut found = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let targets = part.branches.iter().filter(|(_, from)| *from == ELSEWHERE);
        found.extend(targets.filter_map(|(target, _)| {
            nodes
                .binary_search_by_key(&(number, *target), |node| (node.part, node.offset))
                .ok()
        }));
    }
    sort_by_number(&mut found, |node| *node as u64);
    found.dedup();
    found
}

/// The instructions at which the function is entered with a stack.
fn entries(parts: &[FunctionMap], nodes: &[Node]) -> Vec<usize> {
    let mut entries = vec![0];
    // If there are computed jumps, their targets have no other way in.
    if !nodes.iter().any(|node| node.kind == Kind::IndirectJump) {
        entries.extend(marked(parts, nodes));
    }
    entries
}

/// The state before each instruction.
fn states(nodes: &[Node], entries: &[usize]) -> Vec<State> {
    let mut states: Vec<Option<State>> = vec![None; nodes.len()];
    let mut factory = InstructionInfoFactory::new();
    let kept: BTreeSet<u64> = gather(nodes.iter().filter_map(|node| kept_at(&node.code, true)));
    let made = nodes.iter().filter_map(|node| copied(&node.code, true));
    let copies = made.fold(0u32, |set, register| set | bit(register));
    let mut pending: Vec<usize> = Vec::new();
    // Instructions that are entered from elsewhere in another way come last: with a stack, unless something else leads
    // there.
    let others = 0..nodes.len();
    for first in entries.iter().copied().chain(others) {
        let Some(state) = states.get_mut(first).filter(|state| state.is_none()) else {
            continue;
        };
        *state = Some(entry());
        pending.push(first);
        while let Some(index) = pending.pop() {
            let Some((node, Some(state))) = nodes.get(index).zip(states.get(index).copied()) else {
                continue;
            };
            let mut behind = step(state, &node.code, node.kind, &mut factory);
            if kept_at(&node.code, false).is_some_and(|place| kept.contains(&place)) {
                behind = set(behind, RSP, STACK);
            }
            // On one way to this instruction the register holds a copy of rsp, on another a number; the function never
            // takes the latter when it restores rsp. Then the use of rsp decides, as for an unknown value.
            let comes_back = copied(&node.code, false).is_some_and(|register| copies & bit(register) != 0);
            if comes_back && get(behind, RSP) == NUMBER {
                behind = set(behind, RSP, UNKNOWN);
            }
            for successor in node.successors.iter() {
                let Some(known) = states.get_mut(successor) else {
                    continue;
                };
                let joined = known.unwrap_or(behind) | behind;
                if *known != Some(joined) {
                    *known = Some(joined);
                    pending.push(successor);
                }
            }
        }
    }
    states.into_iter().map(|state| state.unwrap_or(entry())).collect()
}

/// The place in the frame at which rsp is saved: `mov [rbp+x], rsp`. Functions with arrays of variable length do so,
/// and restore rsp by `mov rsp, [rbp+x]`.
fn kept_at(code: &iced_x86::Instruction, is_stored: bool) -> Option<u64> {
    let (register, memory) = if is_stored { (1, 0) } else { (0, 1) };
    let is_kept = code.mnemonic() == Mnemonic::Mov
        && code.op_kind(register) == OpKind::Register
        && code.op_register(register) == Register::RSP
        && code.op_kind(memory) == OpKind::Memory
        && code.memory_base() == Register::RBP
        && code.memory_index() == Register::None;
    is_kept.then(|| code.memory_displacement64())
}

/// The register that holds a copy of rsp: `mov r12, rsp`; or from which rsp is restored: `mov rsp, r12`.
fn copied(code: &iced_x86::Instruction, is_made: bool) -> Option<u32> {
    let (copy, stack) = if is_made { (0, 1) } else { (1, 0) };
    let is_copy = code.mnemonic() == Mnemonic::Mov
        && code.op_kind(copy) == OpKind::Register
        && code.op_kind(stack) == OpKind::Register
        && code.op_register(stack) == Register::RSP;
    number_of(code.op_register(copy)).filter(|_| is_copy)
}

/// A set of one register, by its number.
fn bit(register: u32) -> u32 {
    1u32.checked_shl(register).unwrap_or(0)
}

/// For each instruction: whether every way onward uses rsp as a stack before setting it.
fn proven(nodes: &[Node]) -> Vec<bool> {
    let mut proven = vec![true; nodes.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (index, node) in nodes.iter().enumerate().rev() {
            let of = |successor: usize| proven.get(successor).copied().unwrap_or(true);
            let now = is_stack_use(node) || !sets_stack(node) && (node.leaves || node.successors.iter().all(of));
            let Some(known) = proven.get_mut(index).filter(|known| **known && !now) else {
                continue;
            };
            *known = false;
            changed = true;
        }
    }
    proven
}

fn is_stack_use(node: &Node) -> bool {
    let code = &node.code;
    code.is_stack_instruction() && !matches!(code.mnemonic(), Mnemonic::Leave | Mnemonic::Enter)
}

fn sets_stack(node: &Node) -> bool {
    let code = &node.code;
    let by_frame = code.mnemonic() == Mnemonic::Leave
        || code.op_count() != 0
            && code.op0_kind() == OpKind::Register
            && code.op0_register() == Register::RSP
            && matches!(code.mnemonic(), Mnemonic::Mov | Mnemonic::Lea);
    let from_rsp = code.mnemonic() == Mnemonic::Lea && code.memory_base() == Register::RSP;
    is_moved_by(code) || by_frame && !from_rsp
}

fn number_of(register: Register) -> Option<u32> {
    let full = register.full_register();
    full.is_gpr().then(|| full.number() as u32)
}

/// The state after an instruction.
fn step(state: State, code: &iced_x86::Instruction, kind: Kind, factory: &mut InstructionInfoFactory) -> State {
    let mut behind = state;
    for used in factory.info(code).used_registers() {
        let Some(register) = number_of(used.register()) else {
            continue;
        };
        let value = match used.access() {
            OpAccess::Write | OpAccess::ReadWrite => written(state, code, used.register()),
            OpAccess::CondWrite | OpAccess::ReadCondWrite => {
                written(state, code, used.register()) | get(state, register)
            }
            _ => continue,
        };
        behind = set(behind, register, value);
    }
    if kind == Kind::Call {
        behind = CLOBBERED
            .into_iter()
            .fold(behind, |state, register| set(state, register, UNKNOWN));
    }
    let pops_itself =
        code.mnemonic() == Mnemonic::Pop && code.op0_kind() == OpKind::Register && code.op0_register() == Register::RSP;
    match code.mnemonic() {
        // rbp is loaded from the stack to which rbp pointed.
        Mnemonic::Leave => set(set(behind, RSP, get(state, RBP)), RBP, UNKNOWN),
        Mnemonic::Enter => set(set(behind, RSP, get(state, RSP)), RBP, get(state, RSP)),
        _ if code.is_stack_instruction() && !pops_itself => set(behind, RSP, STACK),
        _ => behind,
    }
}

/// The kind of value that an instruction writes to a register.
fn written(state: State, code: &iced_x86::Instruction, register: Register) -> Value {
    let own = number_of(register).map_or(NUMBER, |number| get(state, number));
    let is_op0 = code.op_count() != 0 && code.op0_kind() == OpKind::Register && code.op0_register() == register;
    // A write to a byte or word of the register aligns the value or spoils it.
    if register.size() < 4 || register.size() == 4 && !is_op0 {
        return if code.mnemonic() == Mnemonic::And && is_relative(code) {
            own
        } else {
            NUMBER
        };
    }
    if register.size() == 4 {
        return NUMBER;
    }
    let source = || match code.op1_kind() {
        OpKind::Register => number_of(code.op1_register()).map_or(UNKNOWN, |number| get(state, number)),
        OpKind::Memory => UNKNOWN,
        _ => NUMBER,
    };
    match code.mnemonic() {
        Mnemonic::Lea => sum(state, code),
        Mnemonic::Add if is_op0 => own & source(),
        Mnemonic::Sub if is_op0 && source() == STACK && register != Register::RSP => NUMBER,
        Mnemonic::Sub | Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Or if is_op0 => own,
        Mnemonic::And if is_op0 && is_relative(code) => own,
        // A register is loaded from setjmp's buffer, where the C library has hidden it by an xor with a word of the
        // thread.
        Mnemonic::Xor if is_op0 && code.segment_prefix() == Register::FS => UNKNOWN,
        Mnemonic::Xchg | Mnemonic::Xadd => exchanged(state, code, register),
        Mnemonic::Pop | Mnemonic::Lodsq | Mnemonic::Cmpxchg | Mnemonic::Syscall => UNKNOWN,
        Mnemonic::Rdfsbase | Mnemonic::Rdgsbase => UNKNOWN,
        Mnemonic::Mov | Mnemonic::Movq | Mnemonic::Vmovq | Mnemonic::Kmovq => source(),
        Mnemonic::Pextrq | Mnemonic::Vpextrq => UNKNOWN,
        _ if Code::is_jcc_short_or_near(code.code()) => own,
        _ if code.is_stack_instruction() => own,
        _ if is_conditional_move(code) => own | source(),
        _ => NUMBER,
    }
}

fn is_conditional_move(code: &iced_x86::Instruction) -> bool {
    code.condition_code() != iced_x86::ConditionCode::None && code.op_count() == 2 && code.op0_register().is_gpr64()
}

fn exchanged(state: State, code: &iced_x86::Instruction, register: Register) -> Value {
    let of = |operand: u32| match code.op_kind(operand) {
        OpKind::Register => number_of(code.op_register(operand)).map(|number| get(state, number)),
        _ => None,
    };
    let (first, second) = (of(0), of(1));
    match (first, second) {
        (Some(first), Some(second)) if code.mnemonic() == Mnemonic::Xadd => first & second,
        (Some(_), Some(second)) if code.op0_register() == register => second,
        (Some(first), Some(_)) => first,
        _ => UNKNOWN,
    }
}

/// The kind of value that `lea` computes. Of a sum, the operand that may be an address decides.
fn sum(state: State, code: &iced_x86::Instruction) -> Value {
    if code.is_ip_rel_memory_operand() {
        return UNKNOWN;
    }
    let base = number_of(code.memory_base()).map_or(NUMBER, |base| get(state, base));
    let scaled = code.memory_index_scale() != 1;
    let index = number_of(code.memory_index()).filter(|_| !scaled);
    let index = index.map_or(NUMBER, |index| get(state, index));
    let is_short = matches!(code.memory_base().size(), 4) || matches!(code.memory_index().size(), 4);
    if is_short { NUMBER } else { base & index }
}
