//! Return probes: the exits of a function, and what must be done before the first return address is replaced.
//!
//! The rules are those of a session for its target (`nanoprobe_text::returns`). Unwinders with names are hooked, so
//! that they meet real addresses only. Where an unwinder may be hidden, or a runtime reads return addresses, the
//! return-address form is refused. The dynamic linker's debugger hook reports new libraries:
//!
//! ```text
//!   _dl_debug_state  ->  library_changed, in its place, in the thread that loads, in no handler
//!                          if the engine is free: new unwinders are hooked before the library's first instruction runs
//!                          if it stays in use for a second, or a hook is refused: np_return_suspend puts all addresses
//!                          back, and none is replaced until the next registration has looked
//! ```
//!
//! That function runs with the linker's lock held. So it waits for the engine's lock only for a bounded time, and
//! for no handler.

use std::sync::TryLockError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nanoprobe_agent::Function as AgentFunction;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::Linking;
use nanoprobe_text::returns::{ReturnRefusal, check_module, needs_its_return_address, unwinders};

use super::register::Demand;
use super::site::{Kind, Member};
use super::{ENGINE, Engine, Spot, engine};
use crate::error::Error;
use crate::hit::{Thread, np_replaced_hit, np_unwinder_hit};
use crate::{hit, self_process};

/// How long the linker waits at most for the engine's lock.
const LOCK_WAIT: Duration = Duration::from_secs(1);
/// How often further libraries may be loaded while the earlier ones are being looked at.
const ROUNDS_MAX: usize = 16;

/// The preparations for return probes that replace the return address.
#[derive(Default)]
pub struct Returns {
    prepared: bool,
    watched: bool,
    /// The entries of unwinders and of the linker.
    hooked: Vec<u64>,
    /// The entry of the linker's debugger hook.
    linker: Option<u64>,
    /// How many modules were known when no linker was found, and whether the program needs none.
    without_linker: Option<(usize, bool)>,
    /// The last event that was answered, and how many modules were known then.
    answered: Option<(u32, usize)>,
}

impl Returns {
    /// Forgets the hooks in a module that is gone.
    pub fn forget(&mut self, range: &std::ops::Range<u64>) {
        self.hooked.retain(|address| !range.contains(address));
        self.linker = self.linker.filter(|address| !range.contains(address));
    }
}

/// How a function can be left.
pub struct Ways {
    /// The function's `ret` instructions; `None`: the function has other exits, or may have some.
    pub rets: Option<Vec<TargetAddress>>,
    /// A jump within the function leads to its own entry, which is no new call. (A call from within the function, or
    /// a jump from another function, is a new call.)
    pub loops: bool,
}

/// `np_return_suspend`, for [`library_changed`].
static SUSPEND: AtomicU64 = AtomicU64::new(0);

impl Engine {
    /// How the function at an entry can be left.
    ///
    /// # Errors
    /// No function begins there.
    pub fn ways_out(&mut self, entry: TargetAddress) -> Result<Ways, Error> {
        let function = self.function_at(entry)?;
        if function.extent.start != entry.0 {
            return Err(Error::Argument("a return probe stands on a function's entry"));
        }
        let rets: Option<Vec<_>> = function.parts.iter().map(|part| part.returns_only()).collect();
        let rets: Option<Vec<TargetAddress>> = rets.map(|rets| rets.concat());
        Ok(Ways {
            rets: rets.filter(|rets| !rets.is_empty()),
            loops: function.parts.iter().any(|part| part.jumps_to(entry)),
        })
    }

    /// Makes the end of a thread end the calls that it has begun.
    ///
    /// # Errors
    /// The C library has no key left.
    pub fn watch_threads(&mut self) -> Result<(), Error> {
        if !self.returns.watched {
            hit::watch_threads(thread_ends).map_err(|error| Error::System {
                call: "pthread_key_create",
                error,
            })?;
            self.returns.watched = true;
        }
        Ok(())
    }

