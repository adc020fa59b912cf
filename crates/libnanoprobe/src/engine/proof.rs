//! Which handlers provably do not change SIMD registers, or change only xmm0-15. Only the registers that a handler
//! may change are saved around it. errno is not saved around handlers that call no other module and write only to
//! their own variables.
//!
//! The proof ([`nanoprobe_patch::vector_use`]) rests on the handler's code, and on that of the functions which it
//! calls directly, as it is in memory at the registration. It remains valid when something is registered in this
//! code later. Hits of probes and hooks inside of a handler are missed, and run the original instructions only. A
//! trap is a signal, around which the kernel saves all registers. Where a probe stands in this code already, the
//! code leads to a detour, and nothing is proven.
//!
//! The proof ends when the module with the code is unloaded, since another may be loaded in its place. So nothing
//! is proven of a library's handlers where the dynamic linker does not report its unloading.

use std::collections::HashMap;

use nanoprobe_patch::{TargetAddress, VectorUse, vector_use};

use super::Engine;
use super::site::{Member, OldList};
use crate::tsan;

/// For each handler, by its address, which SIMD registers it may change.
#[derive(Default)]
pub struct Proofs(HashMap<u64, VectorUse>);

impl Engine {
    /// Leaves out the saving of SIMD registers and errno for a member whose handlers provably do not change them.
    pub(super) fn prove(&mut self, member: &mut Member) {
        if tsan::is_there() {
            return;
        }
        let Some(handlers) = member.handlers() else { return };
        let mut uses = VectorUse::Local;
        for handler in &handlers {
            if uses != VectorUse::Anything && self.is_watched(*handler, !member.no_simd) {
                uses = uses.max(self.use_of(*handler));
            } else {
                uses = VectorUse::Anything;
            }
        }
        member.xmm_only = uses == VectorUse::Xmm;
        member.no_simd |= uses <= VectorUse::Nothing;
        member.no_errno = uses == VectorUse::Local;
        if uses != VectorUse::Anything {
            member.proven = handlers;
        }
    }

    /// Whether the handler's module is known, and the library will notice when the module is unloaded. If `asks` is
    /// true, this function may first read the modules again, and hook the dynamic linker.
    fn is_watched(&mut self, handler: u64, asks: bool) -> bool {
        let handler = TargetAddress(handler);
        if !self.own.is_sure_of(handler) && (!asks || self.refresh().is_err()) {
            return false;
        }
        let Some((_, module)) = self.own.modules().find(handler) else {
            return false;
        };
        module.path() == self.own.executable() || asks && matches!(self.hook_linker(), Ok(true))
    }

    fn use_of(&mut self, handler: u64) -> VectorUse {
        if let Some(known) = self.proofs.0.get(&handler) {
            return *known;
        }
        let own = &self.own;
        let mut text = |address: TargetAddress| {
            const LONGEST: u64 = 15;
            let modules = own.modules();
            let found = modules.find(address).filter(|(module, _)| modules.is_loaded(*module));
            let Some((_, module)) = found else { return Vec::new() };
            let image = module.bias().to_image(address);
            let mut ranges = module.executable_ranges();
            let Some(range) = ranges.find(|range| (range.start..range.end).contains(&image)) else {
                return Vec::new();
            };
            let mut bytes = vec![0; LONGEST.min(range.end.0.saturating_sub(image.0)) as usize];
            match own.memory().read(address, &mut bytes) {
                Ok(()) => bytes,
                Err(_) => Vec::new(),
            }
        };
        let proven = vector_use(TargetAddress(handler), &mut text);
        self.proofs.0.insert(handler, proven);
        proven
    }

    /// Drops the proofs for a module that is gone. Yields the lists that were replaced.
    pub(super) fn doubt(&mut self, range: &std::ops::Range<u64>) -> Vec<OldList> {
        self.proofs.0.clear();
        let sites = self
            .functions
            .values_mut()
            .flat_map(|function| function.sites.values_mut());
        let mut lists = Vec::new();
        for state in sites {
            let in_doubt = |member: &&mut Member| member.proven.iter().any(|handler| range.contains(handler));
            let mut changed = false;
            for member in state.members.iter_mut().filter(in_doubt) {
                member.no_simd = false;
                member.xmm_only = false;
                member.no_errno = false;
                member.proven.clear();
                changed = true;
            }
            if changed {
                lists.push(state.publish());
            }
        }
        lists
    }
}
