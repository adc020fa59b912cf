//! Conversions: a format and values become text.

use std::borrow::Cow;
use std::io::{Result, Write};

use nanoprobe_lang::bytes::bytes_of;
use nanoprobe_lang::format::{Conversion, Dimension, Directive, Format, Piece, Size};
use nanoprobe_lang::interpret::{Value, normalise};
use nanoprobe_lang::layout::{FieldKind, RecordField};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{AggregatingFunction, Foreign, IntegerType, SymbolKind};

use crate::aggregate::{average, standard_deviation, word};
use crate::bytes;
use crate::date::{self, LocalTime};
use crate::escape::escaped;
use crate::floating;
use crate::histogram::{self, Scale};
use crate::number::{self, Base, Shape};
use crate::stack::{self, Symbolizer};

/// The widest field that a `*` can ask for. There is a limit because the traced program may choose the number.
const ARGUMENT_MAX: i64 = 65_535;

const SIGNED: IntegerType = IntegerType { bytes: 8, signed: true };
const UNSIGNED: IntegerType = IntegerType {
    bytes: 8,
    signed: false,
};

/// The data that printing needs in addition to the values.
pub(crate) struct Context<'a> {
    pub options: &'a Options,
    pub local: LocalTime,
    pub symbolizer: &'a mut dyn Symbolizer,
}

impl Context<'_> {
    /// Prints a stack with the indentation that the options demand.
    pub(crate) fn stack(&mut self, out: &mut dyn Write, frames: &[u64]) -> Result<()> {
        stack::stack(
            out,
            frames,
            self.options.printing.stack_indent as usize,
            Shape::default(),
            self.symbolizer,
            !self.options.printing.no_names,
        )
    }

    /// Prints a string in a column.
    pub(crate) fn string(&self, out: &mut dyn Write, text: &[u8], width: i64, quiet: bool) -> Result<()> {
        let room = self.options.limits().string_limit() as usize;
        bytes::string(out, text, room, width, quiet, self.options.printing.raw_bytes)
    }
}

