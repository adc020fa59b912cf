//! One ELF image, and what can be asked about it; about its code in [`code`].

mod code;

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use nanoprobe_patch::TargetAddress;
use nanoprobe_patch::order::sort_by_numbers;

use crate::address::{AddressRange, Bias, FileOffset, ImageAddress};
use crate::elf::{Elf, Segment};
use crate::error::Error;
use crate::frames::Frames;
use crate::function::Function;
use crate::functions::{self, Functions};
use crate::go::{Go, GoCall};
use crate::identity::FileIdentity;
use crate::image::{Image, ImageBytes};
use crate::linkage::Linkage;
use crate::module_kind::ModuleKind;
use crate::module_name;
use crate::relocations::{self, Relocation};
use crate::resolve::Index;
use crate::restartable::Sequences;
use crate::stack_check;
use crate::static_probes::{self, StaticProbe};
use crate::symbol_table::{self, Symbol, SymbolKind};

/// One ELF image. Immutable but for the bias; cheap to ask, costly to make: 1 ms for a libc, 0.1 s
/// for a program of 100 MB with all its symbols. It keeps the image's bytes; copies share them.
#[derive(Clone, Debug)]
pub struct Module {
    name: String,
    path: PathBuf,
    /// Below which the process's files lie.
    root: PathBuf,
    /// Of its file, where it was read from one.
    identity: Option<FileIdentity>,
    kind: ModuleKind,
    bias: Bias,
    pub(crate) elf: Elf,
    linkage: Linkage,
    /// Of what Go's tool chain has linked.
    go: Option<Box<Go>>,
    pub(crate) frames: Frames,
    functions: Functions,
    index: Index,
    full_symbols: bool,
    /// Where functions' language-specific data areas lie; `None`: no function has one.
    landing_pads: Option<Range<u64>>,
    /// See [`Module::code_pointers`]: made when it is asked for.
    pointers: OnceLock<Vec<u64>>,
    /// Where static probes are, ascending.
    static_sites: OnceLock<Vec<u64>>,
    restartable: OnceLock<Sequences>,
    /// Where Go's `runtime.deferreturn` lies.
    deferreturn: OnceLock<Option<u64>>,
}

impl Module {
    /// Reads an ELF program or shared object. `path` names it (its base name becomes the module's name) and appears in
    /// errors; it is not opened. The kind is guessed (see [`Module::with_kind`]), the bias is 0.
    ///
    /// # Errors
    ///
    /// When the bytes are no ELF file that an x86-64 process could have mapped. Damage within is left out instead.
    pub fn parse(image: ImageBytes, path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::of_image(image.into(), path.into())
    }

