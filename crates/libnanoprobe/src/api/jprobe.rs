//! `np_jprobe`: jumper probes.

use std::ffi::c_int;

use super::array;
use super::probe::{register_as, unregister};
use crate::c::{JumperProbe, Probe};
use crate::engine::{Kind, Member};
use crate::error::{Error, answer};
use crate::hit::{np_jprobe_end, np_jprobe_hit, np_jprobe_leave};

/// # Safety
///
/// Each structure is as [`np_register_jprobe`] demands it.
unsafe fn register(probes: &[*mut JumperProbe]) -> Result<(), Error> {
    let plain: Vec<*mut Probe> = probes.iter().map(|probe| probe.cast()).collect();
    let mut adapt = |probe: *mut Probe, member: &mut Member| {
        // SAFETY: the caller promises that each is a `struct np_jprobe`, which begins with its probe.
        let mirror = unsafe { (*probe.cast::<JumperProbe>()).entry };
        if mirror.is_null() {
            return Err(Error::Argument("a jumper probe without its function"));
        }
        member.kind = Kind::Jumper;
        member.entry.function = Some(np_jprobe_hit);
        *member.entry.data.get_mut() = mirror;
        member.entry.pre = None;
        member.entry.post = None;
        Ok(())
    };
    // SAFETY: the caller promises that the structures are whole.
    unsafe { register_as(&plain, &mut adapt) }
}

/// `np_register_jprobe`.
///
/// # Safety
/// The promises in `nanoprobe.h` about the structure and its function hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_jprobe(probe: *mut JumperProbe) -> c_int {
    // SAFETY: there is one pointer at `&probe`, and the caller promises that the structure is whole.
    answer(unsafe { array(&probe, 1).and_then(|probes| register(probes)) })
}

/// `np_register_jprobes`.
///
/// # Safety
/// There are `count` pointers. Each structure is as `nanoprobe.h` demands it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_jprobes(probes: *const *mut JumperProbe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers to whole structures.
    answer(unsafe { array(probes, count).and_then(|probes| register(probes)) })
}

/// `np_unregister_jprobe`.
#[unsafe(no_mangle)]
pub extern "C" fn np_unregister_jprobe(probe: *mut JumperProbe) -> c_int {
    answer(unregister(&[probe.cast()]))
}

/// `np_unregister_jprobes`.
///
/// # Safety
/// There are `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_unregister_jprobes(probes: *const *mut JumperProbe, count: usize) -> c_int {
    // SAFETY: the caller promises `count` pointers, and a jumper probe begins with its probe.
    answer(unsafe { array(probes.cast::<*mut Probe>(), count) }.and_then(unregister))
}

/// `np_jprobe_return`.
#[unsafe(no_mangle)]
pub extern "C" fn np_jprobe_return() -> ! {
    // SAFETY: the function reads only the calling thread's own block.
    let left = unsafe { np_jprobe_end() };
    if left != 0 {
        // SAFETY: `left` is the stack pointer that np_jprobe_call has stored. This is a jump, not a call, since
        // `np_jprobe_leave` is only fast when the processor's count of calls and returns matches.
        unsafe { std::arch::asm!("jmp {leave}", leave = sym np_jprobe_leave, in("rdi") left, options(noreturn)) };
    }
    // No jumper probe's mirror runs in this thread, so there is no function to go back to.
    std::process::abort()
}
