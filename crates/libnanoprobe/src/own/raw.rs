//! System calls by an instruction of this library's own.
//!
//! The C library's `syscall` and `pwrite` may be what is being patched. A thread that comes by there while the text changes
//! meets a breakpoint of ours. That costs microseconds; and under a debugger, which takes the signal for its own, it ends
//! the program. So what runs between two steps of a change passes no code but this library's.

use std::arch::asm;
use std::io::Error;

/// The kernel's answer.
///
/// # Errors
/// What the kernel says, between -4095 and -1.
///
/// # Safety
/// As the call itself: pointers among the arguments are to memory that the kernel may read or write.
pub unsafe fn call(number: i64, arguments: [u64; 4]) -> Result<u64, Error> {
    let [first, second, third, fourth] = arguments;
    let result: i64;
    // SAFETY: the kernel changes rax, rcx and r11, and memory as the caller knows.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") third,
            in("r10") fourth,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match result {
        -4095..0 => Err(Error::from_raw_os_error(result.unsigned_abs() as i32)),
        result => Ok(result as u64),
    }
}
