//! Compares emulated instructions with the processor's own single-stepping: the same state must lead to the same
//! registers, flags and memory. It also checks the probes that fire.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::cell::UnsafeCell;
use core::ffi::c_void;

use common::{Options, Target, exchange_action, map};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Redirect, SignalAction};
use nanoprobe_patch::{
    Built, CodeView, Fire, FireCondition, FunctionExtent, PlanOptions, Point, Position, Runtime, Tactic, TargetAddress,
    ThreadKey, TrapForm, analyze, build, plan,
};

/// Offsets in the mapping: the instruction, its detour, the pages that it may read and write, and a
/// page that it may not.
const SITE: u64 = 0x1000;
const DETOUR: u64 = 0x4000;
const DATA: u64 = 0x8000;
const DATA_BYTES: usize = 0x2000;
const FORBIDDEN: u64 = DATA + DATA_BYTES as u64;
const BYTES: usize = 0x10000;

const RSP: usize = libc::REG_RSP as usize;
const RBP: usize = libc::REG_RBP as usize;
const RIP: usize = libc::REG_RIP as usize;
const FLAGS: usize = libc::REG_EFL as usize;
/// r8 .. r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, flags: as in a signal frame.
type State = [u64; 18];
const STATUS: u64 = 0x8d5;
const TRAP_FLAG: u64 = 0x100;

/// Offsets in the context of the three counters.
const COUNTERS: [u32; 3] = [4096, 4104, 4112];

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
}

/// The state of the single-stepping handler; there is only one test thread.
struct Stepping {
    state: State,
    home: State,
    phase: u32,
    faulted: bool,
}
struct Shared(UnsafeCell<Stepping>);
// SAFETY: only the stepping thread touches it: the handler runs on that very thread.
unsafe impl Sync for Shared {}
static STEPPING: Shared = Shared(UnsafeCell::new(Stepping {
    state: [0; 18],
    home: [0; 18],
    phase: 0,
    faulted: false,
}));

extern "C" fn on_signal(signal: i32, _: *const libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel's ucontext; the statics are this thread's.
    unsafe {
        let stepping = &mut *STEPPING.0.get();
        let registers = &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let mut now: State = [0; 18];
        for (to, from) in now.iter_mut().zip(registers.iter()) {
            *to = *from as u64;
        }
        let next = if stepping.phase == 0 {
            stepping.home = now;
            stepping.state
        } else {
            stepping.state = now;
            stepping.faulted = signal != libc::SIGTRAP;
            stepping.home
        };
        stepping.phase += 1;
        for (to, from) in registers.iter_mut().zip(next) {
            *to = from as i64;
        }
    }
}

/// One step of the processor from a state; `None`: it faults.
fn step(state: &State) -> Option<State> {
    // SAFETY: the handler replaces the registers by the state's, and restores ours after one instruction.
    unsafe {
        let stepping = &mut *STEPPING.0.get();
        stepping.state = *state;
        stepping.state[FLAGS] |= TRAP_FLAG;
        stepping.phase = 0;
        core::arch::asm!("int3");
        let stepping = &mut *STEPPING.0.get();
        assert_eq!(stepping.phase, 2);
        let mut after = stepping.state;
        after[FLAGS] &= STATUS;
        (!stepping.faulted).then_some(after)
    }
}

fn install() {
    let stack = map(65536, libc::MAP_PRIVATE);
    // SAFETY: our own stack, and the process's actions for three signals; nothing else in this
    // test uses them.
    unsafe {
        let alternate = libc::stack_t {
            ss_sp: stack as *mut c_void,
            ss_flags: 0,
            ss_size: 65536,
        };
        assert_eq!(libc::sigaltstack(&alternate, core::ptr::null_mut()), 0);
        for signal in [libc::SIGTRAP, libc::SIGSEGV, libc::SIGBUS] {
            let mut action: libc::sigaction = core::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            assert_eq!(libc::sigaction(signal, &action, core::ptr::null_mut()), 0);
        }
    }
}

struct Bench {
    base: u64,
    random: Random,
}

