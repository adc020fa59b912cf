//! The code of a program, as its files and its memory describe it: modules, functions, extents, unwinding tables.
//!
//! A [`Module`] is one ELF image: the executable, a shared object, the dynamic linker, the vDSO. It is made from
//! bytes that the caller has read: from the file, or for the vDSO from the target's memory. Its parts serve these
//! questions:
//!
//! ```text
//!   .symtab .dynsym   -> functions(): names, aliases, extents, cold fragments, IFUNCs
//!   .eh_frame         -> extents where symbols have none; functions of stripped files; unwind_rows() for stack walks
//!   PT_LOAD           -> code_at(): the original text; biases; executable ranges
//!   PT_DYNAMIC, notes -> linkage(): interpreter, needed libraries, DT_DEBUG, build-id, TLS, Go, libc
//!   .note.stapsdt     -> static_probes(): the probes of sys/sdt.h
//!   __rseq_cs         -> restartable_in(): sequences that the kernel restarts
//!   .gopclntab        -> functions of Go, and how each takes its arguments
//!   /proc/kallsyms    -> [`kernel`]: the functions of the kernel
//!   relocations       -> the slots that hold the addresses of imports, or of IFUNCs' choices
//! ```
//!
//! All these bytes are untrusted input: every offset is checked, every loop is bounded by the size of the file, and
//! nonsense is left out. No input makes this crate panic, and this crate knows no process. Only [`files`] opens
//! files.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]

mod address;
mod asked;
mod crc32;
mod debug_file;
mod elf;
mod error;
pub mod files;
mod found;
mod frames;
mod function;
mod functions;
mod gap;
mod go;
mod identity;
mod image;
mod kept;
pub mod kernel;
mod landing;
mod linkage;
pub mod loader;
mod module;
mod module_kind;
mod module_name;
mod name;
mod opening;
mod parts;
mod pointers;
mod references;
mod relocations;
mod resolve;
mod restartable;
mod stack_check;
mod static_probes;
mod symbol_table;
mod table;
mod unnamed;
mod unwind;
mod windows;

pub use address::{AddressRange, Bias, FileOffset, ImageAddress};
pub use error::Error;
pub use function::{Fragment, Function, FunctionKind};
pub use go::GoCall;
pub use identity::FileIdentity;
pub use image::{Image, ImageBytes};
pub use linkage::{Libc, Linkage, Linking, ThreadLocalImage};
pub use module::Module;
pub use module_kind::ModuleKind;
pub use name::{Demangled, demangle, is_mangled, readable};
pub use relocations::{Relocation, RelocationTarget};
pub use restartable::RestartableSequence;
pub use static_probes::StaticProbe;
pub use symbol_table::{Symbol, SymbolKind};
pub use unwind::{RBP_AT_CFA, RBP_AT_RBP, RBP_UNCHANGED, RBP_UNDEFINED, unwind_rows};
