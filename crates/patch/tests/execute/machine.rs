//! Runs machine code in this process from a given state of registers and flags, natively, single-stepped, or patched.
//!
//! One machine at a time: the signal handlers and the trampoline use statics.

use std::arch::global_asm;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nanoprobe_patch::*;

/// Room for the tested code.
pub const TEXT_BYTES: usize = 4096;
const STACK_BYTES: usize = 256 << 10;
pub const DATA_BYTES: usize = 512;

/// Offsets in the context that the stubs below write.
pub const COUNTERS: u32 = 4096;
pub const SEEN: usize = 0x1e00;
const CONTEXT_BYTES: usize = 64 << 10;
const TABLE_BYTES: usize = (1 << 16) + 64;

/// Flags that a function may see and leave: CF PF AF ZF SF DF OF.
pub const FLAGS: u64 = 0xcd5;
const TRAP_FLAG: u64 = 0x100;

/// The registers in the order in which the trampoline reads and writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    pub rax: u64,
    pub rbx: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rbp: u64,
    pub r8: u64,
    pub r9: u64,
    pub r10: u64,
    pub r11: u64,
    pub r12: u64,
    pub r13: u64,
    pub r14: u64,
    pub r15: u64,
    pub flags: u64,
    pub rsp: u64,
}

global_asm!(
    ".pushsection .bss",
    ".balign 16",
    "np_test_saved_rsp: .skip 8",
    "np_test_registers: .skip 8",
    "np_test_target: .skip 8",
    "np_test_rax: .skip 8",
    "np_test_rsp: .skip 8",
    ".skip 64",
    "np_test_flags_stack: .skip 8",
    ".popsection",
    ".pushsection .text",
    // np_test_run(registers, target)
    ".globl np_test_run",
    "np_test_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + np_test_saved_rsp], rsp",
    "mov [rip + np_test_registers], rdi",
    "mov [rip + np_test_target], rsi",
    "mov rsp, [rdi + 128]",
    "push qword ptr [rdi + 120]",
    "mov rax, [rdi]",
    "mov rbx, [rdi + 8]",
    "mov rcx, [rdi + 16]",
    "mov rdx, [rdi + 24]",
    "mov rsi, [rdi + 32]",
    "mov rbp, [rdi + 48]",
    "mov r8, [rdi + 56]",
    "mov r9, [rdi + 64]",
    "mov r10, [rdi + 72]",
    "mov r11, [rdi + 80]",
    "mov r12, [rdi + 88]",
    "mov r13, [rdi + 96]",
    "mov r14, [rdi + 104]",
    "mov r15, [rdi + 112]",
    "mov rdi, [rdi + 40]",
    "popfq",
    "call [rip + np_test_target]",
    "mov [rip + np_test_rax], rax",
    "mov [rip + np_test_rsp], rsp",
    "lea rsp, [rip + np_test_flags_stack]",
    "pushfq",
    "cld",
    "mov rax, [rip + np_test_registers]",
    "mov [rax + 8], rbx",
    "mov [rax + 16], rcx",
    "mov [rax + 24], rdx",
    "mov [rax + 32], rsi",
    "mov [rax + 40], rdi",
    "mov [rax + 48], rbp",
    "mov [rax + 56], r8",
    "mov [rax + 64], r9",
    "mov [rax + 72], r10",
    "mov [rax + 80], r11",
    "mov [rax + 88], r12",
    "mov [rax + 96], r13",
    "mov [rax + 104], r14",
    "mov [rax + 112], r15",
    "pop rcx",
    "mov [rax + 120], rcx",
    "mov rcx, [rip + np_test_rax]",
    "mov [rax], rcx",
    "mov rcx, [rip + np_test_rsp]",
    "mov [rax + 128], rcx",
    "mov rsp, [rip + np_test_saved_rsp]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn np_test_run(registers: *mut Registers, target: u64);
}

static TEXT: AtomicU64 = AtomicU64::new(0);
/// How often each byte of the text was executed as an instruction's start, while single-stepped.
static STEPS: [AtomicU32; TEXT_BYTES] = [const { AtomicU32::new(0) }; TEXT_BYTES];
static LAST_STEP: AtomicU64 = AtomicU64::new(0);
/// Pairs of addresses, ended by zeros.
static REDIRECTS: [AtomicU64; 8192] = [const { AtomicU64::new(0) }; 8192];
pub static TRAPS: AtomicU32 = AtomicU32::new(0);