impl Bench {
    fn new() -> Bench {
        // SAFETY: a new mapping where the kernel chooses; nothing of ours is below it.
        let base = unsafe {
            let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_32BIT;
            let at = libc::mmap(core::ptr::null_mut(), BYTES, protection, flags, -1, 0);
            assert_ne!(at, libc::MAP_FAILED);
            let forbidden = (at as u64 + FORBIDDEN) as *mut c_void;
            assert_eq!(libc::mprotect(forbidden, 4096, libc::PROT_NONE), 0);
            at as u64
        };
        Bench {
            base,
            random: Random(0x9e37_79b9_7f4a_7c15),
        }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        // SAFETY: the tests' offsets lie in the mapping.
        unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), (self.base + offset) as *mut u8, bytes.len()) };
    }

    fn data(&self) -> Vec<u8> {
        // SAFETY: the pages are readable and in the mapping.
        unsafe { core::slice::from_raw_parts((self.base + DATA) as *const u8, DATA_BYTES).to_vec() }
    }

    /// Registers with addresses of the data, invalid addresses, small or random numbers; the stack
    /// is mostly inside the data.
    fn state(&mut self) -> State {
        let mut state = [0; 18];
        for register in state.iter_mut().take(16) {
            *register = match self.random.below(6) {
                0 | 1 => self.base + DATA + 8 * self.random.below(DATA_BYTES as u64 / 8),
                2 => self.random.below(4),
                3 => self.base + FORBIDDEN + self.random.below(64),
                4 => self.random.next() >> self.random.below(64),
                _ => self.random.next(),
            };
        }
        for register in [RSP, RBP] {
            if self.random.below(8) != 0 {
                state[register] = self.base + DATA + 8 * self.random.below(DATA_BYTES as u64 / 8 + 2);
            }
        }
        state[RIP] = self.base + SITE;
        state[FLAGS] = 0x202 | self.random.next() & STATUS;
        state
    }

    /// Words that are valid destinations of jumps, or not.
    fn fill_data(&mut self) -> Vec<u8> {
        let mut data = Vec::with_capacity(DATA_BYTES);
        while data.len() < DATA_BYTES {
            let word = match self.random.below(4) {
                0 => self.random.next(),
                1 => self.base + SITE + self.random.below(64),
                _ => self.random.next() >> 17,
            };
            data.extend_from_slice(&word.to_le_bytes());
        }
        data
    }

    fn build(&self, bytes: &[u8], conditions: &[FireCondition], target: &Target) -> Built {
        let start = TargetAddress(self.base + SITE);
        let mut text = bytes.to_vec();
        text.extend_from_slice(&[0x90; 16]);
        let extent = FunctionExtent {
            start,
            size: bytes.len() as u64,
            fragments: Vec::new(),
        };
        let map = analyze(&CodeView { start, bytes: &text }, &extent);
        let points: Vec<Point> = conditions
            .iter()
            .zip(COUNTERS)
            .map(|(condition, context_offset)| Point {
                site: start,
                condition: *condition,
                position: Position::Inside,
                full_frame: false,
                fires: vec![Fire::Count { context_offset }],
            })
            .collect();
        let options = PlanOptions {
            force: Some(Tactic::Trap),
            ..PlanOptions::default()
        };
        let planned = plan(&map, &points, &options);
        assert_eq!(planned.refusals, [], "{bytes:x?}");
        let runtime = Runtime {
            enter: TargetAddress(target.address(Function::Enter)),
            table: TargetAddress(target.table),
            thread_key: ThreadKey::TlsSelf,
            trap: None,
        };
        let built = build(&planned.runs[0], TargetAddress(self.base + DETOUR), &runtime).unwrap();
        assert_eq!(built.form, Some(TrapForm::Emulate), "{bytes:x?}");
        self.write(DETOUR, &built.detour);
        built
    }
}

/// The agent's handler, called as the kernel would after an int3 at the site.
fn emulate(target: &Target, state: &State) -> State {
    // SAFETY: plain structures of integers; the handler lies in the image and keeps to the ABI.
    unsafe {
        let mut context: libc::ucontext_t = core::mem::zeroed();
        let mut information: [u64; 16] = [0; 16];
        information[1] = 0x80; // si_code: SI_KERNEL
        for (to, from) in context.uc_mcontext.gregs.iter_mut().zip(state) {
            *to = *from as i64;
        }
        context.uc_mcontext.gregs[RIP] += 1;
        let handler: extern "C" fn(i32, *mut c_void, *mut c_void) =
            core::mem::transmute(target.address(Function::OnTrap));
        // A fault in the handler is the agent's.
        let ours = SignalAction {
            handler: target.address(Function::OnFault),
            flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | 0x0400_0000,
            restorer: target.address(Function::Restorer),
            mask: 0,
        };
        let tests = [libc::SIGSEGV, libc::SIGBUS].map(|signal| exchange_action(signal, Some(ours)));
        handler(libc::SIGTRAP, (&raw mut information).cast(), (&raw mut context).cast());
        exchange_action(libc::SIGSEGV, Some(tests[0]));
        exchange_action(libc::SIGBUS, Some(tests[1]));
        let mut after: State = [0; 18];
        for (to, from) in after.iter_mut().zip(context.uc_mcontext.gregs) {
            *to = from as u64;
        }
        after[FLAGS] &= STATUS;
        after
    }
}

