//! One ELF image, and the functions that answer questions about it. Questions about its code are in [`code`].

mod code;
mod objects;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use nanoprobe_patch::order::sort_by_numbers;
use nanoprobe_patch::{Replacement, TargetAddress};

use crate::address::{AddressRange, Bias, FileOffset, ImageAddress};
use crate::debug_file::DebugFile;
use crate::elf::{Elf, Segment};
use crate::error::Error;
use crate::found::{Debug, Found, Named};
use crate::frames::Frames;
use crate::function::Function;
use crate::go::{Go, GoCall};
use crate::identity::FileIdentity;
use crate::image::{Image, ImageBytes};
use crate::linkage::Linkage;
use crate::module_kind::ModuleKind;
use crate::module_name;
use crate::relocations::{self, Relocation};
use crate::restartable::Sequences;
use crate::stack_check;
use crate::static_probes::{self, StaticProbe};
use crate::symbol_table::{self, Symbol, SymbolKind};

/// One ELF image. Only its bias can change. The first question about its functions is costly: 1 ms for a libc, 0.1 s
/// for a program of 100 MB with all its symbols. The others are cheap. It keeps the image's bytes; copies share them,
/// and the results of searches.
#[derive(Clone, Debug)]
pub struct Module {
    name: String,
    path: PathBuf,
    /// The folder below which the process's files lie.
    root: PathBuf,
    /// The identity of the file from which the module was read, if there is one.
    identity: Option<FileIdentity>,
    kind: ModuleKind,
    bias: Bias,
    pub(crate) elf: Elf,
    linkage: Linkage,
    /// The tables of Go, if Go's tool chain linked it.
    go: Option<Arc<Go>>,
    found: Arc<Found>,
    full_symbols: bool,
    /// The place of functions' language-specific data areas; `None`: no function has one.
    landing_pads: Option<Range<u64>>,
    answers: Arc<Answers>,
}

/// What is computed on first use. Copies of the module share it.
#[derive(Debug, Default)]
struct Answers {
    /// See [`Module::code_pointers`].
    pointers: OnceLock<Vec<u64>>,
    /// The addresses of static probes, ascending.
    static_sites: OnceLock<Vec<u64>>,
    restartable: OnceLock<Sequences>,
    /// The address of Go's `runtime.deferreturn`.
    deferreturn: OnceLock<Option<u64>>,
    /// The module's variables by address.
    objects: OnceLock<Vec<objects::DataObject>>,
    /// See [`Module::replacements_once`].
    replacements: [OnceLock<Vec<Replacement>>; 4],
}

impl Module {
    /// Reads an ELF program or shared object. `path` names it (its base name becomes the module's name) and appears in
    /// errors; it is not opened. The kind is guessed (see [`Module::with_kind`]), the bias is 0.
    ///
    /// # Errors
    ///
    /// When the bytes are no ELF file that an x86-64 process could have mapped. Damaged parts are left out instead.
    pub fn parse(image: ImageBytes, path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::of_image(image.into(), path.into())
    }

    /// [`Module::parse`] for a file that is read by parts.
    pub(crate) fn of_image(image: Image, path: PathBuf) -> Result<Self, Error> {
        let elf = Elf::parse(image, &path)?;
        let linkage = Linkage::of(&elf);
        let go = linkage.go.then(|| Arc::new(Go::of(&elf)));
        let name = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let kind = ModuleKind::guess(&name, &elf, &linkage);
        let full_symbols = symbol_table::has_full_table(&elf);
        // Without sections, the place of the tables is not known.
        let landing_pads = match elf.section(".gcc_except_table") {
            None => elf.sections.is_empty().then_some(0..u64::MAX),
            Some(table) => Some(table.address..table.address.saturating_add(table.bytes)),
        };
        Ok(Self {
            name,
            path,
            root: PathBuf::from("/"),
            identity: None,
            kind,
            bias: Bias(0),
            elf,
            linkage,
            found: Arc::new(Found::of_file(Debug::None, false, go.clone())),
            go,
            full_symbols,
            landing_pads,
            answers: Arc::default(),
        })
    }

    /// Reads the vDSO from a copy of the target's memory at AT_SYSINFO_EHDR (the mapping `[vdso]`). Its name is its
    /// DT_SONAME, `linux-vdso.so.1`.
    ///
    /// # Errors
    ///
    /// As [`Module::parse`].
    pub fn parse_vdso(image: ImageBytes) -> Result<Self, Error> {
        let mut module = Self::parse(image, "[vdso]")?;
        module.kind = ModuleKind::Vdso;
        if let Some(soname) = &module.linkage.soname {
            module.name.clone_from(soname);
        }
        Ok(module)
    }

