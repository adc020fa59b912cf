//! Formats of printf, and the records that they print: the format up to the first NUL, the record after it.

use std::io::{Result, Write};

use nanoprobe_export::{AggregateTable, Console, Effect, Event, FORMATS, Printer, ProbeName, Symbolizer};
use nanoprobe_lang::format::{Conversion, Format};
use nanoprobe_lang::layout::record_layout;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::SymbolKind;
use nanoprobe_lang::{MacroValues, Source, compile};

/// Output beyond this size is an error: a width may be 16 MiB.
const PRINTED_BYTES_MAX: usize = 1 << 20;
/// The number of conversions of a format that get a value.
const CONVERSIONS_MAX: usize = 64;

/// Counts the output.
struct Counter(usize);

impl Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.0 += bytes.len();
        match self.0 > PRINTED_BYTES_MAX {
            true => Err(std::io::Error::other("enough")),
            false => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl Console for Counter {
    fn act(&mut self, _: Effect) -> Result<()> {
        Ok(())
    }

    fn tell(&mut self, _: &str) {}
}

struct Names;

impl Symbolizer for Names {
    fn symbolize(&mut self, address: u64) -> String {
        format!("program`{address:#x}")
    }

    fn start_of(&mut self, address: u64, _: SymbolKind) -> u64 {
        address & !0xfff
    }
}

/// A format, a NUL, a record.
pub fn formats(data: &[u8]) {
    let end = data.iter().position(|byte| *byte == 0).unwrap_or(data.len());
    let (text, record) = data.split_at(end);
    let text = String::from_utf8_lossy(text);
    let Ok(format) = Format::parse(&text) else { return };
    let conversions: Vec<Option<Conversion>> = format.conversions().collect();
    if conversions.len() > CONVERSIONS_MAX {
        return;
    }
    let arguments = conversions.iter().map(|conversion| match conversion {
        Some(Conversion::String | Conversion::EscapedString | Conversion::WideString) => ", execname",
        Some(Conversion::Stack) => ", ustack()",
        _ => ", arg0",
    });
    let quoted: String = text.chars().map(quoted).collect();
    let program = format!(
        "pid7:::entry {{ printf(\"{quoted}\"{}); }}",
        arguments.collect::<String>()
    );
    let Ok(program) = compile(&[Source::new("fuzz.d", program)], &MacroValues::default()) else {
        return;
    };
    let options = Options::default();
    let Some(clause) = program.clauses.first() else { return };
    let layout = record_layout(clause, options.limits());
    let mut bytes = record.to_vec();
    bytes.resize((layout.bytes as usize).min(1 << 20), 0xa5);
    let probe = ProbeName::default();
    let event = Event {
        epid: 1,
        probe: &probe,
        clause,
        layout: &layout,
        cpu: 0,
        thread: 0,
        record: &bytes,
        next: None,
    };
    for format in FORMATS {
        let mut printer = Printer::new(&program, &options, format.sink(&options, false));
        let _printed = printer.record(&mut Counter(0), &event, &mut AggregateTable::new(), &mut Names);
    }
}

/// A character in the form that a string of D needs.
fn quoted(character: char) -> String {
    match character {
        '"' | '\\' => format!("\\{character}"),
        '\n' => "\\n".to_owned(),
        _ => character.to_string(),
    }
}
