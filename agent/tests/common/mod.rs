//! A target in miniature, inside the test's own process: the agent's image r-x, an arena, a thread
//! table, signal actions.
//!
//! Every call of an agent function goes through [`call_checked`], which fills all general registers and sets the
//! direction flag, as a handler may find them, and checks afterwards that all registers are unchanged.

#![allow(clippy::unwrap_used, reason = "test code")]
#![allow(dead_code, reason = "each test file uses its part")]

pub mod delivery;

use core::arch::global_asm;
use core::mem::offset_of;
use core::ptr;
use std::sync::Mutex;

use nanoprobe_agent::{Function, ImageHeader, READERS_OFFSET, image_with, redirect_table, redirect_table_over};
use nanoprobe_arena::layout::{
    Context, Control, Enabling, FrameBelow, KEY_TLS_SELF, MAGIC, Range, Redirect, SLOT_BUS, SLOT_ILL, SLOT_SEGV,
    SLOT_TRAP, SignalAction, TABLE_BYTES, TABLE_INHERITANCE, TABLE_INHERITED, TABLE_MAGIC, Tables, VERSION,
};
use nanoprobe_arena::{ContextPlan, ControlBlock, DynamicVariables, Mapping, Memory};

/// The registers that [`call_checked`] loads and stores: rax, rbx, rcx, rdx, rsi, rdi, rbp, r8 .. r15.
#[repr(C)]
struct Call {
    function: u64,
    before: [u64; 15],
    after: [u64; 15],
}

global_asm!(
    ".globl nanoprobe_test_call",
    "nanoprobe_test_call:",
    "push rbx; push rbp; push r12; push r13; push r14; push r15",
    "push rdi; push [rdi]",
    "mov rax, [rdi + 8]; mov rbx, [rdi + 16]; mov rcx, [rdi + 24]; mov rdx, [rdi + 32]; mov rsi, [rdi + 40]",
    "mov rbp, [rdi + 56]; mov r8, [rdi + 64]; mov r9, [rdi + 72]; mov r10, [rdi + 80]; mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]; mov r13, [rdi + 104]; mov r14, [rdi + 112]; mov r15, [rdi + 120]; mov rdi, [rdi + 48]",
    "std",
    "call [rsp]",
    "cld",
    "push rdi; mov rdi, [rsp + 16]",
    "mov [rdi + 128], rax; mov [rdi + 136], rbx; mov [rdi + 144], rcx; mov [rdi + 152], rdx; mov [rdi + 160], rsi",
    "pop rax; mov [rdi + 168], rax",
    "mov [rdi + 176], rbp; mov [rdi + 184], r8; mov [rdi + 192], r9; mov [rdi + 200], r10; mov [rdi + 208], r11",
    "mov [rdi + 216], r12; mov [rdi + 224], r13; mov [rdi + 232], r14; mov [rdi + 240], r15",
    "add rsp, 16",
    "pop r15; pop r14; pop r13; pop r12; pop rbp; pop rbx",
    "ret",
);

unsafe extern "C" {
    fn nanoprobe_test_call(call: *mut Call);
}

/// Sizes of a target in miniature.
pub struct Options {
    /// Names the current tables; `None`: the redirects and origins of these options.
    pub published: Option<Published>,
    pub plan: ContextPlan,
    pub policy: u32,
    pub contexts: u32,
    pub strsize: u32,
    pub dynamic_bytes: u64,
    pub allow_syscalls: bool,
    pub redirects: Vec<Redirect>,
    pub origins: Vec<Redirect>,
    pub thread_key_mode: u64,
    pub tid_offset: u32,
    /// Address of a `struct np_return_pool`, and of the thunks; 0: there are none.
    pub returns: u64,
    pub thunks: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            plan: ContextPlan::new(4096, 64, 64, 4096, 512, 1 << 16, 1 << 14).unwrap(),
            policy: 0,
            contexts: 4,
            strsize: 256,
            dynamic_bytes: 1 << 16,
            allow_syscalls: true,
            redirects: Vec::new(),
            origins: Vec::new(),
            thread_key_mode: KEY_TLS_SELF,
            tid_offset: 0,
            returns: 0,
            thunks: 0,
            published: None,
        }
    }
}

