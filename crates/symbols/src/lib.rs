//! What a program's files and memory say about its code: modules, functions, extents, unwinding tables.
//!
//! A [`Module`] is one ELF image: the executable, a shared object, the dynamic linker, the vDSO. It is made from bytes
//! that the caller read, from the file or (for the vDSO) from the target's memory, and answers from then on:
//!
//! ```text
//!   .symtab .dynsym   -> functions(): names, aliases, extents, cold fragments, IFUNCs
//!   .eh_frame         -> extents where symbols have none; unwind_rows() for the agent's stack walks
//!   PT_LOAD           -> code_at(): the original text; biases; executable ranges
//!   PT_DYNAMIC, notes -> linkage(): interpreter, needed libraries, DT_DEBUG, build-id, TLS, Go, libc
//!   .note.stapsdt     -> static_probes(): what sys/sdt.h left
//!   __rseq_cs         -> restartable_in(): sequences that the kernel restarts
//!   .gopclntab        -> functions of Go, and how each takes its arguments
//!   relocations       -> which slot holds the address of which import, or of which IFUNC's choice
//! ```
//!
//! All of it is input that someone else wrote, perhaps to do harm: every offset is checked, every loop is bounded by
//! the size of the file, and what makes no sense is left out. Nothing here panics on it, and nothing here knows a
//! process; only [`files`] opens anything, by path.

#![forbid(unsafe_code)]

mod address;
mod crc32;
mod elf;
mod error;
pub mod files;
mod frames;
mod function;
mod functions;
mod gap;
mod go;
mod identity;
mod image;
mod kept;
mod landing;
mod linkage;
pub mod loader;
mod module;
mod module_kind;
mod module_name;
mod name;
mod parts;
mod pointers;
mod relocations;
mod resolve;
mod restartable;
mod stack_check;
mod static_probes;
mod symbol_table;
mod table;
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
pub use name::{Demangled, demangle, readable};
pub use relocations::{Relocation, RelocationTarget};
pub use restartable::RestartableSequence;
pub use static_probes::StaticProbe;
pub use symbol_table::{Symbol, SymbolKind};
pub use unwind::{RBP_AT_CFA, RBP_AT_RBP, RBP_UNCHANGED, RBP_UNDEFINED, unwind_rows};
