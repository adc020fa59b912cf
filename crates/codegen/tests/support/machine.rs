//! A machine for one handler: executable memory, a thread's context, and an entry that checks every register.

use nanoprobe_codegen::{AgentFunction, ArenaLayout, Compiler, Handler, ProbeKind, ProgramStart, SessionConstants};
use nanoprobe_lang::layout::{Limits, Storage};
use nanoprobe_lang::program::Program;

use super::agent::{self, STATE, STRSIZE, State};

pub const LIMITS: Limits = Limits {
    strsize: STRSIZE as u32,
    ustackframes: 20,
    jstackframes: 20,
    stackframes: 3,
    maxframes: 2048,
};
/// Offset of the global variables, after struct np_control.
pub const GLOBALS_OFFSET: u32 = 2048;
pub const TID: u32 = 4711;
/// Offset of the static slots in the context, after struct np_context.
const SLOT_BASE: usize = 4096 + 64;
/// The least number of bytes of static slots, for tests that place counts by hand.
const SLOT_BYTES_MIN: usize = 4096;
/// These words after the slots must not change at a hit. They show whether a handler writes past its slots.
const CANARY: [u64; 8] = [0x5afe_c0de_5afe_c0de; 8];

/// Compiles the first clause of a program.
pub fn compile(program: &Program, kind: ProbeKind) -> Handler {
    try_compile(program, kind).unwrap()
}

pub fn compile_clause(program: &Program, clause: usize, kind: ProbeKind) -> Handler {
    let storage = Storage::new(program, LIMITS);
    Compiler::new()
        .unwrap()
        .compile(program, clause, kind, &storage, LIMITS, &arena_layout())
        .unwrap()
}

pub fn try_compile(program: &Program, kind: ProbeKind) -> Result<Handler, nanoprobe_codegen::Error> {
    let storage = Storage::new(program, LIMITS);
    Compiler::new()?.compile(program, 0, kind, &storage, LIMITS, &arena_layout())
}

pub fn arena_layout() -> ArenaLayout {
    ArenaLayout {
        globals_offset: GLOBALS_OFFSET,
        constants: SessionConstants {
            ancestors: vec![100, 99, 1],
            mounts: "25 8:1 ext4 /\n26 0:22 tmpfs /tmp\n".to_owned(),
            pid: 100,
            ppid: 99,
            uid: 1000,
            gid: 1001,
            effective_uid: 1002,
            effective_gid: 1003,
            process_group: 98,
            process_session: 97,
            execname: "looper".to_owned(),
            arguments: "./looper 7".to_owned(),
            start: ProgramStart {
                argument_count: 2,
                arguments: 0x1008,
                environment: 0x1020,
            },
        },
        ..ArenaLayout::default()
    }
}

/// The memory in which a handler is placed: first writable, then executable, never both (I7).
pub struct Code {
    address: *mut libc::c_void,
    bytes: usize,
    entry: u64,
}

impl Code {
    /// Places an image (empty, or the agent's) and after it the handler. `agent` yields the addresses of the functions
    /// that the handler calls.
    pub fn new(handler: &Handler, image: &[u8], agent: impl Fn(u64, AgentFunction) -> u64) -> Code {
        let handler_offset = image.len().next_multiple_of(64);
        let bytes = (handler_offset + handler.placed_bytes()).next_multiple_of(4096);
        // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that exists.
        let address = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(address, libc::MAP_FAILED);
        let entry = address as u64 + handler_offset as u64;
        let placed = handler.place(entry, |function| agent(address as u64, function));
        assert_eq!(placed.len(), handler.placed_bytes());
        // SAFETY: the mapping is new, writable, and large enough for both.
        unsafe {
            std::ptr::copy_nonoverlapping(image.as_ptr(), address.cast(), image.len());
            std::ptr::copy_nonoverlapping(placed.as_ptr(), entry as *mut u8, placed.len());
        }
        // SAFETY: the mapping is ours.
        let protected = unsafe { libc::mprotect(address, bytes, libc::PROT_READ | libc::PROT_EXEC) };
        assert_eq!(protected, 0);
        Code { address, bytes, entry }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and nothing runs in it any more.
        unsafe { libc::munmap(self.address, self.bytes) };
    }
}

/// The indices of registers in [`Registers`], as the instruction set numbers them.
pub const RAX: usize = 0;
pub const RCX: usize = 1;
pub const RDX: usize = 2;
pub const RBX: usize = 3;
pub const RSP: usize = 4;
pub const RBP: usize = 5;
pub const RSI: usize = 6;
pub const RDI: usize = 7;
pub const R8: usize = 8;
pub const R9: usize = 9;
pub const R15: usize = 15;

/// The registers before and after the handler.
#[repr(C)]
#[derive(Clone, Copy)]
struct Registers {
    before: [u64; 16],
    after: [u64; 16],
    simd_before: [[u64; 2]; 16],
    simd_after: [[u64; 2]; 16],
}

