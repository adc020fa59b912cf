//! The format of `--pprof`: the compressed profile.proto of `go tool pprof` and other tools.
//!
//! Each aggregation is a sample type. A sample is written as soon as it is read; only locations, functions and strings
//! are kept until the end. Manual: github.com/google/pprof, proto/profile.proto.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

use super::file;
use super::names::Names;
use super::protobuf::Message;
use super::stacks::{Frame, Stacks, Unit, kinds};
use crate::Error;
use crate::console::Console;
use crate::sink::{Sink, View};
use crate::stack::{Source, Symbolizer};

/// Fields of the message Profile.
const SAMPLE_TYPE: u64 = 1;
const SAMPLE: u64 = 2;
const MAPPING: u64 = 3;
const LOCATION: u64 = 4;
const FUNCTION: u64 = 5;
const STRING: u64 = 6;
const COMMENT: u64 = 13;
/// The most locations. The frames of others have no address.
const LOCATIONS_MAX: usize = 1 << 20;

/// A file for pprof, which is written at the end.
pub(crate) struct Pprof {
    pub path: String,
    pub title: String,
}

impl Sink for Pprof {
    fn aggregations(&mut self, _: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        file::write(&self.path, |out| {
            let mut out = GzEncoder::new(out, Compression::default());
            profile(&self.title, view, &mut out)?;
            out.finish().map(drop)
        })
    }
}

/// The unit of a sample type, in the words of pprof.
pub(crate) fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "nanoseconds",
        Unit::Microseconds => "microseconds",
        Unit::Milliseconds => "milliseconds",
        Unit::Hits | Unit::Sum => "count",
    }
}

fn profile(title: &str, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let kinds = kinds(view.program);
    let mut tables = Tables::default();
    for kind in &kinds {
        let mut message = Message::default();
        message.integer(1, tables.string(kind.name.trim_start_matches('@')));
        message.integer(2, tables.string(unit_word(kind.unit)));
        field(out, SAMPLE_TYPE, &message)?;
    }
    let mut stacks = Stacks::default();
    for (index, kind) in kinds.iter().enumerate() {
        stacks.each(view, kind, &mut |_, frames, value| {
            let mut message = Message::default();
            message.integers(1, frames.iter().rev().map(|frame| tables.location(*frame)));
            let values = (0..kinds.len()).map(|of| if of == index { value } else { 0 });
            message.integers(2, values);
            field(out, SAMPLE, &message)
        })?;
    }
    let comment = tables.string(title);
    tables.write(&stacks.names, view.symbolizer, out)?;
    let mut message = Message::default();
    message.integers(COMMENT, [comment].into_iter());
    out.write_all(&message.0)
}

fn field(out: &mut dyn Write, field: u64, content: &Message) -> io::Result<()> {
    let mut message = Message::default();
    message.bytes(field, &content.0);
    out.write_all(&message.0)
}

/// The tables to which samples refer.
#[derive(Default)]
struct Tables {
    locations: Vec<Frame>,
    numbers: HashMap<Frame, u64>,
    strings: Vec<String>,
    string_numbers: HashMap<String, u64>,
}

impl Tables {
    /// The number of a frame's location, from 1 on.
    fn location(&mut self, frame: Frame) -> u64 {
        let frame = match self.locations.len() < LOCATIONS_MAX || self.numbers.contains_key(&frame) {
            true => frame,
            false => Frame { address: 0, ..frame },
        };
        let next = self.locations.len() as u64 + 1;
        *self.numbers.entry(frame).or_insert_with(|| {
            self.locations.push(frame);
            next
        })
    }

    /// The number of a string. That of the empty string is 0.
    fn string(&mut self, text: &str) -> u64 {
        if self.strings.is_empty() {
            self.strings.push(String::new());
            self.string_numbers.insert(String::new(), 0);
        }
        if let Some(number) = self.string_numbers.get(text) {
            return *number;
        }
        let number = self.strings.len() as u64;
        self.strings.push(text.to_owned());
        self.string_numbers.insert(text.to_owned(), number);
        number
    }

    fn write(mut self, names: &Names, symbolizer: &mut dyn Symbolizer, out: &mut dyn Write) -> io::Result<()> {
        let locations = std::mem::take(&mut self.locations);
        let addresses: Vec<u64> = locations.iter().map(|frame| frame.address).collect();
        let sources = symbolizer.sources(&addresses);
        // Modules by their start, with their numbers.
        let mut mappings: HashMap<u64, u64> = HashMap::new();
        // A function of one name may be in several files.
        let mut functions: HashMap<(u32, u64), u64> = HashMap::new();
        for (number, frame) in (1..).zip(&locations) {
            let source: Option<&Source> = sources.get(&frame.address);
            let file = source.map_or(0, |source| self.string(&source.file));
            let next = functions.len() as u64 + 1;
            let function = *functions.entry((frame.name, file)).or_insert(next);
            if function == next {
                let name = self.string(names.text(frame.name));
                let mut message = Message::default();
                message.integer(1, function);
                message.integer(2, name);
                message.integer(3, name);
                message.integer(4, file);
                field(out, FUNCTION, &message)?;
            }
            let mapping = self.mapping(frame.address, &mut mappings, symbolizer, out)?;
            let mut line = Message::default();
            line.integer(1, function);
            line.integer(2, source.map_or(0, |source| source.line));
            let mut message = Message::default();
            message.integer(1, number);
            message.integer(2, mapping);
            message.integer(3, frame.address);
            message.bytes(4, &line.0);
            field(out, LOCATION, &message)?;
        }
        let mut message = Message::default();
        for text in &self.strings {
            message.bytes(STRING, text.as_bytes());
        }
        out.write_all(&message.0)
    }

    /// The number of the mapping that contains an address, which is written when it is new; 0: there is none.
    fn mapping(
        &mut self,
        address: u64,
        known: &mut HashMap<u64, u64>,
        symbolizer: &mut dyn Symbolizer,
        out: &mut dyn Write,
    ) -> io::Result<u64> {
        let Some(module) = symbolizer.module(address).filter(|_| address != 0) else {
            return Ok(0);
        };
        if let Some(number) = known.get(&module.start) {
            return Ok(*number);
        }
        let number = known.len() as u64 + 1;
        known.insert(module.start, number);
        let mut message = Message::default();
        message.integer(1, number);
        message.integer(2, module.start);
        message.integer(3, module.end);
        message.integer(5, self.string(&module.path));
        message.integer(6, self.string(&module.build_id));
        // The names are here: nothing is to be looked up again.
        message.integer(7, 1);
        field(out, MAPPING, &message)?;
        Ok(number)
    }
}