    /// [`Module::parse`] of a file's parts.
    pub(crate) fn of_image(image: Image, path: PathBuf) -> Result<Self, Error> {
        let elf = Elf::parse(image, &path)?;
        let linkage = Linkage::of(&elf);
        let frames = Frames::of(&elf);
        let go = linkage.go.then(|| Box::new(Go::of(&elf)));
        let functions = functions::find(&elf, &frames, None, go.as_deref());
        let index = Index::of(&elf, &frames, &functions);
        let name = path
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let kind = ModuleKind::guess(&name, &elf, &linkage);
        let full_symbols = symbol_table::has_full_table(&elf);
        // Without sections that is not known.
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
            go,
            frames,
            functions,
            index,
            full_symbols,
            landing_pads,
            pointers: OnceLock::new(),
            static_sites: OnceLock::new(),
            restartable: OnceLock::new(),
            deferreturn: OnceLock::new(),
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

    /// The same module in the part that the caller knows it to play: what the process executes is the executable, even
    /// when it is a dynamic linker run as a command.
    #[must_use]
    pub fn with_kind(mut self, kind: ModuleKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same module of a process whose files lie below this folder: /proc/PID/root. What [`Module::path`] says is
    /// meant within it.
    #[must_use]
    pub fn with_root(mut self, root: &Path) -> Self {
        root.clone_into(&mut self.root);
        self
    }

    /// The same module, read from this file.
    #[must_use]
    pub(crate) fn with_identity(mut self, identity: FileIdentity) -> Self {
        self.identity = Some(identity);
        self
    }

    /// Which file it was read from; `None` when from memory.
    pub fn identity(&self) -> Option<FileIdentity> {
        self.identity
    }

    /// The same module as loaded with this bias.
    #[must_use]
    pub fn with_bias(mut self, bias: Bias) -> Self {
        self.bias = bias;
        self
    }

    /// The same module where only these parts of its code are mapped: what lies elsewhere is none of its functions.
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
        let is_mapped = |range: AddressRange| left.iter().any(|part| common(&range, part) == range);
        self.functions.list.retain(|function| is_mapped(function.extent()));
        self.functions.orphans.retain(|fragment| is_mapped(fragment.range));
        self.elf.executable = left;
        // What was found in the whole of it.
        self.pointers = OnceLock::new();
        self.restartable = OnceLock::new();
        self.deferreturn = OnceLock::new();
        self.index = Index::of(&self.elf, &self.frames, &self.functions);
        self
    }

    /// Adds the functions of a separate debug file (what `strip` took away); the caller has made sure that the two
    /// belong together (see [`crate::files::find_debug_file`]).
    ///
    /// # Errors
    ///
    /// When `debug` is no ELF file for this machine; the module stays as it is.
    pub fn add_debug_file(&mut self, debug: Image, path: &Path) -> Result<(), Error> {
        let debug = Elf::parse_headers(debug, path)?;
        self.functions = functions::find(&self.elf, &self.frames, Some(&debug), self.go.as_deref());
        self.index = Index::of(&self.elf, &self.frames, &self.functions);
        self.full_symbols |= symbol_table::has_full_table(&debug);
        Ok(())
    }

    /// The base name, as it is printed before the backquote: `` libc.so.6`malloc ``.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Below which the process's files lie: `/`, or /proc/PID/root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// As given to the parser.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What part it plays.
    pub fn kind(&self) -> ModuleKind {
        self.kind
    }

    /// From image addresses to the target's.
    pub fn bias(&self) -> Bias {
        self.bias
    }

    /// The bias that puts this module where a mapping of its file shows it: the mapping's start, and the offset in the
    /// file that it begins at (fields 1 and 3 of a line of /proc/PID/maps). `None` when no segment has that part of the
    /// file. Ask with an executable mapping.
    ///
    /// Mappings begin and end at pages, segments anywhere: where two segments share a page of the file, that page is
    /// mapped for both, at different addresses. Then the executable segment is meant, and of two such the one that
    /// begins in the mapping's first page.
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

    /// Where the loader maps that byte of the file; `None` when it does not.
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

    /// From the lowest to the highest address that the module occupies.
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

    /// Whether a pattern for module names means this one: whether `pattern` accepts one of [`Module::names`].
    pub fn module_matches(&self, mut pattern: impl FnMut(&str) -> bool) -> bool {
        self.names().iter().any(|name| pattern(name))
    }

    /// All that it answers to in a probe description: `libc.so.6` also to `libc.so` and `libc`, `libc-2.36.so` also to
    /// `libc.so` and `libc`, the executable also to `a.out`.
    pub fn names(&self) -> Vec<String> {
        let mut names = module_name::names(&self.name, self.linkage.soname.as_deref(), self.kind);
        if self.kind == ModuleKind::Vdso {
            names.extend(["[vdso]".to_owned(), "vdso".to_owned()]);
        }
        names
    }

    /// Its functions, sorted by address; of several at one address, IFUNCs last.
    pub fn functions(&self) -> &[Function] {
        &self.functions.list
    }

    /// The file's bytes.
    pub fn image(&self) -> &Image {
        self.elf.image()
    }

    /// Has the bytes be asked of another image of the same file from now on: [`Image::unread`].
    pub fn set_image(&mut self, image: Image) {
        self.elf.set_image(image);
    }

    /// Whether all functions have names: there is a .symtab, its own or a debug file's. Else only the exported ones do.
    pub fn has_full_symbols(&self) -> bool {
        self.full_symbols
    }

    /// The first defined symbol of that name, of any kind: the default version before others, global before local.
    /// Searches the whole table.
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

    /// Where the functions, data and labels of these names lie, ascending: one address each, or two where several
    /// compilation units have their own. Searches the whole table once.
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

    /// The function that an address belongs to, and how many bytes after its start it lies: the innermost function or
    /// fragment whose extent holds it. `None` where nothing has an extent there (as in most stripped programs, or in
    /// assembly code with local labels only): a wrong name is worse than none.
    pub fn resolve(&self, address: ImageAddress) -> Option<(&str, u64)> {
        self.index.resolve(&self.functions, address)
    }

    /// The function whose extent, or one of whose fragments, holds `address`: of nested ones the innermost.
    pub fn function_at(&self, address: ImageAddress) -> Option<&Function> {
        self.index.function_at(&self.functions, address)
    }

    /// The slots that the loader fills with the addresses of symbols and of the IFUNCs' choices.
    pub fn relocations(&self) -> Vec<Relocation<'_>> {
        relocations::relocations(&self.elf)
    }

