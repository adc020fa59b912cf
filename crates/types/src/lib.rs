//! What DWARF says of a program: its types, parameters, variables and lines, as the D compiler wants them.
//!
//! ```text
//!   file, or its separate debug file --sections--> .debug_info --units--> names, one unit at a time, until one fits
//!                                                       |
//!                                     types, body <-----+-----> function --abi--> args[]
//! ```
//!
//! Nothing is read before it is asked for, and a question reads as little as it can: a function's parameters its own
//! unit, a type's name the units up to the first that defines it, a structure's members its own entry. A structure is a
//! handle whose members are read when they are asked for, so types that point to each other in circles cost nothing.
//!
//! All of it is input from outside, perhaps written to do harm. The rules: every walk from entry to entry is bounded
//! (by [`STEPS_MAX`], or by the unit's bytes), nothing recurses but what counts its depth, and what makes no sense is
//! left out or is a [`Problem`]. DWARF 2 to 5; not what lies in other files (.dwo, .dwp, dwz).

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

/// The longest way from entry to entry: typedefs of typedefs, origins of origins, pointers to pointers.
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
    /// The units that may have copies of the functions of a name.
    copies_of: Mutex<HashMap<String, Vec<units::UnitIndex>>>,
    /// Structures that were met, so that each is one type however it is reached.
    structures: Mutex<Structures>,
    /// Itself: structures read their members by it, as long as it lives.
    handle: Weak<DebugInfo>,
}

#[derive(Default)]
struct Structures {
    by_entry: HashMap<EntryId, Structure>,
    /// Those with the same name and definition, from several units.
    by_name: HashMap<String, Vec<(Option<types::Definition>, Structure)>>,
}

impl DebugInfo {
    /// Finds a module's debug information: in its file, else in its separate debug file. The types that it yields read
    /// on from it: it must live as long as they are used.
    ///
    /// # Errors
    /// There is none, or none that can be read.
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
