//! The tables that Go's tool chain puts into programs for their runtime, even with `-ldflags=-s -w`. The tables show
//! the functions, how each takes its arguments, where the runtime keeps a thread's goroutine, and the version of Go.
//!
//! ```text
//!   .gopclntab       header, names, ..., functab: (entry, description) of each function, also of linked C functions
//!   .go.module       runtime.firstmoduledata: where the text begins, from which entries count
//!   .go.buildinfo    "go1.26.1"
//! ```
//!
//! Compiled code takes arguments in registers (ABIInternal). Assembly takes them from the stack (ABI0), and so do the
//! wrappers through which assembly calls compiled functions. If a function has both forms, the symbol table adds
//! `.abi0` to the name of the form that takes the stack. Only packages of the runtime may have assembly that takes
//! registers, and nothing says which functions do.
//!
//! Sources: cmd/link/internal/ld/pcln.go, runtime/symtab.go, cmd/internal/objabi/pkgspecial.go.

use std::collections::HashMap;

use object::elf;
use object::endian::LittleEndian;

use crate::elf::{Elf, Section};
use crate::linkage::DynamicEntries;
use crate::table::{string_at, table};

/// Go 1.18 and 1.20: the known versions of the table, which do not differ in the parts that are read here.
const MAGICS: [u32; 2] = [0xffff_fff0, 0xffff_fff1];
/// The most functions that are read.
const FUNCTIONS_MAX: u64 = 4 << 20;
/// Longer names are ignored.
const NAME_BYTES_MAX: usize = 4096;
/// The limit of bytes of names that are read, as a multiple of the size of their table, because several functions may
/// have the same name.
const NAME_BUDGET_FACTOR: u64 = 8;
/// The offset of the text's start in `runtime.moduledata`.
const MODULE_TEXT: u64 = 176;
/// A flag of `_func`: the function is written in assembly.
const FLAG_ASSEMBLY: u8 = 1 << 2;
/// How many loads of the goroutine must have the same offset.
const LOADS: usize = 3;

/// How a function of Go takes its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GoCall {
    /// In registers: ABIInternal.
    Registers,
    /// On the stack: ABI0.
    Stack,
    /// Unknown.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Compiled,
    Assembly,
    /// A C function that Go's linker has included.
    Foreign,
}

#[derive(Clone, Copy, Debug)]
struct GoFunction {
    start: u64,
    end: u64,
    /// Offset in the table of names.
    name: u32,
    origin: Origin,
    /// Whether another function has the same name. Then one of the two is a wrapper around the other.
    twin: bool,
}

/// The knowledge about a module that Go's tool chain has linked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Go {
    /// The functions, by address.
    functions: Vec<GoFunction>,
    /// The offset of the names in the file, and their bytes.
    names: (u64, u64),
    /// The offset of a thread's goroutine from its thread pointer.
    pub goroutine: Option<i64>,
    /// Whether the runtime's tables exist, in any version.
    pub has_tables: bool,
    /// The version of Go: 1.26 is (1, 26).
    pub version: Option<(u32, u32)>,
}

impl Go {
    pub fn of(elf: &Elf) -> Go {
        let (functions, names) = functions(elf).unwrap_or_default();
        let goroutine = goroutine(elf, &functions);
        Go {
            functions,
            names,
            goroutine,
            has_tables: table_of_functions(elf).is_some(),
            version: version(elf),
        }
    }

    /// The module's Go functions: name, address, size. Assembly that takes its arguments from the stack has the name
    /// that a symbol table would give it, with `.abi0`. If no wrapper has the plain name, the assembly has the plain
    /// name, too.
    pub fn named(&self, elf: &Elf) -> impl Iterator<Item = (String, u64, u64)> {
        let own = self
            .functions
            .iter()
            .filter(|function| function.origin != Origin::Foreign);
        let mut budget = self.names.1.saturating_mul(NAME_BUDGET_FACTOR);
        own.filter_map(move |function| {
            let name = self.name(elf, function)?;
            budget = budget.checked_sub(name.len() as u64)?;
            let on_stack = function.origin == Origin::Assembly && !may_take_registers(name);
            let names = [(on_stack, ".abi0"), (!on_stack || !function.twin, "")];
            let names = names.into_iter().filter(|(has, _)| *has);
            let size = function.end - function.start;
            let named: Vec<_> = names
                .map(|(_, suffix)| (format!("{name}{suffix}"), function.start, size))
                .collect();
            Some(named)
        })
        .flatten()
    }

