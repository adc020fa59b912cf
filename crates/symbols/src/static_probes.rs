//! Static probes, from the notes of `sys/sdt.h` (section `.note.stapsdt`, owner `stapsdt`, type 3).
//!
//! `DTRACE_PROBE2(postgresql, query__start, text, n)` leaves a `nop` in the program's code, and this in a section that
//! is not loaded:
//!
//! ```text
//!    u64   address of the nop
//!    u64   address of .stapsdt.base, as it was when the note was linked
//!    u64   address of the semaphore, a u16 that counts tracers; 0: the probe has none
//!    "postgresql\0" "query__start\0" "8@%rax -4@-20(%rbp)\0"      the places of the arguments, as assembler operands
//! ```
//!
//! prelink moves sections after the notes were written, and does not adjust the notes. But prelink also moves
//! `.stapsdt.base`, an empty section that exists for this purpose: the error of its address is the error of the other
//! addresses.

use crate::address::ImageAddress;
use crate::elf::Elf;
use crate::linkage::note;

/// The most notes that are read from one module: the largest programs have a hundredth of this number.
const PROBES_MAX: usize = 100_000;
/// Longer names are nonsense.
const NAME_BYTES_MAX: usize = 255;
/// The length of ten arguments, each with a very long symbol.
const ARGUMENTS_BYTES_MAX: usize = 4096;
const OWNER: &[u8] = b"stapsdt\0";
const KIND: u32 = 3;
/// Bytes of a semaphore.
const SEMAPHORE_BYTES: u64 = 2;

/// One static probe at one place; the same probe may have several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaticProbe {
    /// The provider's name as the program states it.
    pub provider: String,
    /// The probe's name as the program states it: `query__start`.
    pub name: String,
    /// The address of the instruction at which the probe fires.
    pub address: ImageAddress,
    /// A counter of tracers, two bytes of writable data. While it is 0, the program may skip work that only the probe
    /// needs, such as computing the arguments.
    pub semaphore: Option<ImageAddress>,
    /// The places of the arguments, as assembler operands: `-4@%eax 8@-16(%rbp)`.
    pub arguments: String,
}

/// All probes of a file, in the order of the notes. Nonsense (an address that is not code, a semaphore that is not
/// data, a name with odd characters) is left out.
pub(crate) fn static_probes(elf: &Elf) -> Vec<StaticProbe> {
    let base = elf.section(".stapsdt.base").map(|section| section.address);
    let sections = elf.sections.iter().filter(|section| section.name == ".note.stapsdt");
    let mut probes = Vec::new();
    for section in sections {
        let mut rest = elf.section_bytes(section).unwrap_or_default();
        while let Some(((owner, kind), contents, behind)) = note(rest, 4) {
            rest = behind;
            if probes.len() >= PROBES_MAX {
                return probes;
            }
            if owner == OWNER && kind == KIND {
                probes.extend(static_probe(elf, base, contents));
            }
        }
    }
    probes
}

fn static_probe(elf: &Elf, base: Option<u64>, contents: &[u8]) -> Option<StaticProbe> {
    let word = |index: usize| Some(u64::from_le_bytes(*contents.get(8 * index..)?.first_chunk()?));
    let (address, linked_base, semaphore) = (word(0)?, word(1)?, word(2)?);
    let moved = base.map_or(0, |base| base.wrapping_sub(linked_base));
    let mut rest = contents.get(24..)?;
    let provider = text(&mut rest, NAME_BYTES_MAX).filter(|text| is_name(text))?;
    let name = text(&mut rest, NAME_BYTES_MAX).filter(|text| is_name(text))?;
    let arguments = text(&mut rest, ARGUMENTS_BYTES_MAX)?;
    let address = address.wrapping_add(moved);
    elf.executable_at(address)?;
    let semaphore = match semaphore {
        0 => None,
        linked => Some(linked.wrapping_add(moved))
            .filter(|semaphore| is_data(elf, *semaphore))
            .map(Some)?,
    };
    Some(StaticProbe {
        provider,
        name,
        address: ImageAddress(address),
        semaphore: semaphore.map(ImageAddress),
        arguments,
    })
}

/// Takes the string at the start of `rest`, and its NUL, off `rest`.
fn text(rest: &mut &[u8], limit: usize) -> Option<String> {
    let end = rest.iter().take(limit + 1).position(|byte| *byte == 0)?;
    let (text, behind) = rest.split_at_checked(end)?;
    *rest = behind.get(1..)?;
    let printable = text.iter().all(|byte| (b' '..=b'~').contains(byte));
    printable.then(|| String::from_utf8_lossy(text).into_owned())
}

/// Whether a probe description can contain this name.
fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.$+@".contains(&byte);
    !text.is_empty() && text.bytes().all(plain)
}

fn is_data(elf: &Elf, semaphore: u64) -> bool {
    let holds = |start: u64, bytes: u64| {
        semaphore
            .checked_sub(start)
            .and_then(|offset| offset.checked_add(SEMAPHORE_BYTES))
            .is_some_and(|end| end <= bytes)
    };
    let mut segments = elf.segments.iter().filter(|segment| segment.writable);
    segments.any(|segment| holds(segment.address, segment.memory_bytes))
}
