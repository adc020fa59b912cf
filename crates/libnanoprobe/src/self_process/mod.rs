//! This process, as the engine's target: its modules, its memory, its processors.

mod agent;
mod barrier;
mod blocked;
mod breakpoint;
mod grace_period;
mod limits;
mod loaded;
mod names;
mod near;
mod raw;
mod tables;
mod text;

use std::path::PathBuf;

use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::{FunctionKind, Module};
use nanoprobe_target::{HoleRules, Map, Memory};
use nanoprobe_text::modules::{Changes, Modules};
use nanoprobe_text::returns::has_shadow_stack;

pub use agent::Agent;
pub(crate) use agent::write;
pub use barrier::{register, synchronise_memory};
pub use blocked::{Blocking, blocking_threads, set_own_mask};
pub use breakpoint::{Breakpoint, EXECUTE, Place, try_out};
pub use limits::{Need, check as check_limits, may_have_file_of};
pub use loaded::Loaded;
use names::Names;
pub use near::OwnMemory;
pub use text::Text;

use crate::error::Error;

/// The library's knowledge of its own process.
pub struct Own {
    memory: Memory,
    modules: Modules,
    names: Names,
    executable: PathBuf,
    has_shadow_stack: bool,
    /// What the dynamic linker answered when the engine was locked.
    loaded: Loaded,
    /// The map has been read since the engine was locked.
    is_fresh: bool,
    /// Modules were read since bytes were last released.
    has_new: bool,
    /// Where the linker's modules began, in whole pages, when the map was last read.
    starts: Vec<u64>,
}

impl Own {
    /// Opens the needed files: /proc/self/mem and the map.
    ///
    /// # Errors
    /// The system refuses them.
    pub fn open() -> Result<Own, Error> {
        let refused = |call| move |error| Error::System { call, error };
        Ok(Own {
            memory: Memory::of_self().map_err(refused("opening /proc/self/mem"))?,
            modules: Modules::of_self(),
            names: Names::default(),
            has_shadow_stack: has_shadow_stack(std::process::id() as i32),
            loaded: Loaded::default(),
            is_fresh: false,
            has_new: false,
            starts: Vec::new(),
            executable: std::fs::read_link("/proc/self/exe").map_err(refused("reading /proc/self/exe"))?,
        })
    }

    /// Opens the files again in a child of fork: the inherited ones show its parent's memory.
    ///
    /// # Errors
    /// The system refuses them.
    pub fn forked(&mut self) -> Result<(), Error> {
        self.memory = Memory::of_self().map_err(|error| Error::System {
            call: "opening /proc/self/mem",
            error,
        })?;
        Ok(())
    }

    /// The map as it is now.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn map(&self) -> Result<Map, Error> {
        let text = std::fs::read("/proc/self/maps").map_err(|error| Error::System {
            call: "reading /proc/self/maps",
            error,
        })?;
        Ok(Map::parse(&text))
    }

    /// Called when the engine was locked. `loaded`: the linker's answer from before that.
    pub fn begin(&mut self, loaded: Loaded) {
        self.loaded = loaded;
        self.is_fresh = false;
    }

    /// Brings the modules up to date.
    pub fn update(&mut self, map: &Map) -> Changes {
        let pid = std::process::id() as i32;
        let changes = self.modules.update(pid, map, &self.memory, &self.executable);
        changes.gone.iter().for_each(|module| self.names.forget(*module));
        self.is_fresh = true;
        self.has_new |= changes.first_new < self.modules.list().len();
        if let Some(starts) = std::mem::take(&mut self.loaded).is_known() {
            self.starts = starts;
        }
        changes
    }

    /// Releases the bytes of files that were read for new modules: the search for signal calls reads all of their code,
    /// of which little is needed later. Other registrations keep what they read, because the next one may need it.
    pub fn forget_new_bytes(&mut self) {
        if std::mem::take(&mut self.has_new) {
            self.modules.forget_bytes();
        }
    }

    /// Whether the entry for an address is up to date without reading the map. It is up to date in two cases: the map
    /// was read since the engine was locked; or the linker has loaded the module, and has neither loaded nor unloaded
    /// anything since the map was last read.
    pub fn is_sure_of(&self, address: TargetAddress) -> bool {
        let is_the_linkers = || {
            let (module, _) = self.modules.find(address)?;
            let range = self.modules.range(module).filter(|_| self.modules.is_loaded(module))?;
            Some(self.starts.contains(&range.start))
        };
        self.is_fresh || (self.is_current() && is_the_linkers() == Some(true))
    }

    /// Whether the linker has neither loaded nor unloaded anything since the map was read.
    pub fn is_current(&self) -> bool {
        self.loaded.is_same()
    }

    /// Whether the processor keeps return addresses on a shadow stack, too.
    pub fn has_shadow_stack(&self) -> bool {
        self.has_shadow_stack
    }

    /// The modules.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// The program's file.
    pub fn executable(&self) -> &std::path::Path {
        &self.executable
    }

    /// The memory, for reading and for writing text.
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// The rules for where near memory may lie.
    pub fn hole_rules(&self) -> HoleRules {
        HoleRules::default()
    }

    /// The address of `symbol`, or `module:symbol`; for an IFUNC: the function that it stands for in this process.
    ///
    /// # Errors
    /// No module defines it; or several functions of a module have the name, and none is global.
    pub fn resolve(&mut self, name: &str) -> Result<TargetAddress, Error> {
        let (wanted, symbol) = match name.split_once(':') {
            Some((module, symbol)) => (Some(module), symbol),
            None => (None, name),
        };
        let unknown = || Error::Symbol(name.to_owned());
        let loaded = self.modules.list().iter().enumerate();
        let loaded = loaded.filter(|(index, _)| self.modules.is_loaded(*index));
        for (index, module) in loaded {
            if wanted.is_some_and(|wanted| !module.module_matches(|name| name == wanted)) {
                continue;
            }
            let found = self.names.find(index, module, symbol);
            let Some(first) = found.first() else { continue };
            // If a global function has several versions, the first is taken. If several static functions have the name,
            // it is unknown which of them is meant.
            let global = found.iter().find(|function| function.global);
            let Some(function) = global.or(Some(first).filter(|_| found.len() == 1)) else {
                return Err(Error::Ambiguous {
                    name: name.to_owned(),
                    count: found.len(),
                    module: module.name().to_owned(),
                    first: module.bias().to_target(first.address),
                });
            };
            return match function.kind {
                FunctionKind::Ifunc { resolver } => chosen(module, resolver).ok_or_else(unknown),
                FunctionKind::Code => Ok(module.bias().to_target(function.extent().start)),
            };
        }
        Err(unknown())
    }
}

/// Calls an IFUNC's resolver, as the dynamic linker did. The answer depends only on the processor, so it is always
/// the same.
fn chosen(module: &Module, resolver: nanoprobe_symbols::ImageAddress) -> Option<TargetAddress> {
    let address = module.bias().to_target(resolver).0;
    if address == 0 {
        return None;
    }
    // SAFETY: the symbol table says that a resolver of the psABI's type is there, in a loaded
    // module of this process. It takes no argument on x86-64, and may be called again.
    let chosen = unsafe {
        let resolver: extern "C" fn() -> u64 = std::mem::transmute(address as usize);
        resolver()
    };
    (chosen != 0).then_some(TargetAddress(chosen))
}
