//! `np_jprobe`: jumper probes.

use std::ffi::c_int;

use super::array;
use super::probe::{register_as, unregister};
use crate::c::{JumperProbe, Probe};
use crate::engine::{Kind, Member};
use crate::error::{Error, answer};
use crate::hit::{np_jprobe_end, np_jprobe_hit, np_jprobe_leave};

/// # Safety
/// As `np_register_jprobe`, each.
unsafe fn register(probes: &[*mut JumperProbe]) -> Result<(), Error> {
    let plain: Vec<*mut Probe> = probes.iter().map(|probe| probe.cast()).collect();
    let mut adapt = |probe: *mut Probe, member: &mut Member| {
        // SAFETY: the caller's word: each of them is a `struct np_jprobe`, which begins with its probe.
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
    // SAFETY: the caller's word.
    unsafe { register_as(&plain, &mut adapt) }
}

/// `np_register_jprobe`.
///
/// # Safety
/// What `nanoprobe.h` says of the structure and its function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_jprobe(probe: *mut JumperProbe) -> c_int {
    // SAFETY: one pointer at `&probe`; of the structure the caller's word.
    answer(unsafe { array(&probe, 1).and_then(|probes| register(probes)) })
}

/// `np_register_jprobes`.
///
/// # Safety
/// `count` pointers, and of each what `nanoprobe.h` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_register_jprobes(probes: *const *mut JumperProbe, count: usize) -> c_int {
    // SAFETY: the caller's word.
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
/// `count` pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn np_unregister_jprobes(probes: *const *mut JumperProbe, count: usize) -> c_int {
    // SAFETY: the caller's word; a jumper probe begins with its probe.
    answer(unsafe { array(probes.cast::<*mut Probe>(), count) }.and_then(unregister))
}

/// `np_jprobe_return`.
#[unsafe(no_mangle)]
pub extern "C" fn np_jprobe_return() -> ! {
    // SAFETY: it reads the calling thread's own block.
    let left = unsafe { np_jprobe_end() };
    if left != 0 {
        // SAFETY: the stack pointer that the mirror's caller has left. It is a jump and no call, since
        // `np_jprobe_leave` is only fast when the processor's count of calls and returns matches.
        unsafe { std::arch::asm!("jmp {leave}", leave = sym np_jprobe_leave, in("rdi") left, options(noreturn)) };
    }
    // Not called in a mirror, so there is nothing to return to.
    std::process::abort()
}
