//! This process's text as a [`LiveText`]: /proc/self/mem, open for one change.
//!
//! The descriptor is opened for each change and closed after it. A program may close all descriptors that it does
//! not know, and then the number may belong to another file. Only where the system opens no more files, as under
//! seccomp, the descriptor that was opened with the engine is used.

use nanoprobe_patch::TargetAddress;
use nanoprobe_target::Memory;
use nanoprobe_text::live::{LiveText, Standing, Unfinished};
use nanoprobe_text::pieces::Piece;

use super::{barrier, raw};
use crate::error::Error;

/// The open file.
pub struct Text<'a> {
    file: Option<u64>,
    memory: &'a Memory,
}

impl Text<'_> {
    /// Opens the memory for writing. `memory`: opened with the engine, and written to if opening fails here.
    pub fn open(memory: &Memory) -> Text<'_> {
        let name = c"/proc/self/mem".as_ptr() as u64;
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as u64;
        // SAFETY: a name that ends with 0.
        let opened = unsafe { raw::call(libc::SYS_openat, [libc::AT_FDCWD as u64, name, flags, 0]) };
        Text {
            file: opened.ok(),
            memory,
        }
    }
}

impl Text<'_> {
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(file) = self.file else {
            return super::write(self.memory, address, bytes);
        };
        let mut done = 0;
        while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
            let at = address.wrapping_add(done as u64);
            let arguments = [file, rest.as_ptr() as u64, rest.len() as u64, at];
            // SAFETY: the kernel reads as many bytes as `rest` has, and writes them to the text, as the engine has
            // planned.
            match unsafe { raw::call(libc::SYS_pwrite64, arguments) } {
                Ok(written) if written > 0 => done += written as usize,
                Ok(_) => return Err(refused(libc::EIO)),
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
                Err(error) => return Err(refused(error.raw_os_error().unwrap_or(libc::EIO))),
            }
        }
        Ok(())
    }
}

/// This does not look where threads stand: a thread in the middle of a run meets a byte that traps, and is
/// redirected. All pieces are written, because the engine has compared the text before. A byte that another program
/// has written since then is overwritten.
impl LiveText for Text<'_> {
    type Error = Error;

    fn read(&self, address: TargetAddress, bytes: &mut [u8]) -> bool {
        self.memory.read(address, bytes).is_ok()
    }

    fn exchange(
        &mut self,
        pieces: &mut dyn Iterator<Item = Piece<'_>>,
    ) -> Result<Vec<TargetAddress>, Unfinished<Error>> {
        for (begun, piece) in (1..).zip(pieces) {
            self.write(piece.address.0, piece.after)
                .map_err(|error| Unfinished { error, begun })?;
        }
        Ok(Vec::new())
    }

    fn synchronise(&mut self, _: &Standing<'_>) -> Result<(), Error> {
        barrier::synchronise_cores()
    }

    /// If there are no barriers, no change begins.
    fn begin(&mut self) -> Result<(), Error> {
        barrier::synchronise_cores()
    }

    /// This is only for speed.
    fn end(&mut self) {
        let _ = barrier::synchronise_cores();
    }
}

impl Drop for Text<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file {
            // SAFETY: the descriptor that was opened here.
            let _ = unsafe { raw::call(libc::SYS_close, [file, 0, 0, 0]) };
        }
    }
}

fn refused(number: i32) -> Error {
    Error::System {
        call: "writing /proc/self/mem",
        error: std::io::Error::from_raw_os_error(number),
    }
}
