//! The agent's image in this process: the same code that sessions put into their targets. It handles traps, hands
//! on signals that are not ours, and intercepts the program's signal calls.
//!
//! ```text
//!   private, rw-   control block | which tables hold, and who reads | thread table; pool of return addresses
//!                                                                   what the agent reads and writes
//!   private, r-x   image | thunks | tables, stubs                   written through /proc/self/mem (invariant I7)
//! ```

use std::mem::offset_of;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nanoprobe_agent::{EVENT_HOOK_OFFSET, FAULT_HOOK_OFFSET, Function, IMAGE, ImageHeader, READERS_OFFSET, image_with};
use nanoprobe_arena::layout::{
    Control, FOLLOWS_NOT, KEY_TLS_SELF, MAGIC, RETURN_INSTANCES, RETURN_POOL_BYTES, RETURN_POOL_HIGHEST,
    RETURN_THUNK_BYTES, Returns as ReturnsHead, SLOT_BUS, SLOT_FPE, SLOT_ILL, SLOT_SEGV, SLOT_TRAP, SYNCHRONOUS,
    SignalAction, TABLE_BYTES, TABLE_INHERITANCE, TABLE_MAGIC, Tables, VERSION,
};
use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;

use super::grace_period::{Readers, Room};
use super::raw;
use super::tables::Table;
use crate::error::Error;
use crate::hit;

const PAGE: usize = 4096;
/// The bytes of the image, the thunks and the tables.
const CODE_BYTES: usize = 64 << 20;

/// The offset of the first thunk from the start of the code. The thunk's call stands before it.
fn thunks_offset() -> usize {
    (IMAGE.len() + hit::CALL_BYTES as usize).next_multiple_of(64)
}
const THUNKS_BYTES: usize = RETURN_INSTANCES as usize * RETURN_THUNK_BYTES as usize;

/// Slot, signal and handler of each signal that the agent handles, as in a session.
const SIGNALS: [(usize, i32, Function); 5] = [
    (SLOT_TRAP, libc::SIGTRAP, Function::OnTrap),
    (SLOT_SEGV, libc::SIGSEGV, Function::OnFault),
    (SLOT_BUS, libc::SIGBUS, Function::OnFault),
    (SLOT_ILL, libc::SIGILL, Function::OnTrap),
    (SLOT_FPE, libc::SIGFPE, Function::OnFault),
];

/// `struct np_tables`. One store replaces the tables: every thread sees either the old or the new address.
#[repr(C)]
struct Published {
    redirects: AtomicU64,
    origins: AtomicU64,
}
const _: () = assert!(size_of::<Published>() == size_of::<Tables>());

/// The structures that follow the control block, in a page of their own.
#[repr(C)]
struct Shared {
    published: Published,
    readers: Readers,
}

/// The agent, mapped.
pub struct Agent {
    control: *mut Control,
    shared: &'static Shared,
    table: u64,
    code: u64,
    room: Room,
    /// `struct np_return_pool`, and the thunks. They are written only when the first return address is replaced.
    returns: u64,
    thunks: u64,
    /// Every redirect that a thread may still need.
    pub redirects: Table,
    /// Every entry from a relocated address to the original one.
    pub origins: Table,
}

// SAFETY: the pointers lead to memory of this process that is never freed; the engine's lock orders all uses.
unsafe impl Send for Agent {}

fn map(bytes: usize, protection: i32) -> Result<u64, Error> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: this makes a new mapping, wherever there is room.
    let address = unsafe { libc::mmap(null_mut(), bytes, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(Error::last_os("mmap"));
    }
    Ok(address as u64)
}