/// Addresses, as in the image's header.
#[derive(Clone, Copy)]
pub struct Published {
    pub tables: u64,
    pub rows: u64,
    pub readers: u64,
}

/// Offset of the only [`Enabling`].
pub const ENABLING: u64 = 4096;
/// Offset of the only range of the snapshot.
pub const RANGES: u64 = 4096 + 1024;
/// Offset of the only row of tables.
pub const TABLES: u64 = 4096 + 2048;
/// Offset of room for strings and redirects.
pub const ROOM: u64 = 8192;
/// Offset of the unwind table.
pub const UNWIND: u64 = 12288;
/// Offset of the dynamic variables.
pub const DYNAMIC: u64 = 16384;

pub struct Target {
    pub memory: Mapping,
    pub plan: ContextPlan,
    pub arena: u64,
    pub image: u64,
    pub table: u64,
    pub contexts: u64,
    pub dynamic: DynamicVariables,
}

/// Fresh zeroed memory. It is never unmapped, because threads and signal handlers may still use it later.
pub fn map(bytes: usize, flags: i32) -> u64 {
    // SAFETY: a new mapping where the kernel likes; no memory of ours is touched.
    let at = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes,
            libc::PROT_READ | libc::PROT_WRITE,
            flags | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    assert_ne!(at, libc::MAP_FAILED);
    at as u64
}

/// Code at a new address, executable and not writable.
pub fn map_code(bytes: &[u8]) -> u64 {
    let size = bytes.len().next_multiple_of(4096);
    let at = map(size, libc::MAP_PRIVATE);
    // SAFETY: the mapping is new, ours, and large enough.
    unsafe {
        ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len());
        assert_eq!(libc::mprotect(at as *mut _, size, libc::PROT_READ | libc::PROT_EXEC), 0);
    }
    at
}

impl Target {
    pub fn new(options: &Options) -> Self {
        let contexts = (DYNAMIC + options.dynamic_bytes).next_multiple_of(4096);
        let example = contexts + options.plan.stride * u64::from(options.contexts);
        let bytes = (example + ContextPlan::EXAMPLE_BYTES) as usize;
        let arena = map(bytes, libc::MAP_SHARED);
        // SAFETY: the mapping is page aligned, of this size, and never unmapped.
        let memory = unsafe { Mapping::new(arena as *mut u8, bytes) };
        let table = map(TABLE_BYTES, libc::MAP_PRIVATE);
        // SAFETY: the mapping is ours; the word lies inside.
        unsafe {
            assert_eq!(
                libc::madvise(table as *mut _, TABLE_INHERITED, libc::MADV_WIPEONFORK),
                0
            );
            *((table + TABLE_MAGIC as u64) as *mut u64) = MAGIC;
        }
        // SAFETY: asks for nothing but a number.
        let pid = unsafe { libc::getpid() } as u32;
        let control = Control {
            magic: MAGIC,
            version: VERSION,
            control_bytes: size_of::<Control>() as u32,
            arena_address: arena,
            arena_bytes: bytes as u64,
            contexts_offset: contexts,
            context_stride: options.plan.stride,
            context_capacity: options.contexts,
            target_pid: pid,
            dynamic_offset: if options.dynamic_bytes == 0 { 0 } else { DYNAMIC },
            strsize: options.strsize,
            tid_offset: options.tid_offset,
            ustackframes: 20,
            example_offset: example,
            ..Control::default()
        };
        memory.write_structure(0, &control).unwrap();
        let enabling = Enabling {
            epid: 7,
            probe_id: 9,
            site: 0x40_1000,
            ..Enabling::default()
        };
        memory.write_structure(ENABLING, &enabling).unwrap();
        let dynamic = DynamicVariables::new(DYNAMIC, options.dynamic_bytes);
        if options.dynamic_bytes != 0 {
            dynamic.initialise(&memory).unwrap();
        }
        options.plan.write_example(&memory, example, options.policy).unwrap();
        for index in 0..options.contexts {
            let offset = contexts + options.plan.stride * u64::from(index);
            options
                .plan
                .initialise(&memory, arena, offset, index, options.policy)
                .unwrap();
        }
        for (offset, entries) in [(ROOM, &options.redirects), (ROOM + 1024, &options.origins)] {
            let table = redirect_table(entries.iter().map(|entry| (entry.from, entry.to)));
            memory.write(offset, &table).unwrap();
        }
        let tables = Tables {
            redirects: arena + ROOM,
            origins: arena + ROOM + 1024,
        };
        memory.write_structure(TABLES, &tables).unwrap();
        let mut image = image_with(ImageHeader {
            control: arena,
            table,
            thread_key_mode: options.thread_key_mode,
            returns: options.returns,
            thunks: options.thunks,
            allow_syscalls: options.allow_syscalls,
            tables: options.published.map_or(arena + TABLES, |published| published.tables),
            rows: options.published.map_or(0, |published| published.rows),
            ..ImageHeader::default()
        });
        let readers = options.published.map_or(0, |published| published.readers);
        image[READERS_OFFSET as usize..][..8].copy_from_slice(&readers.to_le_bytes());
        let image = map_code(&image);
        Self {
            memory,
            plan: options.plan,
            arena,
            image,
            table,
            contexts,
            dynamic,
        }
    }