/// A value to convert.
#[derive(Clone, Copy)]
pub(crate) enum Item<'a> {
    Integer(i64, IntegerType),
    /// A value of an enumeration, which may have a name.
    Enumeration(i64, &'a Foreign),
    Text(&'a [u8]),
    Stack(&'a [u64]),
    /// An address in a key that is printed as a name.
    Symbol(u64, SymbolKind),
    Aggregated {
        function: AggregatingFunction,
        words: &'a [u64],
        normal: u64,
    },
}

impl<'a> Item<'a> {
    /// An item for a value that may have a name.
    pub(crate) fn named(value: &'a Value, integer: IntegerType, names: Option<&'a Foreign>) -> Item<'a> {
        match (value, names) {
            (Value::Integer(value), Some(of)) => Item::Enumeration(*value, of),
            _ => Item::of(value, integer),
        }
    }

    pub(crate) fn of(value: &'a Value, integer: IntegerType) -> Item<'a> {
        match value {
            Value::Integer(value) => Item::Integer(*value, integer),
            Value::String(text) => Item::Text(text),
            Value::Bytes { bytes, .. } => Item::Text(bytes),
            Value::Stack(frames) => Item::Stack(frames),
        }
    }
}

/// Prints a format. `next(true)` yields the value of the next aggregation, `next(false)` the next argument.
/// A conversion without a value prints nothing; the check of the format excludes this case.
pub(crate) fn format<'v>(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    format: &Format,
    next: &mut dyn FnMut(bool) -> Option<Item<'v>>,
) -> Result<()> {
    for piece in &format.pieces {
        let directive = match piece {
            Piece::Literal(text) => {
                out.write_all(&bytes_of(text))?;
                continue;
            }
            Piece::Directive(directive) => directive,
        };
        let mut shape = Shape {
            flags: directive.flags,
            ..Shape::default()
        };
        let mut dimension = |dimension| match dimension {
            Dimension::Unset => 0,
            Dimension::Fixed(value) => i64::from(value),
            Dimension::Argument => match next(false) {
                Some(Item::Integer(value, _) | Item::Enumeration(value, _)) => {
                    i64::from(value as i32).clamp(-ARGUMENT_MAX, ARGUMENT_MAX)
                }
                _ => 0,
            },
        };
        shape = shape.with_width(dimension(directive.width));
        shape = shape.with_precision(dimension(directive.precision));
        if let Some(item) = next(directive.flags.aggregation) {
            convert(out, context, directive, shape, item)?;
        }
    }
    Ok(())
}

fn convert(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    directive: &Directive,
    shape: Shape,
    item: Item<'_>,
) -> Result<()> {
    match item {
        Item::Integer(value, integer) => out.write_all(&integral(context, directive, shape, value, integer, 1)),
        Item::Enumeration(value, of)
            if matches!(
                directive.conversion,
                Conversion::String | Conversion::EscapedString | Conversion::Value
            ) =>
        {
            out.write_all(&textual(directive, shape, name_of_value(of, value).as_bytes()))
        }
        Item::Enumeration(value, of) => {
            let integer = of.integer().unwrap_or(SIGNED);
            out.write_all(&integral(context, directive, shape, value, integer, 1))
        }
        Item::Symbol(address, kind) if matches!(directive.conversion, Conversion::Address | Conversion::Value) => {
            let name = stack::name_of(context.symbolizer, address, kind);
            out.write_all(&number::text(name.as_bytes(), shape))
        }
        Item::Symbol(address, _) => out.write_all(&integral(context, directive, shape, address as i64, UNSIGNED, 1)),
        Item::Text(text) => out.write_all(&textual(directive, shape, text)),
        Item::Stack(frames) => {
            // With the flag `-` the stack is indented by the width, which is odd but useful.
            let (indent, shape) = if shape.flags.left {
                (shape.width, Shape { width: 0, ..shape })
            } else {
                (0, shape)
            };
            let named = !context.options.printing.no_names;
            stack::stack(out, frames, indent, shape, context.symbolizer, named)
        }
        Item::Aggregated {
            function,
            words,
            normal,
        } => {
            let (value, integer, normal) = match function {
                AggregatingFunction::Average => (average(words, normal), SIGNED, 1),
                AggregatingFunction::StandardDeviation => (standard_deviation(words, normal) as i64, UNSIGNED, 1),
                AggregatingFunction::Count => (word(words, 0) as i64, UNSIGNED, normal),
                AggregatingFunction::Sum | AggregatingFunction::Minimum | AggregatingFunction::Maximum => {
                    (word(words, 0) as i64, SIGNED, normal)
                }
                _ => return histogram::distribution(out, function, words, Scale::of(context.options, normal)),
            };
            out.write_all(&integral(context, directive, shape, value, integer, normal))
        }
    }
}

/// An integer by any integer conversion, divided by `normal`.
fn integral(
    context: &mut Context<'_>,
    directive: &Directive,
    shape: Shape,
    value: i64,
    integer: IntegerType,
    normal: u64,
) -> Vec<u8> {
    // An unsigned number has only the bits of its type.
    let bits = || {
        (normalise(
            value,
            IntegerType {
                signed: false,
                ..integer
            },
        ) as u64)
            / normal.max(1)
    };
    // %i, and a size prefix, make a number signed, whatever its type is.
    let quotient = || {
        normalise(
            value,
            IntegerType {
                signed: true,
                ..integer
            },
        )
        .wrapping_div((normal as i64).max(1))
    };
    let by_type = directive.size == Size::Any && directive.letter != 'i';
    match directive.conversion {
        Conversion::Decimal | Conversion::Value if integer.signed || !by_type => number::signed(quotient(), shape),
        Conversion::Decimal | Conversion::Value | Conversion::Unsigned => {
            number::unsigned(bits(), Base::Decimal, shape)
        }
        Conversion::Octal => number::unsigned(bits(), Base::Octal, shape),
        Conversion::Hexadecimal | Conversion::Pointer => number::unsigned(bits(), Base::Hexadecimal, shape),
        Conversion::HexadecimalUpper => number::unsigned(bits(), Base::HexadecimalUpper, shape),
        Conversion::Character => number::text(
            &[value as u8],
            Shape {
                precision: None,
                ..shape
            },
        ),
        Conversion::EscapedCharacter => number::text(&escaped(&[value as u8]), shape),
        Conversion::WideCharacter => {
            let character = char::from_u32(value as u32).unwrap_or(char::REPLACEMENT_CHARACTER);
            number::text(
                character.to_string().as_bytes(),
                Shape {
                    precision: None,
                    ..shape
                },
            )
        }
        Conversion::Address => number::text(context.symbolizer.symbolize(bits()).as_bytes(), shape),
        Conversion::Date => number::text(date::date(value, context.local).as_bytes(), shape),
        Conversion::MailDate => number::text(date::mail_date(value, context.local).as_bytes(), shape),
        Conversion::Float => number::text(
            floating::text(floating::of_bits(value, integer.bytes), directive.letter, shape).as_bytes(),
            Shape {
                precision: None,
                ..shape
            },
        ),
        // The check of the format refuses these conversions of an integer.
        Conversion::Stack | Conversion::String | Conversion::EscapedString | Conversion::WideString => Vec::new(),
    }
}

/// A format, filled in with the values that were recorded for it.
pub(crate) fn formatted<'v>(
    out: &mut dyn Write,
    context: &mut Context<'_>,
    format: &Format,
    recorded: &mut dyn Iterator<Item = &'v (&'v RecordField, Value)>,
) -> Result<()> {
    let mut names = format.names.iter();
    self::format(out, context, format, &mut |_| {
        let (field, value) = recorded.next()?;
        let of = names.next().and_then(Option::as_ref);
        Some(Item::named(value, integer_type(field), of))
    })
}

/// The type of a recorded integer.
pub(crate) fn integer_type(field: &RecordField) -> IntegerType {
    match field.kind {
        FieldKind::Integer(integer) => integer,
        _ => IntegerType {
            bytes: 8,
            signed: false,
        },
    }
}

/// The name of a value of an enumeration, else the value.
pub(crate) fn name_of_value(of: &Foreign, value: i64) -> Cow<'_, str> {
    of.enumerator(value)
        .map_or_else(|| value.to_string().into(), Cow::Borrowed)
}

/// The name of a value, or the value, as a string for a column.
pub(crate) fn of_enumeration(of: &Foreign, value: &Value) -> Value {
    let name = name_of_value(of, value.as_integer());
    Value::String(name.into_owned().into_bytes())
}

fn textual(directive: &Directive, shape: Shape, text: &[u8]) -> Vec<u8> {
    if directive.conversion == Conversion::WideString {
        let wide = text
            .chunks_exact(4)
            .filter_map(|bytes| Some(u32::from_le_bytes(bytes.try_into().ok()?)));
        let character = |code| char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER);
        let text: String = wide.take_while(|code| *code != 0).map(character).collect();
        return number::text(text.as_bytes(), shape);
    }
    let text = text.split(|byte| *byte == 0).next().unwrap_or_default();
    match directive.conversion {
        Conversion::EscapedString => number::text(&escaped(text), shape),
        _ => number::text(text, shape),
    }
}
