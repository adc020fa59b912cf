//! Hooks, as declared in `hit.h`.

use std::ffi::c_void;

use nanoprobe_patch::{Kept, TargetAddress};

use super::Site;

/// `struct np_hit_hook`.
#[repr(C)]
pub struct Hook {
    replacement: *mut c_void,
    call: unsafe extern "C" fn(),
    stub: u64,
    site: &'static Site,
    is_called: u32,
    keeps: u32,
}

unsafe extern "C" {
    fn np_hook_call();
}

/// The offset of [`Hook::call`].
const CALL_OFFSET: u8 = std::mem::offset_of!(Hook, call) as u8;

impl Hook {
    /// A hook that is never freed, and the code of its stub. [`Hook::set_stub`] tells the hook where the stub is.
    pub fn new(replacement: *mut c_void, site: &'static Site, kept: Kept) -> (&'static mut Hook, Vec<u8>) {
        let hook = Box::leak(Box::new(Hook {
            replacement,
            call: np_hook_call,
            stub: 0,
            site,
            is_called: u32::from(kept.any),
            keeps: u32::from(kept.rax) | u32::from(kept.rdx) << 1 | u32::from(kept.vectors) << 2,
        }));
        let address = std::ptr::from_ref(hook) as u64;
        // push rbp; mov rbp, rsp; push r11; mov r11, hook; jmp [r11 + CALL_OFFSET], as hook.S expects.
        let mut stub = vec![0x55, 0x48, 0x89, 0xe5, 0x41, 0x53, 0x49, 0xbb];
        stub.extend(address.to_le_bytes());
        stub.extend([0x41, 0xff, 0x63, CALL_OFFSET]);
        (hook, stub)
    }

    /// Tells the hook where its stub is.
    pub fn set_stub(&mut self, stub: TargetAddress) {
        self.stub = stub.0;
    }
}
