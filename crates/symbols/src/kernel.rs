//! The kernel's symbols, as /proc/kallsyms lists them. Pure.
//!
//! ```text
//! ffffffff81000000 T _text                                 address, type, name
//! ffffffffc0203000 t ftrace_trampoline\t[__builtin__ftrace]    and the module, unless it is the kernel itself
//! ```
//!
//! Types of code are `t` and `w`, in capitals where the symbol is global. There are no sizes: a function ends where the
//! next symbol begins, whatever that is. Where the kernel hides its addresses, all of them are 0.

use std::collections::HashMap;

/// The lowest address of the kernel's.
pub const KERNEL_START: u64 = 0xffff_8000_0000_0000;
/// The name that stands for a module's where the kernel itself has the symbol.
const KERNEL: &str = "kernel";
/// As many symbols are kept; kernels have some hundred thousands.
const SYMBOLS_MAX: usize = 4 << 20;
/// No function is longer. What follows the last symbol of a module has no name.
const FUNCTION_BYTES_MAX: u64 = 1 << 20;

/// A symbol at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelSymbol<'a> {
    pub start: u64,
    pub module: &'a str,
    pub name: &'a str,
}

/// The symbols of the kernel, by their addresses.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// One for each address, ascending.
    list: Vec<Listed>,
    /// All names, one after the other.
    names: String,
    modules: Vec<String>,
    /// The lowest address of code of each module.
    starts: Vec<u64>,
    is_hidden: bool,
}

#[derive(Clone, Copy, Debug)]
struct Listed {
    address: u64,
    /// Where its name begins, and its length.
    name: (u32, u32),
    module: u32,
    is_code: bool,
    is_local: bool,
}

impl KernelSymbols {
    /// Reads the list. Lines of another form, and names with anything but printable ASCII, are left out.
    #[must_use]
    pub fn parse(text: &[u8]) -> KernelSymbols {
        let mut symbols = KernelSymbols {
            modules: vec![KERNEL.to_owned()],
            ..KernelSymbols::default()
        };
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut has_any = false;
        for line in text.split(|byte| *byte == b'\n').take(SYMBOLS_MAX) {
            let Some((address, kind, name, module)) = fields(line) else {
                continue;
            };
            has_any = true;
            if address < KERNEL_START {
                continue;
            }
            let module = match module {
                None => 0,
                Some(module) => *numbers.entry(module).or_insert_with(|| {
                    symbols.modules.push(module.to_owned());
                    symbols.modules.len() as u32 - 1
                }),
            };
            let (Ok(start), Ok(length)) = (u32::try_from(symbols.names.len()), u32::try_from(name.len())) else {
                break;
            };
            symbols.names.push_str(name);
            symbols.list.push(Listed {
                address,
                name: (start, length),
                module,
                is_code: matches!(kind.to_ascii_lowercase(), b't' | b'w'),
                is_local: kind.is_ascii_lowercase(),
            });
        }
        // Of several names at one address the first one of global code is shown. The sort keeps the order of the list.
        let order = |symbol: &Listed| (symbol.address, !symbol.is_code, symbol.is_local);
        symbols.list.sort_by_key(order);
        symbols.list.dedup_by_key(|symbol| symbol.address);
        symbols.starts = vec![u64::MAX; symbols.modules.len()];
        for symbol in symbols.list.iter().filter(|symbol| symbol.is_code) {
            if let Some(start) = symbols.starts.get_mut(symbol.module as usize) {
                *start = symbol.address.min(*start);
            }
        }
        symbols.is_hidden = has_any && symbols.list.is_empty();
        symbols
    }

    /// Whether the kernel lists its symbols, and hides their addresses.
    #[must_use]
    pub fn is_hidden(&self) -> bool {
        self.is_hidden
    }

    /// Whether there are no symbols.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The function that contains an address.
    #[must_use]
    pub fn find(&self, address: u64) -> Option<KernelSymbol<'_>> {
        let behind = self.list.partition_point(|symbol| symbol.address <= address);
        let symbol = self.list.get(behind.checked_sub(1)?)?;
        let is_in_it = symbol.is_code && address - symbol.address < FUNCTION_BYTES_MAX;
        is_in_it.then(|| self.shown(symbol)).flatten()
    }

    /// The lowest address of a function of the module that contains an address.
    #[must_use]
    pub fn module_start(&self, address: u64) -> Option<u64> {
        self.find(address)?;
        let behind = self.list.partition_point(|symbol| symbol.address <= address);
        let symbol = self.list.get(behind.checked_sub(1)?)?;
        self.starts.get(symbol.module as usize).copied()
    }

    fn module(&self, symbol: &Listed) -> Option<&str> {
        self.modules.get(symbol.module as usize).map(String::as_str)
    }

    fn shown(&self, symbol: &Listed) -> Option<KernelSymbol<'_>> {
        let (start, length) = symbol.name;
        Some(KernelSymbol {
            start: symbol.address,
            module: self.module(symbol)?,
            name: self.names.get(start as usize..)?.get(..length as usize)?,
        })
    }
}

