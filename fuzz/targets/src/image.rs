//! A small ELF file around the part that is fuzzed.

/// The place of the code, in the file and in memory.
pub(crate) const CODE: u64 = 0x1000;
/// The size of the code.
const CODE_BYTES: u64 = 0x1000;
/// The place of the fuzzed part.
pub(crate) const PART: u64 = 0x3000;

fn words(into: &mut Vec<u8>, words: &[u64]) {
    into.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

/// An ELF file with 4 KiB of nops. `part` is the contents of its section `name` of type `kind`, and of the program
/// header of type `segment`.
pub(crate) fn around(part: &[u8], name: &str, kind: u32, segment: u32) -> Vec<u8> {
    let names = format!("\0.text\0.shstrtab\0{name}\0");
    let names_at = PART + part.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let end = PART + part.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0\x01\0\0\0".to_vec();
    words(&mut file, &[CODE, 64, sections_at]);
    file.extend(0_u32.to_le_bytes());
    for half in [64_u16, 56, 3, 64, 4, 2] {
        file.extend(half.to_le_bytes());
    }
    for (kind, flags, at, bytes) in [
        (1_u32, 5_u32, CODE, CODE_BYTES),
        (1, 4, PART, end - PART),
        (segment, 4, PART, end - PART),
    ] {
        file.extend(kind.to_le_bytes());
        file.extend(flags.to_le_bytes());
        words(&mut file, &[at, at, at, bytes, bytes, 4]);
    }
    file.resize(CODE as usize, 0);
    file.resize((CODE + CODE_BYTES) as usize, 0x90);
    file.resize(PART as usize, 0);
    file.extend(part);
    file.extend(names.as_bytes());
    file.resize(sections_at as usize, 0);
    let mut section = |name: u32, kind: u32, flags: u64, at: u64, bytes: u64| {
        file.extend(name.to_le_bytes());
        file.extend(kind.to_le_bytes());
        words(&mut file, &[flags, if flags == 0 { 0 } else { at }, at, bytes, 0, 4, 0]);
    };
    section(0, 0, 0, 0, 0);
    section(1, 1, 6, CODE, CODE_BYTES);
    section(7, 3, 0, names_at, names.len() as u64);
    section(17, kind, 2, PART, end - PART);
    file
}
