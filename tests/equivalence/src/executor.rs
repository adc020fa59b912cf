//! Runs code in this process from a given state, up to the exit pad or a fault, and stores the whole state again.
//!
//! ```text
//!   np_eq_run    saves our registers; loads the x87 and vector state, the bases of fs and gs, flags, registers; jumps
//!   np_eq_exit   the exit pad leads here: stores all of it
//!   np_eq_after  where a fault's handler sends the thread instead: restores our registers, returns
//!   np_eq_step   traps; its handler goes to the sequence with the trap flag set
//!   np_eq_signal in front of our handlers: they need our fs, and the sequence gets its own back; goes on in the agent's
//!                handler when ours says so
//! ```
//!
//! Signals are taken on a stack of their own. `SIGTRAP` and `SIGILL` where a redirect begins, and steps that the agent has
//! begun, go to the agent's own handler, and so do its guarded loads that fault; every other signal ends the run, with the
//! state that the kernel saved. A timer ends runs that do not end. A single step costs tens of
//! microseconds in a virtual machine, so few runs are counted by them.

use std::arch::global_asm;
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use crate::agent::Agent;
use crate::last_words;
use crate::state::{Registers, XLayout, XSTATE_BYTES};

global_asm!(
    ".pushsection .bss",
    ".balign 64",
    ".globl np_eq_in",
    "np_eq_in: .skip 16384",
    ".globl np_eq_out",
    "np_eq_out: .skip 16384",
    ".globl np_eq_initial",
    "np_eq_initial: .skip 4096",
    ".globl np_eq_registers",
    "np_eq_registers: .skip 152",
    ".globl np_eq_target",
    "np_eq_target: .skip 8",
    ".globl np_eq_mask",
    "np_eq_mask: .skip 8",
    "np_eq_saved_rsp: .skip 8",
    ".globl np_eq_our_fs",
    "np_eq_our_fs: .skip 8",
    "np_eq_our_gs: .skip 8",
    ".globl np_eq_signal_fs",
    "np_eq_signal_fs: .skip 8",
    ".skip 64",
    "np_eq_small_stack:",
    ".skip 8",
    ".popsection",
    ".pushsection .text",
    ".globl np_eq_run",
    "np_eq_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "mov [rip + np_eq_saved_rsp], rsp",
    "rdfsbase rax",
    "mov [rip + np_eq_our_fs], rax",
    "rdgsbase rax",
    "mov [rip + np_eq_our_gs], rax",
    "mov eax, [rip + np_eq_mask]",
    "xor edx, edx",
    "xrstor64 [rip + np_eq_in]",
    "mov rax, [rip + np_eq_registers + 136]",
    "wrfsbase rax",
    "mov rax, [rip + np_eq_registers + 144]",
    "wrgsbase rax",
    "lea rsp, [rip + np_eq_registers + 120]",
    "popfq",
    "mov rax, [rip + np_eq_registers]",
    "mov rbx, [rip + np_eq_registers + 8]",
    "mov rcx, [rip + np_eq_registers + 16]",
    "mov rdx, [rip + np_eq_registers + 24]",
    "mov rsi, [rip + np_eq_registers + 32]",
    "mov rdi, [rip + np_eq_registers + 40]",
    "mov rbp, [rip + np_eq_registers + 48]",
    "mov r8, [rip + np_eq_registers + 56]",
    "mov r9, [rip + np_eq_registers + 64]",
    "mov r10, [rip + np_eq_registers + 72]",
    "mov r11, [rip + np_eq_registers + 80]",
    "mov r12, [rip + np_eq_registers + 88]",
    "mov r13, [rip + np_eq_registers + 96]",
    "mov r14, [rip + np_eq_registers + 104]",
    "mov r15, [rip + np_eq_registers + 112]",
    "mov rsp, [rip + np_eq_registers + 128]",
    "jmp [rip + np_eq_target]",
    ".globl np_eq_step",
    "np_eq_step:",
    "int3",
    ".globl np_eq_exit",
    "np_eq_exit:",
    "mov [rip + np_eq_registers + 128], rsp",
    "lea rsp, [rip + np_eq_small_stack]",
    "pushfq",
    "pop [rip + np_eq_registers + 120]",
    "push 2",
    "popfq",
    "mov [rip + np_eq_registers], rax",
    "mov [rip + np_eq_registers + 8], rbx",
    "mov [rip + np_eq_registers + 16], rcx",
    "mov [rip + np_eq_registers + 24], rdx",
    "mov [rip + np_eq_registers + 32], rsi",
    "mov [rip + np_eq_registers + 40], rdi",
    "mov [rip + np_eq_registers + 48], rbp",
    "mov [rip + np_eq_registers + 56], r8",
    "mov [rip + np_eq_registers + 64], r9",
    "mov [rip + np_eq_registers + 72], r10",
    "mov [rip + np_eq_registers + 80], r11",
    "mov [rip + np_eq_registers + 88], r12",
    "mov [rip + np_eq_registers + 96], r13",
    "mov [rip + np_eq_registers + 104], r14",
    "mov [rip + np_eq_registers + 112], r15",
    "rdfsbase rax",
    "mov [rip + np_eq_registers + 136], rax",
    "rdgsbase rax",
    "mov [rip + np_eq_registers + 144], rax",
    "mov eax, [rip + np_eq_mask]",
    "xor edx, edx",
    "xsave64 [rip + np_eq_out]",
    ".globl np_eq_after",
    "np_eq_after:",
    "mov rsp, [rip + np_eq_saved_rsp]",
    "mov rax, [rip + np_eq_our_fs]",
    "wrfsbase rax",
    "mov rax, [rip + np_eq_our_gs]",
    "wrgsbase rax",
    "mov eax, [rip + np_eq_mask]",
    "xor edx, edx",
    "xrstor64 [rip + np_eq_initial]",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".globl np_eq_signal",
    "np_eq_signal:",
    "rdfsbase rax",
    "mov [rip + np_eq_signal_fs], rax",
    "mov rax, [rip + np_eq_our_fs]",
    "wrfsbase rax",
    "push rdi",
    "push rsi",
    "push rdx",
    "call {on_signal}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "mov rcx, [rip + np_eq_signal_fs]",
    "wrfsbase rcx",
    "test rax, rax",
    "jz 1f",
    "jmp rax",
    "1:",
    "ret",
    ".popsection",
    on_signal = sym on_signal,
);