/// Register operands of all sizes: `opcode`, or with `digit` the opcode's extension and an
/// immediate after it.
fn with_registers(all: &mut Vec<Vec<u8>>, opcode: u8, digit: Option<u8>, immediate: &[u8]) {
    for prefix in [
        &[][..],
        &[0x48],
        &[0x4c],
        &[0x49],
        &[0x4d],
        &[0x41],
        &[0x66],
        &[0x66, 0x45],
    ] {
        for (register, memory) in [(0, 3), (4, 5), (7, 4), (5, 0), (1, 1)] {
            let wide = prefix.first() == Some(&0x66) && immediate.len() == 4;
            let middle = digit.unwrap_or(register);
            if digit.is_some() && prefix.iter().any(|byte| byte & 0xf4 == 0x44) {
                continue; // REX.R has no meaning in this instruction
            }
            let mut bytes = [prefix, &[opcode, 0xc0 | middle << 3 | memory]].concat();
            bytes.extend_from_slice(if wide { &immediate[..2] } else { immediate });
            all.push(bytes);
        }
    }
}

/// Memory operands: `[base]`, `[base + d]`, with index, without base, relative to rip, with a 32-bit address,
/// relative to fs.
fn with_memory(all: &mut Vec<Vec<u8>>, prefix: &[u8], opcode: u8, middle: u8) {
    let operands: [&[u8]; 9] = [
        &[0x00],
        &[0x06],
        &[0x45, 0x10],
        &[0x04, 0x24],
        &[0x44, 0x24, 0xf8],
        &[0x44, 0x9d, 0x08],
        &[0x84, 0xc8, 0x00, 0x01, 0, 0],
        &[0x04, 0x25, 0x00, 0x10, 0, 0],
        &[0x05, 0x00, 0x70, 0, 0],
    ];
    for operand in operands {
        let mut bytes = prefix.to_vec();
        bytes.push(opcode);
        bytes.push(operand[0] | middle << 3);
        bytes.extend_from_slice(&operand[1..]);
        all.push(bytes.clone());
        let relative = operand[0] == 5;
        if !relative {
            all.push([&[0x67], bytes.as_slice()].concat());
        }
        all.push([&[0x64], bytes.as_slice()].concat());
    }
}

/// Every encoding that is emulated, with various operands.
fn instructions() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = vec![
        vec![0x90],
        vec![0x66, 0x90],
        vec![0x0f, 0x1f, 0x44, 0, 0],
        vec![0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0],
        vec![0xf3, 0x0f, 0x1e, 0xfa],
        vec![0xc9],
        vec![0xc3],
        vec![0xf3, 0xc3],
        vec![0xc2, 0x18, 0],
        vec![0x6a, 0xf0],
        vec![0x68, 1, 2, 3, 0xf4],
        vec![0xe8, 0x40, 0, 0, 0],
        vec![0xe8, 0xf0, 0xff, 0xff, 0xff],
        vec![0xe9, 0, 1, 0, 0],
        vec![0xeb, 0xfe],
        vec![0xeb, 0x20],
    ];
    for register in 0..8 {
        for opcode in [0x50, 0x58] {
            all.push(vec![opcode + register]);
            all.push(vec![0x41, opcode + register]);
        }
        all.push([&[0x48, 0xb8 + register][..], &[9, 8, 7, 6, 5, 4, 3, 0xf2]].concat());
        all.push(vec![0x41, 0xb8 + register, 1, 2, 3, 0xf4]);
        all.push(vec![0x48, 0xc7, 0xc0 + register, 0xfe, 0xff, 0xff, 0xff]);
        for digit in [2, 4, 6] {
            // call, jmp and push; but not call rsp and jmp rsp, which cannot be relocated.
            if digit == 6 || register != 4 {
                all.push(vec![0xff, 0xc0 | digit << 3 | register]);
            }
            all.push(vec![0x41, 0xff, 0xc0 | digit << 3 | register]);
        }
    }
    for condition in 0..16 {
        all.push(vec![0x70 + condition, 0x10]);
        all.push(vec![0x0f, 0x80 + condition, 0xf0, 0xff, 0xff, 0xff]);
    }
    for opcode in 0xe0..0xe4 {
        all.push(vec![opcode, 0x30]);
        all.push(vec![0x67, opcode, 0xc0]);
    }
    for digit in [2, 4, 6] {
        with_memory(&mut all, &[], 0xff, digit);
        with_memory(&mut all, &[0x41], 0xff, digit);
    }
    for prefix in [&[][..], &[0x48], &[0x4c], &[0x66]] {
        with_memory(&mut all, prefix, 0x8d, 3);
    }
    for opcode in [
        0x89, 0x8b, 0x01, 0x03, 0x29, 0x2b, 0x21, 0x23, 0x09, 0x0b, 0x31, 0x33, 0x39, 0x3b, 0x85,
    ] {
        with_registers(&mut all, opcode, None, &[]);
    }
    for digit in [0, 1, 4, 5, 6, 7] {
        with_registers(&mut all, 0x83, Some(digit), &[0x88]);
        with_registers(&mut all, 0x81, Some(digit), &[0x78, 0x56, 0x34, 0x92]);
    }
    with_registers(&mut all, 0xf7, Some(0), &[0x78, 0x56, 0x34, 0x92]);
    all
}

