//! Who keeps modules for other processes that map the same files.

use std::fs::File;
use std::path::Path;

use nanoprobe_symbols::Module;
use nanoprobe_target::ProcessId;

/// See the module's description.
pub trait Keeper: Send + Sync {
    /// The module of a file that a process has mapped: one that is known already, or else the one that `read` yields.
    /// `pid`: where /proc shows the process's files.
    ///
    /// # Errors
    /// That of `read`.
    fn module(&self, file: File, path: &Path, pid: ProcessId, read: &dyn Fn(File) -> Read) -> Read;
}

/// A file that was read.
pub type Read = Result<Module, nanoprobe_symbols::Error>;
