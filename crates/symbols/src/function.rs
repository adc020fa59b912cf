//! A function, as probes see it.

use std::sync::Arc;

use crate::address::{AddressRange, ImageAddress};
use crate::name::{self, Demangled};

/// One function of a module: one entry address, under all the names it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// The preferred name, without version (`memcpy`, not `memcpy@@GLIBC_2.14`). If several names have one address, a
    /// name with a size is preferred. Among equals DTrace's order decides: global before local, fewest leading
    /// underscores, shortest extent, first in the alphabet.
    pub name: Arc<str>,
    /// Its other names, in the same order. A probe description matches the function when it matches any of its names;
    /// the function is then probed once.
    pub aliases: Vec<Box<str>>,
    /// Its entry. For an IFUNC: the resolver, see [`FunctionKind::Ifunc`].
    pub address: ImageAddress,
    /// The bytes from the entry to the end of its main part: as the function's symbol states, else as its FDE states,
    /// else up to the next known address. Never 0.
    pub size: u64,
    /// Whether `address` is the function's own code or an IFUNC's resolver.
    pub kind: FunctionKind,
    /// The function's parts elsewhere in the text (`name.cold`), sorted by address.
    pub fragments: Vec<Fragment>,
    /// Whether one of the function's names is visible outside of its own compilation unit.
    pub global: bool,
    /// Whether a symbol names the function. If not, it is only known from the unwinding tables, its name is its
    /// address (`0x2f4a0`), and nothing proves that calls enter it: see [`crate::Module::name_the_unnamed`].
    pub is_named: bool,
}

/// The kind of code at a function's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// Code that callers enter.
    Code,
    /// STT_GNU_IFUNC: the symbol's address is a resolver, which the loader calls once to *choose* the function. The
    /// slots that the loader filled lead to the chosen code: see [`crate::Module::relocations`].
    Ifunc { resolver: ImageAddress },
}

/// A part of a function that the compiler moved away from it: unlikely code, entered by a jump and with the function's
/// frame already built. Its `ret` is an exit of the function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Its symbol's name: `name.cold`, `name.cold.1`.
    pub name: Arc<str>,
    pub range: AddressRange,
}

impl Function {
    /// All names of the function, the preferred name first.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&*self.name).chain(self.aliases.iter().map(|name| &**name))
    }

    pub fn extent(&self) -> AddressRange {
        AddressRange::new(self.address.0, self.address.0.saturating_add(self.size))
    }

    /// The source-language form of the function's preferred name; `None` if this is not a mangled C++ or Rust name.
    /// Each call computes it anew, which takes about a microsecond.
    pub fn demangled(&self) -> Option<Demangled> {
        name::demangle(&self.name)
    }
}
