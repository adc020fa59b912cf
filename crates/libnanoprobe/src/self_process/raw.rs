//! System calls by an instruction of this library's own.
//!
//! The text that is being patched may be that of the C library's `syscall` and `pwrite`. A thread that executes these
//! while they change meets a breakpoint of ours. That costs microseconds. Under a debugger, which takes the signal
//! for its own, the breakpoint ends the program. So between two steps of a change only this library's code runs.

use std::arch::asm;
use std::ffi::CStr;
use std::io::Error;

/// Makes a system call, and yields the kernel's answer.
///
/// # Errors
///
/// The kernel's error number, between -4095 and -1.
///
/// # Safety
///
/// As for the system call itself: pointers among the arguments lead to memory that the kernel may read or write.
pub unsafe fn call(number: i64, arguments: [u64; 4]) -> Result<u64, Error> {
    let [first, second, third, fourth] = arguments;
    let result: i64;
    // SAFETY: the kernel changes rax, rcx and r11, and the memory that the arguments lead to.
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

/// A descriptor that is closed on drop.
struct File(u64);

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the call takes no pointer.
        let _ = unsafe { call(libc::SYS_close, [self.0, 0, 0, 0]) };
    }
}

/// The contents of a file of /proc.
///
/// # Errors
/// The file does not exist, or cannot be read.
pub fn read(path: &CStr) -> Result<Vec<u8>, Error> {
    all(path, libc::O_RDONLY, libc::SYS_read)
}

/// The numbers among the names of a folder of /proc.
///
/// # Errors
/// As [`read`].
pub fn numbers(path: &CStr) -> Result<Vec<i32>, Error> {
    /// `struct linux_dirent64`: inode, offset, the entry's length, its type, its name.
    const LENGTH: usize = 16;
    const NAME: usize = 19;
    let entries = all(path, libc::O_RDONLY | libc::O_DIRECTORY, libc::SYS_getdents64)?;
    let mut rest = entries.as_slice();
    let mut numbers = Vec::new();
    while let Some(length) = rest.get(LENGTH..).and_then(|bytes| bytes.first_chunk::<2>()) {
        let length = usize::from(u16::from_le_bytes(*length)).max(NAME);
        let name = rest.get(NAME..length).unwrap_or_default();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        numbers.extend(std::str::from_utf8(name).ok().and_then(|name| name.parse::<i32>().ok()));
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(numbers)
}

fn all(path: &CStr, flags: i32, number: i64) -> Result<Vec<u8>, Error> {
    const PIECE: usize = 4096;
    let flags = (flags | libc::O_CLOEXEC) as u64;
    // SAFETY: the name ends with 0.
    let file = File(unsafe {
        call(
            libc::SYS_openat,
            [libc::AT_FDCWD as u64, path.as_ptr() as u64, flags, 0],
        )
    }?);
    let mut bytes = Vec::new();
    loop {
        let length = bytes.len();
        bytes.resize(length + PIECE, 0);
        let room = bytes.get_mut(length..).unwrap_or_default();
        // SAFETY: the kernel writes at most PIECE bytes to the room, which has PIECE bytes.
        let count = unsafe { call(number, [file.0, room.as_mut_ptr() as u64, PIECE as u64, 0]) }?;
        bytes.truncate(length + count as usize);
        if count == 0 {
            return Ok(bytes);
        }
    }
}