    /// How the function around an address takes its arguments; `None` if it is not a function of Go. `stripped`:
    /// there is no symbol table. `is_abi0`: the name of the function's symbol ends with `.abi0`.
    pub fn call(&self, elf: &Elf, address: u64, stripped: bool, is_abi0: bool) -> Option<GoCall> {
        let index = self.functions.partition_point(|function| function.end <= address);
        let function = self.functions.get(index).filter(|function| function.start <= address)?;
        if function.origin == Origin::Foreign {
            return None;
        }
        let name = self.name(elf, function)?;
        let is_special = may_take_registers(name);
        Some(if is_abi0 {
            GoCall::Stack
        } else {
            match (function.origin, is_special) {
                // Only a symbol table distinguishes two functions of one name.
                (Origin::Compiled, true) if function.twin && stripped => GoCall::Unknown,
                (Origin::Compiled | Origin::Foreign, _) => GoCall::Registers,
                (Origin::Assembly, false) => GoCall::Stack,
                (Origin::Assembly, true) if TAKES_REGISTERS.contains(&name) => GoCall::Registers,
                (Origin::Assembly, true) => GoCall::Unknown,
            }
        })
    }

    fn name<'a>(&self, elf: &'a Elf, function: &GoFunction) -> Option<&'a str> {
        let bytes = elf.at_offset(self.names.0, self.names.1)?;
        let name = string_at(bytes, function.name.into(), NAME_BYTES_MAX)?;
        std::str::from_utf8(name).ok().filter(|name| !name.is_empty())
    }
}

/// The runtime's assembly functions that take their arguments in registers, as far as they are worth probing.
const TAKES_REGISTERS: [&str; 8] = [
    "runtime.memmove",
    "runtime.memclrNoHeapPointers",
    "runtime.memequal",
    "runtime.cmpstring",
    "runtime.mcall",
    "runtime.memhash",
    "runtime.strhash",
    "internal/bytealg.Compare",
];

/// Whether assembly of a function's package may take registers: other packages' assembly cannot.
fn may_take_registers(name: &str) -> bool {
    ["runtime.", "reflect.", "syscall.", "time.", "internal/"]
        .iter()
        .any(|package| name.starts_with(package))
}

fn word(bytes: &[u8], at: u64) -> Option<u64> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?;
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

fn half(bytes: &[u8], at: u64) -> Option<u32> {
    let bytes = bytes.get(usize::try_from(at).ok()?..)?;
    Some(u32::from_le_bytes(*bytes.first_chunk()?))
}

fn table_of_functions(elf: &Elf) -> Option<&Section> {
    [".gopclntab", ".data.rel.ro.gopclntab"]
        .iter()
        .find_map(|name| elf.section(name))
}

/// The functions by address, and the place of their names in the file.
fn functions(elf: &Elf) -> Option<(Vec<GoFunction>, (u64, u64))> {
    let section = table_of_functions(elf)?;
    let bytes = elf.section_bytes(section)?;
    if !MAGICS.contains(&half(bytes, 0)?) || bytes.get(7) != Some(&8) {
        return None;
    }
    let count = word(bytes, 8)?.min(FUNCTIONS_MAX);
    let (names_at, files_at, entries_at) = (word(bytes, 32)?, word(bytes, 40)?, word(bytes, 64)?);
    let names = (section.offset.checked_add(names_at)?, files_at.checked_sub(names_at)?);
    let entries = bytes.get(usize::try_from(entries_at).ok()?..)?;
    let text = text_start(elf, section)?;
    let mut found: Vec<GoFunction> = Vec::new();
    let mut last = 0;
    for index in 0..count {
        let (Some(offset), Some(at), Some(next)) = (
            half(entries, index * 8),
            half(entries, index * 8 + 4),
            half(entries, index * 8 + 8),
        ) else {
            break;
        };
        let at = u64::from(at);
        let (Some(name), Some(unit), Some(flag)) =
            (half(entries, at + 4), half(entries, at + 32), half(entries, at + 40))
        else {
            continue;
        };
        let start = text.checked_add(offset.into())?;
        let end = text.checked_add(next.into())?;
        // The functions must be in order, and lie in code.
        if start >= end || start < last || elf.executable_at(start).is_none() {
            continue;
        }
        last = end;
        let origin = match (unit, flag.to_le_bytes()) {
            (u32::MAX, _) => Origin::Foreign,
            (_, [_, flag, ..]) if flag & FLAG_ASSEMBLY != 0 => Origin::Assembly,
            _ => Origin::Compiled,
        };
        found.push(GoFunction {
            start,
            end,
            name,
            origin,
            twin: false,
        });
    }
    mark_twins(&mut found);
    Some((found, names))
}

