//! Where HotSpot keeps the parts of a stack, by its own tables.

use nanoprobe_arena::layout::{HOTSPOT_HEAPS, HotSpot};

use super::structures::Structures;
use crate::memory::{Memory, half, word};

/// From this version on, compressed numbers have no byte that is 0.
const VERSION_OF_EXCESS: u32 = 20;
/// `PcDesc`, and `StubQueue`'s rest.
const DESCRIPTION_BYTES: u32 = 16;

/// The offsets and sizes that are needed of HotSpot's structures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// The part for the agent; the addresses are 0 until [`Layout::locate`] has found them.
    pub agent: HotSpot,
    /// Offset of the flags in a method's constant part. They have 16 or 32 bits.
    pub(super) flags: u32,
    pub(super) flags_bytes: u32,
    /// The flag of a table of lines.
    pub(super) has_lines: u32,
    /// Offset, in a method's constant part, of the part's size in words.
    pub(super) const_method_words: u32,
    /// The size of a class's constants before the first of them, and the offset of their number.
    pub(super) constants_bytes: u32,
    pub(super) constants_count: u32,
    /// Offset in the constants, or in the class, of the file's number.
    pub(super) source_file: u32,
    pub(super) is_source_file_of_class: bool,
    pub(super) class_name: u32,
    pub(super) symbol_length: u32,
    pub(super) symbol_body: u32,
    places: Places,
}

/// Addresses of what says where the code lies, and offsets in that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    heaps: u64,
    heaps_count: u32,
    heaps_data: u32,
    heap_memory: u32,
    heap_map: u32,
    heap_segment_bits: u32,
    space_low: u32,
    space_high: u32,
    interpreter: u64,
    queue_buffer: u32,
    queue_limit: u32,
}

impl Layout {
    /// The layout by HotSpot's tables. `None`: they lack structures that are needed.
    pub fn of(memory: &dyn Memory, structures: &Structures) -> Option<Layout> {
        let version = structures.address("Abstract_VM_Version", "_vm_major_version")?;
        let agent = agent_of(structures, half(memory, version)?)?;
        let offset = |owner, name| structures.offset(owner, name);
        let flags = structures.field("ConstMethod", "_flags._flags");
        let flags = flags.or_else(|| structures.field("ConstMethod", "_flags"))?;
        let of_constants = offset("ConstantPool", "_source_file_name_index");
        let has_lines = structures.constant("ConstMethodFlags::_misc_has_linenumber_table");
        Some(Layout {
            agent,
            flags: u32::try_from(flags.place).ok()?,
            flags_bytes: if flags.type_name == "u4" { 4 } else { 2 },
            has_lines: has_lines.or_else(|| structures.constant("ConstMethod::_has_linenumber_table"))?,
            const_method_words: offset("ConstMethod", "_constMethod_size")?,
            constants_bytes: structures.size("ConstantPool")?,
            constants_count: offset("ConstantPool", "_length")?,
            source_file: of_constants.or_else(|| offset("InstanceKlass", "_source_file_name_index"))?,
            is_source_file_of_class: of_constants.is_none(),
            class_name: offset("Klass", "_name")?,
            symbol_length: offset("Symbol", "_length")?,
            symbol_body: offset("Symbol", "_body")?,
            places: Places::of(structures)?,
        })
    }

    /// Finds where the code lies. `None`: HotSpot has not made it yet.
    pub fn locate(&self, memory: &dyn Memory) -> Option<Layout> {
        let places = &self.places;
        let at = |address: u64, offset: u32| word(memory, address.checked_add(offset.into())?);
        let number = |address: u64, offset: u32| half(memory, address.checked_add(offset.into())?);
        let heaps = word(memory, places.heaps).filter(|heaps| *heaps != 0)?;
        let count = number(heaps, places.heaps_count)? as usize;
        let data = at(heaps, places.heaps_data)?;
        if count == 0 || count > HOTSPOT_HEAPS {
            return None;
        }
        let mut located = *self;
        for index in 0..count {
            let heap = word(memory, data.checked_add(8 * index as u64)?).filter(|heap| *heap != 0)?;
            let code = heap.checked_add(places.heap_memory.into())?;
            let map = heap.checked_add(places.heap_map.into())?;
            let (low, high) = (at(code, places.space_low)?, at(code, places.space_high)?);
            let segments = at(map, places.space_low)?;
            if low == 0 || low >= high || segments == 0 {
                return None;
            }
            *located.agent.heap_low.get_mut(index)? = low;
            *located.agent.heap_high.get_mut(index)? = high;
            *located.agent.heap_map.get_mut(index)? = segments;
            let bits = number(heap, places.heap_segment_bits)?;
            if !(4..20).contains(&bits) || index > 0 && bits != located.agent.segment_bits {
                return None;
            }
            located.agent.segment_bits = bits;
        }
        let interpreter = word(memory, places.interpreter).filter(|queue| *queue != 0)?;
        let start = at(interpreter, places.queue_buffer).filter(|start| *start != 0)?;
        located.agent.interpreter_low = start;
        located.agent.interpreter_high = start.checked_add(number(interpreter, places.queue_limit)?.into())?;
        Some(located)
    }
}