    /// The site of a function's entry, if its return address may be replaced. Instances of the function's thunks
    /// refer to the site. When this returns, all code that could meet a replaced address is hooked.
    ///
    /// # Errors
    /// Why the return address may not be replaced.
    pub fn return_site(&mut self, entry: TargetAddress) -> Result<u64, Error> {
        let refused = |because| Error::ReturnAddress { at: entry, because };
        self.check_return_address(entry).map_err(refused)?;
        if !self.returns.prepared {
            let returns = self.agent.prepare_returns(self.own.memory())?;
            hit::set_returns(returns);
            SUSPEND.store(self.agent.address(AgentFunction::ReturnSuspend).0, Ordering::Release);
            self.returns.prepared = true;
        }
        if !self.hook_linker()? {
            return Err(refused(ReturnRefusal::NoLinkerHook));
        }
        self.serve_returns(entry)?;
        let site = self.function_at(entry)?.site(entry.0)?.site;
        Ok(std::ptr::from_ref(site) as u64)
    }

    fn check_return_address(&mut self, entry: TargetAddress) -> Result<(), ReturnRefusal> {
        if self.own.has_shadow_stack() {
            return Err(ReturnRefusal::ShadowStack);
        }
        let Some((_, module)) = self.own.modules().find(entry) else {
            return Ok(());
        };
        if let Some(found) = module.function_at(module.bias().to_image(entry)) {
            let needs = found.names().find(|name| needs_its_return_address(name));
            if let Some(name) = needs {
                return Err(ReturnRefusal::Name { name: name.to_owned() });
            }
        }
        let parts = self.functions.get(&entry.0).map(|function| function.parts.as_slice());
        match parts
            .unwrap_or_default()
            .iter()
            .find_map(|part| part.return_address_use())
        {
            Some(used) => Err(used.into()),
            None => Ok(()),
        }
    }

    /// Makes the linker call `library_changed` in place of its debugger hook, which does nothing. Yields whether that
    /// succeeded or is not needed.
    pub(super) fn hook_linker(&mut self) -> Result<bool, Error> {
        if self.returns.linker.is_some() {
            return Ok(true);
        }
        let count = self.own.modules().list().len();
        if let Some((_, answer)) = self.returns.without_linker.filter(|(known, _)| *known == count) {
            return Ok(answer);
        }
        let modules = || self.own.modules().list().iter();
        let address = modules().find_map(|module| {
            let names = ["_dl_debug_state", "dl_debug_state"];
            let symbol = names.iter().find_map(|name| module.symbol(name))?;
            Some(module.bias().to_target(symbol.address))
        });
        let Some(address) = address else {
            let mut executable = modules().filter(|module| module.path() == self.own.executable());
            let needs_none = executable.any(|module| module.linkage().linking != Linking::Dynamic);
            self.returns.without_linker = Some((count, needs_none));
            return Ok(needs_none);
        };
        // The hook is noted before it is registered below, since registering calls this function again.
        self.returns.hooked.push(address.0);
        self.returns.linker = Some(address.0);
        let mut member = Member::new(
            Kind::Own,
            std::ptr::null_mut(),
            Some(np_replaced_hit),
            library_changed as *mut std::ffi::c_void,
        );
        member.otherwise = self.agent.address(AgentFunction::ReturnSuspend).0;
        let hooked = self.register(vec![(address, member, Demand::Any)]);
        if hooked.is_err() {
            self.returns.hooked.retain(|hooked| *hooked != address.0);
            self.returns.linker = None;
        }
        Ok(hooked.is_ok())
    }

    /// Members in a library must be forgotten when the library is unloaded. Where the linker cannot be hooked, the
    /// next registration notices it.
    pub(super) fn watch_libraries(&mut self, spots: &[Spot]) -> Result<(), Error> {
        let executable = self.own.executable();
        let module = |spot: &Spot| self.own.modules().find(TargetAddress(spot.address));
        let in_library = |spot: &Spot| module(spot).is_some_and(|(_, module)| module.path() != executable);
        if spots.iter().any(in_library) {
            self.hook_linker()?;
        }
        Ok(())
    }

    /// Called after the linker's list has changed.
    fn libraries_changed(&mut self) -> Result<(), Error> {
        self.own.begin(self_process::Loaded::default());
        if self.returns.prepared {
            self.serve_returns(TargetAddress(0))
        } else {
            self.update_modules().map(drop)
        }
    }

