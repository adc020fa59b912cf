//! Our signal handlers: they find out to which part a signal belongs, and how a run ends.

use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use super::entry::{np_eq_after, np_eq_out, np_eq_registers, np_eq_run, np_eq_signal_fs, np_eq_step};
use super::steps::{self, ORDER};
use crate::agent::Agent;
use crate::last_words;
use crate::state::XSTATE_BYTES;

/// How a run ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The run reached the exit pad.
    #[default]
    Exit,
    /// A signal ended the run. The fault has the data that the program's handler would see.
    Fault(Fault),
    /// The time limit ended the run.
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

pub static RUNNING: AtomicBool = AtomicBool::new(false);
/// The handler's report about the end.
pub static mut END: End = End::Exit;
/// Where traps lead: pairs of addresses.
pub static REDIRECTS: AtomicPtr<u64> = AtomicPtr::new(std::ptr::null_mut());
pub static REDIRECT_COUNT: AtomicUsize = AtomicUsize::new(0);
pub static TRAPS: AtomicU64 = AtomicU64::new(0);
/// Ticks of the timer since the run began: 4 ms of this process's own time.
pub static TICKS: AtomicU32 = AtomicU32::new(0);
/// The number of ticks after which a run counts as endless.
pub static TICKS_MAX: AtomicU32 = AtomicU32::new(0);

const TRAP_FLAG: u64 = 0x100;
/// `si_code` of int3. Every other SIGTRAP is a single step: TRAP_TRACE or, where a virtual machine
/// has lost the processor's report, TRAP_BRKPT. int1 has that code, too, but is not generated.
const SI_KERNEL: i32 = 0x80;

/// Makes an interrupted run return to the executor.
fn leave(registers: &mut [i64; 23]) {
    registers[libc::REG_RIP as usize] = np_eq_after as *const () as i64;
    registers[libc::REG_EFL as usize] = 2;
}

/// Reports an event outside of a run, before it ends the process, without locks and without allocating.
fn say_own_fault(signal: i32, code: i32, rip: u64, flags: u64) {
    let mut text = [0_u8; 160];
    let mut rest = &mut text[..];
    // This is reported in place, because in another run of this program the addresses would differ.
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

/// The addresses of the agent.
pub static AGENT: OnceLock<Agent> = OnceLock::new();

/// Returns the agent's handler if the signal is the agent's, else 0.
pub extern "C" fn on_signal(signal: i32, information: *mut libc::siginfo_t, context: *mut libc::c_void) -> u64 {
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
        // SAFETY: _exit has no preconditions. The fault is our own: the parent reports it.
        unsafe { libc::_exit(90) };
    }
    if let Some(stepped) = steps::range()
        && signal == libc::SIGTRAP
        && information.si_code != SI_KERNEL
    {
        if !stepped.contains(&rip) {
            registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
        } else if !steps::count(rip, stepped.start, registers) {
            // SAFETY: as above.
            unsafe { END = End::Endless };
            leave(registers);
        }
        return 0;
    }
    if signal == libc::SIGTRAP && rip == np_eq_step as *const () as u64 + 1 {
        registers[libc::REG_RIP as usize] = steps::first() as i64;
        registers[libc::REG_EFL as usize] |= TRAP_FLAG as i64;
        steps::note(registers);
        return 0;
    }
    let Some(agent) = AGENT.get() else { return 0 };
    if agent.is_inside(rip) {
        return agent.on_fault();
    }
    // SAFETY: a plain word, which `np_eq_signal` has just set.
    if let Some(step) = agent.step(unsafe { np_eq_signal_fs }) {
        if signal == libc::SIGTRAP && information.si_code != SI_KERNEL {
            return agent.on_trap();
        }
        // The step is cancelled, as the agent does before it calls the program's handler.
        agent.cancel(step);
        registers[libc::REG_EFL as usize] &= !(TRAP_FLAG as i64);
    }
    // The agent's rule: int3 leaves rip after itself, an invalid opcode does not.
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
    // SAFETY: one thread, whose run is interrupted here: the statics have no other user. The
    // frame's image has the size that the kernel says in its software-reserved bytes.
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
    // A step had blocked these signals.
    // SAFETY: a plain set of the frame's, of which the kernel has filled in its 64 bits.
    unsafe { (&raw mut *mask).cast::<u64>().write(0) };
    leave(registers);
    0
}
