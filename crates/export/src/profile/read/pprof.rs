//! Reads the compressed profile.proto, whoever wrote it.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::GzDecoder;

use super::{ReadError, Said, chosen};
use crate::profile::names::NameId;
use crate::profile::protobuf::{Content, Fields, integers};
use crate::profile::tree::{DEPTH_MAX, Side, Tree};

/// The most bytes that a file may expand to, and how many times its own bytes. Profiles expand tenfold.
const BYTES_MAX: u64 = 512 << 20;
const EXPANSION_MAX: u64 = 32;
const BYTES_OF_A_SMALL_FILE: u64 = 1 << 20;
/// The most strings, functions and locations.
const ENTRIES_MAX: usize = 1 << 20;
/// The most functions of one location, which are inlined into each other.
const INLINED_MAX: usize = 64;

pub(super) fn read(bytes: &[u8], kind: Option<&str>, tree: &mut Tree, side: Side) -> Result<Said, ReadError> {
    let message = expanded(bytes)?;
    let tables = Tables::of(&message)?;
    let names = tables.types.iter().map(|(name, _)| tables.string(*name));
    let names: Vec<&str> = names.collect();
    let at = chosen(&names, kind)?;
    let names = tables.frames(tree);
    let mut frames: Vec<NameId> = Vec::new();
    for (field, content) in Fields::of(&message) {
        let (2, Content::Bytes(sample)) = (field, content) else {
            continue;
        };
        frames.clear();
        let mut value = 0;
        let mut values = 0;
        let mut fields = Fields::of(sample);
        for (field, content) in &mut fields {
            match field {
                1 => {
                    let locations = integers(content).flat_map(|id| names.get(&id).into_iter().flatten());
                    // Innermost first: the outermost frames may be missing.
                    frames.extend(locations.take((2 * DEPTH_MAX).saturating_sub(frames.len())));
                }
                2 => {
                    for found in integers(content) {
                        if values == at {
                            // Differences of profiles have negative values, which are no part of a profile.
                            value = u64::try_from(found as i64).unwrap_or(0);
                        }
                        values += 1;
                    }
                }
                _ => {}
            }
        }
        if fields.is_damaged() {
            return Err(ReadError::damaged("a sample of the profile.proto is cut off"));
        }
        tree.add(side, frames.iter().rev().copied(), value);
    }
    let (name, unit) = tables.types.get(at).copied().unwrap_or_default();
    let unit = match tables.string(unit) {
        "count" => "",
        unit => unit,
    };
    Ok(Said {
        kind: tables.string(name).to_owned(),
        unit: unit.to_owned(),
    })
}

fn expanded(bytes: &[u8]) -> Result<Vec<u8>, ReadError> {
    let most = (bytes.len() as u64 * EXPANSION_MAX).clamp(BYTES_OF_A_SMALL_FILE, BYTES_MAX);
    let mut message = Vec::new();
    let read = GzDecoder::new(bytes).take(most + 1).read_to_end(&mut message);
    read.map_err(|error| ReadError::damaged(format!("the compressed data are damaged ({error})")))?;
    if message.len() as u64 > most {
        return Err(ReadError::TooLarge(format!("{most} bytes when expanded")));
    }
    Ok(message)
}

/// The tables to which samples refer.
#[derive(Default)]
struct Tables<'a> {
    strings: Vec<&'a [u8]>,
    /// The sample types: the strings of their names and units.
    types: Vec<(u64, u64)>,
    /// The strings of the names of functions.
    functions: HashMap<u64, u64>,
    /// The functions of locations, the innermost first, or the address where none is known.
    locations: HashMap<u64, (Vec<u64>, u64)>,
}

impl<'a> Tables<'a> {
    fn of(message: &'a [u8]) -> Result<Tables<'a>, ReadError> {
        let mut tables = Tables::default();
        let mut fields = Fields::of(message);
        for (field, content) in &mut fields {
            let Content::Bytes(bytes) = content else { continue };
            match field {
                1 => tables.types.push((number(bytes, 1), number(bytes, 2))),
                4 => {
                    let functions = Fields::of(bytes).filter_map(|field| match field {
                        (4, Content::Bytes(line)) => Some(number(line, 1)),
                        _ => None,
                    });
                    let functions = functions.take(INLINED_MAX).collect();
                    tables.locations.insert(number(bytes, 1), (functions, number(bytes, 3)));
                }
                5 => {
                    tables.functions.insert(number(bytes, 1), number(bytes, 2));
                }
                6 => tables.strings.push(bytes),
                _ => {}
            }
            let entries = [
                tables.strings.len(),
                tables.functions.len(),
                tables.locations.len(),
                tables.types.len(),
            ];
            if entries.into_iter().any(|count| count > ENTRIES_MAX) {
                return Err(ReadError::TooLarge(format!("{ENTRIES_MAX} functions or locations")));
            }
        }
        if fields.is_damaged() {
            return Err(ReadError::damaged("the compressed data are no profile.proto"));
        }
        Ok(tables)
    }

    fn string(&self, number: u64) -> &'a str {
        let bytes = usize::try_from(number).ok().and_then(|number| self.strings.get(number));
        bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).unwrap_or("?")
    }

    /// The names of the frames of each location, the innermost first.
    fn frames(&self, tree: &mut Tree) -> HashMap<u64, Vec<NameId>> {
        let mut name = |function: &u64| {
            let string = self.functions.get(function).copied();
            tree.names.number(self.string(string.unwrap_or(u64::MAX)))
        };
        let mut frames: HashMap<u64, Vec<NameId>> = HashMap::new();
        let mut unnamed = Vec::new();
        for (id, (functions, address)) in &self.locations {
            match functions.is_empty() {
                true => unnamed.push((*id, *address)),
                false => drop(frames.insert(*id, functions.iter().map(&mut name).collect())),
            }
        }
        let unnamed = unnamed.into_iter();
        frames.extend(unnamed.map(|(id, address)| (id, vec![tree.names.number(&format!("{address:#x}"))])));
        frames
    }
}

/// The first integer of this field in a message; 0 if the message has no such field.
fn number(message: &[u8], wanted: u64) -> u64 {
    let mut fields = Fields::of(message);
    let found = fields.find_map(|(field, content)| match content {
        Content::Integer(value) if field == wanted => Some(value),
        _ => None,
    });
    found.unwrap_or(0)
}
