//! Recorded data and aggregations as JSON values.

use nanoprobe_arena::buckets::{LogLinear, Magnitudes, QUANTIZE_BUCKETS, quantize_value};
use nanoprobe_lang::format::{Conversion, Format};
use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::layout::{FieldKind, RecordField};
use nanoprobe_lang::program::{AggregatingFunction, AggregationId, Foreign, KeyType, Program, RecordKind, SymbolKind};

use crate::Error;
use crate::aggregate::{average, standard_deviation, word};
use crate::bytes;
use crate::floating;
use crate::function_names::with_function_names;
use crate::json::{self, Json};
use crate::order::{Order, sort};
use crate::pointed;
use crate::printa;
use crate::printf::{Context, formatted, integer_type};
use crate::sink::Recorded;
use crate::stack::{Symbolizer, frame_names, name_of};
use crate::table::{AggregateTable, Row};
use crate::typed;

/// The data that actions have recorded, and the aggregations that they have printed.
type Datum = (Vec<Json>, Vec<AggregationId>);

/// The datum of an action; `None` for an action that prints nothing.
pub(crate) fn datum(
    context: &mut Context<'_>,
    (program, table): (&Program, &AggregateTable),
    kind: &RecordKind,
    recorded: &[&Recorded<'_>],
) -> Result<Option<Datum>, Error> {
    let data = match kind {
        RecordKind::Trace(_) => {
            let values = values(context, recorded).into_iter();
            values.map(|value| action("trace", vec![("value", value)])).collect()
        }
        RecordKind::TraceName { of, .. } => {
            let names = recorded.iter().map(|(_, found)| named(of, found));
            names.map(|name| action("trace", vec![("value", name)])).collect()
        }
        RecordKind::TraceMemory(_) => {
            let bytes = bytes::traced(recorded.iter().map(|(_, value)| value));
            vec![action("tracemem", vec![("hex", json::hex(bytes))])]
        }
        RecordKind::Stack(stack) => {
            let (values, name) = (values(context, recorded).into_iter(), stack.side.name());
            values.map(|value| action(name, vec![("frames", value)])).collect()
        }
        RecordKind::Symbol { kind, .. } => {
            let address = recorded.first().map_or(0, |(_, value)| value.as_integer()) as u64;
            let name = name_of(context.symbolizer, address, *kind);
            let members = vec![("address", address.into()), ("value", name.into())];
            vec![action(symbol_name(*kind), members)]
        }
        RecordKind::Printf { format, .. } => vec![printf(context, (kind, format), recorded)?],
        RecordKind::Print { shown, .. } => {
            let mut text = Vec::new();
            for (_, value) in recorded {
                typed::print(&mut text, shown, value)?;
            }
            let shown = nanoprobe_lang::types::shown_name(shown);
            vec![action("print", vec![("of", shown.into()), ("text", json::text(&text))])]
        }
        RecordKind::PrintAt { shown, .. } => {
            let [(_, address), (_, value)] = *recorded else {
                return Ok(None);
            };
            let (mut text, address) = (Vec::new(), address.as_integer() as u64);
            pointed::print(&mut text, shown, address, value, context.options.printing.print_bytes)?;
            let of = nanoprobe_lang::types::shown_name(shown);
            let members = vec![
                ("address", address.into()),
                ("of", of.into()),
                ("text", json::text(&text)),
            ];
            vec![action("print", members)]
        }
        RecordKind::Printa { format, aggregations } => {
            let format = format.as_ref();
            return printa(context, (program, table), format, aggregations).map(Some);
        }
        _ => return Ok(None),
    };
    Ok(Some((data, Vec::new())))
}

fn action(name: &'static str, mut members: Vec<(&'static str, Json)>) -> Json {
    members.insert(0, ("action", name.into()));
    Json::Object(members)
}

fn values(context: &mut Context<'_>, recorded: &[&Recorded<'_>]) -> Vec<Json> {
    let values = recorded.iter();
    values
        .map(|(field, found)| value(found, is_signed(field), context.symbolizer))
        .collect()
}