    /// This module, with a kind that the caller knows: the program that the process executes is the executable, even if
    /// it is a dynamic linker run as a command.
    #[must_use]
    pub fn with_kind(mut self, kind: ModuleKind) -> Self {
        self.kind = kind;
        self
    }

    /// This module, in a process whose files lie below this folder: /proc/PID/root. [`Module::path`] is relative to it.
    #[must_use]
    pub fn with_root(mut self, root: &Path) -> Self {
        root.clone_into(&mut self.root);
        self
    }

    /// This module, with the identity of the file from which it was read.
    #[must_use]
    pub(crate) fn with_identity(mut self, identity: FileIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// The identity of the file from which the module was read; `None` for an image from memory.
    pub fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    /// This module, as loaded with this bias.
    #[must_use]
    pub fn with_bias(mut self, bias: Bias) -> Self {
        self.bias = bias;
        self
    }

    /// This module, restricted to these mapped parts of its code: it has no functions outside of them.
    #[must_use]
    pub fn of_parts(mut self, parts: &[AddressRange]) -> Self {
        let common = |range: &AddressRange, part: &AddressRange| {
            let start = range.start.max(part.start);
            AddressRange::new(start.0, range.end.min(part.end).0)
        };
        let executable = self.elf.executable.iter();
        let mut left: Vec<AddressRange> = executable
            .flat_map(|range| parts.iter().map(move |part| common(range, part)))
            .filter(|range| !range.is_empty())
            .collect();
        sort_by_numbers(&mut left, |range| (range.start.0, range.end.0));
        if left == self.elf.executable {
            return self;
        }
        // Its image is another one, so that no bytes stay when those of the module are forgotten.
        let of_whole = self.elf.with_image(self.elf.image().unread()).into_owned();
        self.elf.executable = left;
        self.found = Arc::new(Found::of_part(self.found, of_whole));
        // Any answers so far are about the whole module, so they are found anew.
        self.answers = Arc::default();
        self
    }

    /// Adds functions that `strip` removed, from the separate debug file. The caller has checked that the two belong
    /// together (see [`crate::files::find_debug_file`]).
    ///
    /// # Errors
    ///
    /// When `debug` is no ELF file for this machine; the module stays as it is.
    pub fn add_debug_file(&mut self, debug: Image, path: &Path) -> Result<(), Error> {
        let debug = Elf::parse_headers(debug, path)?;
        self.full_symbols |= symbol_table::has_full_table(&debug);
        self.found = Arc::new(self.found.with_debug(Debug::Open(Box::new(debug))));
        Ok(())
    }

    /// Finds the functions now if the bytes of the debug file are held in memory, because the file could not be kept
    /// open for later.
    pub(crate) fn drop_held_debug_file(&self, debug: &Image) {
        if !debug.can_be_read_again() {
            self.named();
        }
    }

    /// Searches the separate debug file when functions are first asked for. Until then no file is held open.
    pub(crate) fn search_debug_file(&mut self) {
        let file = DebugFile::of(&self.root, &self.path, &self.linkage);
        self.found = Arc::new(self.found.with_debug(Debug::Search(Box::new(file))));
    }

    /// Adds the functions without a symbol, under the addresses where they begin: `0x2f4a0`. Only stripped modules
    /// without a debug file have such functions. This searches all code.
    pub fn name_the_unnamed(&mut self) {
        if !self.full_symbols {
            self.found = Arc::new(self.found.with_unnamed());
        }
    }

    /// The base name, in the form that is printed before the backquote: `` libc.so.6`malloc ``.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The folder below which the process's files lie: `/`, or /proc/PID/root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The path that was given to the parser.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn kind(&self) -> ModuleKind {
        self.kind
    }

    /// The bias from image addresses to the target's.
    pub fn bias(&self) -> Bias {
        self.bias
    }

    /// The bias that follows from a mapping of the module's file: the mapping's start, and its offset in the file
    /// (fields 1 and 3 of a line of /proc/PID/maps). `None` when no segment has that part of the file. The mapping
    /// should be an executable one.
    ///
    /// Mappings begin and end at pages, segments anywhere: where two segments share a page of the file, that page is
    /// mapped for both, at different addresses. Then the executable segment counts; if both are executable, the
    /// segment that begins in the mapping's first page.
    pub fn bias_of_mapping(&self, start: TargetAddress, offset: FileOffset) -> Option<Bias> {
        const PAGE: u64 = 4096;
        let first_page = |segment: &Segment| segment.offset & !(PAGE - 1);
        let candidates = self.elf.segments.iter().filter(|segment| {
            first_page(segment) <= offset.0 && offset.0 < segment.offset.saturating_add(segment.file_bytes)
        });
        let fit = |segment: &&Segment| (segment.executable, first_page(segment) == offset.0);
        let segment = candidates.max_by_key(fit)?;
        let image_address = segment.address.wrapping_add(offset.0).wrapping_sub(segment.offset);
        Some(Bias(start.0.wrapping_sub(image_address)))
    }