    /// Hooks the unwinders that have been loaded; return addresses are replaced from then on.
    fn serve_returns(&mut self, entry: TargetAddress) -> Result<(), Error> {
        let served = (self.agent.return_events(), self.own.modules().list().len());
        if self.own.is_current() && self.returns.answered == Some(served) {
            return Ok(());
        }
        for _ in 0..ROUNDS_MAX {
            let event = self.agent.return_events();
            self.update_modules()?;
            let modules = self.own.modules();
            let loaded = modules.list().iter().enumerate();
            let loaded = loaded.filter(|(index, _)| modules.is_loaded(*index));
            let mut missing = Vec::new();
            for (_, module) in loaded {
                check_module(module).map_err(|because| Error::ReturnAddress { at: entry, because })?;
                let entries = unwinders(module)
                    .into_iter()
                    .map(|image| module.bias().to_target(image));
                missing.extend(entries.filter(|address| !self.returns.hooked.contains(&address.0)));
            }
            let put_back = self.agent.address(AgentFunction::ReturnPutBack).0;
            let members = missing.iter().map(|address| {
                let mut member = Member::new(
                    Kind::Own,
                    std::ptr::null_mut(),
                    Some(np_unwinder_hit),
                    std::ptr::null_mut(),
                );
                member.otherwise = put_back;
                (*address, member, Demand::Any)
            });
            self.register(members.collect())?;
            self.returns.hooked.extend(missing.iter().map(|address| address.0));
            if self.agent.return_events() == event {
                self.agent.answer_returns(event);
                self.returns.answered = Some((event, self.own.modules().list().len()));
                return Ok(());
            }
        }
        Err(Error::ReturnAddress {
            at: entry,
            because: ReturnRefusal::NoLinkerHook,
        })
    }

    /// Ends the calls that a thread has left on its stack.
    fn thread_ends(&self, life: u64, low: u64, high: u64) {
        let sites = self.functions.values().flat_map(|function| function.sites.values());
        let members = sites.flat_map(|state| &state.members);
        for member in members.filter(|member| member.kind == Kind::Retprobe) {
            if let Some(calls) = &member.calls {
                // SAFETY: the range is the stack of the calling thread, which is ending.
                unsafe { calls.thread_ends(life, low, high) };
            }
        }
    }
}

/// Runs in place of the linker's debugger hook.
extern "C" fn library_changed() {
    let suspend = SUSPEND.load(Ordering::Acquire);
    let begun = Instant::now();
    if let Some(engine) = ENGINE.get() {
        loop {
            let mut engine = match engine.try_lock() {
                Ok(engine) => engine,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) if begun.elapsed() < LOCK_WAIT => {
                    std::thread::sleep(Duration::from_micros(50));
                    continue;
                }
                Err(TryLockError::WouldBlock) => break,
            };
            match engine.libraries_changed() {
                Ok(()) => return,
                Err(_) => break,
            }
        }
    }
    if suspend != 0 {
        // SAFETY: the agent's function, which keeps all registers and may be called anywhere.
        unsafe { std::mem::transmute::<u64, extern "C" fn()>(suspend)() };
    }
}

/// The destructor of the key, which every thread with a block has set.
unsafe extern "C" fn thread_ends(thread: *mut Thread) {
    // SAFETY: the thread's own block, which lives for ever.
    let Some(thread) = (unsafe { thread.as_ref() }) else {
        return;
    };
    if !thread.has_calls() {
        return;
    }
    if let Some(stack) = own_stack()
        && let Ok(engine) = engine()
    {
        engine.thread_ends(thread.life.load(Ordering::Relaxed), stack.start, stack.end);
    }
}

/// The calling thread's stack.
fn own_stack() -> Option<std::ops::Range<u64>> {
    let mut start = std::ptr::null_mut();
    let mut bytes = 0;
    // SAFETY: the calls fill in the values behind the pointers that they get, and the attributes are destroyed
    // after they were made.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) != 0 {
            return None;
        }
        let result = libc::pthread_attr_getstack(&attributes, &mut start, &mut bytes);
        libc::pthread_attr_destroy(&mut attributes);
        (result == 0).then_some(start as u64..start as u64 + bytes as u64)
    }
}
