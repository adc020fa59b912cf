//! A function, as probes see it.

use crate::address::{AddressRange, ImageAddress};
use crate::name::{self, Demangled};

/// One function of a module: one entry address, under all the names it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The name it goes by, without version (`memcpy`, not `memcpy@@GLIBC_2.14`). Of several at one address it is the
    /// one that has a size, and of these the one that DTrace prefers: global before local, fewest leading underscores,
    /// shortest extent, first in the alphabet.
    pub name: Box<str>,
    /// Its further names, in that same order of preference. A probe description matches the function when it matches
    /// any of its names; the function is then probed once.
    pub aliases: Vec<Box<str>>,
    /// Where it is entered. For an IFUNC: the resolver, see [`FunctionKind::Ifunc`].
    pub address: ImageAddress,
    /// Bytes from the entry to the end of its main part: as the symbol says, else as its FDE says, else up to whatever
    /// comes next. Not 0.
    pub size: u64,
    /// Whether the address is the function itself.
    pub kind: FunctionKind,
    /// Its parts elsewhere in the text (`name.cold`), sorted by address.
    pub fragments: Vec<Fragment>,
    /// Whether one of its names is visible outside of its own compilation unit.
    pub global: bool,
}

/// What a function's address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Code that callers enter.
    Code,
    /// STT_GNU_IFUNC: the symbol's address is a resolver, called once by the loader to *choose* the function. What
    /// callers enter is found in the slots that the loader filled: see [`crate::Module::relocations`].
    Ifunc {
        /// The resolver.
        resolver: ImageAddress,
    },
}

/// A part of a function that the compiler moved away from it: unlikely code, entered by a jump and with the function's
/// frame already built. Its `ret` is an exit of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its symbol: `name.cold`, `name.cold.1`.
    pub name: Box<str>,
    /// Where it lies.
    pub range: AddressRange,
}

impl Function {
    /// All its names, the preferred one first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|name| &**name))
    }

    /// From its entry to the end of its main part.
    pub fn extent(&self) -> AddressRange {
        AddressRange::new(self.address.0, self.address.0.saturating_add(self.size))
    }

    /// The source-language form of its preferred name; `None` when that is not a mangled C++ or Rust name. Computed
    /// anew at each call (about a microsecond).
    pub fn demangled(&self) -> Option<Demangled> {
        name::demangle(&self.name)
    }
}