/// SIGTRAP and SIGILL: a single-step, or a trapping byte of a patch.
extern "C" fn on_trap(_: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a siginfo and a ucontext to a handler that was installed with SA_SIGINFO.
    let (information, context) = unsafe { (&*information, &mut *context.cast::<libc::ucontext_t>()) };
    let registers = &mut context.uc_mcontext.gregs;
    let rip = registers[libc::REG_RIP as usize] as u64;
    // Not TRAP_TRACE: a virtual machine loses the reason of a step now and then, and the kernel says TRAP_BRKPT then.
    const SI_KERNEL: i32 = 0x80;
    if information.si_signo == libc::SIGTRAP && information.si_code != SI_KERNEL {
        match STEPS.get(rip.wrapping_sub(TEXT.load(Ordering::Relaxed)) as usize) {
            // A repeated string instruction steps once an iteration.
            Some(count) if LAST_STEP.swap(rip, Ordering::Relaxed) != rip => {
                count.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) => {}
            None => registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64),
        }
        return;
    }
    TRAPS.fetch_add(1, Ordering::Relaxed);
    // int3 reports the address after itself, an invalid opcode its own address.
    for candidate in [rip, rip - 1] {
        for pair in REDIRECTS
            .chunks_exact(2)
            .take_while(|pair| pair[0].load(Ordering::Relaxed) != 0)
        {
            let is_int3 = information.si_signo == libc::SIGTRAP;
            if pair[0].load(Ordering::Relaxed) == candidate && is_int3 == (candidate != rip) {
                registers[libc::REG_RIP as usize] = pair[1].load(Ordering::Relaxed) as i64;
                return;
            }
        }
    }
    // SAFETY: _exit has no preconditions.
    unsafe { libc::_exit(99) };
}

/// Maps memory; at an exact address when one is given.
fn map(address: u64, bytes: usize) -> u64 {
    let fixed = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | fixed;
    // SAFETY: a new mapping; MAP_FIXED_NOREPLACE replaces nothing.
    let mapped = unsafe { libc::mmap(address as *mut libc::c_void, bytes, protection, flags, -1, 0) } as u64;
    assert!(address == 0 || mapped == address, "{}", std::io::Error::last_os_error());
    mapped
}

fn protect(range: Range<u64>, executable: bool) {
    let protection = libc::PROT_READ | if executable { libc::PROT_EXEC } else { libc::PROT_WRITE };
    // SAFETY: only ranges that `map` returned are passed, and no code in them runs while they are writable.
    let result = unsafe { libc::mprotect(range.start as *mut _, (range.end - range.start) as usize, protection) };
    assert_eq!(result, 0);
}

/// Writes into memory that `map` returned.
fn write(address: u64, bytes: &[u8]) {
    // SAFETY: callers write only inside of mappings of `map`, which are writable then.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), address as *mut u8, bytes.len()) };
}

fn read<const N: usize>(address: u64) -> [u8; N] {
    // SAFETY: callers read only inside of mappings of `map`.
    unsafe { std::ptr::read_unaligned(address as *const [u8; N]) }
}

/// The holes of this process, as the tracer would compute them.
fn holes() -> Vec<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mut holes = Vec::new();
    let mut end = 0x10_0000;
    for line in maps.lines() {
        let (start, rest) = line.split_once('-').unwrap();
        let start = u64::from_str_radix(start, 16).unwrap();
        let stop = u64::from_str_radix(rest.split_once(' ').unwrap().0, 16).unwrap();
        if start > end && start < 1 << 47 {
            holes.push(end..start);
        }
        end = if line.contains("[heap]") {
            stop + (1 << 30)
        } else {
            stop.max(end)
        };
    }
    holes
}

pub struct Machine {
    pub text: u64,
    stack: u64,
    pub data: u64,
    pub context: u64,
    table: u64,
    pub runtime: Runtime,
    /// A handler that stores its observations at [`SEEN`].
    pub handler: TargetAddress,
    space: NearSpace,
    mapped: Vec<Range<TargetAddress>>,
    original: Vec<u8>,
    /// How many puns were written so far.
    pub puns: usize,
    /// How many short jumps were written so far.
    pub evicts: usize,
}

