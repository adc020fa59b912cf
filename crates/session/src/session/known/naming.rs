//! Names of the target's addresses, for printing.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::Arc;

use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_patch::TargetAddress;
use nanoprobe_runtimes::Frame;
use nanoprobe_symbols::{Module, readable};
use nanoprobe_text::modules::Shown;

use super::Known;
use crate::debug::debug_info;
use crate::kernel_names;
use crate::probes::{Place, Probe, ProbeList};

/// Which names of functions stand for several functions with probes: overloaded ones.
#[derive(Default)]
pub(in crate::session) struct Overloads {
    /// How many probes were looked at.
    seen: usize,
    /// Each demangled name, with the linker's name for it; `None`: there are several.
    names: HashMap<String, Option<Arc<str>>>,
}

impl Overloads {
    fn update(&mut self, probes: &ProbeList) {
        let mut last: Option<&Arc<str>> = None;
        for probe in probes.iter().skip(self.seen) {
            // The probes of one function follow each other, and share its name.
            if last
                .replace(&probe.function)
                .is_some_and(|last| Arc::ptr_eq(last, &probe.function))
            {
                continue;
            }
            let Cow::Owned(shown) = readable(&probe.function) else {
                continue;
            };
            let known = self.names.entry(shown).or_insert_with(|| Some(probe.function.clone()));
            if known.as_ref().is_some_and(|known| *known != probe.function) {
                *known = None;
            }
        }
        self.seen = probes.iter().len();
    }

    fn has_several(&self, shown: &str) -> bool {
        self.names.get(shown).is_some_and(Option::is_none)
    }
}

impl Known {
    /// The name of an address of the target, or of the kernel.
    pub fn symbolize(&self, address: u64) -> String {
        if let Some(name) = self.foreign.borrow().text(address) {
            return name.to_owned();
        }
        if let Some(name) = self.interpreted.borrow().name(address) {
            return name;
        }
        if kernel_names::is_kernels(address) {
            return kernel_names::name_of(address);
        }
        if self.modules.find(TargetAddress(address)).is_none()
            && let Some((start, name)) = self.perf_map.borrow_mut().find(address)
        {
            return match address - start {
                0 => format!("jit`{name}"),
                offset => format!("jit`{name}+{offset:#x}"),
            };
        }
        self.modules.symbolize(TargetAddress(address), self.shown())
    }

    /// The name of a frame's function, without the place in it, where the frame is one of interpreted code.
    pub fn interpreted_function(&self, frame: u64) -> Option<String> {
        if let Some(function) = self.foreign.borrow().function(frame) {
            return Some(function.to_owned());
        }
        self.interpreted.borrow().function(frame)
    }

    /// Whether code that was made at run time is at an address, and nothing names it. Stacks then show no address.
    pub fn is_nameless_code(&self, address: u64) -> bool {
        let is_named = || {
            self.modules.find(TargetAddress(address)).is_some() || self.perf_map.borrow_mut().find(address).is_some()
        };
        if Frame::of(address).is_some() || !self.is_address(address) || is_named() {
            return false;
        }
        let mut made = self.made_code.borrow_mut();
        let is_made = made.has(address, self.process());
        if is_made {
            made.note_shown();
        }
        is_made
    }

    /// Advice on naming the code that stacks have shown without a name; once.
    pub fn take_advice(&self) -> Option<String> {
        let has_map = self.perf_map.borrow().exists();
        match self.interpreted.borrow().has_told_makers() {
            true => None,
            false => self.made_code.borrow_mut().take_advice(&self.modules, has_map),
        }
    }

    /// The name of a return address of the target, which belongs to the call before it.
    pub fn symbolize_return(&self, address: u64) -> String {
        match self.modules.find(TargetAddress(address)) {
            _ if kernel_names::is_kernels(address) => kernel_names::name_of_return(address),
            Some(_) => self.modules.symbolize_return(TargetAddress(address), self.shown()),
            None => self.symbolize(address),
        }
    }

    /// An address of the target as a file and an offset in it: the form in which the option `noresolve` shows a frame.
    pub fn place_in_mapping(&self, address: u64) -> String {
        if let Some(name) = self.foreign.borrow().text(address) {
            return name.to_owned();
        }
        if let Some(name) = self.interpreted.borrow().name(address) {
            return name;
        }
        self.modules.place_in_mapping(TargetAddress(address))
    }