/// A call through the stack, in the word that it pushes itself, or with a 32-bit stack
/// pointer: always refused.
fn is_refused(bytes: &[u8]) -> bool {
    let opcode = bytes.iter().position(|byte| *byte == 0xff);
    let Some(&[_, operand, ..]) = opcode.and_then(|at| bytes.get(at..)) else {
        return false;
    };
    let stack = operand & 7 == 4 && operand < 0xc0 && bytes.contains(&0x24) && !bytes.contains(&0x41);
    let below = bytes.ends_with(&[0x24, 0xf8]);
    operand >> 3 & 7 == 2 && stack && (below || bytes.contains(&0x67))
}

#[test]
fn the_processor_does_the_same() {
    install();
    let mut bench = Bench::new();
    let site = bench.base + SITE;
    // The redirect always leads to the same place, in which each test writes its instruction's descriptor.
    let (mut compared, mut faults, mut taken) = (0_u32, 0_u32, 0_u32);
    let scout = Target::new(&Options::default());
    let context = scout.enter();
    assert_ne!(context, 0);
    for bytes in instructions() {
        if is_refused(&bytes) {
            continue;
        }
        let is_branch = bytes[0] & 0xf0 == 0x70
            || bytes[0] == 0x0f && bytes[1] & 0xf0 == 0x80
            || bytes
                .iter()
                .find(|byte| **byte != 0x67)
                .is_some_and(|byte| (0xe0..0xe4).contains(byte));
        let conditions: &[FireCondition] = if is_branch {
            &[FireCondition::Always, FireCondition::IfTaken]
        } else {
            &[FireCondition::Always]
        };
        let built = bench.build(&bytes, conditions, &scout);
        let redirect = built.redirects[0];
        scout.redirect(&[Redirect {
            from: redirect.from.0,
            to: redirect.to.0,
        }]);
        let copy = built.moves[0].relocated.0;
        let text = [bytes.as_slice(), &[0x90; 16]].concat();
        for _ in 0..24 {
            let (state, data) = (bench.state(), bench.fill_data());
            bench.write(SITE, &text);
            bench.write(DATA, &data);
            let right = step(&state);
            let right_data = bench.data();
            bench.write(DATA, &data);
            bench.write(SITE, &built.patched);
            let counted = COUNTERS.map(|offset| scout.get(context, offset as usize));
            let found = emulate(&scout, &state);
            let fired = [0, 1].map(|index| scout.get(context, COUNTERS[index] as usize) - counted[index]);
            let Some(right) = right else {
                faults += 1;
                let mut expected = state;
                expected[RIP] = copy;
                expected[FLAGS] &= STATUS;
                assert_eq!(found, expected, "{bytes:x?} faults: {state:x?}");
                assert_eq!(bench.data(), data, "{bytes:x?} faults: {state:x?}");
                continue;
            };
            if found[RIP] == copy {
                // Only the processor knows whether this address is valid.
                assert!(right[RIP] >> 47 != 0, "{bytes:x?}: {state:x?}");
                continue;
            }
            compared += 1;
            assert_eq!(found, right, "{bytes:x?}: {state:x?}");
            assert_eq!(bench.data(), right_data, "{bytes:x?}: {state:x?}");
            let jumped = u64::from(is_branch && right[RIP] != site + bytes.len() as u64);
            taken += jumped as u32;
            assert_eq!(fired, [1, jumped], "{bytes:x?}: {state:x?}");
        }
    }
    assert!(
        compared > 10_000 && faults > 500 && taken > 200,
        "{compared} {faults} {taken}"
    );
}
