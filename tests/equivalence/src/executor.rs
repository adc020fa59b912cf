//! Runs code in this process from a given state, up to the exit pad or a fault, and stores the whole state again.
//!
//! ```text
//!   np_eq_run    saves our registers; loads the x87 and vector state, the bases of fs and gs, flags, registers; jumps
//!   np_eq_exit   the exit pad leads here: stores all of it
//!   np_eq_after  where a fault's handler sends the thread instead: restores our registers, returns
//!   np_eq_step   traps; its handler goes to the sequence with the trap flag set
//!   np_eq_signal before our handlers: they need our fs, and the sequence gets its own back; goes on in the agent's
//!                handler when ours says so
//! ```
//!
//! Signals run on their own stack. The agent's own handler gets `SIGTRAP` and `SIGILL` at the begin
//! of a redirect, steps that the agent has begun, and faults of its guarded loads. Every other
//! signal ends the run, with the state that the kernel saved. A timer ends endless runs. A single
//! step costs tens of microseconds in a virtual machine, so few runs are counted by them.

mod entry;
mod signals;
mod steps;

use std::sync::atomic::Ordering::Relaxed;

use self::entry::{
    np_eq_exit, np_eq_in, np_eq_initial, np_eq_mask, np_eq_on_signal, np_eq_our_fs, np_eq_out, np_eq_registers,
    np_eq_run, np_eq_signal, np_eq_step, np_eq_target,
};
use self::signals::{AGENT, END, REDIRECT_COUNT, REDIRECTS, RUNNING, TICKS, TICKS_MAX, on_signal};
use crate::agent::Agent;
use crate::last_words;
use crate::state::{Registers, XLayout};

pub use self::signals::{End, Fault, TRAPS};

const RESUME_FLAG: u64 = 0x10000;

/// The one executor of this process.
pub struct Executor {
    pub layout: XLayout,
    agent: Agent,
}

/// The state from which a run starts.
pub struct Start<'a> {
    pub registers: Registers,
    pub image: &'a [u8],
    pub target: u64,
    /// The time limit, in ticks of 4 ms.
    pub ticks: u32,
}

/// The end of a run, without memory.
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
        // SAFETY: handlers of this module, their own stack, statics that are not in use yet.
        unsafe {
            np_eq_mask = layout.mask;
            np_eq_on_signal = on_signal as *const () as u64;
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
            // The agent's guarded loads may fault in its handler of these signals.
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

    /// The destination of the exit pad.
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

    /// Runs in single steps. Returns how often each byte of the code was the start of an instruction that began; `None`
    /// if the run does not end.
    pub fn count_steps(&mut self, start: &Start<'_>, code: u64) -> Option<Vec<u32>> {
        steps::begin(code, start.target);
        let target = np_eq_step as *const () as u64;
        let outcome = self.run(&Start { target, ..*start }, &[]);
        let counts = steps::end();
        (outcome.end != End::Endless).then_some(counts)
    }

    /// The registers before each step of the last [`Executor::count_steps`]: those of
    /// [`crate::state::NAMES`], rsp, rip.
    pub fn steps(&self) -> Vec<[u64; 17]> {
        steps::all()
    }
}