/// Marks functions that share a name. The linker writes each name once.
fn mark_twins(functions: &mut [GoFunction]) {
    let mut counts: HashMap<u32, u32> = HashMap::new();
    for function in functions.iter() {
        *counts.entry(function.name).or_default() += 1;
    }
    let has_assembly: HashMap<u32, bool> = functions.iter().fold(HashMap::new(), |mut known, function| {
        *known.entry(function.name).or_default() |= function.origin == Origin::Assembly;
        known
    });
    for function in functions {
        let same = counts.get(&function.name).is_some_and(|count| *count > 1);
        function.twin = same && has_assembly.get(&function.name).is_some_and(|has| *has);
    }
}

/// The start of the text, from which the functions' entries count. Up to Go 1.25 the table itself states it.
fn text_start(elf: &Elf, table: &Section) -> Option<u64> {
    let is_code = |address: &u64| elf.executable_at(*address).is_some();
    let by_table = || loaded_word(elf, table.address.checked_add(24)?).filter(is_code);
    let by_module = || {
        let module = elf.section(".go.module")?.address;
        // The first word of the module's data is the address of the table.
        let is_it = loaded_word(elf, module)? == table.address;
        let text = loaded_word(elf, module.checked_add(MODULE_TEXT)?)?;
        Some(text).filter(|text| is_it && is_code(text))
    };
    by_table().or_else(by_module)
}

/// A word of data as the loader leaves it, before the bias is added.
fn loaded_word(elf: &Elf, address: u64) -> Option<u64> {
    let relocations = DynamicEntries::of(elf).table(elf, elf::DT_RELA, elf::DT_RELASZ);
    let relative = table::<elf::Rela64<LittleEndian>>(relocations).iter().find(|raw| {
        raw.r_offset.get(LittleEndian) == address && raw.r_info.get(LittleEndian) as u32 == elf::R_X86_64_RELATIVE.0
    });
    match relative {
        Some(raw) => Some(raw.r_addend.get(LittleEndian) as u64),
        None => word(elf.at_address(address, 8)?, 0),
    }
}

/// The offset of a thread's goroutine from its thread pointer, as wrappers around compiled functions read it:
///
/// ```text
///   64 4c 8b 34 25 d32                      mov r14, fs:d
///   49 c7 c6 d32; 64 4d 8b 36               mov r14, d; mov r14, fs:[r14]      position-independent
/// ```
fn goroutine(elf: &Elf, functions: &[GoFunction]) -> Option<i64> {
    let mut found: HashMap<i32, usize> = HashMap::new();
    for function in functions.iter().filter(|function| function.origin == Origin::Compiled) {
        let Some(code) = elf.at_address(function.start, function.end - function.start) else {
            continue;
        };
        for window in code.windows(11) {
            let displacement = match *window {
                [0x64, 0x4c, 0x8b, 0x34, 0x25, a, b, c, d, ..]
                | [0x49, 0xc7, 0xc6, a, b, c, d, 0x64, 0x4d, 0x8b, 0x36] => i32::from_le_bytes([a, b, c, d]),
                _ => continue,
            };
            let count = found.entry(displacement).or_default();
            *count += 1;
            if *count == LOADS {
                return Some(displacement.into());
            }
        }
    }
    None
}

/// Since Go 1.18 the section itself contains the text.
fn version(elf: &Elf) -> Option<(u32, u32)> {
    const INLINE: u8 = 2;
    let bytes = elf.section_bytes(elf.section(".go.buildinfo")?)?;
    if !bytes.starts_with(b"\xff Go buildinf:") || bytes.get(15)? & INLINE == 0 {
        return None;
    }
    let length = usize::from(*bytes.get(32)?);
    let text = std::str::from_utf8(bytes.get(33..)?.get(..length)?).ok()?;
    let rest = text.split("go1.").nth(1)?;
    let digits = rest.find(|character: char| !character.is_ascii_digit());
    let minor = rest.get(..digits.unwrap_or(rest.len()))?;
    Some((1, minor.parse().ok()?))
}