impl Agent {
    /// Maps and writes the agent. Does not change the program's own text or signals yet.
    ///
    /// # Errors
    /// The system refuses the memory.
    pub fn map(memory: &Memory) -> Result<Agent, Error> {
        let data = map(
            2 * PAGE + TABLE_BYTES.next_multiple_of(PAGE),
            libc::PROT_READ | libc::PROT_WRITE,
        )?;
        let returns = map(RETURN_POOL_BYTES as usize, libc::PROT_READ | libc::PROT_WRITE)?;
        // `hit/retprobe.c` takes instances by itself, and does not say where their slots are. SAFETY: the last
        // words of the mapping, which is ours, zeroed and aligned to a page; no other code knows it yet.
        unsafe {
            let words = (RETURN_POOL_BYTES - RETURN_POOL_HIGHEST) as usize / 8;
            core::slice::from_raw_parts_mut((returns + RETURN_POOL_HIGHEST) as *mut u64, words).fill(u64::MAX);
        }
        let code = map(CODE_BYTES, libc::PROT_READ | libc::PROT_EXEC)?;
        const { assert!(size_of::<Control>() <= PAGE && size_of::<Shared>() <= PAGE) };
        let control = data as *mut Control;
        // SAFETY: the page belongs to the mapping, is zeroed and never unmapped. Only atomics in it ever change.
        let shared = unsafe { &*((data + PAGE as u64) as *const Shared) };
        let table = data + 2 * PAGE as u64;
        // SAFETY: the mapping is ours, zeroed, large enough and aligned to a page; no other code knows it yet.
        unsafe {
            (*control).magic = MAGIC;
            (*control).version = VERSION;
            (*control).control_bytes = size_of::<Control>() as u32;
            (*control).arena_address = data;
            (*control).target_pid = std::process::id();
            *((table + TABLE_MAGIC as u64) as *mut u64) = MAGIC;
        }
        let agent = Agent {
            control,
            shared,
            table,
            code,
            room: Room::new(
                code + (thunks_offset() + THUNKS_BYTES) as u64..code + CODE_BYTES as u64,
                &shared.readers,
            ),
            returns,
            thunks: code + thunks_offset() as u64,
            redirects: Table::default(),
            origins: Table::default(),
        };
        let mut image = image_with(ImageHeader {
            control: data,
            table,
            // There are no tables until the first publication.
            tables: std::ptr::from_ref(&shared.published) as u64,
            rows: 0,
            thread_key_mode: KEY_TLS_SELF,
            code_start: code,
            code_end: code + CODE_BYTES as u64,
            allow_syscalls: true,
            returns: agent.returns,
            thunks: agent.thunks,
            stacks: 0,
            host_table: 0,
            follows: FOLLOWS_NOT,
            made_calls: false,
        });
        let hooks = [
            (FAULT_HOOK_OFFSET, hit::fault_hook_address()),
            (EVENT_HOOK_OFFSET, hit::event_hook_address()),
            (READERS_OFFSET, std::ptr::from_ref(&shared.readers) as u64),
        ];
        for (offset, hook) in hooks {
            for (to, from) in image.iter_mut().skip(offset as usize).zip(hook.to_le_bytes()) {
                *to = from;
            }
        }
        write(memory, code, &image)?;
        hit::set_emulate(agent.address(Function::Emulate).0);
        hit::set_sandboxed(data + offset_of!(Control, sandboxed) as u64);
        Ok(agent)
    }

    /// The address of a function of the agent.
    pub fn address(&self, function: Function) -> TargetAddress {
        TargetAddress(self.code + u64::from(function.offset()))
    }

    /// Whether an address is in the agent's memory, where no probe may stand.
    pub fn holds(&self, address: u64) -> bool {
        (self.code..self.code + CODE_BYTES as u64).contains(&address)
    }

    /// The thread table, for detours of compiled handlers; functions do not need it.
    pub fn table(&self) -> TargetAddress {
        TargetAddress(self.table)
    }

    /// Publishes the changes of the two tables. A thread that is reading an older table goes on reading the older
    /// table.
    ///
    /// # Errors
    /// No room is left, or the memory cannot be written.
    pub fn publish(&mut self, memory: &Memory) -> Result<(), Error> {
        let published = &self.shared.published;
        let tables = [
            (&mut self.redirects, &published.redirects),
            (&mut self.origins, &published.origins),
        ];
        for (table, published) in tables {
            let room = &mut self.room;
            let Some(written) = table.write(|bytes| put(room, memory, bytes))? else {
                continue;
            };
            published.store(written.address, Ordering::SeqCst);
            for part in written.replaced {
                room.retire(part.address, part.bytes);
            }
        }
        Ok(())
    }