    /// Calls an agent function with all registers filled, and checks that it has preserved them. Yields rax.
    pub fn call(&self, function: Function, arguments: &[u64]) -> u64 {
        let mut before = [0; 15];
        for (index, register) in before.iter_mut().enumerate() {
            *register = 0x1111_1111_1111_1111 * (index as u64 + 1);
        }
        if let Some(context) = arguments.first() {
            before[14] = *context; // r15
        }
        for (register, value) in [5, 4, 3, 2, 7].into_iter().zip(arguments) {
            before[register] = *value; // rdi, rsi, rdx, rcx, r8
        }
        let mut call = Call {
            function: self.address(function),
            before,
            after: [0; 15],
        };
        // SAFETY: the function lies in the image, which is mapped r-x; it keeps to its contract, which is the point of
        // the tests.
        unsafe { nanoprobe_test_call(&mut call) };
        if ![Function::Enter, Function::ReturnTake].contains(&function) {
            assert_eq!(call.after, call.before, "{function:?} has changed a register");
        }
        assert_eq!(call.after[1..], call.before[1..], "{function:?} has changed a register");
        call.after[0]
    }

    pub fn address(&self, function: Function) -> u64 {
        self.image + u64::from(function.offset())
    }

    /// The calling thread's context, or 0.
    pub fn enter(&self) -> u64 {
        self.call(Function::Enter, &[])
    }

    /// Offset in the arena of a context's field.
    pub fn field(&self, context: u64, field: usize) -> u64 {
        context - self.arena + field as u64
    }

    pub fn get(&self, context: u64, field: usize) -> u64 {
        self.memory.load_u64(self.field(context, field)).unwrap()
    }

    pub fn set(&self, context: u64, field: usize, value: u64) {
        self.memory.store_u64(self.field(context, field), value).unwrap();
    }

    /// Sets the state at the start of a clause: no fault, no scratch memory in use, an empty key, the enabled probe.
    pub fn begin(&self, context: u64) {
        for field in [
            offset_of!(Context, fault),
            offset_of!(Context, scratch_used),
            offset_of!(Context, key_bytes),
        ] {
            self.set(context, field, 0);
        }
        self.set(context, offset_of!(Context, enabling), self.arena + ENABLING);
    }

    /// Calls and yields `(result, fault)`; `arguments` come after the context.
    pub fn run(&self, context: u64, function: Function, arguments: &[u64]) -> (u64, u64) {
        let mut all = vec![context];
        all.extend_from_slice(arguments);
        self.call(function, &all);
        (
            self.get(context, offset_of!(Context, result)),
            self.get(context, offset_of!(Context, fault)),
        )
    }

    /// Publishes a snapshot whose only range is from `start` to `end`.
    pub fn publish_range(&self, start: u64, end: u64) {
        self.memory.write_structure(RANGES, &Range { start, end }).unwrap();
        ControlBlock::open(&self.memory)
            .unwrap()
            .publish_ranges(RANGES, 1)
            .unwrap();
    }

    /// Bytes of the arena at an address.
    pub fn bytes(&self, address: u64, count: u64) -> Vec<u8> {
        self.memory.copy(address - self.arena, count).unwrap()
    }

    /// A NUL-terminated copy of `text` in the arena; `place` is its offset in the room for strings.
    pub fn string(&self, place: u64, text: &[u8]) -> u64 {
        self.memory.write(ROOM + place, text).unwrap();
        self.memory.write(ROOM + place + text.len() as u64, &[0]).unwrap();
        self.arena + ROOM + place
    }