    /// The address at which the loader maps the byte of the file at `offset`; `None` if it does not map this byte.
    pub fn image_address(&self, offset: FileOffset) -> Option<ImageAddress> {
        self.elf.at_offset(offset.0, 1)?;
        self.elf.segments.iter().find_map(|segment| {
            let skip = offset
                .0
                .checked_sub(segment.offset)
                .filter(|skip| *skip < segment.file_bytes)?;
            Some(ImageAddress(segment.address.checked_add(skip)?))
        })
    }

    /// The range from the lowest to the highest address that the module occupies.
    pub fn image_range(&self) -> AddressRange {
        let start = self
            .elf
            .segments
            .iter()
            .map(|segment| segment.address)
            .min()
            .unwrap_or(0);
        let ends = self
            .elf
            .segments
            .iter()
            .map(|segment| segment.address.saturating_add(segment.memory_bytes));
        AddressRange::new(start, ends.max().unwrap_or(0))
    }

    /// Whether a pattern for module names matches this module: whether `pattern` accepts one of [`Module::names`].
    pub fn module_matches(&self, mut pattern: impl FnMut(&str) -> bool) -> bool {
        self.names().iter().any(|name| pattern(name))
    }

    /// All names by which a probe description can name the module: for `libc.so.6` also `libc.so` and `libc`, for
    /// `libc-2.36.so` also `libc.so` and `libc`, for the executable also `a.out`.
    pub fn names(&self) -> Vec<String> {
        let mut names = module_name::names(&self.name, self.linkage.soname.as_deref(), self.kind);
        if self.kind == ModuleKind::Vdso {
            names.extend(["[vdso]".to_owned(), "vdso".to_owned()]);
        }
        names
    }

    /// The module's functions, sorted by address. Of several functions at one address, IFUNCs come last.
    pub fn functions(&self) -> &[Function] {
        &self.named().functions.list
    }

    /// The functions and their index: found on first use.
    fn named(&self) -> &Named {
        self.found.named(&self.elf)
    }

    /// The call frame information: read on first use.
    pub(crate) fn frames(&self) -> &Frames {
        self.found.frames(&self.elf)
    }

    /// The file's bytes.
    pub fn image(&self) -> &Image {
        self.elf.image()
    }

    /// From now on, reads bytes from another image of the same file: [`Image::unread`].
    pub fn set_image(&mut self, image: Image) {
        self.elf.set_image(image);
    }

    /// Whether all functions have names, because the module or its debug file has a .symtab. Otherwise only exported
    /// functions have names.
    pub fn has_full_symbols(&self) -> bool {
        self.full_symbols || self.found.is_searched() && self.named().is_full
    }

