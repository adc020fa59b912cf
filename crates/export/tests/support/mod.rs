//! Hand-made programs, records and aggregations, and golden files.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt::Write as _;
use std::path::Path;

use nanoprobe_export::{AggregateTable, Event, Format, Printer, ProbeName, Snapshot, Symbolizer};
use nanoprobe_lang::format;
use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::layout::{Limits, RecordLayout, record_layout, recorded_values};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{
    AggregatingFunction, Aggregation, AggregationId, Clause, Expression, ExpressionKind, Foreign, IntegerType, KeyType,
    Program, RecordAction, RecordKind, Stack, Statement, SymbolKind, Type,
};
use nanoprobe_lang::source::Span;

pub const I8: Type = Type::Integer(IntegerType { bytes: 1, signed: true });
pub const I16: Type = Type::Integer(IntegerType { bytes: 2, signed: true });
pub const INTEGER_KEY: KeyType = KeyType::Integer(IntegerType { bytes: 8, signed: true });
/// A stack in a key, with as many frames as the option says.
pub const STACK_KEY: KeyType = KeyType::Stack(Stack::of_program(0));
pub const INT_KEY: KeyType = KeyType::Integer(IntegerType { bytes: 4, signed: true });

/// Compares with `tests/golden/NAME.txt`; writes it when `BLESS` is set.
pub fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(format!("{name}.txt"));
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(&path, found).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(found, expected, "{} differs; set BLESS to accept", path.display());
}

pub fn integer(value: i64) -> Value {
    Value::Integer(value)
}

pub fn string(text: &str) -> Value {
    Value::String(text.as_bytes().to_vec())
}

pub fn bytes(bytes: &[u8]) -> Value {
    Value::Bytes {
        address: 0,
        bytes: bytes.to_vec(),
    }
}

/// A recorded value with its type.
pub type Typed = (Type, Value);

pub fn trace(value: Typed) -> (RecordKind, Vec<Value>) {
    (RecordKind::Trace(expression(value.0)), vec![value.1])
}

/// `trace()` of a value of an enumeration.
pub fn trace_name(of: &Foreign, value: i64) -> (RecordKind, Vec<Value>) {
    let kind = RecordKind::TraceName {
        value: expression(Type::I32),
        of: of.clone(),
    };
    (kind, vec![integer(value)])
}

pub fn printf(format: &str, values: Vec<Typed>) -> (RecordKind, Vec<Value>) {
    let format = format::Format::parse(format).unwrap();
    let types: Vec<Type> = values.iter().map(|(value_type, _)| value_type.clone()).collect();
    format.check("printf", &types).unwrap();
    let (types, values): (Vec<Type>, Vec<Value>) = values.into_iter().unzip();
    (
        RecordKind::Printf {
            format,
            arguments: types.into_iter().map(expression).collect(),
        },
        values,
    )
}

pub fn ustack(frames: &[u64]) -> (RecordKind, Vec<Value>) {
    (
        RecordKind::Stack(Stack::of_program(20)),
        vec![Value::Stack(frames.to_vec())],
    )
}

pub fn printa(format: Option<&str>, aggregations: &[u32]) -> (RecordKind, Vec<Value>) {
    let format = format.map(|format| format::Format::parse(format).unwrap());
    (
        RecordKind::Printa {
            format,
            aggregations: aggregations.iter().copied().map(AggregationId).collect(),
        },
        Vec::new(),
    )
}

pub fn normalize(aggregation: u32, factor: i64) -> (RecordKind, Vec<Value>) {
    let factor = (expression(Type::I64), integer(factor));
    (
        RecordKind::Normalize {
            aggregation: AggregationId(aggregation),
            factor: factor.0,
        },
        vec![factor.1],
    )
}

pub fn truncate(aggregation: u32, count: Option<i64>) -> (RecordKind, Vec<Value>) {
    let expressions = count.map(|_| expression(Type::I64));
    let kind = RecordKind::Truncate {
        aggregation: AggregationId(aggregation),
        count: expressions,
    };
    (kind, count.map(integer).into_iter().collect())
}

pub fn plain(kind: RecordKind) -> (RecordKind, Vec<Value>) {
    (kind, Vec::new())
}

pub fn exit(status: i64) -> (RecordKind, Vec<Value>) {
    (RecordKind::Exit(expression(Type::I32)), vec![integer(status)])
}

fn expression(value_type: Type) -> Expression {
    Expression {
        kind: ExpressionKind::Integer(0),
        value_type,
        span: Span::default(),
    }
}

/// Turns addresses into ``module`f+0x...`` by a small table.
pub struct Names;

impl Symbolizer for Names {
    fn symbolize(&mut self, address: u64) -> String {
        let functions = [
            (0x1000, "bash`readline_internal_char"),
            (0x2000, "bash`readline"),
            (0x3000, "bash`yy_readline_get"),
            (0x4000, "bash`shell_getc"),
            (0x5000, "bash`read_token"),
            (0x6000, "bash`yyparse"),
            (0x7000, "bash`parse_command"),
            (0x8000, "bash`read_command"),
            (0x9000, "bash`reader_loop"),
            (0xa000, "bash`main"),
            (0xb000, "bash`_start"),
        ];
        match functions.iter().rev().find(|(start, _)| *start <= address) {
            Some((start, name)) if *start == address => (*name).to_owned(),
            Some((start, name)) if address < 0xc000 => format!("{name}+0x{:x}", address - start),
            _ => format!("0x{address:x}"),
        }
    }

    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        match kind {
            SymbolKind::Address => address,
            SymbolKind::Function => address & !0xfff,
            SymbolKind::Module => 0x1000,
        }
    }
}

