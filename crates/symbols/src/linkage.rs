//! How a module is linked with others, as its dynamic segment and its notes state.

use std::collections::HashMap;

use object::elf::{self, DynamicTag};
use object::endian::LittleEndian;

use crate::address::ImageAddress;
use crate::elf::Elf;
use crate::table::{string_at, table};

/// Longest library or interpreter name that is read.
const PATH_BYTES_MAX: usize = 4096;
/// The most entries of a dynamic segment that are read; linkers write a few dozen.
const DYNAMIC_ENTRIES_MAX: usize = 4096;
/// The most notes that are read from one segment.
const NOTES_MAX: usize = 1024;

const ENDIAN: LittleEndian = LittleEndian;

/// The statements of a module's file about its linking.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linkage {
    /// How the module is relocated.
    pub linking: Linking,
    /// PT_INTERP: the dynamic linker that the kernel starts for this program.
    pub interpreter: Option<String>,
    /// DT_NEEDED: the libraries that the loader brings along.
    pub needed: Vec<String>,
    /// DT_SONAME.
    pub soname: Option<String>,
    /// DT_RUNPATH: the folders in which the loader searches this file's libraries, after LD_LIBRARY_PATH.
    pub run_path: Option<String>,
    /// DT_RPATH: folders that are searched before LD_LIBRARY_PATH, also for the libraries of libraries. `None` if
    /// there is a DT_RUNPATH.
    pub early_run_path: Option<String>,
    /// The word in which the loader leaves the address of its `struct r_debug` (the value of DT_DEBUG).
    pub debug_slot: Option<ImageAddress>,
    /// `e_entry`: the address at which the program starts. The kernel jumps there, or the loader if the program is
    /// dynamically linked.
    pub entry: ImageAddress,
    /// PT_TLS.
    pub thread_local: Option<ThreadLocalImage>,
    /// Whether the Go tool chain linked the module. Such a program has goroutine stacks, its own calling convention,
    /// and text that the program reads as data.
    pub go: bool,
    /// The C library for which the module was linked.
    pub libc: Libc,
    /// The linker's hash of the module's contents.
    pub build_id: Option<Vec<u8>>,
    /// .gnu_debuglink: the name of the file with its debugging information, and that file's CRC-32.
    pub debug_link: Option<(String, u32)>,
}

/// How a module is relocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Linking {
    /// By a dynamic linker: it has an interpreter, or is a shared object.
    Dynamic,
    /// The module is not relocated: it is a program at a fixed address without an interpreter.
    Static,
    /// The module relocates itself: it is a position-independent program without an interpreter.
    StaticPie,
}

/// A C library, as far as the file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Libc {
    /// Known by interpreter, needed library or ABI note.
    Glibc,
    /// Known by interpreter or needed library. A static musl program shows no sign of musl, and is [`Libc::Unknown`].
    Musl,
    /// There is no C library, or the file does not show which.
    Unknown,
}

/// The initial image of a module's thread-local variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadLocalImage {
    /// The address of the initialised part.
    pub address: ImageAddress,
    /// The number of bytes of the initialised part.
    pub file_bytes: u64,
    /// The bytes that a thread needs.
    pub memory_bytes: u64,
    /// Alignment of a thread's copy.
    pub alignment: u64,
}

impl Linkage {
    pub(crate) fn of(elf: &Elf) -> Self {
        let dynamic = DynamicEntries::of(elf);
        let interpreter = elf
            .header(elf::PT_INTERP)
            .and_then(|header| elf.at_offset(header.offset, header.file_bytes))
            .and_then(|bytes| text(string_at(bytes, 0, PATH_BYTES_MAX)));
        let needed: Vec<String> = dynamic
            .entries
            .iter()
            .filter(|entry| entry.tag == elf::DT_NEEDED)
            .filter_map(|entry| text(string_at(dynamic.strings(elf), entry.value, PATH_BYTES_MAX)))
            .collect();
        let named = |tag| {
            let offset = dynamic.value(tag)?;
            text(string_at(dynamic.strings(elf), offset, PATH_BYTES_MAX))
        };
        let soname = named(elf::DT_SONAME);
        let run_path = named(elf::DT_RUNPATH);
        let early_run_path = named(elf::DT_RPATH).filter(|_| run_path.is_none());
        let notes = Notes::of(elf);
        let libc = libc(interpreter.as_deref(), soname.as_deref(), &needed, notes.gnu_abi);
        let thread_local = elf.header(elf::PT_TLS).map(|header| ThreadLocalImage {
            address: ImageAddress(header.address),
            file_bytes: header.file_bytes,
            memory_bytes: header.memory_bytes,
            alignment: header.alignment,
        });
        Self {
            linking: linking(elf, &dynamic, interpreter.is_some()),
            debug_slot: dynamic
                .entry(elf::DT_DEBUG)
                .map(|entry| ImageAddress(entry.value_address)),
            entry: ImageAddress(elf.entry),
            go: notes.go || elf.section(".go.buildinfo").is_some() || elf.section(".note.go.buildid").is_some(),
            build_id: notes.build_id,
            debug_link: debug_link(elf),
            libc,
            thread_local,
            interpreter,
            needed,
            soname,
            run_path,
            early_run_path,
        }
    }
}