    /// The first defined symbol of that name, of any kind. The default version comes before other versions, and a
    /// global symbol before a local one. This searches the whole table.
    pub fn symbol(&self, name: &str) -> Option<Symbol<'_>> {
        let mut best: Option<Symbol<'_>> = None;
        symbol_table::for_each_named(&self.elf, name, |symbol| {
            let rank = |symbol: &Symbol<'_>| (symbol.global, symbol.default_version);
            if best.as_ref().is_none_or(|best| rank(best) < rank(&symbol)) {
                best = Some(symbol);
            }
            best.as_ref().is_none_or(|best| rank(best) != (true, true))
        });
        best
    }

    /// The addresses of the functions, data and labels of these names, ascending: one address for each name, or
    /// several if several compilation units have a symbol of that name. Searches the whole table once.
    pub fn addresses_of(&self, names: &BTreeSet<String>) -> HashMap<String, Vec<ImageAddress>> {
        let mut found: HashMap<String, Vec<ImageAddress>> = HashMap::new();
        symbol_table::for_each(&self.elf, |symbol| {
            if symbol.kind != SymbolKind::ThreadLocal && names.contains(&*symbol.name) {
                let addresses = found.entry(symbol.name.into_owned()).or_default();
                if !addresses.contains(&symbol.address) && addresses.len() < 2 {
                    addresses.push(symbol.address);
                }
            }
            true
        });
        found.values_mut().for_each(|addresses| addresses.sort_unstable());
        found
    }

    /// The static probes of `sys/sdt.h`, in the order of their notes. Reads them anew each time.
    pub fn static_probes(&self) -> Vec<StaticProbe> {
        static_probes::static_probes(&self.elf)
    }

    /// The function to which an address belongs, and the address's distance from its start: the innermost function or
    /// fragment whose extent holds it. `None` if no extent does (as in most stripped programs, or in assembly code
    /// with only local labels), because a wrong name is worse than none.
    pub fn resolve(&self, address: ImageAddress) -> Option<(&str, u64)> {
        let Named { functions, index, .. } = self.named();
        index.resolve(functions, address)
    }

    /// The function with an extent or a fragment that holds `address`; of nested functions the innermost.
    pub fn function_at(&self, address: ImageAddress) -> Option<&Function> {
        let Named { functions, index, .. } = self.named();
        index.function_at(functions, address)
    }

    /// The slots that the loader fills with the addresses of symbols and of the IFUNCs' choices.
    pub fn relocations(&self) -> Vec<Relocation<'_>> {
        relocations::relocations(&self.elf)
    }

    /// The addresses and names of libraries' variables that the loader copies into this program.
    pub fn copied_variables(&self) -> Vec<(ImageAddress, String)> {
        relocations::copies(&self.elf)
    }

    /// How the module is linked: interpreter, libraries, entry, build-id and more.
    pub fn linkage(&self) -> &Linkage {
        &self.linkage
    }

    /// How the function around an address takes its arguments, if it is a function of Go. `None` if it takes them as
    /// in C, like the C functions in a Go program.
    pub fn go_call(&self, address: ImageAddress) -> Option<GoCall> {
        let go = self.go.as_ref()?;
        let function = self.function_at(address);
        let is_abi0 = function.is_some_and(|function| function.names().any(|name| name.ends_with(".abi0")));
        go.call(&self.elf, address.0, !self.has_full_symbols(), is_abi0)
    }

    /// The distance from a Go function's entry to an address that each call passes only once: the end of the check
    /// for enough stack, which restarts the function after it has enlarged the stack. 0: the function has no such
    /// check.
    pub fn stack_check_bytes(&self, entry: ImageAddress) -> u64 {
        const BYTES_MAX: u64 = 48;
        let is_go = self.go_call(entry).is_some();
        let code = is_go.then(|| self.elf.some_at(entry.0, BYTES_MAX)).flatten();
        code.map_or(0, |code| stack_check::bytes_of(code) as u64)
    }

    /// Whether the module has the tables of Go's runtime. A module that only has Go's note has no tables, and no
    /// goroutines.
    pub fn has_go_runtime(&self) -> bool {
        self.go.as_ref().is_some_and(|go| go.has_tables)
    }

    /// The offset, from the thread pointer, of the goroutine that a thread executes.
    pub fn goroutine_slot(&self) -> Option<i64> {
        self.go.as_ref()?.goroutine
    }

    /// The version of Go that compiled the module, as in (1, 26).
    pub fn go_version(&self) -> Option<(u32, u32)> {
        self.go.as_ref()?.version
    }

    /// The address from which the `pc` of [`crate::unwind_rows`] counts.
    pub fn unwind_base(&self) -> ImageAddress {
        self.image_range().start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// A file of program headers alone: (flags, offset, address, bytes) of each PT_LOAD.
    fn module(segments: &[(u32, u64, u64, u64)]) -> Module {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
        file.resize(0x40, 0);
        file[0x20] = 0x40;
        file[0x36] = 56;
        file[0x38] = segments.len() as u8;
        for (flags, offset, address, bytes) in segments {
            file.extend(1u32.to_le_bytes());
            file.extend(flags.to_le_bytes());
            for word in [*offset, *address, *address, *bytes, *bytes, 0x1000] {
                file.extend(word.to_le_bytes());
            }
        }
        file.resize(0x10000, 0x90);
        Module::parse(Arc::new(file), "/bin/x").unwrap()
    }

    #[test]
    fn pages_shared_by_segments_do_not_confuse_the_bias() {
        // This is lld's layout: no padding in the file, and the next page in memory.
        let module = module(&[
            (4, 0, 0, 0x1570),
            (5, 0x1570, 0x2570, 0x3000),
            (6, 0x4570, 0x6570, 0x200),
        ]);
        let bias = |start, offset| {
            module
                .bias_of_mapping(TargetAddress(start), FileOffset(offset))
                .map(|bias| bias.0)
        };
        assert_eq!(bias(0x7000_0000, 0), Some(0x7000_0000));
        assert_eq!(bias(0x7000_2000, 0x1000), Some(0x7000_0000));
        // A part of the text was mapped a second time.
        assert_eq!(bias(0x7000_4000, 0x3000), Some(0x7000_0000));
        assert_eq!(bias(0x7000_4000, 0x9000), None);
    }

    #[test]
    fn modules_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>(_: &T) {}
        shared(&module(&[(5, 0, 0, 0x1000)]));
    }
}