/// Address, type, name and module of a line.
fn fields(line: &[u8]) -> Option<(u64, u8, &str, Option<&str>)> {
    let line = std::str::from_utf8(line).ok()?;
    let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let module = match words.next() {
        Some(word) => Some(word.strip_prefix('[')?.strip_suffix(']')?),
        None => None,
    };
    let is_text = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'`');
    if words.next().is_some() || !is_text(name) || !module.is_none_or(is_text) {
        return None;
    }
    let [kind] = kind.as_bytes() else { return None };
    Some((u64::from_str_radix(address, 16).ok()?, *kind, name, module))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "0000000000000000 A fixed_percpu_data\n\
                        ffffffff81000000 t local_name\n\
                        ffffffff81000000 T _stext\n\
                        ffffffff81000000 T _text\n\
                        ffffffff81000040 T schedule\n\
                        ffffffff81000200 W weak\n\
                        ffffffff81000300 D jiffies\n\
                        ffffffffc0203000 t nf_hook\t[nf_tables]\n\
                        ffffffffc0203100 d table\t[nf_tables]\n\
                        ffffffffc0300000 t bpf_prog_6deef7357e7b4530\t[bpf]\n";

    fn name(symbols: &KernelSymbols, address: u64) -> Option<(u64, &str, &str)> {
        let found = symbols.find(address)?;
        Some((address - found.start, found.module, found.name))
    }

    #[test]
    fn an_address_has_the_name_of_the_function_around_it() {
        let symbols = KernelSymbols::parse(LIST.as_bytes());
        let of = |address| name(&symbols, address);
        assert_eq!(
            of(0xffff_ffff_8100_0000),
            Some((0, "kernel", "_stext")),
            "global, first"
        );
        assert_eq!(of(0xffff_ffff_8100_0052), Some((0x12, "kernel", "schedule")));
        assert_eq!(of(0xffff_ffff_8100_0201), Some((1, "kernel", "weak")));
        assert_eq!(of(0xffff_ffff_c020_30ff), Some((0xff, "nf_tables", "nf_hook")));
        assert_eq!(of(0xffff_ffff_c030_0008), Some((8, "bpf", "bpf_prog_6deef7357e7b4530")));
        assert_eq!(symbols.module_start(0xffff_ffff_8100_0201), Some(0xffff_ffff_8100_0000));
        assert_eq!(symbols.module_start(0xffff_ffff_c030_0008), Some(0xffff_ffff_c030_0000));
        assert!(!symbols.is_hidden());
    }

    #[test]
    fn what_no_function_has_has_no_name() {
        let symbols = KernelSymbols::parse(LIST.as_bytes());
        for address in [0, 0x40_1000, KERNEL_START, 0xffff_ffff_80ff_ffff] {
            assert_eq!(name(&symbols, address), None, "{address:#x} lies before all");
        }
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0301), None, "data");
        assert_eq!(name(&symbols, 0xffff_ffff_c020_3101), None, "data of a module");
        assert_eq!(name(&symbols, 0xffff_ffff_c040_0000), None, "far behind the last one");
        assert_eq!(name(&symbols, u64::MAX), None);
        assert_eq!(symbols.module_start(u64::MAX), None);
    }

    #[test]
    fn addresses_that_are_all_zero_are_hidden() {
        let zeros = "0000000000000000 T _text\n0000000000000000 t nf_hook\t[nf_tables]\n";
        let symbols = KernelSymbols::parse(zeros.as_bytes());
        assert!(symbols.is_hidden());
        assert_eq!(name(&symbols, 0xffff_ffff_8100_0000), None);
        assert!(!KernelSymbols::parse(b"").is_hidden(), "no list at all");
    }

    #[test]
    fn lines_of_another_form_are_left_out() {
        let lines: [&[u8]; 12] = [
            b"",
            b"ffffffff81000000",
            b"ffffffff81000000 T",
            b"xyz T name",
            b"ffffffff81000000 TT name",
            b"ffffffff81000000 T name module",
            b"ffffffff81000000 T name [module",
            b"ffffffff81000000 T name [module] more",
            b"ffffffff81000000 T \x1b[31mname",
            b"ffffffff81000000 T mod`name",
            b"ffffffff81000000 T n\xffme",
            b"fffffffffffffffff81000000 T name",
        ];
        for line in lines {
            let symbols = KernelSymbols::parse(line);
            assert_eq!(name(&symbols, 0xffff_ffff_8100_0000), None, "{}", line.escape_ascii());
        }
        let mut all = lines.join(&b'\n');
        all.extend_from_slice(b"\nffffffff81000000 T right");
        let symbols = KernelSymbols::parse(&all);
        assert_eq!(
            name(&symbols, 0xffff_ffff_8100_0000),
            Some((0, "kernel", "right")),
            "and the others are read"
        );
    }
}
