//! Who keeps modules for other processes that map the same files.

use std::fs::File;
use std::path::Path;

use nanoprobe_symbols::{ImageBytes, Module};
use nanoprobe_target::ProcessId;

/// See the module's description.
pub trait Keeper: Send + Sync {
    /// The module of a file that a process has mapped, if it is known already. `pid`: where /proc shows the process's
    /// files.
    fn known(&self, file: &File, path: &Path, pid: ProcessId) -> Option<Module>;

    /// The module of such a file: one that is known already, or else the one that `read` yields.
    ///
    /// # Errors
    /// That of `read`.
    fn module(&self, file: File, path: &Path, pid: ProcessId, read: &dyn Fn(File) -> Read) -> Read;

    /// The module of a vDSO with these contents: one that is known already, or else the one that `read` yields.
    ///
    /// # Errors
    /// That of `read`.
    fn vdso(&self, contents: Vec<u8>, read: &dyn Fn(ImageBytes) -> Read) -> Read;
}

/// A file that was read.
pub type Read = Result<Module, nanoprobe_symbols::Error>;