unsafe extern "C" {
    static mut np_eq_in: [u8; XSTATE_BYTES];
    static mut np_eq_out: [u8; XSTATE_BYTES];
    static mut np_eq_initial: [u8; 4096];
    static mut np_eq_registers: Registers;
    static mut np_eq_target: u64;
    static mut np_eq_mask: u64;
    static mut np_eq_our_fs: u64;
    static mut np_eq_signal_fs: u64;
    fn np_eq_run();
    fn np_eq_exit();
    fn np_eq_step();
    fn np_eq_after();
    fn np_eq_signal();
}

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// At the exit pad.
    #[default]
    Exit,
    /// By a signal: what the program's handler would see.
    Fault(Fault),
    /// It was stopped.
    Endless,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    pub signal: i32,
    pub code: i32,
    pub address: u64,
    pub rip: u64,
    pub trap: u64,
    pub error: u64,
    /// The faulting address, of a page fault.
    pub cr2: u64,
}

static RUNNING: AtomicBool = AtomicBool::new(false);
/// What the handler reports.
static mut END: End = End::Exit;
/// Where traps lead: pairs of addresses.
static REDIRECTS: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
static REDIRECT_COUNT: AtomicUsize = AtomicUsize::new(0);
pub static TRAPS: AtomicU64 = AtomicU64::new(0);
/// Ticks of the timer since the run began: 4 ms of this process's own time.
static TICKS: AtomicU32 = AtomicU32::new(0);
/// After how many ticks a run is taken to be endless.
static TICKS_MAX: AtomicU32 = AtomicU32::new(0);

/// The code whose instructions are counted while it is single-stepped.
static STEPPED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
static STEP_COUNT: AtomicU32 = AtomicU32::new(0);
static LAST_STEP: AtomicU64 = AtomicU64::new(0);
static STEPS: [AtomicU32; crate::memory::CODE_BYTES as usize] = [const { AtomicU32::new(0) }; _];
const STEPS_MAX: u32 = 60;
/// What the registers were in front of each step: those of [`ORDER`], rsp, rip.
static STEP_REGISTERS: [[AtomicU64; 17]; STEPS_MAX as usize + 2] =
    [const { [const { AtomicU64::new(0) }; 17] }; STEPS_MAX as usize + 2];