fn linking(elf: &Elf, dynamic: &DynamicEntries, has_interpreter: bool) -> Linking {
    let is_pie = dynamic
        .value(elf::DT_FLAGS_1)
        .is_some_and(|flags| flags & elf::DF_1_PIE.0 != 0);
    match (has_interpreter, elf.elf_type == elf::ET_DYN.0) {
        (false, false) => Linking::Static,
        (false, true) if is_pie => Linking::StaticPie,
        _ => Linking::Dynamic,
    }
}

fn libc(interpreter: Option<&str>, soname: Option<&str>, needed: &[String], gnu_abi: bool) -> Libc {
    let names = || {
        interpreter
            .into_iter()
            .chain(soname)
            .chain(needed.iter().map(String::as_str))
    };
    if names().any(|name| name.contains("ld-musl") || name.contains("libc.musl") || name == "libc.so") {
        Libc::Musl
    } else if names().any(|name| name.contains("ld-linux") || name == "libc.so.6") || gnu_abi {
        Libc::Glibc
    } else {
        Libc::Unknown
    }
}

fn debug_link(elf: &Elf) -> Option<(String, u32)> {
    let bytes = elf.section_bytes(elf.section(".gnu_debuglink")?)?;
    let name = string_at(bytes, 0, PATH_BYTES_MAX)?;
    let at = (name.len() + 1).next_multiple_of(4);
    let crc = bytes.get(at..)?.first_chunk::<4>()?;
    Some((text(Some(name))?, u32::from_le_bytes(*crc)))
}

fn text(bytes: Option<&[u8]>) -> Option<String> {
    bytes
        .filter(|bytes| !bytes.is_empty())
        .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// One entry of the dynamic segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DynamicEntry {
    pub tag: DynamicTag,
    pub value: u64,
    /// The address of the value in the image.
    pub value_address: u64,
}

/// The dynamic segment. Its values are addresses and sizes as the linker wrote them.
#[derive(Clone, Debug, Default)]
pub(crate) struct DynamicEntries {
    pub entries: Vec<DynamicEntry>,
}

impl DynamicEntries {
    pub fn of(elf: &Elf) -> Self {
        let Some(header) = elf.header(elf::PT_DYNAMIC) else {
            return Self::default();
        };
        let bytes = elf.at_offset(header.offset, header.file_bytes).unwrap_or(b"");
        let raw = table::<elf::Dyn64<LittleEndian>>(bytes);
        let entries = raw
            .iter()
            .take(DYNAMIC_ENTRIES_MAX)
            .enumerate()
            .map(|(index, raw)| DynamicEntry {
                tag: raw.d_tag.get(ENDIAN),
                value: raw.d_val.get(ENDIAN),
                value_address: header.address.wrapping_add(index as u64 * 16 + 8),
            })
            .take_while(|entry| entry.tag != elf::DT_NULL)
            .collect();
        Self { entries }
    }

    pub fn entry(&self, tag: DynamicTag) -> Option<&DynamicEntry> {
        self.entries.iter().find(|entry| entry.tag == tag)
    }

    pub fn value(&self, tag: DynamicTag) -> Option<u64> {
        self.entry(tag).map(|entry| entry.value)
    }