impl Machine {
    pub fn new(thread_key: ThreadKey) -> Machine {
        let text = map(0, TEXT_BYTES);
        let (stack, data, context) = (map(0, STACK_BYTES), map(0, 4096), map(0, CONTEXT_BYTES));
        let (table, stubs) = (map(0, TABLE_BYTES), map(0, 4096));
        TEXT.store(text, Ordering::Relaxed);
        for signal in [libc::SIGTRAP, libc::SIGILL] {
            // SAFETY: the handler is async-signal-safe: it only touches atomics and its ucontext.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = on_trap as *const () as usize;
                action.sa_flags = libc::SA_SIGINFO;
                assert_eq!(libc::sigaction(signal, &action, std::ptr::null_mut()), 0);
            }
        }
        let (enter, handler) = super::stubs::assemble(stubs, context);
        write(stubs, &enter.bytes);
        write(handler.address, &handler.bytes);
        protect(stubs..stubs + 4096, true);
        let runtime = Runtime {
            enter: TargetAddress(enter.address),
            table: TargetAddress(table),
            thread_key,
            // The emulated form is the agent's, and is tested with it: agent/tests/emulate.rs.
            trap: Some(TrapForm::Boost),
        };
        let handler = TargetAddress(handler.address);
        let (space, mapped, original) = (NearSpace::new(holes(), 4096), Vec::new(), Vec::new());
        Machine {
            text,
            stack,
            data,
            context,
            table,
            runtime,
            handler,
            space,
            mapped,
            original,
            puns: 0,
            evicts: 0,
        }
    }

    pub fn load(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= TEXT_BYTES);
        protect(self.text..self.text + TEXT_BYTES as u64, false);
        write(self.text, bytes);
        protect(self.text..self.text + TEXT_BYTES as u64, true);
        self.original = bytes.to_vec();
    }

    /// Makes this thread known in the table, or unknown, so that it asks `np_enter`.
    pub fn know_thread(&self, known: bool) {
        let key: u64;
        // SAFETY: fs:0 holds the thread pointer in every process with glibc or musl.
        unsafe { std::arch::asm!("mov {}, fs:[0]", out(reg) key) };
        let slot = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 52;
        let entry = if known { [key, self.context] } else { [0, 0] };
        let address = self.table + slot * 16;
        write(address, &entry[0].to_le_bytes());
        write(address + 8, &entry[1].to_le_bytes());
    }

    pub fn context_word(&self, offset: u32) -> u64 {
        u64::from_le_bytes(read(self.context + u64::from(offset)))
    }

    pub fn set_context_word(&self, offset: u32, value: u64) {
        write(self.context + u64::from(offset), &value.to_le_bytes());
    }

    pub fn clear_context(&self) {
        write(self.context, &[0; 0x2000]);
    }

    /// Whether all runs find a place without a fallback.
    pub fn has_places(&self, plan: &FunctionPlan) -> bool {
        let mut space = self.space.clone();
        plan.runs
            .iter()
            .all(|run| space.place(run, run.detour_length).is_some())
    }

    /// Builds and writes the patches; the previous patches must have been taken back.
    pub fn patch(&mut self, plan: &FunctionPlan, options: &PlanOptions) -> Vec<Built> {
        let placed = self.space.place_with_fallbacks(plan.runs.clone(), options);
        assert!(placed.refusals.is_empty(), "{:?}", placed.refusals);
        let wanted = self.space.regions();
        for region in &wanted {
            if !self.mapped.contains(region) {
                // A region may have grown: map its new part.
                let mut start = region.start.0;
                for old in self.mapped.iter().filter(|old| region.contains(&old.start)) {
                    if old.start.0 > start {
                        map(start, (old.start.0 - start) as usize);
                    }
                    start = old.end.0;
                }
                if region.end.0 > start {
                    map(start, (region.end.0 - start) as usize);
                }
            }
        }
        // Changes only the regions to which this call writes: there are many regions, and changing protection is slow.
        let used = |region: &&Range<TargetAddress>| placed.runs.iter().any(|(_, place)| region.contains(place));
        let touched: Vec<Range<TargetAddress>> = wanted.iter().filter(used).cloned().collect();
        for region in &touched {
            protect(region.start.0..region.end.0, false);
        }
        self.mapped = wanted;
        let built: Vec<Built> = placed
            .runs
            .iter()
            .map(|(run, place)| {
                let built = build(run, *place, &self.runtime).unwrap();
                write(place.0, &built.detour);
                built
            })
            .collect();
        let used = |tactic| placed.runs.iter().filter(|(run, _)| run.tactic == tactic).count();
        self.puns += used(Tactic::Pun);
        self.evicts += used(Tactic::Evict);
        for region in &touched {
            protect(region.start.0..region.end.0, true);
        }
        protect(self.text..self.text + TEXT_BYTES as u64, false);
        for built in &built {
            for part in &built.springboard {
                write(part.address.0, &part.patched);
            }
            write(built.address.0, &built.patched);
        }
        protect(self.text..self.text + TEXT_BYTES as u64, true);
        let redirects = built.iter().flat_map(|built| &built.redirects);
        let words = redirects.flat_map(|redirect| [redirect.from.0, redirect.to.0]);
        for (slot, word) in REDIRECTS.iter().zip(words.chain([0, 0])) {
            slot.store(word, Ordering::Relaxed);
        }
        built
    }

    pub fn unpatch(&mut self) {
        let original = std::mem::take(&mut self.original);
        self.load(&original);
    }

    /// Runs `target` and returns the registers and the data afterwards.
    pub fn run(&self, registers: &Registers, data: &[u8; DATA_BYTES], target: u64) -> (Registers, [u8; DATA_BYTES]) {
        write(self.data, data);
        let mut registers = *registers;
        registers.rsp = self.stack + STACK_BYTES as u64 - 4096;
        // The stack of a caller, and a red zone that is not empty.
        write(registers.rsp - 4096, &[0x5a; 8192]);
        // SAFETY: the tests' functions touch only their stack and data, return, and keep rsp.
        unsafe { np_test_run(&mut registers, target) };
        registers.flags &= FLAGS;
        (registers, read(self.data))
    }

    /// Runs single-stepped. Yields for each byte of the text how often an executed instruction started there.
    pub fn steps(&self, registers: &Registers, data: &[u8; DATA_BYTES], target: u64) -> Vec<u32> {
        STEPS.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        LAST_STEP.store(0, Ordering::Relaxed);
        self.run(
            &Registers {
                flags: registers.flags | TRAP_FLAG,
                ..*registers
            },
            data,
            target,
        );
        STEPS.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}