    /// Writes what replaced return addresses need: the head of their pool, and the thunks.
    ///
    /// # Errors
    /// The memory cannot be written.
    pub fn prepare_returns(&mut self, memory: &Memory) -> Result<hit::Returns, Error> {
        let head = ReturnsHead {
            magic: MAGIC,
            version: VERSION,
            // The maximal number of active calls. The return probe itself checks the limit that its caller has set.
            maxactive: RETURN_INSTANCES,
            thunks: self.thunks,
            ..ReturnsHead::default()
        };
        // SAFETY: the pool is ours, larger than its head, aligned to a page; nothing reads it yet.
        unsafe { *(self.returns as *mut ReturnsHead) = head };
        let hop = self.put(memory, &hit::hop())?;
        let thunks = hit::thunks(self.thunks, RETURN_INSTANCES, hop);
        write(memory, self.thunks - hit::CALL_BYTES, &thunks)?;
        Ok(hit::Returns {
            take: self.address(Function::ReturnTake).0,
            thunks: self.thunks,
            thunks_bytes: THUNKS_BYTES as u64,
            pool: self.returns,
            put_back: self.address(Function::ReturnPutBack).0,
        })
    }

    /// The number of announced events (`np_returns.events`). Until all are answered, no return address is replaced.
    pub fn return_events(&self) -> u32 {
        // SAFETY: the pool's head is ours and lives for ever. Its fields that change are only used as atomics.
        unsafe { AtomicU32::from_ptr(&raw mut (*(self.returns as *mut ReturnsHead)).events) }.load(Ordering::SeqCst)
    }

    /// Answers all events up to this one.
    pub fn answer_returns(&self, event: u32) {
        let answered = (self.returns + offset_of!(ReturnsHead, answered) as u64) as *mut u32;
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr(answered) }.store(event, Ordering::SeqCst);
    }

    /// Writes code for one site, and yields the code's address.
    ///
    /// # Errors
    /// No room is left, or the memory cannot be written.
    pub fn put(&mut self, memory: &Memory, bytes: &[u8]) -> Result<u64, Error> {
        put(&mut self.room, memory, bytes)
    }

    /// Installs our actions for the five signals. The program's own actions are kept, and signals that are not ours
    /// are handed on to them.
    ///
    /// # Errors
    /// The system refuses an action.
    pub fn install_actions(&mut self) -> Result<(), Error> {
        const SA_RESTORER: u64 = 0x0400_0000;
        const SA_SIGINFO: u64 = 4;
        for (slot, signal, handler) in SIGNALS {
            let mut before = SignalAction::default();
            action(signal, None, Some(&mut before))?;
            let chosen = if before.handler > 1 {
                before.flags & (libc::SA_ONSTACK | libc::SA_RESTART) as u64
            } else {
                (libc::SA_ONSTACK | libc::SA_RESTART) as u64
            };
            let ours = SignalAction {
                handler: self.address(handler).0,
                flags: SA_SIGINFO | SA_RESTORER | chosen,
                restorer: self.address(Function::Restorer).0,
                // All signals are blocked. A handler that interrupted ours would run with our signal blocked, and the
                // next trap would kill the program.
                mask: u64::MAX,
            };
            let own = self.table + (TABLE_INHERITANCE + slot * size_of::<SignalAction>()) as u64;
            // SAFETY: the control block and the table are ours, and the action lies in the table; the agent reads them
            // only after our action is installed, below.
            unsafe {
                (own as *mut SignalAction).write_volatile(before);
                if let Some(kept) = (*self.control).actions.get_mut(slot) {
                    *kept = before;
                }
                if let Some(installed) = (*self.control).installed.get_mut(slot) {
                    *installed = ours;
                }
                (*self.control).action_mask |= 1 << slot;
            }
            action(signal, Some(&ours), None)?;
        }
        Ok(())
    }

    /// Records for the calling thread that, as the program sees it, the thread still blocks these synchronous signals.
    pub fn believe_blocked(&self, signals: u64) {
        if signals != 0 {
            self.ask_shim(
                libc::SYS_rt_sigprocmask,
                [libc::SIG_BLOCK as u64, &raw const signals as u64],
            );
        }
    }

    /// Changes the program's actions so that none of their handlers blocks any of the four signals in the kernel. The
    /// masks that the program wanted are recorded, as for actions that it sets later.
    ///
    /// # Errors
    /// The system refuses it.
    pub fn unblock_in_actions(&self) -> Result<(), Error> {
        let is_ours = |signal: i32| SIGNALS.iter().any(|(_, ours, _)| *ours == signal);
        for signal in (1..=64).filter(|signal| !is_ours(*signal)) {
            let mut now = SignalAction::default();
            // A signal for which no program can have an action, such as SIGKILL, has none.
            if action(signal, None, Some(&mut now)).is_ok() && now.handler > 1 && now.mask & SYNCHRONOUS != 0 {
                self.ask_shim(libc::SYS_rt_sigaction, [signal as u64, &raw const now as u64]);
            }
        }
        Ok(())
    }

    /// Makes a call in the way the program would, through the agent's shim.
    fn ask_shim(&self, number: i64, [first, second]: [u64; 2]) {
        let mut registers = [0_u64; 16];
        let [.., r10, _, _, _, rdi, rsi, _, _, _, rax] = &mut registers;
        (*rax, *rdi, *rsi, *r10) = (number as u64, first, second, 8);
        // SAFETY: the agent's function takes a `struct np_registers` (16 words) and no mask. It makes a call with two
        // pointers, to the caller's memory or NULL.
        unsafe {
            let shim: extern "C" fn(*mut u64, u64, u64) -> u64 =
                std::mem::transmute(self.address(Function::ShimSyscall).0);
            shim(registers.as_mut_ptr(), 0, 0);
        }
    }

    /// Makes the agent keep records for a child of fork, which is a process of its own.
    pub fn forked(&mut self) {
        // None of the parent's other threads is in the child.
        self.shared.readers.forget();
        // SAFETY: the child has one thread, this one.
        unsafe { (*self.control).target_pid = std::process::id() };
    }
}