/// A program with invented records and aggregations.
pub struct Session {
    pub program: Program,
    pub options: Options,
    pub snapshot: Snapshot,
    pub table: AggregateTable,
    events: Vec<(ProbeName, Clause, RecordLayout, Vec<u8>)>,
}

impl Session {
    pub fn new(options: &[&str]) -> Session {
        let mut parsed = Options::default();
        options.iter().for_each(|option| parsed.set_text(option).unwrap());
        Session {
            program: Program::default(),
            options: parsed,
            snapshot: Snapshot::new(),
            table: AggregateTable::new(),
            events: Vec::new(),
        }
    }

    pub fn limits(&self) -> Limits {
        self.options.limits()
    }

    /// Declares an aggregation.
    pub fn aggregation(&mut self, function: AggregatingFunction, keys: &[KeyType]) -> u32 {
        let id = self.program.aggregations.len() as u32;
        self.program.aggregations.push(Aggregation {
            name: format!("@{id}"),
            function,
            keys: keys.to_vec(),
            by_processor: false,
        });
        id
    }

    /// Aggregates a value under a key, `weight` times.
    pub fn aggregate(&mut self, id: u32, key: &[Value], value: i64, weight: i64) {
        let key = key::key_bytes(key, self.limits().string_limit());
        assert!(
            self.snapshot
                .update(&self.program, AggregationId(id), &key, value, weight)
        );
    }

    /// Aggregates many values under a key.
    pub fn values(&mut self, id: u32, key: &[Value], values: &[i64]) {
        values.iter().for_each(|value| self.aggregate(id, key, *value, 1));
    }

    /// Adds a record of these actions.
    pub fn record(&mut self, probe: (u32, &str, &str), actions: Vec<(RecordKind, Vec<Value>)>) {
        let (kinds, values): (Vec<RecordKind>, Vec<Vec<Value>>) = actions.into_iter().unzip();
        for (kind, values) in kinds.iter().zip(&values) {
            let stacks = usize::from(matches!(kind, RecordKind::Stack(_)));
            assert_eq!(recorded_values(kind).len() + stacks, values.len());
        }
        let statements = kinds
            .into_iter()
            .map(|kind| {
                Statement::Record(RecordAction {
                    kind,
                    span: Span::default(),
                })
            })
            .collect();
        let clause = Clause {
            probes: Vec::new(),
            predicate: None,
            statements,
            span: Span::default(),
            derived: None,
        };
        let layout = record_layout(&clause, self.limits());
        let mut record = vec![0; layout.bytes as usize];
        for (field, value) in layout.fields.iter().zip(values.iter().flatten()) {
            let start = field.offset as usize;
            value.write(&mut record[start..start + field.bytes as usize]);
        }
        let (id, function, name) = probe;
        let probe = ProbeName {
            id,
            provider: "pid1".to_owned(),
            module: "a.out".to_owned(),
            function: function.to_owned(),
            linked: function.to_owned(),
            shown: function.to_owned(),
            name: name.to_owned(),
        };
        self.events.push((probe, clause, layout, record));
    }

    /// The output for the records (all from one thread), and at the end for the aggregations.
    pub fn output(&mut self) -> String {
        self.written("text")
    }

    /// The output as JSON lines.
    pub fn json(&mut self) -> String {
        self.written("json")
    }

    fn written(&mut self, format: &str) -> String {
        self.table.add(&self.program, std::mem::take(&mut self.snapshot));
        let mut out = Vec::new();
        let sink = Format::named(format).unwrap().sink(&self.options, false);
        let mut printer = Printer::new(&self.program, &self.options, sink);
        let identities: Vec<(u32, u32)> = self.events.iter().map(|(probe, ..)| (probe.id, probe.id)).collect();
        for (index, (probe, clause, layout, record)) in self.events.iter().enumerate() {
            let next = identities.get(index + 1).copied();
            let event = Event {
                epid: probe.id,
                probe,
                clause,
                layout,
                cpu: 1,
                thread: 1,
                record: record.as_slice(),
                next,
            };
            let exit = printer.record(&mut out, &event, &mut self.table, &mut Names).unwrap();
            if let Some(status) = exit {
                let mut line = String::new();
                writeln!(line, "[exit {status}]").unwrap();
                out.extend_from_slice(line.as_bytes());
            }
        }
        printer.finish(&mut out, &self.table, &mut Names).unwrap();
        self.events.clear();
        String::from_utf8(out).unwrap()
    }
}

/// The bytes of a key that is a stack.
pub fn stack_key(frames: &[u64]) -> Vec<u8> {
    let mut bytes = Vec::new();
    key::push_stack(&mut bytes, frames);
    bytes
}
