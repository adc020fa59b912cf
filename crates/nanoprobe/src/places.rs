//! Addresses of several processes in one set of aggregations.
//!
//! The same address means different code in different processes. So in the keys of a run on several processes each
//! address is replaced by a number that stands for its name, when the values of its process are taken. Equal names have
//! one number: so values of several processes are merged, and the names stay when a process is gone.
//!
//! The numbers begin with the bits 01. Addresses of programs begin with 00, those of the kernel with 11, and frames of
//! interpreted code with 10.

use std::collections::HashMap;

use nanoprobe_export::{AddressUse, ModulePlace, NAMELESS_CODE, Source, Symbolizer};
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_session::Known;

use crate::output::Names;

const FIRST: u64 = 1 << 62;
/// As many names are kept. Further addresses are all called [`OTHERS`].
const NAMES_MAX: usize = 1 << 22;
const OTHERS: &str = "[more names than are kept]";

/// The use of an address, which decides how it is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Use {
    /// The position of a thread.
    Frame,
    /// A frame below the first one.
    Return,
    /// The argument of `usym()` or `uaddr()`.
    Symbol,
    /// The argument of `umod()`.
    Module,
}

/// The parts of an address's name that are shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Named {
    text: String,
    /// The function of interpreted code, without its line.
    function: Option<String>,
}

/// The names of addresses, by their numbers.
#[derive(Debug, Default)]
pub struct Places {
    list: Vec<Named>,
    numbers: HashMap<Named, u64>,
}

/// The numbers of the addresses of one process, while it executes one program.
pub type OfProcess = HashMap<(u64, Use), u64>;

impl Places {
    /// The number that stands for an address of this process.
    pub fn number(&mut self, known: &Known, of_process: &mut OfProcess, address: u64, of: AddressUse) -> u64 {
        let of = match of {
            AddressUse::Frame { is_first: false } => Use::Return,
            AddressUse::Symbol(SymbolKind::Module) => Use::Module,
            AddressUse::Frame { is_first: true } => Use::Frame,
            AddressUse::Symbol(_) => Use::Symbol,
        };
        let number = of_process.get(&(address, of)).copied();
        number.unwrap_or_else(|| {
            let number = self.intern(named(known, address, of));
            of_process.insert((address, of), number);
            number
        })
    }

    fn intern(&mut self, mut named: Named) -> u64 {
        if let Some(number) = self.numbers.get(&named) {
            return *number;
        }
        if self.list.len() >= NAMES_MAX {
            named = Named {
                text: OTHERS.to_owned(),
                function: None,
            };
        }
        let next = FIRST + self.list.len() as u64;
        let number = *self.numbers.entry(named.clone()).or_insert(next);
        if number == next {
            self.list.push(named);
        }
        number
    }

    fn get(&self, number: u64) -> Option<&Named> {
        self.list.get(usize::try_from(number.checked_sub(FIRST)?).ok()?)
    }
}

/// Whether a frame is code that was made at run time, and that nothing names.
fn is_nameless(known: &Known, address: u64) -> bool {
    known.interpreted_function(address).is_none() && known.is_nameless_code(address)
}

fn named(known: &Known, address: u64, of: Use) -> Named {
    let is_resolved = !known.compiled().options().printing.no_names;
    let text = match of {
        _ if !is_resolved => known.place_in_mapping(address),
        Use::Frame if is_nameless(known, address) => NAMELESS_CODE.to_owned(),
        Use::Return if is_nameless(known, address.wrapping_sub(1)) => NAMELESS_CODE.to_owned(),
        Use::Frame | Use::Symbol => known.symbolize(address),
        Use::Return => known.symbolize_return(address),
        Use::Module => {
            let name = known.symbolize(address);
            // The text before this mark is shown.
            name.split_once('`')
                .map_or(name.clone(), |(module, _)| format!("{module}`"))
        }
    };
    Named {
        text,
        function: known.interpreted_function(address),
    }
}

/// The names of numbers, and of the addresses of one process.
pub struct AllNames<'a> {
    pub places: &'a Places,
    pub names: Names<'a>,
}

impl Symbolizer for AllNames<'_> {
    fn symbolize(&mut self, address: u64) -> String {
        match self.places.get(address) {
            Some(named) => named.text.clone(),
            None => self.names.symbolize(address),
        }
    }

    fn symbolize_return(&mut self, address: u64) -> String {
        match self.places.get(address) {
            Some(named) => named.text.clone(),
            None => self.names.symbolize_return(address),
        }
    }

    fn interpreted_function(&mut self, frame: u64) -> Option<String> {
        match self.places.get(frame) {
            // A number is no address of machine code either.
            Some(named) => Some(named.function.clone().unwrap_or_else(|| {
                let text = named.text.as_str();
                text.rsplit_once("+0x")
                    .map_or(text, |(function, _)| function)
                    .to_owned()
            })),
            None => self.names.interpreted_function(frame),
        }
    }

    fn is_nameless_code(&mut self, address: u64) -> bool {
        self.names.is_nameless_code(address)
    }

    fn is_address(&mut self, address: u64) -> bool {
        self.places.get(address).is_none()
    }

    fn unresolved(&mut self, address: u64) -> String {
        match self.places.get(address) {
            Some(named) => named.text.clone(),
            None => self.names.unresolved(address),
        }
    }

    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        match self.places.get(address) {
            Some(_) => address,
            None => self.names.start_of(address, kind),
        }
    }

    fn function_name(&mut self, name: &str) -> Option<String> {
        self.names.function_name(name)
    }

    fn sources(&mut self, addresses: &[u64]) -> HashMap<u64, Source> {
        self.names.sources(addresses)
    }

    fn module(&mut self, address: u64) -> Option<ModulePlace> {
        self.names.module(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_names_have_one_number() {
        let mut places = Places::default();
        let mut number = |text: &str| {
            places.intern(Named {
                text: text.to_owned(),
                function: None,
            })
        };
        let (a, b) = (number("a.out`main"), number("libc.so.6`read+0x10"));
        assert_ne!(a, b);
        assert_eq!(number("a.out`main"), a);
        assert_eq!(
            places.get(b).map(|named| named.text.as_str()),
            Some("libc.so.6`read+0x10")
        );
        for address in [0, 0x40_1000, FIRST - 1, FIRST + 2, u64::MAX, 2 << 62] {
            assert_eq!(places.get(address), None, "{address:#x}");
        }
    }
}