const TRAP_FLAG: u64 = 0x100;
/// `si_code` of int3. Every other SIGTRAP is a single-step, TRAP_TRACE or, where a virtual machine lost the processor's word
/// for it, TRAP_BRKPT. int1, which says that too, is not generated.
const SI_KERNEL: i32 = 0x80;
const RESUME_FLAG: u64 = 0x10000;

/// Of a signal frame: the general registers, as [`Registers`] has them.
const ORDER: [i32; 15] = [
    libc::REG_RAX,
    libc::REG_RBX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_RBP,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

fn note_step(registers: &[i64; 23]) {
    let step = STEP_COUNT.fetch_add(1, Relaxed) as usize;
    let order = ORDER.iter().chain(&[libc::REG_RSP, libc::REG_RIP]);
    if let Some(words) = STEP_REGISTERS.get(step) {
        for (word, register) in words.iter().zip(order) {
            word.store(registers[*register as usize] as u64, Relaxed);
        }
    }
}

/// Sends an interrupted run home.
fn leave(registers: &mut [i64; 23]) {
    registers[libc::REG_RIP as usize] = np_eq_after as *const () as i64;
    registers[libc::REG_EFL as usize] = 2;
}

/// Says what has happened outside of a run, before the process ends of it: without locks and memory of its own.
fn say_own_fault(signal: i32, code: i32, rip: u64, flags: u64) {
    let mut text = [0_u8; 160];
    let mut rest = &mut text[..];
    // In place: the addresses of another run of this program would be others.
    let from_run = rip.wrapping_sub(np_eq_run as *const () as u64) as i64;
    let _ = writeln!(
        rest,
        "a signal outside of a run: {signal}, code {code:#x}, rip {rip:#x} (np_eq_run{from_run:+#x}), flags {flags:#x}"
    );
    let left = rest.len();
    let length = text.len() - left;
    // SAFETY: the bytes are there.
    unsafe { libc::write(1, text.as_ptr().cast(), length) };
}

/// Where the agent is.
static AGENT: OnceLock<Agent> = OnceLock::new();

/// Yields the agent's handler when this is its signal, else 0.
extern "C" fn on_signal(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) -> u64 {
    // SAFETY: the kernel passes a siginfo and a ucontext to a handler that was installed with SA_SIGINFO.
    let (information, context) = unsafe { (&*information, &mut *context.cast::<libc::ucontext_t>()) };
    let frame = context.uc_mcontext.fpregs;
    let mask = &mut context.uc_sigmask;
    let registers = &mut context.uc_mcontext.gregs;
    if signal == libc::SIGPROF {
        if RUNNING.load(Relaxed) && TICKS.fetch_add(1, Relaxed) >= TICKS_MAX.load(Relaxed) {
            // SAFETY: one thread; the run that reads it is the one that is interrupted here.
            unsafe { END = End::Endless };
            leave(registers);
        }
        return 0;
    }
    let rip = registers[libc::REG_RIP as usize] as u64;
    let word = |register: i32| registers[register as usize] as u64;
    last_words::note([
        signal as u64,
        u64::from(information.si_code as u32),
        word(libc::REG_TRAPNO),
        word(libc::REG_ERR),
        rip,
        word(libc::REG_RSP),
        word(libc::REG_EFL),
        word(libc::REG_CR2),
    ]);
    if !RUNNING.load(Relaxed) {
        say_own_fault(
            signal,
            information.si_code,
            rip,
            registers[libc::REG_EFL as usize] as u64,
        );
        // SAFETY: _exit has no preconditions. The fault is our own: the parent tells.
        unsafe { libc::_exit(90) };
    }
    let [start, end] = [STEPPED[0].load(Relaxed), STEPPED[1].load(Relaxed)];
    if signal == libc::SIGTRAP && information.si_code != SI_KERNEL && start != 0 {
        if !(start..end).contains(&rip) {
            registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
            return 0;
        }
        // A repeated string instruction steps once an iteration.
        if LAST_STEP.swap(rip, Relaxed) != rip {
            STEPS[(rip - start) as usize].fetch_add(1, Relaxed);
        }
        note_step(registers);
        if STEP_COUNT.load(Relaxed) > STEPS_MAX {
            // SAFETY: as above.
            unsafe { END = End::Endless };
            leave(registers);
        }
        return 0;
    }
    if signal == libc::SIGTRAP && rip == np_eq_step as *const () as u64 + 1 {
        registers[libc::REG_RIP as usize] = LAST_STEP.load(Relaxed) as i64;
        registers[libc::REG_EFL as usize] |= TRAP_FLAG as i64;
        note_step(registers);
        return 0;
    }
    let Some(agent) = AGENT.get() else { return 0 };
    if agent.is_inside(rip) {
        return agent.on_fault();
    }
    // SAFETY: a plain word, set by `np_eq_signal` in front of this.
    if let Some(step) = agent.step(unsafe { np_eq_signal_fs }) {
        if signal == libc::SIGTRAP && information.si_code != SI_KERNEL {
            return agent.on_trap();
        }
        // As the agent does in front of the program's handler.
        agent.cancel(step);
        registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
    }
    // The agent's rule: int3 leaves rip behind itself, an invalid opcode does not.
    let at = rip.wrapping_sub(u64::from(signal == libc::SIGTRAP));
    if matches!(signal, libc::SIGTRAP | libc::SIGILL) {
        // SAFETY: the pairs are valid while a run is.
        let pairs = unsafe {
            std::slice::from_raw_parts(REDIRECTS.load(Relaxed).cast::<[u64; 2]>(), REDIRECT_COUNT.load(Relaxed))
        };
        if pairs.iter().any(|pair| pair[0] == at) {
            TRAPS.fetch_add(1, Relaxed);
            return agent.on_trap();
        }
    }
    const PAGE_FAULT: u64 = 14;
    let trap = registers[libc::REG_TRAPNO as usize] as u64;
    let fault = Fault {
        signal,
        code: information.si_code,
        // SAFETY: every signal that an instruction raises has this field.
        address: unsafe { information.si_addr() } as u64,
        rip,
        trap,
        error: registers[libc::REG_ERR as usize] as u64,
        cr2: if trap == PAGE_FAULT {
            registers[libc::REG_CR2 as usize] as u64
        } else {
            0
        },
    };
    // SAFETY: one thread, whose run is interrupted here: nobody else uses the statics. The frame's image has the size that
    // the kernel says in its software-reserved bytes.
    unsafe {
        END = End::Fault(fault);
        let state = &raw mut np_eq_registers;
        (*state).general = ORDER.map(|register| registers[register as usize] as u64);
        (*state).flags = registers[libc::REG_EFL as usize] as u64;
        (*state).rsp = registers[libc::REG_RSP as usize] as u64;
        (*state).fs_base = np_eq_signal_fs;
        std::arch::asm!("rdgsbase {}", out(reg)(*state).gs_base);
        let image = frame.cast::<u8>();
        let bytes = image.add(464 + 16).cast::<u32>().read_unaligned() as usize;
        let to = (&raw mut np_eq_out).cast::<u8>();
        std::ptr::copy_nonoverlapping(image, to, bytes.clamp(576, XSTATE_BYTES));
    }
    // A step had blocked them.
    // SAFETY: a plain set of the frame's, of which the kernel has filled in its 64 bits.
    unsafe { (&raw mut *mask).cast::<u64>().write(0) };
    leave(registers);
    0
}

/// The one executor of this process.
pub struct Executor {
    pub layout: XLayout,
    agent: Agent,
}

/// What a run starts from.
pub struct Start<'a> {
    pub registers: Registers,
    pub image: &'a [u8],
    pub target: u64,
    /// How long it may take, in ticks of 4 ms.
    pub ticks: u32,
}

