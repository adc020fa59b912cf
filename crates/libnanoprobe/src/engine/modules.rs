//! The modules that the program has loaded, and the places in them that may be probed. Symbols and addresses become
//! decoded functions here; libraries come and go.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Map;
use nanoprobe_text::code::{extent_around, parts};

use super::Engine;
use super::function::{Function, Retired};
use super::site::Kind;
use crate::error::Error;
use crate::self_process::Own;
use crate::{hit, self_process};

impl Engine {
    /// The address of a symbol, or the given address, with the offset added. Updates the list of modules where it may
    /// be out of date: after the dynamic linker has loaded or unloaded something, and for code that it has not
    /// loaded.
    ///
    /// # Errors
    /// No such symbol, or the map cannot be read.
    pub fn resolve(&mut self, addr: u64, symbol: Option<&str>, offset: u64) -> Result<TargetAddress, Error> {
        let find = |own: &mut Own| match symbol {
            Some(symbol) => own.resolve(symbol),
            None => Ok(TargetAddress(addr)),
        };
        if let Ok(base) = find(&mut self.own)
            && self.own.is_sure_of(base)
        {
            return Ok(TargetAddress(base.0.wrapping_add(offset)));
        }
        self.refresh()?;
        Ok(TargetAddress(find(&mut self.own)?.0.wrapping_add(offset)))
    }

    /// Updates the list of modules after the program has mapped or unmapped something.
    pub(super) fn refresh(&mut self) -> Result<(), Error> {
        let map = self.update_modules()?;
        self.set_holes(&map);
        Ok(())
    }

    fn set_holes(&mut self, map: &Map) {
        let holes = map.holes(&self.own.hole_rules());
        self.near
            .set_holes(holes.iter().map(|hole| hole.start.0..hole.end.0).collect());
    }

    /// Updates the holes in which near memory may lie.
    pub(super) fn refresh_holes(&mut self) -> Result<(), Error> {
        let map = self.own.map()?;
        self.set_holes(&map);
        Ok(())
    }

    /// Brings the modules up to date with the map, and yields the map.
    pub(super) fn update_modules(&mut self) -> Result<Map, Error> {
        let map = self.own.map()?;
        let changes = self.own.update(&map);
        for module in changes.gone {
            self.unload(module)?;
        }
        if self.signals.have_shims && changes.first_new < self.own.modules().list().len() {
            self.set_holes(&map);
            self.place_shims(changes.first_new)?;
        }
        Ok(map)
    }

    /// Forgets a module that is gone, with its text and all patches. No thread may be executing it.
    fn unload(&mut self, module: usize) -> Result<(), Error> {
        let range = self.own.modules().range(module).unwrap_or_default();
        let starts = self.functions.iter().filter(|(_, function)| function.module == module);
        let starts: Vec<u64> = starts.map(|(start, _)| *start).collect();
        let (mut lists, mut own) = (Vec::new(), Vec::new());
        for function in starts.iter().filter_map(|start| self.functions.remove(start)) {
            let mut retired = Retired {
                known: function.known,
                sites: function.retired,
            };
            for (address, mut state) in function.sites {
                for member in std::mem::take(&mut state.members) {
                    if member.is_counted() {
                        self.shown.clear(member.entry.index);
                    }
                    match member.kind {
                        Kind::Own => own.push(member),
                        _ => drop(self.unloaded.insert(member.id, member)),
                    }
                }
                lists.push(state.publish());
                retired.sites.insert(address, state.site);
            }
            self.retired.insert(function.extent.start, retired);
        }
        lists.extend(self.doubt(&range));
        // Another module may be loaded at the same addresses later. Its own breakpoints are not ours.
        self.agent.redirects.retain(|from| !range.contains(&from));
        self.returns.forget(&range);
        self.signals.shims.retain(|shim| !range.contains(&shim.built.address.0));
        self.late.retain(|start| !range.contains(start));
        self.springboards.forget(&range);
        if let Some(torn) = &mut self.torn {
            torn.forget(&range);
        }
        self_process::synchronise_memory();
        self.bury(lists, own);
        Ok(())
    }

    /// The decoded function around an address where a probe may stand.
    ///
    /// # Errors
    /// The address is not code, or on the black list, or no instruction starts there.
    pub fn function_at(&mut self, address: TargetAddress) -> Result<&mut Function, Error> {
        if self.is_forbidden(address.0) {
            return Err(Error::Forbidden(address));
        }
        let modules = self.own.modules();
        let found = modules.find(address).filter(|(module, _)| modules.is_loaded(*module));
        let (module, found) = found.ok_or(Error::NotCode(address))?;
        let image = found.bias().to_image(address);
        let (extent, _) = extent_around(found, image).ok_or(Error::NotCode(address))?;
        let start = extent.start;
        let function = match self.functions.entry(start) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(vacant) => {
                let mut parts = parts(found, &extent).ok_or(Error::NotCode(address))?;
                for part in &mut parts {
                    let padding = part.padding();
                    part.show_padding_for_springboards(padding);
                }
                if self.own.has_shadow_stack() {
                    parts.iter_mut().for_each(|part| part.show_shadow_stack());
                }
                let retired = self.retired.remove(&start).unwrap_or_default();
                vacant.insert(Function {
                    parts,
                    extent,
                    module,
                    sites: BTreeMap::new(),
                    patches: Vec::new(),
                    known: retired.known,
                    sees_neighbours: false,
                    retired: retired.sites,
                })
            }
        };
        function.next(address.0)?;
        Ok(function)
    }

    /// Whether the address is in code that a hit runs through: this library, the agent, the detours.
    fn is_forbidden(&self, address: u64) -> bool {
        let ours = self.own.modules().find(TargetAddress(hit::dispatch_address()));
        let is_library = |(index, module): (usize, &nanoprobe_symbols::Module)| {
            // When this library is linked statically into the program, only the hit path itself is forbidden.
            let range = self.own.modules().range(index);
            let is_shared = module.name().starts_with("libnanoprobe.so");
            is_shared && range.is_some_and(|range| range.contains(&address)) || hit::is_path(address)
        };
        self.agent.holds(address)
            || self
                .mapped
                .iter()
                .any(|region| region.contains(&TargetAddress(address)))
            || ours.is_some_and(is_library)
    }
}
