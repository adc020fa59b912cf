//! The types, parameters, variables and lines of a program from DWARF, in the form that the D compiler needs.
//!
//! ```text
//!   file, or its separate debug file --sections--> .debug_info --units--> names, one unit at a time, until one fits
//!                                                       |
//!                                     types, body <-----+-----> function --abi--> args[]
//! ```
//!
//! Nothing is read before it is needed, and a question reads as little as it can. For a function's
//! parameters this is its own unit; for a type's name, the units up to the first that defines it; for a
//! structure's members, its own entry. A structure is a handle whose members are read when they are
//! needed, so types that point to each other in circles cost nothing.
//!
//! All of it is input from outside, perhaps written to do harm. Every walk from entry to entry is bounded
//! (by [`STEPS_MAX`], or by the unit's bytes). Every recursion counts its depth. A part that makes no sense
//! is left out or is a [`Problem`]. DWARF 2 to 5 are read, but not the parts in other files (.dwo, .dwp, dwz).

#![forbid(unsafe_code)]

mod abi;
mod body;
mod compilation;
mod copying;
mod entered;
mod entry;
mod function;
mod generic;
mod go;
mod inlined;
mod lines;
mod mentions;
mod names;
mod problem;
mod sections;
mod shown;
mod sources;
mod types;
mod units;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

use gimli::{DwarfSections, EndianSlice, LittleEndian};
use nanoprobe_lang::program::Structure;
use nanoprobe_symbols::Module;

pub use abi::{at_entry, at_return};
pub use entered::Entered;
pub use function::{Parameter, Signature};
pub use go::{at_entry_of_go, at_return_of_go};
pub use inlined::{Held, Inlined, InlinedCopy};
pub use lines::NoLine;
pub use names::{Kind, Variable};
pub use problem::Problem;

use entry::EntryId;
use names::Names;
use sections::Section;
use units::Units;

/// The longest chain from entry to entry: typedefs of typedefs, origins of origins, pointers to pointers.
const STEPS_MAX: usize = 32;

type Slice<'a> = EndianSlice<'a, LittleEndian>;
type Dwarf<'a> = gimli::Dwarf<Slice<'a>>;
type Unit<'a> = gimli::Unit<Slice<'a>>;
type Die<'a> = gimli::DebuggingInformationEntry<Slice<'a>>;

/// The debug information of one module.
pub struct DebugInfo {
    /// The module's name, for messages.
    module: String,
    sections: DwarfSections<Section>,
    units: OnceLock<Units>,
    names: Mutex<Names>,
    /// The units that may have copies of functions, by the name of the functions.
    copies_of: Mutex<HashMap<String, Vec<units::UnitIndex>>>,
    /// The structures that were found, so that each structure is a single type, however it is reached.
    structures: Mutex<Structures>,
    /// A handle to this object. Structures read their members through it, as long as the object lives.
    handle: Weak<DebugInfo>,
}

#[derive(Default)]
struct Structures {
    by_entry: HashMap<EntryId, Structure>,
    /// Structures with the same name and definition, from several units.
    by_name: HashMap<String, Vec<(Option<types::Definition>, Structure)>>,
}

impl DebugInfo {
    /// Finds a module's debug information: in its file, or else in its separate debug file. The types that it
    /// yields are read through it later, so it must live as long as they are used.
    ///
    /// # Errors
    /// There is no debug information, or it cannot be read.
    pub fn of(module: &Module) -> Result<Arc<DebugInfo>, Problem> {
        let sections = sections::load(module)?;
        Ok(Arc::new_cyclic(|handle| DebugInfo {
            module: module.name().to_owned(),
            sections,
            units: OnceLock::new(),
            names: Mutex::default(),
            copies_of: Mutex::default(),
            structures: Mutex::default(),
            handle: handle.clone(),
        }))
    }

    fn dwarf(&self) -> Dwarf<'_> {
        self.sections.borrow(|section| self.slice(section))
    }

    fn slice<'a>(&'a self, section: &'a Section) -> Slice<'a> {
        EndianSlice::new(section.bytes(), LittleEndian)
    }

    fn damaged(&self, what: &'static str) -> Problem {
        Problem::Damaged {
            module: self.module.clone(),
            what,
        }
    }
}