/// What a run ends with, but for memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    pub registers: Registers,
    pub image: Vec<u8>,
}

impl Executor {
    /// Installs signal handlers and the timer. Once in a process.
    pub fn install() -> Executor {
        let layout = XLayout::of_processor();
        let agent = *AGENT.get_or_init(Agent::map);
        let stack = crate::memory::map_anywhere(1 << 18);
        // SAFETY: handlers of this module, a stack of their own, statics that nobody uses yet.
        unsafe {
            np_eq_mask = layout.mask;
            // The initial state: nothing is present, all exceptions are masked.
            let initial = (&raw mut np_eq_initial).cast::<u8>();
            initial.add(24).cast::<u32>().write(0x1f80);
            std::arch::asm!("rdfsbase {}", out(reg) np_eq_our_fs);
            let alternate = libc::stack_t {
                ss_sp: stack as *mut _,
                ss_flags: 0,
                ss_size: 1 << 18,
            };
            libc::sigaltstack(&alternate, std::ptr::null_mut());
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = np_eq_signal as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigfillset(&mut action.sa_mask);
            use libc::{SIGBUS, SIGFPE, SIGILL, SIGPROF, SIGSEGV, SIGTRAP};
            for signal in [SIGPROF, SIGBUS, SIGFPE, SIGSEGV] {
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
            // In the agent's handler of these, its guarded loads may fault.
            libc::sigdelset(&mut action.sa_mask, SIGSEGV);
            libc::sigdelset(&mut action.sa_mask, SIGBUS);
            for signal in [SIGILL, SIGTRAP] {
                libc::sigaction(signal, &action, std::ptr::null_mut());
            }
            let tick = libc::timeval {
                tv_sec: 0,
                tv_usec: 4000,
            };
            let timer = libc::itimerval {
                it_interval: tick,
                it_value: tick,
            };
            libc::setitimer(libc::ITIMER_PROF, &timer, std::ptr::null_mut());
        }
        Executor { layout, agent }
    }

    /// Where the exit pad must lead.
    pub fn exit() -> u64 {
        np_eq_exit as *const () as u64
    }

    pub fn run(&mut self, start: &Start<'_>, redirects: &[[u64; 2]]) -> Outcome {
        REDIRECTS.store(redirects.as_ptr().cast::<u64>().cast_mut(), Relaxed);
        REDIRECT_COUNT.store(redirects.len(), Relaxed);
        self.agent.redirect(redirects);
        TICKS.store(0, Relaxed);
        TICKS_MAX.store(start.ticks, Relaxed);
        // SAFETY: one thread; the code that is run touches its own memory only, or faults.
        unsafe {
            END = End::Exit;
            np_eq_registers = start.registers;
            np_eq_target = start.target;
            std::ptr::copy_nonoverlapping(start.image.as_ptr(), (&raw mut np_eq_in).cast(), start.image.len());
            last_words::begin(start.target);
            RUNNING.store(true, Relaxed);
            np_eq_run();
            RUNNING.store(false, Relaxed);
            last_words::end();
            let mut image = std::slice::from_raw_parts((&raw const np_eq_out).cast::<u8>(), self.layout.bytes).to_vec();
            self.layout.normalize(&mut image);
            let mut registers = np_eq_registers;
            registers.flags &= !RESUME_FLAG;
            Outcome {
                end: END,
                registers,
                image,
            }
        }
    }

    /// Runs single-stepped: how often each byte of the code was the start of an instruction that began; `None` when that
    /// does not end.
    pub fn count_steps(&mut self, start: &Start<'_>, code: u64) -> Option<Vec<u32>> {
        STEPS.iter().for_each(|count| count.store(0, Relaxed));
        STEP_COUNT.store(0, Relaxed);
        LAST_STEP.store(start.target, Relaxed);
        STEPS[(start.target - code) as usize].store(1, Relaxed);
        STEPPED[1].store(code + crate::memory::CODE_BYTES, Relaxed);
        STEPPED[0].store(code, Relaxed);
        let target = np_eq_step as *const () as u64;
        let outcome = self.run(&Start { target, ..*start }, &[]);
        STEPPED[0].store(0, Relaxed);
        (outcome.end != End::Endless).then(|| STEPS.iter().map(|count| count.load(Relaxed)).collect())
    }

    /// The registers in front of each step of the last [`Executor::count_steps`]: those of [`crate::state::NAMES`], rsp,
    /// rip.
    pub fn steps(&self) -> Vec<[u64; 17]> {
        let count = STEP_COUNT.load(Relaxed) as usize;
        let steps = STEP_REGISTERS.iter().take(count);
        steps
            .map(|words| std::array::from_fn(|word| words[word].load(Relaxed)))
            .collect()
    }
}
