//! The child's code between fork and exec, where nothing may allocate, lock or panic.

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;

use crate::ProcessId;

/// Everything that execve needs, prepared before the fork.
pub(crate) struct Words {
    candidates: Vec<CString>,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Words {
    pub fn new(candidates: Vec<CString>, arguments: Vec<CString>, environment: Vec<CString>) -> Words {
        Words {
            candidates,
            arguments,
            environment,
        }
    }

    /// Forks. The child waits for a byte from `go`; if the pipe is closed instead, the tracer has died. After the
    /// byte, the child executes the first candidate that can be executed, with the signal state that a shell sets. If
    /// no candidate can be executed, it writes the error's number to `failure`. `files` take the place of its
    /// standard files.
    pub fn fork(
        &self,
        go: BorrowedFd,
        failure: BorrowedFd,
        files: [Option<BorrowedFd>; 3],
    ) -> Result<ProcessId, Errno> {
        let pointers = |words: &[CString]| -> Vec<*const c_char> {
            words
                .iter()
                .map(|word| word.as_ptr())
                .chain(std::iter::once(std::ptr::null()))
                .collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let files = files.map(|file| file.map(|file| file.as_raw_fd()));
        // SAFETY: the child only calls functions that are async-signal-safe, on memory that was made before.
        match unsafe { libc::fork() } {
            0 => {
                for (standard, file) in (0..).zip(files) {
                    if let Some(file) = file {
                        // SAFETY: both are numbers; the duplicate stays open in the new program.
                        unsafe { libc::dup2(file, standard) };
                    }
                }
                let error = run(&self.candidates, &arguments, &environment, go.as_raw_fd());
                let bytes = error.to_ne_bytes();
                // SAFETY: writes four bytes of ours, then ends without running anything of the parent's.
                unsafe {
                    libc::write(failure.as_raw_fd(), bytes.as_ptr().cast(), bytes.len());
                    libc::_exit(127)
                }
            }
            pid => Errno::result(pid),
        }
    }
}

fn run(candidates: &[CString], arguments: &[*const c_char], environment: &[*const c_char], go: i32) -> i32 {
    // SAFETY: all-zero is a valid signal set, and sigemptyset makes it an empty one; the calls are async-signal-safe.
    unsafe {
        let mut none: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        // Rust programs ignore SIGPIPE; other programs expect the default.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    let mut byte = 0u8;
    loop {
        // SAFETY: reads one byte into one byte.
        match unsafe { libc::read(go, (&raw mut byte).cast(), 1) } {
            1 => break,
            -1 if Errno::last_raw() == libc::EINTR => {}
            _ => return libc::ECANCELED,
        }
    }
    let mut error = libc::ENOENT;
    for candidate in candidates {
        let candidate: &CStr = candidate;
        // SAFETY: both lists end with a null pointer, and point to strings that live until here.
        unsafe { libc::execve(candidate.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        match Errno::last_raw() {
            libc::ENOENT | libc::ENOTDIR => {}
            // A later directory of PATH may have a file of this name that may be executed.
            libc::EACCES => error = libc::EACCES,
            other => return other,
        }
    }
    error
}
