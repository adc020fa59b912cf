//! HotSpot's tables and methods, made by hand, and damaged.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::cell::Cell;
use std::collections::HashMap;

use nanoprobe_arena::layout::{RUNTIME_JAVA, RUNTIME_JAVA_STUB};
use nanoprobe_runtimes::hotspot::{Layout, Method, SYMBOLS, Structures, stub};
use nanoprobe_runtimes::{Memory, Object};

const BASE: u64 = 0x7f00_0000_0000;

/// A process's memory, at [`BASE`].
#[derive(Clone, Default)]
struct Image(Vec<u8>);

impl Memory for Image {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let from = address.checked_sub(BASE).map(|offset| offset as usize);
        let found = from.and_then(|from| self.0.get(from..from.checked_add(into.len())?));
        found.map(|found| into.copy_from_slice(found)).is_some()
    }
}

impl Image {
    /// Adds bytes, aligned to 8; yields their address.
    fn add(&mut self, bytes: &[u8]) -> u64 {
        self.0.resize(self.0.len().next_multiple_of(8), 0);
        let address = BASE + self.0.len() as u64;
        self.0.extend_from_slice(bytes);
        address
    }

    fn words(&mut self, words: &[u64]) -> u64 {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.add(&bytes)
    }

    fn text(&mut self, text: &str) -> u64 {
        self.add(&[text.as_bytes(), &[0]].concat())
    }

    /// A name: its count of references, its length, its text.
    fn symbol(&mut self, text: &str) -> u64 {
        let head = [7, 0, 0, 0, text.len() as u8, 0];
        self.add(&[&head, text.as_bytes()].concat())
    }
}

/// The fields that are needed, as JDK 17 has them: structure, field, type, offset.
const FIELDS: &[(&str, &str, &str, u64)] = &[
    ("ConstMethod", "_flags", "u2", 28),
    ("ConstMethod", "_constants", "ConstantPool*", 8),
    ("ConstMethod", "_constMethod_size", "int", 24),
    ("ConstMethod", "_code_size", "u2", 32),
    ("ConstMethod", "_name_index", "u2", 34),
    ("ConstantPool", "_source_file_name_index", "u2", 54),
    ("ConstantPool", "_length", "int", 60),
    ("ConstantPool", "_pool_holder", "InstanceKlass*", 24),
    ("Klass", "_name", "Symbol*", 24),
    ("Symbol", "_length", "u2", 4),
    ("Symbol", "_body", "", 6),
    ("Method", "_constMethod", "ConstMethod*", 8),
    ("GrowableArrayBase", "_len", "int", 0),
    ("GrowableArray<int>", "_data", "int*", 8),
    ("CodeHeap", "_memory", "VirtualSpace", 8),
    ("CodeHeap", "_segmap", "VirtualSpace", 120),
    ("CodeHeap", "_log2_segment_size", "int", 256),
    ("VirtualSpace", "_low_boundary", "char*", 0),
    ("VirtualSpace", "_high_boundary", "char*", 8),
    ("StubQueue", "_stub_buffer", "address", 8),
    ("StubQueue", "_buffer_limit", "int", 20),
    ("HeapBlock::Header", "_used", "bool", 8),
    ("CodeBlob", "_name", "const char*", 96),
    ("CodeBlob", "_size", "int", 12),
    ("CodeBlob", "_frame_size", "int", 28),
    ("CodeBlob", "_frame_complete_offset", "int", 20),
    ("CodeBlob", "_code_begin", "address", 32),
    ("CompiledMethod", "_method", "Method*", 112),
    ("CompiledMethod", "_scopes_data_begin", "address", 120),
    ("CompiledMethod", "_deopt_handler_begin", "address", 128),
    ("nmethod", "_orig_pc_offset", "int", 300),
    ("nmethod", "_metadata_offset", "int", 260),
    ("nmethod", "_scopes_pcs_offset", "int", 268),
    ("nmethod", "_dependencies_offset", "int", 272),
    ("PcDesc", "_pc_offset", "int", 0),
    ("PcDesc", "_scope_decode_offset", "int", 4),
];

/// The tables; yields the addresses of their symbols.
fn tables(image: &mut Image) -> HashMap<String, u64> {
    let version = image.words(&[17]);
    let heaps = image.words(&[0]);
    let interpreter = image.words(&[0]);
    let statics = [
        ("Abstract_VM_Version", "_vm_major_version", version),
        ("CodeCache", "_heaps", heaps),
        ("AbstractInterpreter", "_code", interpreter),
    ];
    let mut entries = Vec::new();
    for (owner, name, type_name, offset) in FIELDS {
        let (owner, name, type_name) = (image.text(owner), image.text(name), image.text(type_name));
        entries.extend([owner, name, type_name, 0, *offset, 0]);
    }
    for (owner, name, address) in statics {
        let (owner, name) = (image.text(owner), image.text(name));
        entries.extend([owner, name, 0, 1, 0, address]);
    }
    entries.extend([0; 6]);
    let structs = image.words(&entries);
    let sizes = [
        ("ConstantPool", 72),
        ("ConstMethod", 48),
        ("HeapBlock", 16),
        ("PcDesc", 16),
    ];
    let mut entries: Vec<u64> = Vec::new();
    for (name, size) in sizes {
        entries.extend([image.text(name), size]);
    }
    entries.extend([0; 2]);
    let types = image.words(&entries);
    let flag = image.text("ConstMethod::_has_linenumber_table");
    let constants = image.words(&[flag, 1, 0, 0]);
    let values = [structs, 48, 0, 8, 16, 24, 32, 40, types, 16, 0, 8, constants, 16, 0, 8];
    let addresses = values.map(|value| image.words(&[value]));
    let names = SYMBOLS.iter().map(|name| (*name).to_owned());
    names.zip(addresses).collect()
}