    /// Makes this target's handlers the process's actions for SIGSEGV and SIGBUS (and for SIGTRAP and SIGILL). The
    /// earlier action (perhaps another test's) counts as the program's own action. The agent passes signals that are
    /// not its own on to it.
    pub fn install(&self) {
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let guard = ONE_AT_A_TIME.lock();
        let signals = [
            (libc::SIGTRAP, SLOT_TRAP, Function::OnTrap),
            (libc::SIGSEGV, SLOT_SEGV, Function::OnFault),
            (libc::SIGBUS, SLOT_BUS, Function::OnFault),
            (libc::SIGILL, SLOT_ILL, Function::OnTrap),
        ];
        for (signal, slot, function) in signals {
            let ours = SignalAction {
                handler: self.address(function),
                // The tests' threads have Rust's alternate stacks, which are large enough for these handlers.
                flags: (libc::SA_SIGINFO | libc::SA_ONSTACK) as u64 | 0x0400_0000,
                restorer: self.address(Function::Restorer),
                mask: 0,
            };
            let old = exchange_action(signal, None);
            self.set_action(slot, old);
            exchange_action(signal, Some(ours));
        }
        drop(guard);
    }

    /// Replaces the table of redirects.
    pub fn redirect(&self, entries: &[Redirect]) {
        let table = redirect_table(entries.iter().map(|entry| (entry.from, entry.to)));
        self.memory.write(ROOM, &table).unwrap();
    }

    /// Publishes two tables of redirects: the new table links to the older table.
    pub fn redirect_over(&self, older: &[Redirect], entries: &[Redirect]) {
        let pairs =
            |entries: &[Redirect]| -> Vec<(u64, u64)> { entries.iter().map(|entry| (entry.from, entry.to)).collect() };
        self.memory
            .write(ROOM + 512, &redirect_table(pairs(older).into_iter()))
            .unwrap();
        let table = redirect_table_over(self.arena + ROOM + 512, pairs(entries).into_iter());
        assert!(table.len() <= 512);
        self.memory.write(ROOM, &table).unwrap();
    }

    /// Stores an action as the program's own, and the copy for the tracer.
    pub fn set_action(&self, slot: usize, action: SignalAction) {
        self.copy_action(slot, action);
        let own = self.table as usize + TABLE_INHERITANCE + slot * size_of::<SignalAction>();
        // SAFETY: the table is mapped, and ours; the action lies in it.
        unsafe { (own as *mut SignalAction).write_volatile(action) };
    }

    /// Stores the copy for the tracer of an action of the program's.
    pub fn copy_action(&self, slot: usize, action: SignalAction) {
        let offset = offset_of!(Control, actions) + slot * size_of::<SignalAction>();
        self.memory.write_structure(offset as u64, &action).unwrap();
    }

    /// A full frame with this rbp, as a detour pushes it; the context points at it.
    pub fn push_frame(&self, context: u64, rsp: u64, rbp: u64) {
        let frame = FrameBelow {
            rbp,
            ..FrameBelow::default()
        };
        self.memory.write_structure(ROOM + 2048, &frame).unwrap();
        let above = self.arena + ROOM + 2048 + size_of::<FrameBelow>() as u64;
        self.set(context, offset_of!(Context, frame), above);
        self.set(context, offset_of!(Context, target_rsp), rsp);
    }
}

/// rt_sigaction without libc, which would set its own restorer.
pub fn exchange_action(signal: i32, new: Option<SignalAction>) -> SignalAction {
    let mut old = SignalAction::default();
    let new = new.as_ref().map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both structures are the kernel's sigaction, or null.
    let result = unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, new, ptr::from_mut(&mut old), 8) };
    assert_eq!(result, 0);
    old
}

/// Runs `action` in a forked child and yields the child's wait status. The child exits with the
/// result of `action`.
pub fn in_child(action: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child calls nothing but the agent, the kernel and simple library code, and leaves by _exit.
    unsafe {
        let child = libc::fork();
        assert!(child >= 0);
        if child == 0 {
            let status = action();
            libc::_exit(status);
        }
        nanoprobe_tests::in_time::status_of_forked(child)
    }
}
