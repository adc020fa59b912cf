//! The standard files of a command (`-c`) while a screen has the terminal.
//!
//! The command's output goes to a file without a name, and to the terminal once the screen is left. The command can
//! read no input. Standard files that are no terminal stay as they are.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal as _, Write};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};

use nanoprobe_lang::options::Options;
use rustix::fs::MemfdFlags;

use crate::arguments::Arguments;

/// The files that stand for the terminal.
pub struct Files {
    input: File,
    output: File,
    /// How many bytes of the output were shown already.
    shown: u64,
}

impl Files {
    /// Whether a command is started that must leave the terminal to the screen: only where the command line asks for a
    /// screen.
    pub fn wanted(arguments: &Arguments) -> bool {
        let mut options = Options::default();
        for option in &arguments.options {
            // An error in the option is reported later.
            let _ = options.set_text(option);
        }
        arguments.command.is_some() && options.tracing.top == Some(true) && super::is_possible(arguments)
    }

    /// # Errors
    /// There is no room for temporary files.
    pub fn new() -> io::Result<Files> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).custom_flags(libc::O_TMPFILE);
        let output = options.open(std::env::temp_dir());
        // Not every file system has files without a name.
        let output = match output {
            Ok(output) => output,
            Err(_) => rustix::fs::memfd_create("output", MemfdFlags::CLOEXEC)?.into(),
        };
        Ok(Files {
            input: File::open("/dev/null")?,
            output,
            shown: 0,
        })
    }

    /// The files that replace the command's standard input, output and error.
    pub fn standard(&self) -> [Option<BorrowedFd<'_>>; 3] {
        [
            io::stdin().is_terminal().then(|| self.input.as_fd()),
            io::stdout().is_terminal().then(|| self.output.as_fd()),
            io::stderr().is_terminal().then(|| self.output.as_fd()),
        ]
    }

    /// Shows what the command has printed since the last call.
    pub fn show(&mut self, out: &mut dyn Write) -> io::Result<()> {
        let mut bytes = [0; 1 << 14];
        loop {
            let count = self.output.read_at(&mut bytes, self.shown)?;
            if count == 0 {
                return out.flush();
            }
            out.write_all(bytes.get(..count).unwrap_or_default())?;
            self.shown += count as u64;
        }
    }
}
