//! Standard output and standard error that do not block the tracer when their reader does not read.
//!
//! A terminal that is stopped (Ctrl-S), or a pipe without a reading process, blocks a write for ever. Until an end is
//! requested we wait for the reader. After the request it has [`PATIENCE`] to take some bytes. Then the write fails,
//! the tracing ends as with a closed pipe, and the probes are taken out.

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::interrupt;

/// How long a reader may take no bytes after a request to end.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest write. A pipe with room has room for as many bytes; a write to a terminal is interrupted by the request.
const BYTES_MAX: usize = 4096;

/// Standard output or standard error, without a buffer.
#[derive(Clone, Copy, Debug)]
pub enum Standard {
    Output,
    Error,
}

impl Standard {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Standard::Output => rustix::stdio::stdout(),
            Standard::Error => rustix::stdio::stderr(),
        }
    }
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let bytes = bytes.get(..BYTES_MAX).unwrap_or(bytes);
        loop {
            wait_for_room(self.descriptor())?;
            match rustix::io::write(self.descriptor(), bytes) {
                Err(Errno::INTR | Errno::AGAIN) => {}
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits until a write would take some bytes.
fn wait_for_room(descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: 100_000_000,
    };
    let mut since: Option<Instant> = None;
    loop {
        let mut polled = [PollFd::new(&descriptor, PollFlags::OUT)];
        match poll(&mut polled, Some(&interval)) {
            Ok(0) | Err(Errno::INTR) => {}
            // Without a descriptor to wait for, the error comes from the write itself.
            _ => return Ok(()),
        }
        if interrupt::requested() && since.get_or_insert_with(Instant::now).elapsed() >= PATIENCE {
            let message = "the reader of the output read nothing for two seconds after nanoprobe was told to end";
            return Err(io::Error::new(io::ErrorKind::TimedOut, message));
        }
    }
}