    /// The module that contains an address, and the range of its image.
    pub fn module_at(&self, address: u64) -> Option<(&Module, Range<u64>)> {
        let (index, module) = self.modules.find(TargetAddress(address))?;
        Some((module, self.modules.range(index)?))
    }

    /// The source files and lines of addresses of the target, where debug information knows them.
    pub fn sources(&self, addresses: &[u64]) -> HashMap<u64, (String, u64)> {
        let mut by_module: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        for address in addresses {
            if let Some((index, _)) = self.modules.find(TargetAddress(*address)) {
                by_module.entry(index).or_default().push(*address);
            }
        }
        let mut found = HashMap::new();
        for (index, addresses) in by_module {
            let Some(module) = self.modules.list().get(index) else {
                continue;
            };
            let Ok(debug) = debug_info(module) else { continue };
            let images = addresses
                .iter()
                .map(|address| module.bias().to_image(TargetAddress(*address)).0);
            let lines = debug.lines_at(&images.collect::<Vec<u64>>());
            let places = addresses.iter().zip(lines);
            found.extend(places.filter_map(|(address, line)| Some((*address, line?))));
        }
        found
    }

    /// How the names of symbols are shown.
    pub(in crate::session) fn shown(&self) -> Shown {
        match self.compiled.options.printing.demangle {
            Demangle::Auto | Demangle::Always => readable,
            Demangle::Never => |name| name.into(),
        }
    }

    /// A function's name, demangled.
    pub fn readable<'n>(&self, name: &'n str) -> Cow<'n, str> {
        self.shown()(name)
    }

    /// The demangled name of a probe's function. The parameters are included if the program has probes on several
    /// functions that differ only in these. `None`: this name is the same as the linker's.
    pub fn function_name(&self, name: &str) -> Option<String> {
        let Cow::Owned(shown) = self.readable(name) else {
            return None;
        };
        let mut overloads = self.overloads.borrow_mut();
        overloads.update(&self.probes);
        match overloads.has_several(&shown) {
            true => nanoprobe_symbols::demangle(name).map(|demangled| demangled.full.into_string()),
            false => Some(shown),
        }
    }

    /// The linker's name of a probe's function: the one that its description matched, in whichever form.
    pub fn linked_name<'p>(&'p self, probe: &'p Probe) -> Cow<'p, str> {
        let function = match probe.place {
            Place::Function { module, function, .. } => {
                let module = self.modules.list().get(module);
                module.and_then(|module| module.functions().get(function))
            }
            _ => None,
        };
        let own = &*probe.function;
        let Some(function) = function.filter(|function| function.names().all(|name| name != own)) else {
            return Cow::Borrowed(own);
        };
        let is_it = |name: &&str| {
            let demangled = nanoprobe_symbols::demangle(name);
            *readable(name) == *own || demangled.is_some_and(|demangled| *demangled.full == *own)
        };
        Cow::Borrowed(function.names().find(is_it).unwrap_or(&function.name))
    }

    /// Whether this is an address of the target, and not a number that stands for a name of another process.
    pub fn is_address(&self, address: u64) -> bool {
        self.foreign.borrow().text(address).is_none()
    }

    /// The start of the function or module around an address of the target; the address itself where none is known.
    pub fn start_of(&self, address: u64, kind: SymbolKind) -> u64 {
        if !self.is_address(address) {
            return address;
        }
        if kernel_names::is_kernels(address) {
            return kernel_names::start_of(address, kind);
        }
        let address = TargetAddress(address);
        if self.modules.find(address).is_none() {
            let mut made = self.perf_map.borrow_mut();
            let start = made.find(address.0).map(|(start, _)| start);
            if let Some(start) = start {
                return match kind {
                    SymbolKind::Address => address.0,
                    SymbolKind::Function => start,
                    SymbolKind::Module => made.start().unwrap_or(start),
                };
            }
        }
        match kind {
            SymbolKind::Address => address.0,
            SymbolKind::Function => self.modules.function_start(address).0,
            SymbolKind::Module => self.modules.module_start(address).0,
        }
    }
}