fn printf(
    context: &mut Context<'_>,
    (kind, format): (&RecordKind, &Format),
    recorded: &[&Recorded<'_>],
) -> Result<Json, Error> {
    let mut values = values(context, recorded);
    for ((value, (_, found)), of) in values.iter_mut().zip(recorded).zip(&format.names) {
        if let Some(of) = of {
            *value = named(of, found);
        }
    }
    for ((value, (field, found)), conversion) in values.iter_mut().zip(recorded).zip(format.conversions()) {
        if conversion == Some(Conversion::Float) {
            *value = Json::Floating(floating::of_bits(found.as_integer(), integer_type(field).bytes));
        }
    }
    // The text is for people; the values are those of the program.
    let mut text = Vec::new();
    match with_function_names(kind, recorded, context.symbolizer) {
        Some(named) => formatted(&mut text, context, format, &mut named.iter())?,
        None => formatted(&mut text, context, format, &mut recorded.iter().copied())?,
    }
    let members = vec![("text", json::text(&text)), ("values", Json::List(values))];
    Ok(action("printf", members))
}

fn printa(
    context: &mut Context<'_>,
    (program, table): (&Program, &AggregateTable),
    format: Option<&Format>,
    aggregations: &[AggregationId],
) -> Result<Datum, Error> {
    let mut members = Vec::new();
    if format.is_some() {
        let mut text = Vec::new();
        printa::print(&mut text, context, program, table, aggregations, format)?;
        members.push(("text", json::text(&text)));
    }
    let rows = aggregations.iter().flat_map(|id| table.rows(program, *id)).collect();
    let rows = sorted(context, program, rows);
    members.push(("rows", Json::List(rows.into_iter().map(Json::Object).collect())));
    let printed = aggregations.iter().copied();
    let printed = printed.filter(|id| !table.rows(program, *id).is_empty()).collect();
    Ok((vec![action("printa", members)], printed))
}

/// Lines of aggregations, as members of an object.
pub(crate) fn sorted(
    context: &mut Context<'_>,
    program: &Program,
    mut rows: Vec<Row>,
) -> Vec<Vec<(&'static str, Json)>> {
    sort(program, &mut rows, Order::of(context.options));
    let rows = rows.iter();
    rows.filter_map(|row| self::row(context.symbolizer, program, row))
        .collect()
}

fn row(symbolizer: &mut dyn Symbolizer, program: &Program, row: &Row) -> Option<Vec<(&'static str, Json)>> {
    let found = program.aggregations.get(row.aggregation.0 as usize)?;
    let key = row
        .key
        .iter()
        .zip(found.shown_keys())
        .map(|(element, key_type)| match key_type {
            KeyType::Symbol(kind) => name_of(symbolizer, element.as_integer() as u64, *kind).into(),
            KeyType::Integer(integer) => value(element, integer.signed, symbolizer),
            KeyType::Enumeration(of) => named(of, element),
            KeyType::String | KeyType::Function | KeyType::Bytes { .. } | KeyType::Stack(_) => {
                value(element, true, symbolizer)
            }
        });
    let key = key.collect();
    let mut members = vec![
        ("name", found.name.as_str().into()),
        ("function", found.function.row().name.into()),
        ("key", Json::List(key)),
        ("value", aggregated(found.function, &row.words, row.normal)),
    ];
    if row.normal != 1 {
        members.push(("normal", row.normal.into()));
    }
    Some(members)
}

fn is_signed(field: &RecordField) -> bool {
    match field.kind {
        FieldKind::Integer(integer) => integer.signed,
        _ => true,
    }
}

/// A value of an enumeration: its name, or a number if it has no name.
fn named(of: &Foreign, value: &Value) -> Json {
    let value = value.as_integer();
    of.enumerator(value).map_or_else(|| value.into(), Json::from)
}

fn value(value: &Value, signed: bool, symbolizer: &mut dyn Symbolizer) -> Json {
    match value {
        Value::Integer(value) if signed => Json::from(*value),
        Value::Integer(value) => Json::from(*value as u64),
        Value::String(text) => json::text(text),
        Value::Bytes { bytes, .. } => Json::Object(vec![("hex", json::hex(bytes))]),
        Value::Stack(frames) => {
            let named: Vec<(u64, String)> = frame_names(frames, symbolizer).collect();
            let frame = |(address, name): (u64, String)| {
                let address = symbolizer.is_address(address).then(|| ("address", Json::from(address)));
                Json::Object(address.into_iter().chain([("symbol", name.into())]).collect())
            };
            Json::List(named.into_iter().map(frame).collect())
        }
    }
}

/// The value of an aggregation: a number, or the buckets that hold a weight.
fn aggregated(function: AggregatingFunction, words: &[u64], normal: u64) -> Json {
    let divided = |value: i64| value.wrapping_div((normal as i64).max(1));
    let filled = |(bucket, (from, below)): (usize, (Option<i128>, Option<i128>))| {
        let weight = word(words, bucket) as i64;
        let mut members = Vec::new();
        members.extend(from.map(|from| ("from", Json::Number(from))));
        members.extend(below.map(|below| ("below", Json::Number(below))));
        members.push(("count", divided(weight).into()));
        (weight != 0).then_some(Json::Object(members))
    };
    let buckets = |bounds: Vec<(Option<i128>, Option<i128>)>| {
        let bounds = bounds.into_iter().enumerate();
        Json::List(bounds.filter_map(filled).collect())
    };
    match function {
        AggregatingFunction::Average => average(words, normal).into(),
        AggregatingFunction::StandardDeviation => standard_deviation(words, normal).into(),
        AggregatingFunction::Quantize => buckets((0..QUANTIZE_BUCKETS).map(power_of_two).collect()),
        AggregatingFunction::LinearQuantize { base, step, .. } => {
            let levels = usize::from(function.levels());
            let bound = |level: usize| Some(i128::from(base) + level as i128 * i128::from(step));
            let inner = (0..levels).map(|level| (bound(level), bound(level + 1)));
            buckets(
                [(None, bound(0))]
                    .into_iter()
                    .chain(inner)
                    .chain([(bound(levels), None)])
                    .collect(),
            )
        }
        AggregatingFunction::LogLinearQuantize { .. } => {
            let parameters = LogLinear::unpack(function.packed_parameters());
            let of = |bucket: usize| match parameters.magnitudes(bucket) {
                None => (None, None),
                Some(Magnitudes::Below(end)) => (Some(1 - i128::from(end)), Some(i128::from(end))),
                Some(Magnitudes::From(least, below, false)) => (Some(i128::from(least)), below.map(i128::from)),
                Some(Magnitudes::From(least, below, true)) => {
                    (below.map(|below| 1 - i128::from(below)), Some(1 - i128::from(least)))
                }
            };
            let bounds = parameters.in_order().into_iter().map(|bucket| (bucket, of(bucket)));
            Json::List(bounds.filter_map(filled).collect())
        }
        _ => divided(word(words, 0) as i64).into(),
    }
}

/// The least and the greatest value of a bucket of `quantize`; its label is the bound of least magnitude.
fn power_of_two(bucket: usize) -> (Option<i128>, Option<i128>) {
    let label = i128::from(quantize_value(bucket));
    match label {
        0 => (Some(0), Some(1)),
        1.. => (Some(label), Some(2 * label)),
        // The least i64 has no bucket of its own, and is counted in the lowest bucket.
        _ if bucket == 0 => (Some(i128::from(i64::MIN)), Some(label + 1)),
        _ => (Some(2 * label + 1), Some(label + 1)),
    }
}

fn symbol_name(kind: SymbolKind) -> &'static str {
    match kind {
        SymbolKind::Address => "uaddr",
        SymbolKind::Function => "usym",
        SymbolKind::Module => "umod",
    }
}