impl Places {
    fn of(structures: &Structures) -> Option<Places> {
        let offset = |owner, name| structures.offset(owner, name);
        let base = offset("GrowableArrayBase", "_len").or_else(|| offset("GenericGrowableArray", "_len"))?;
        Some(Places {
            heaps: structures.address("CodeCache", "_heaps")?,
            heaps_count: base,
            heaps_data: offset("GrowableArray<int>", "_data")?,
            heap_memory: offset("CodeHeap", "_memory")?,
            heap_map: offset("CodeHeap", "_segmap")?,
            heap_segment_bits: offset("CodeHeap", "_log2_segment_size")?,
            space_low: offset("VirtualSpace", "_low_boundary")?,
            space_high: offset("VirtualSpace", "_high_boundary")?,
            interpreter: structures.address("AbstractInterpreter", "_code")?,
            queue_buffer: offset("StubQueue", "_stub_buffer")?,
            queue_limit: offset("StubQueue", "_buffer_limit")?,
        })
    }
}

/// A field of a compiled method: it moved from one class to the other.
fn compiled(structures: &Structures, name: &str) -> Option<u32> {
    let older = || structures.offset("CompiledMethod", name);
    structures.offset("nmethod", name).or_else(older)
}

fn agent_of(structures: &Structures, version: u32) -> Option<HotSpot> {
    let offset = |owner, name| structures.offset(owner, name);
    let blob = |name| structures.offset("CodeBlob", name);
    // The place of an address in the blob, or of a distance from the blob.
    let either = |address: Option<u32>, distance: Option<u32>| match (address, distance) {
        (Some(address), _) => Some([address, 0]),
        (None, Some(distance)) => Some([0, distance]),
        (None, None) => None,
    };
    let handler = |name: &str| {
        let of_address = compiled(structures, &format!("{name}_begin"));
        either(of_address, compiled(structures, &format!("{name}_offset"))).unwrap_or_default()
    };
    let complete = structures.field("CodeBlob", "_frame_complete_offset")?;
    let scopes = Scopes::of(structures);
    let known = scopes.unwrap_or_default();
    Some(HotSpot {
        block_bytes: structures.size("HeapBlock")?,
        block_used: offset("HeapBlock::Header", "_used")?,
        unsigned5_excess: u32::from(version >= VERSION_OF_EXCESS),
        blob_name: blob("_name")?,
        blob_bytes: blob("_size")?,
        frame_words: blob("_frame_size")?,
        frame_complete: u32::try_from(complete.place).ok()?,
        frame_complete_bytes: if complete.type_name == "int16_t" { 2 } else { 4 },
        original_pc: offset("nmethod", "_orig_pc_offset")?,
        method: compiled(structures, "_method")?,
        code: either(blob("_code_begin"), blob("_code_offset"))?,
        deoptimized: handler("_deopt_handler"),
        deoptimized_handle: handler("_deopt_mh_handler"),
        descriptions: known.descriptions,
        descriptions_end: known.descriptions_end,
        scopes: known.scopes,
        metadata: known.metadata,
        has_scopes: u32::from(scopes.is_some()),
        description_bytes: structures.size("PcDesc").unwrap_or(DESCRIPTION_BYTES),
        description_pc: offset("PcDesc", "_pc_offset")?,
        description_scope: offset("PcDesc", "_scope_decode_offset")?,
        const_method: offset("Method", "_constMethod")?,
        constants: offset("ConstMethod", "_constants")?,
        code_bytes: offset("ConstMethod", "_code_size")?,
        name_index: offset("ConstMethod", "_name_index")?,
        const_method_bytes: structures.size("ConstMethod")?,
        holder: offset("ConstantPool", "_pool_holder")?,
        ..HotSpot::default()
    })
}

/// The places of what describes the pcs of a compiled method.
#[derive(Clone, Copy, Default)]
struct Scopes {
    descriptions: [u32; 2],
    descriptions_end: [u32; 2],
    scopes: [u32; 2],
    metadata: [u32; 2],
}

impl Scopes {
    /// Up to version 22 they lie in the blob, from 25 on in memory of their own.
    fn of(structures: &Structures) -> Option<Scopes> {
        let of = |name| compiled(structures, name);
        if let (Some(data), Some(mutable)) = (of("_immutable_data"), structures.offset("CodeBlob", "_mutable_data")) {
            return Some(Scopes {
                descriptions: [data, of("_scopes_pcs_offset")?],
                descriptions_end: [data, of("_scopes_data_offset")?],
                scopes: [data, of("_scopes_data_offset")?],
                metadata: [mutable, structures.offset("CodeBlob", "_relocation_size")?],
            });
        }
        Some(Scopes {
            descriptions: [0, of("_scopes_pcs_offset")?],
            descriptions_end: [0, of("_dependencies_offset")?],
            scopes: [of("_scopes_data_begin")?, 0],
            metadata: [0, of("_metadata_offset")?],
        })
    }
}
