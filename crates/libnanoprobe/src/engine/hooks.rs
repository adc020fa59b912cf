//! Hooks: a replacement must not change what the function's callers rely on.

use std::ffi::c_void;

use nanoprobe_patch::{TargetAddress, kept_registers};

use super::{Engine, Spot};
use crate::error::Error;
use crate::hit;

impl Engine {
    /// A hook at a spot's function; it is never freed.
    ///
    /// # Errors
    /// The spot is gone, or the hook's code cannot be written.
    pub fn make_hook(&mut self, spot: &Spot, replacement: *mut c_void) -> Result<&'static hit::Hook, Error> {
        let kept = kept_registers(TargetAddress(spot.address), &mut |address| self.original_text(address));
        let site = self.state_mut(spot).ok_or(Error::NotRegistered)?.site;
        let (hook, stub) = hit::Hook::new(replacement, site, kept);
        let stub = self.agent.put(self.own.memory(), &stub)?;
        hook.set_stub(TargetAddress(stub));
        Ok(hook)
    }

    /// The bytes in the file for an address, without any patches.
    fn original_text(&self, address: TargetAddress) -> Vec<u8> {
        const LONGEST: u64 = 15;
        let modules = self.own.modules();
        let found = modules.find(address).filter(|(module, _)| modules.is_loaded(*module));
        let Some((_, module)) = found else { return Vec::new() };
        let image = module.bias().to_image(address);
        let mut ranges = module.executable_ranges();
        let Some(range) = ranges.find(|range| (range.start..range.end).contains(&image)) else {
            return Vec::new();
        };
        let bytes = LONGEST.min(range.end.0.saturating_sub(image.0));
        module.code_at(image, bytes).unwrap_or_default().to_vec()
    }
}