/// `shop.Order.pay` in Order.java; line 42 from its first bytecode on, 43 from the fourth on. Yields its address.
fn method(image: &mut Image) -> u64 {
    let names = ["pay", "Order.java"].map(|name| image.symbol(name));
    let class_name = image.symbol("shop/Order");
    let class = image.words(&[0, 0, 0, class_name]);
    let mut constants = [0_u8; 72];
    constants[24..32].copy_from_slice(&class.to_le_bytes());
    constants[54] = 2;
    constants[60] = 3;
    let slots = [0, names[0], names[1]].map(u64::to_le_bytes).concat();
    let constants = image.add(&[&constants[..], &slots].concat());
    let mut constant = [0_u8; 48];
    constant[8..16].copy_from_slice(&constants.to_le_bytes());
    constant[24] = 8;
    constant[28] = 1;
    constant[32] = 5;
    constant[34] = 1;
    let code_and_lines = [0, 0, 0, 0, 0, 255, 0, 84, 3 << 3 | 1, 0, 0, 0, 0, 0, 0, 0];
    let constant = image.add(&[&constant[..], &code_and_lines].concat());
    image.words(&[0, constant])
}

/// The check of an object's content is not known here, so each is tried.
fn read(memory: &dyn Memory, layout: &Layout, address: u64) -> Option<Method> {
    (0..1 << 17).find_map(|check| {
        let kind = RUNTIME_JAVA;
        Method::read(memory, layout, Object { kind, address, check })
    })
}

fn layout(image: &Image, symbols: &HashMap<String, u64>) -> Option<Layout> {
    Layout::of(image, &Structures::read(image, symbols)?)
}

#[test]
fn a_method_has_a_class_a_file_and_lines() {
    let mut image = Image::default();
    let symbols = tables(&mut image);
    let address = method(&mut image);
    let layout = layout(&image, &symbols).expect("a layout");
    assert_eq!(layout.agent.has_scopes, 1);
    assert_eq!(layout.agent.code, [32, 0]);
    assert_eq!(layout.agent.scopes, [120, 0]);
    assert!(layout.locate(&image).is_none(), "no code is made yet");
    let method = read(&image, &layout, address).expect("a method");
    assert_eq!(method.function.name, "shop.Order.pay");
    assert_eq!(method.function.file, "Order.java");
    let lines = method.lines.expect("lines");
    assert_eq!(
        [0, 2, 3, 4].map(|position| lines.line(position)),
        [42, 42, 43, 43].map(Some)
    );
}

/// Text in freed memory is not taken for a name, and an unloaded class has no name.
#[test]
fn freed_memory_has_no_name() {
    let mut image = Image::default();
    let symbols = tables(&mut image);
    let address = method(&mut image);
    let layout = layout(&image, &symbols).expect("a layout");
    let name = image.0.windows(10).position(|bytes| bytes == b"shop/Order").unwrap() - 6;
    let freed = 0x0000_7f12_3456_7890_u64.to_le_bytes();
    image.0[name..name + 8].copy_from_slice(&freed);
    assert_eq!(read(&image, &layout, address), None);
}

#[test]
fn a_stub_has_the_name_that_was_seen() {
    let mut image = Image::default();
    let symbols = tables(&mut image);
    let layout = layout(&image, &symbols).expect("a layout");
    let name = image.text("StubRoutines (1)");
    let mut blob = [0; 13];
    blob[12] = name;
    let address = image.words(&blob);
    let object = |check| Object {
        kind: RUNTIME_JAVA_STUB,
        address,
        check,
    };
    let check = name as u32 & 0x1_ffff;
    assert_eq!(
        stub(&image, &layout, object(check)).as_deref(),
        Some("StubRoutines (1)")
    );
    assert_eq!(stub(&image, &layout, object(check ^ 8)), None);
}

/// Each damaged word, and each missing field.
#[test]
fn damaged_tables_do_no_harm() {
    let mut image = Image::default();
    let symbols = tables(&mut image);
    let address = method(&mut image);
    let good = layout(&image, &symbols).expect("a layout");
    for at in (0..image.0.len() - 8).step_by(8) {
        for value in [0, 1, u64::MAX, BASE, BASE + at as u64, 0x8000_0000_0000_0000] {
            let mut damaged = image.clone();
            damaged.0[at..at + 8].copy_from_slice(&value.to_le_bytes());
            if let Some(layout) = layout(&damaged, &symbols) {
                let _ = layout.locate(&damaged);
            }
            for check in 0..4 {
                let kind = RUNTIME_JAVA;
                let _ = Method::read(&damaged, &good, Object { kind, address, check });
            }
        }
    }
    for missing in SYMBOLS {
        let mut symbols = symbols.clone();
        symbols.remove(missing);
        assert_eq!(layout(&image, &symbols), None, "{missing}");
    }
}

/// Memory that is readable everywhere, and counts the reads.
struct Noise(Cell<u64>, Cell<u64>);

impl Memory for Noise {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.1.set(self.1.get() + 1);
        for (index, byte) in into.iter_mut().enumerate() {
            let place = address.wrapping_add(index as u64).wrapping_mul(self.0.get() | 1);
            *byte = (place ^ place >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes()[7];
        }
        true
    }
}

#[test]
fn noise_is_read_in_bounded_time() {
    let mut image = Image::default();
    let symbols = tables(&mut image);
    let good = layout(&image, &symbols).expect("a layout");
    for seed in 0..50 {
        let noise = Noise(Cell::new(seed), Cell::new(0));
        let _ = Structures::read(&noise, &symbols);
        let _ = good.locate(&noise);
        let _ = read(&noise, &good, BASE);
        assert!(noise.1.get() < 10_000_000, "{}", noise.1.get());
    }
}
