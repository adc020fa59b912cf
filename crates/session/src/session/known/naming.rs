//! Names of the target's addresses, for printing.

use nanoprobe_lang::options::Demangle;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_patch::TargetAddress;
use nanoprobe_symbols::readable;
use nanoprobe_text::modules::Shown;

use super::Known;

impl Known {
    /// The name of an address of the target.
    pub fn symbolize(&self, address: u64) -> String {
        if self.modules.find(TargetAddress(address)).is_none()
            && let Some((start, name)) = self.perf_map.borrow_mut().find(address)
        {
            return match address - start {
                0 => format!("jit`{name}"),
                offset => format!("jit`{name}+{offset:#x}"),
            };
        }
        self.modules.symbolize(TargetAddress(address), self.shown())
    }

    /// The name of a return address of the target, which belongs to the call before it.
    pub fn symbolize_return(&self, address: u64) -> String {
        match self.modules.find(TargetAddress(address)) {
            Some(_) => self.modules.symbolize_return(TargetAddress(address), self.shown()),
            None => self.symbolize(address),
        }
    }

    /// An address of the target by its place in what is mapped there: what the option `noresolve` shows of a frame.
    pub fn place_in_mapping(&self, address: u64) -> String {
        self.modules.place_in_mapping(TargetAddress(address))
    }

    /// How the names of symbols are shown.
    pub(in crate::session) fn shown(&self) -> Shown {
        match self.compiled.options.printing.demangle {
            Demangle::Auto | Demangle::Always => readable,
            Demangle::Never => |name| name.into(),
        }
    }

    /// The start of the function or module around an address of the target; the address itself where none is known.
    pub fn start_of(&self, address: u64, kind: SymbolKind) -> u64 {
        let address = TargetAddress(address);
        if self.modules.find(address).is_none() {
            let mut made = self.perf_map.borrow_mut();
            let start = made.find(address.0).map(|(start, _)| start);
            if let Some(start) = start {
                return match kind {
                    SymbolKind::Address => address.0,
                    SymbolKind::Function => start,
                    SymbolKind::Module => made.start().unwrap_or(start),
                };
            }
        }
        match kind {
            SymbolKind::Address => address.0,
            SymbolKind::Function => self.modules.function_start(address).0,
            SymbolKind::Module => self.modules.module_start(address).0,
        }
    }
}