fn put(room: &mut Room, memory: &Memory, bytes: &[u8]) -> Result<u64, Error> {
    let no_room = Error::Limit("no room for the table of redirects");
    let address = room.take(bytes.len()).ok_or(no_room)?;
    write(memory, address, bytes)?;
    Ok(address)
}

/// rt_sigaction as the kernel has it: libc's would hide the restorer, and may be probed.
fn action(signal: i32, new: Option<&SignalAction>, old: Option<&mut SignalAction>) -> Result<(), Error> {
    const { assert!(offset_of!(SignalAction, mask) == 24) };
    let new = new.map_or(std::ptr::null(), |action| action as *const SignalAction);
    let old = old.map_or(null_mut(), |action| action as *mut SignalAction);
    // SAFETY: both are NULL or point at a kernel sigaction, whose mask has 8 bytes.
    let made = unsafe { raw::call(libc::SYS_rt_sigaction, [signal as u64, new as u64, old as u64, 8]) };
    made.map(drop).map_err(|error| Error::System {
        call: "rt_sigaction",
        error,
    })
}

pub(crate) fn write(memory: &Memory, address: u64, bytes: &[u8]) -> Result<(), Error> {
    memory
        .write(TargetAddress(address), bytes)
        .map_err(|error| Error::System {
            call: "writing /proc/self/mem",
            error: std::io::Error::other(error),
        })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use super::*;

    /// Writes through /proc/self/mem arrive byte by byte. So a part of the image that a thread may be reading is never
    /// written.
    #[test]
    fn nothing_of_the_image_changes_when_tables_do() {
        let memory = Memory::of_self().unwrap();
        let mut agent = Agent::map(&memory).unwrap();
        let header = |agent: &Agent| memory.read_array::<128>(TargetAddress(agent.code)).unwrap();
        let before = header(&agent);
        let mut last = (0, 0);
        for number in 0..1000 {
            agent.redirects.insert(number, number + 1);
            agent.origins.insert(number + 1, number);
            agent.publish(&memory).unwrap();
            let published = &agent.shared.published;
            let now = (
                published.redirects.load(Ordering::SeqCst),
                published.origins.load(Ordering::SeqCst),
            );
            assert!(now.0 != last.0 && now.1 != last.1, "they are published");
            last = now;
        }
        assert_eq!(header(&agent), before);
    }
}