    /// Variables of libraries that live in this program, since the loader copies them there: where, and their names.
    pub fn copied_variables(&self) -> Vec<(ImageAddress, String)> {
        relocations::copies(&self.elf)
    }

    /// How it is linked: interpreter, libraries, entry, build-id and more.
    pub fn linkage(&self) -> &Linkage {
        &self.linkage
    }

    /// How the function around an address takes its arguments, where it is one of Go's; not C's in the same module.
    /// `None`: it takes them as C does.
    pub fn go_call(&self, address: ImageAddress) -> Option<GoCall> {
        let go = self.go.as_ref()?;
        let function = self.function_at(address);
        let is_abi0 = function.is_some_and(|function| function.names().any(|name| name.ends_with(".abi0")));
        go.call(&self.elf, address.0, !self.full_symbols, is_abi0)
    }

    /// How many bytes after its entry a function of Go's is entered once a call: after its look at how much stack is
    /// left, from which it begins anew when it has got more. 0: at the entry.
    pub fn stack_check_bytes(&self, entry: ImageAddress) -> u64 {
        const BYTES_MAX: u64 = 48;
        let is_go = self.go_call(entry).is_some();
        let code = is_go.then(|| self.elf.some_at(entry.0, BYTES_MAX)).flatten();
        code.map_or(0, |code| stack_check::bytes_of(code) as u64)
    }

    /// Whether it has the tables of Go's runtime; what only bears Go's note has none, and no goroutines.
    pub fn has_go_runtime(&self) -> bool {
        self.go.as_ref().is_some_and(|go| go.has_tables)
    }

    /// Where Go's runtime keeps the goroutine that a thread executes, from its thread pointer on.
    pub fn goroutine_slot(&self) -> Option<i64> {
        self.go.as_ref()?.goroutine
    }

    /// Which Go it was compiled with: (1, 26).
    pub fn go_version(&self) -> Option<(u32, u32)> {
        self.go.as_ref()?.version
    }

    /// What the rows of [`crate::unwind_rows`] count their `pc` from.
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
        // As lld lays out: no padding in the file, a page further on in memory.
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
        // A part of the text that was mapped anew.
        assert_eq!(bias(0x7000_4000, 0x3000), Some(0x7000_0000));
        assert_eq!(bias(0x7000_4000, 0x9000), None);
    }

    #[test]
    fn modules_can_be_shared_between_threads() {
        fn shared<T: Send + Sync>(_: &T) {}
        shared(&module(&[(5, 0, 0, 0x1000)]));
    }
}