/// All memory that a handler can reach: `struct np_frame_below` and `struct np_frame`, the enabling, strings, storage.
pub struct Machine {
    code: Code,
    /// struct np_context, at [`SLOT_BASE`] the static slots of the handler, and [`CANARY`] after them.
    pub context: Vec<u64>,
    pub arena: Box<[u64; 8192]>,
    pub locals: Box<[u64; 256]>,
    pub clause_locals: Box<[u64; 256]>,
    pub frame: Box<[u64; 16]>,
    pub enabling: Box<[u64; 9]>,
    pub stack: Box<[u64; 16]>,
    pub tid: Box<u32>,
    /// 512 bytes, and 8 more that a string's NUL may take.
    scratch: Box<[u64; 65]>,
    key: Box<[u64; 32]>,
    names: Box<[[u8; STRSIZE]; 4]>,
}

impl Machine {
    /// A machine with the agent in Rust.
    pub fn new(handler: &Handler) -> Machine {
        STATE.set(State::default());
        let code = Code::new(handler, &[], |_, function| agent::address(function));
        Machine::with_code(code, handler)
    }

    /// A machine with the agent's own image.
    pub fn with_agent_image(handler: &Handler, image: &[u8]) -> Machine {
        let code = Code::new(handler, image, |image, function| image + u64::from(function.offset()));
        Machine::with_code(code, handler)
    }

    fn with_code(code: Code, handler: &Handler) -> Machine {
        let mut machine = Machine {
            code,
            context: vec![0; (SLOT_BASE + SLOT_BYTES_MIN) / 8],
            arena: Box::new([0; 8192]),
            locals: Box::new([0; 256]),
            clause_locals: Box::new([0; 256]),
            frame: Box::new(std::array::from_fn(|index| 0xf000 + index as u64)),
            enabling: Box::new([0; 9]),
            stack: Box::new(std::array::from_fn(|index| 0x5000 + index as u64)),
            tid: Box::new(TID),
            scratch: Box::new([0; 65]),
            key: Box::new([0; 32]),
            names: Box::new([[0; STRSIZE]; 4]),
        };
        for (buffer, name) in machine.names.iter_mut().zip(["pid100", "a.out", "func", "entry"]) {
            buffer[..name.len()].copy_from_slice(name.as_bytes());
        }
        // struct np_enabling
        machine.enabling[0] = 7 | 8 << 32; // epid, probe_id
        machine.enabling[1] = 0x40_1234; // site
        machine.enabling[2] = 0x2a; // offset
        for index in 0..4 {
            machine.enabling[3 + index] = machine.names[index].as_ptr() as u64;
        }
        machine.enabling[7] = SLOT_BASE as u64; // slot_base
        // struct np_context
        machine.context[1] = &raw const machine.frame[13] as u64;
        machine.context[2] = machine.stack.as_ptr() as u64;
        machine.context[3] = machine.enabling.as_ptr() as u64;
        machine.context[6] = 0x77; // a fault that another clause has left
        machine.context[8] = machine.arena.as_ptr() as u64;
        machine.context[9] = &raw const *machine.tid as u64;
        machine.context[10] = u64::from(TID);
        machine.context[11] = 0x7f00_0000_1000; // thread_key
        machine.context[12] = machine.scratch.as_ptr() as u64;
        machine.context[13] = 512;
        machine.context[14] = 300; // the bytes that another clause has used
        machine.context[15] = machine.key.as_ptr() as u64;
        machine.context[16] = 24;
        machine.context[17] = 256;
        machine.context[38] = machine.locals.as_ptr() as u64;
        machine.context[40] = machine.clause_locals.as_ptr() as u64;
        machine.context.extend(CANARY);
        machine.make_room(handler);
        machine
    }

    /// Makes room for the handler's static slots. There may be more of them than for the previous handler.
    fn make_room(&mut self, handler: &Handler) {
        let words = (SLOT_BASE + handler.slot_bytes as usize).div_ceil(8);
        let before = self.context.len() - CANARY.len();
        if words > before {
            self.context.truncate(before);
            self.context.resize(words, 0);
            self.context.extend(CANARY);
        }
    }

    /// Continues with another handler, in the same arena and thread.
    pub fn load(&mut self, handler: &Handler, image: &[u8]) {
        self.code = Code::new(handler, image, |image, function| image + u64::from(function.offset()));
        self.make_room(handler);
    }

    /// The names of the probe: provider, module, function and name.
    pub fn set_names(&mut self, names: [&str; 4]) {
        for (buffer, name) in self.names.iter_mut().zip(names) {
            buffer.fill(0);
            buffer[..name.len()].copy_from_slice(name.as_bytes());
        }
    }

