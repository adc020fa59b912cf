//! The format of `--speedscope`: JSON for www.speedscope.app. Each aggregation is a profile of its own.
//!
//! The stacks are read twice, for their frames and for their values, so that none has to be kept. The format is
//! defined by www.speedscope.app/file-format-schema.json.

use std::collections::HashMap;
use std::io::{self, Write};

use super::file;
use super::names::NameId;
use super::stacks::{Kind, Stacks, Unit, kinds};
use crate::Error;
use crate::console::Console;
use crate::json::Json;
use crate::sink::{Sink, View};

/// The name of the format, which its readers look for.
pub(crate) const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// A file for speedscope, which is written at the end.
pub(crate) struct Speedscope {
    pub path: String,
    pub title: String,
}

impl Sink for Speedscope {
    fn aggregations(&mut self, _: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        file::write(&self.path, |out| document(&self.title, view, out))
    }
}

/// The unit of a profile, in the words of the format.
fn unit_word(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "bytes",
        Unit::Nanoseconds => "nanoseconds",
        Unit::Microseconds => "microseconds",
        Unit::Milliseconds => "milliseconds",
        Unit::Hits | Unit::Sum => "none",
    }
}

fn text(text: &str) -> Json {
    Json::Text(text.to_owned())
}

fn document(title: &str, view: &mut View<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut stacks = Stacks::default();
    // One address of each function, by which the function's source file is found.
    let mut addresses: HashMap<NameId, u64> = HashMap::new();
    write!(out, "{{\"$schema\":{},\"name\":{},", text(SCHEMA), text(title))?;
    write!(
        out,
        "\"exporter\":\"nanoprobe\",\"activeProfileIndex\":0,\"profiles\":["
    )?;
    for (index, kind) in kinds(view.program).iter().enumerate() {
        if index != 0 {
            write!(out, ",")?;
        }
        profile(kind, view, &mut stacks, &mut addresses, out)?;
    }
    write!(out, "],\"shared\":{{\"frames\":[")?;
    let wanted: Vec<u64> = addresses.values().copied().collect();
    let sources = view.symbolizer.sources(&wanted);
    for (name, shown) in (0..).zip(stacks.names.all()) {
        let separator = if name == 0 { "" } else { "," };
        write!(out, "{separator}{{\"name\":{}", text(shown))?;
        if let Some(source) = addresses.get(&name).and_then(|address| sources.get(address)) {
            write!(out, ",\"file\":{}", text(&source.file))?;
        }
        write!(out, "}}")?;
    }
    writeln!(out, "]}}}}")
}

fn profile(
    kind: &Kind,
    view: &mut View<'_>,
    stacks: &mut Stacks,
    addresses: &mut HashMap<NameId, u64>,
    out: &mut dyn Write,
) -> io::Result<()> {
    write!(
        out,
        "{{\"type\":\"sampled\",\"name\":{},\"unit\":{},\"samples\":[",
        text(&kind.name),
        text(unit_word(kind.unit))
    )?;
    let mut separator = "";
    stacks.each(view, kind, &mut |_, frames, _| {
        write!(out, "{separator}[")?;
        separator = ",";
        for (index, frame) in frames.iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            write!(out, "{separator}{}", frame.name)?;
            if frame.address != 0 {
                addresses.entry(frame.name).or_insert(frame.address);
            }
        }
        write!(out, "]")
    })?;
    write!(out, "],\"weights\":[")?;
    separator = "";
    let mut total = 0_u64;
    stacks.each(view, kind, &mut |_, _, value| {
        total = total.saturating_add(value);
        write!(out, "{separator}{value}")?;
        separator = ",";
        Ok(())
    })?;
    write!(out, "],\"startValue\":0,\"endValue\":{total}}}")
}