    /// The table of `bytes_tag` bytes that `address_tag` points to.
    pub fn table<'a>(&self, elf: &'a Elf, address_tag: DynamicTag, bytes_tag: DynamicTag) -> &'a [u8] {
        let (Some(address), Some(bytes)) = (self.value(address_tag), self.value(bytes_tag)) else {
            return b"";
        };
        elf.at_address(address, bytes).unwrap_or(b"")
    }

    /// The dynamic string table.
    pub fn strings<'a>(&self, elf: &'a Elf) -> &'a [u8] {
        self.table(elf, elf::DT_STRTAB, elf::DT_STRSZ)
    }

    /// The dynamic symbol table and its strings. Only the hash table states the number of symbols; without sections,
    /// that is the only source.
    pub fn symbols<'a>(&self, elf: &'a Elf) -> (&'a [u8], &'a [u8]) {
        let count = self
            .value(elf::DT_HASH)
            .and_then(|hash| word(elf, hash.checked_add(4)?));
        let count = count
            .map(u64::from)
            .or_else(|| gnu_hash_count(elf, self.value(elf::DT_GNU_HASH)?));
        let symbols = self.value(elf::DT_SYMTAB).and_then(|address| {
            elf.at_address(
                address,
                count?.checked_mul(size_of::<elf::Sym64<LittleEndian>>() as u64)?,
            )
        });
        (symbols.unwrap_or(b""), self.strings(elf))
    }

    /// The dynamic symbols up to the end of the segment. This is for relocations, which do not need the number of
    /// symbols.
    pub fn symbols_unbounded<'a>(&self, elf: &'a Elf) -> &'a [elf::Sym64<LittleEndian>] {
        self.value(elf::DT_SYMTAB)
            .and_then(|address| elf.rest_at(address))
            .map_or(&[], table)
    }
}

fn word(elf: &Elf, address: u64) -> Option<u32> {
    Some(u32::from_le_bytes(*elf.at_address(address, 4)?.first_chunk()?))
}

/// The number of dynamic symbols, by DT_GNU_HASH. The last symbol is the end of the chain that begins at the highest
/// index in any bucket. A bit marks this end.
fn gnu_hash_count(elf: &Elf, hash: u64) -> Option<u64> {
    let buckets = u64::from(word(elf, hash)?);
    let first = u64::from(word(elf, hash.checked_add(4)?)?);
    let bloom_words = u64::from(word(elf, hash.checked_add(8)?)?);
    let buckets_at = hash.checked_add(16)?.checked_add(bloom_words.checked_mul(8)?)?;
    let words = elf.at_address(buckets_at, buckets.checked_mul(4)?)?;
    let last = words
        .as_chunks::<4>()
        .0
        .iter()
        .map(|raw| u64::from(u32::from_le_bytes(*raw)))
        .max()?;
    let Some(skip) = last.checked_sub(first) else {
        return Some(first);
    };
    let chains_at = buckets_at.checked_add(buckets.checked_mul(4)?)?;
    let chain = elf.rest_at(chains_at.checked_add(skip.checked_mul(4)?)?)?;
    let length = chain
        .as_chunks::<4>()
        .0
        .iter()
        .position(|raw| raw.first().is_some_and(|low| low & 1 == 1))?;
    last.checked_add(length as u64)?.checked_add(1)
}

/// The contents of the note segments.
#[derive(Default)]
struct Notes {
    build_id: Option<Vec<u8>>,
    gnu_abi: bool,
    go: bool,
}

impl Notes {
    fn of(elf: &Elf) -> Self {
        let mut found = HashMap::new();
        for header in elf.headers.iter().filter(|header| header.kind == elf::PT_NOTE.0) {
            let mut rest = elf.at_offset(header.offset, header.file_bytes).unwrap_or(b"");
            let alignment = if header.alignment == 8 { 8 } else { 4 };
            for _ in 0..NOTES_MAX {
                let Some((key, contents, behind)) = note(rest, alignment) else {
                    break;
                };
                found.entry(key).or_insert(contents);
                rest = behind;
            }
        }
        Self {
            build_id: found
                .get(&(&b"GNU\0"[..], elf::NT_GNU_BUILD_ID.0))
                .map(|id| id.to_vec()),
            gnu_abi: found.contains_key(&(&b"GNU\0"[..], elf::NT_GNU_ABI_TAG.0)),
            go: found.keys().any(|(owner, _)| *owner == b"Go\0\0"),
        }
    }
}

pub(crate) type NoteKey<'a> = (&'a [u8], u32);

/// The first note of `bytes`: its owner and type, its contents, and the bytes after it.
pub(crate) fn note(bytes: &[u8], alignment: usize) -> Option<(NoteKey<'_>, &[u8], &[u8])> {
    let field = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
    let (owner_bytes, contents_bytes, kind) = (field(0)? as usize, field(4)? as usize, field(8)?);
    let owner = bytes.get(12..)?.get(..owner_bytes)?;
    let contents_at = (12 + owner_bytes).checked_next_multiple_of(alignment)?;
    let contents = bytes.get(contents_at..)?.get(..contents_bytes)?;
    let end = (contents_at + contents_bytes).checked_next_multiple_of(alignment)?;
    Some(((owner, kind), contents, bytes.get(end..).unwrap_or(b"")))
}