    /// Fires the handler with these arguments. Afterwards every register must have its former value (I2).
    pub fn run(&mut self, arguments: [u64; 6]) {
        let mut registers = Registers {
            before: std::array::from_fn(|index| 0x1111_1111_1111_1111 * index as u64),
            after: [0; 16],
            simd_before: std::array::from_fn(|index| [0xaaaa_0000 + index as u64, 0xbbbb_0000 + index as u64]),
            simd_after: [[0; 2]; 16],
        };
        for (register, value) in [RDI, RSI, RDX, RCX, R8, R9].into_iter().zip(arguments) {
            registers.before[register] = value;
        }
        registers.before[R15] = self.context.as_ptr() as u64;
        registers.before[RSP] = 0;
        // SAFETY: the code is a handler, and everything that it can reach through the context lives in `self`.
        unsafe { enter(self.code.entry, &mut registers) };
        assert_eq!(registers.before, registers.after, "general registers");
        assert_eq!(registers.simd_before, registers.simd_after, "SIMD registers");
        assert!(self.context.ends_with(&CANARY), "the handler wrote behind its context");
    }

    pub fn global(&self, variable: usize) -> u64 {
        self.arena[GLOBALS_OFFSET as usize / 8 + variable]
    }

    pub fn set_global(&mut self, variable: usize, value: u64) {
        self.arena[GLOBALS_OFFSET as usize / 8 + variable] = value;
    }

    /// The u64 at a byte offset in the enabling's static slots.
    pub fn slot(&self, offset: usize) -> u64 {
        self.context[(SLOT_BASE + offset) / 8]
    }

    pub fn set_slot(&mut self, offset: usize, value: u64) {
        self.context[(SLOT_BASE + offset) / 8] = value;
    }
}

/// The agent's records since the machine was built.
pub fn agent<R>(look: impl FnOnce(&State) -> R) -> R {
    STATE.with_borrow(look)
}

/// The names of the agent's functions called so far, in order.
pub fn calls() -> Vec<String> {
    agent(|state| state.log.clone())
}

/// Enters a handler with all registers set, and stores the values that it leaves.
///
/// # Safety
///
/// `entry` is a handler whose context, given as r15, is complete.
#[unsafe(naked)]
unsafe extern "C" fn enter(entry: u64, registers: *mut Registers) {
    core::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi", // entry
        "push rsi", // registers
        "movups xmm0, [rsi+256]",
        "movups xmm1, [rsi+272]",
        "movups xmm2, [rsi+288]",
        "movups xmm3, [rsi+304]",
        "movups xmm4, [rsi+320]",
        "movups xmm5, [rsi+336]",
        "movups xmm6, [rsi+352]",
        "movups xmm7, [rsi+368]",
        "movups xmm8, [rsi+384]",
        "movups xmm9, [rsi+400]",
        "movups xmm10, [rsi+416]",
        "movups xmm11, [rsi+432]",
        "movups xmm12, [rsi+448]",
        "movups xmm13, [rsi+464]",
        "movups xmm14, [rsi+480]",
        "movups xmm15, [rsi+496]",
        "mov rax, [rsi]",
        "mov rcx, [rsi+8]",
        "mov rdx, [rsi+16]",
        "mov rbx, [rsi+24]",
        "mov rbp, [rsi+40]",
        "mov rdi, [rsi+56]",
        "mov r8, [rsi+64]",
        "mov r9, [rsi+72]",
        "mov r10, [rsi+80]",
        "mov r11, [rsi+88]",
        "mov r12, [rsi+96]",
        "mov r13, [rsi+104]",
        "mov r14, [rsi+112]",
        "mov r15, [rsi+120]",
        "mov rsi, [rsi+48]",
        "call [rsp+8]",
        "push rsi",
        "mov rsi, [rsp+8]",
        "mov [rsi+128], rax",
        "mov [rsi+136], rcx",
        "mov [rsi+144], rdx",
        "mov [rsi+152], rbx",
        "mov [rsi+168], rbp",
        "mov [rsi+184], rdi",
        "mov [rsi+192], r8",
        "mov [rsi+200], r9",
        "mov [rsi+208], r10",
        "mov [rsi+216], r11",
        "mov [rsi+224], r12",
        "mov [rsi+232], r13",
        "mov [rsi+240], r14",
        "mov [rsi+248], r15",
        "pop rax",
        "mov [rsi+176], rax",
        "movups [rsi+512], xmm0",
        "movups [rsi+528], xmm1",
        "movups [rsi+544], xmm2",
        "movups [rsi+560], xmm3",
        "movups [rsi+576], xmm4",
        "movups [rsi+592], xmm5",
        "movups [rsi+608], xmm6",
        "movups [rsi+624], xmm7",
        "movups [rsi+640], xmm8",
        "movups [rsi+656], xmm9",
        "movups [rsi+672], xmm10",
        "movups [rsi+688], xmm11",
        "movups [rsi+704], xmm12",
        "movups [rsi+720], xmm13",
        "movups [rsi+736], xmm14",
        "movups [rsi+752], xmm15",
        "add rsp, 16",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}
