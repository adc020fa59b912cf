//! Runs a program in two ways, interpreted and as machine code, and prints its records.

pub mod target;
pub mod world;

use nanoprobe_codegen::ProbeKind;
use nanoprobe_export::{AggregateTable, Event, Printer, ProbeName, Speculations, Symbolizer, Text, error_message};
use nanoprobe_lang::interpret::{ClauseFault, FaultKind, Outcome, run_clause};
use nanoprobe_lang::layout::record_layout;
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::{Clause, Program, SymbolKind};
use nanoprobe_lang::{Diagnostic, MacroValues, Source};
use target::Target;
use world::{GuideWorld, Speculation};

struct Addresses;

impl Symbolizer for Addresses {
    fn symbolize(&mut self, address: u64) -> String {
        match address {
            0x400000..0x401000 => {
                format!("a.out`f{}+{:#x}", (address & 0xfff) >> 8, address & 0xff).replace("+0x0", "")
            }
            _ => format!("{address:#x}"),
        }
    }

    /// Addresses belong to the functions `f0` to `f15` of 256 bytes each.
    fn start_of(&mut self, address: u64, kind: SymbolKind) -> u64 {
        match (address, kind) {
            (0x400000..0x401000, SymbolKind::Function) => address & !0xff,
            (0x400000..0x401000, SymbolKind::Module) => 0x400000,
            _ => address,
        }
    }
}

/// The output of a program, with its messages on lines that begin with `! `; or why it is refused.
pub fn run(text: &str, option_texts: &[String]) -> Result<String, Vec<Diagnostic>> {
    let mut macros = MacroValues {
        target: Some(1234),
        pid: Some(99),
        uid: Some(1000),
        script: Some("script.d".to_owned()),
        ..MacroValues::default()
    };
    let mut options = Options::default();
    options.printing.quiet = true;
    for option in option_texts {
        let (name, value) = option
            .split_once('=')
            .map_or((option.as_str(), None), |(n, v)| (n, Some(v)));
        if name == "loud" {
            options.printing.quiet = false;
        } else {
            options.set(name, value).unwrap();
        }
    }
    macros.options.scratch_bytes = options.recording.scratch_bytes;
    macros.options.string_bytes = option_texts
        .iter()
        .any(|option| option.starts_with("strsize="))
        .then_some(options.recording.string_bytes);
    let program = nanoprobe_lang::compile(&[Source::new("guide", text)], &macros)?;
    for pragma in &program.pragmas {
        options.set(&pragma.name, pragma.value.as_deref()).unwrap();
    }
    Ok(Run::new(&program, &options, text).everything())
}

struct Run<'a> {
    program: &'a Program,
    options: &'a Options,
    printer: Printer<'a>,
    world: GuideWorld<'a>,
    target: Target<'a>,
    aggregations: AggregateTable,
    out: Vec<u8>,
    /// Whether the two ways are compared: not if the program uses the time or random numbers.
    compares: bool,
    speculations: Speculations<(u32, String, Vec<u8>)>,
    time: u64,
    exited: bool,
}

impl<'a> Run<'a> {
    fn new(program: &'a Program, options: &'a Options, text: &str) -> Run<'a> {
        let volatile = ["timestamp", "rand(", "cpu"];
        Run {
            program,
            options,
            printer: Printer::new(program, options, Box::new(Text::new(options, false))),
            world: GuideWorld::new(
                program,
                options.recording.speculations as usize,
                options.recording.speculation_bytes,
            ),
            speculations: Speculations::new(options.recording.speculation_bytes),
            time: 0,
            target: Target::new(program, options),
            aggregations: AggregateTable::new(),
            out: Vec::new(),
            compares: !volatile.iter().any(|word| text.contains(word)),
            exited: false,
        }
    }

    fn everything(mut self) -> String {
        self.fire("BEGIN", [0; 6]);
        if !self.exited {
            self.fire("entry", world::arguments());
        }
        self.fire("END", [0; 6]);
        let snapshot = std::mem::take(&mut self.world.aggregates);
        self.aggregations
            .add(self.program, snapshot.with_symbols(self.program, &mut Addresses));
        self.printer
            .finish(&mut self.out, &self.aggregations, &mut Addresses)
            .unwrap();
        String::from_utf8_lossy(&self.out).into_owned()
    }

    fn fire(&mut self, event: &str, arguments: [u64; 6]) {
        for (index, clause) in self.program.clauses.iter().enumerate() {
            // An exit() ends the firing. END and ERROR fire nevertheless.
            let is_over = self.exited && !["END", "ERROR"].contains(&event);
            if !is_over && clause.probes.iter().any(|probe| probe.name == event) {
                self.clause(index, clause, event, arguments);
            }
        }
    }

    fn clause(&mut self, index: usize, clause: &Clause, event: &str, arguments: [u64; 6]) {
        let limits = self.options.limits();
        // An ERROR clause may have run since the previous clause, and changed the event.
        self.world.enter(event, arguments);
        self.world.epid = index as u32 + 1;
        let outcome = run_clause(clause, self.program, limits, &mut self.world);
        if self.compares {
            let compiled = self.target.fire(index, event, arguments, ProbeKind::Entry);
            let interpreted = match &outcome {
                Ok(Outcome { fired: false, .. }) => Ok(None),
                Ok(outcome) => Ok(outcome.payload.clone()),
                Err(fault) => Err(*fault),
            };
            same(clause, limits, interpreted, compiled);
        }
        match outcome {
            Ok(Outcome {
                payload: Some(payload),
                exit,
                ..
            }) => {
                self.exited |= exit.is_some();
                self.record(clause, event, payload);
            }
            Ok(_) => {}
            Err(fault) => self.fault(event, fault),
        }
    }

    fn name(&self, event: &str) -> ProbeName {
        let names = world::names(event);
        ProbeName {
            id: 1,
            provider: names[0].to_owned(),
            module: names[1].to_owned(),
            function: names[2].to_owned(),
            linked: names[2].to_owned(),
            shown: names[2].to_owned(),
            name: names[3].to_owned(),
        }
    }

    /// Prints a record, or keeps it if it belongs to a speculation.
    fn record(&mut self, clause: &Clause, event: &str, payload: Vec<u8>) {
        let layout = record_layout(clause, self.options.limits());
        let record = [vec![0; 24], payload].concat();
        self.time += 1;
        let view = (self.world.epid, event.to_owned(), record.clone());
        let taken = self.speculations.take(clause, &layout, &record, self.time, view);
        for id in taken.freed {
            if let Some(taken) = self.world.speculations.get_mut(id as usize - 1) {
                *taken = Speculation::Free;
            }
            self.target.free_speculation(id);
        }
        for (epid, event, record) in taken.print {
            let clause = &self.program.clauses[epid as usize - 1];
            self.print(epid, clause, &event, &record);
        }
    }

    fn print(&mut self, epid: u32, clause: &Clause, event: &str, record: &[u8]) {
        let layout = record_layout(clause, self.options.limits());
        let snapshot = std::mem::take(&mut self.world.aggregates);
        self.aggregations
            .add(self.program, snapshot.with_symbols(self.program, &mut Addresses));
        let probe = self.name(event);
        let event = Event {
            epid,
            probe: &probe,
            clause,
            layout: &layout,
            cpu: 0,
            thread: 1,
            record,
            next: None,
        };
        self.printer
            .record(&mut self.out, &event, &mut self.aggregations, &mut Addresses)
            .unwrap();
    }

    fn fault(&mut self, event: &str, fault: ClauseFault) {
        if event == "ERROR" {
            self.out.extend_from_slice(b"! 1 error in ERROR probe enabling\n");
            return;
        }
        let mut shown = fault;
        // Addresses of the test's memory differ from run to run.
        shown.fault.value = world::relative(fault.fault.value);
        let message = error_message(self.world.epid, &self.name(event), &shown);
        self.out.extend_from_slice(format!("! {message}\n").as_bytes());
        let epid = u64::from(self.world.epid);
        let kind = fault.fault.kind.dtrace_code().into();
        self.fire(
            "ERROR",
            [0, epid, fault.action.into(), u64::MAX, kind, shown.fault.value],
        );
    }
}

/// Compares the records of both ways. The gaps between fields must be zero in both. The bytes after a string's NUL are
/// not compared.
fn same(
    clause: &Clause,
    limits: nanoprobe_lang::layout::Limits,
    interpreted: Result<Option<Vec<u8>>, ClauseFault>,
    compiled: Result<Option<Vec<u8>>, ClauseFault>,
) {
    let read = |payload: Option<Vec<u8>>| {
        payload.map(|payload| {
            let record = [vec![0; 24], payload].concat();
            let layout = record_layout(clause, limits);
            let fields = layout.fields.iter();
            fields
                .map(|field| nanoprobe_lang::interpret::read_field(&record, field).unwrap())
                .collect::<Vec<_>>()
        })
    };
    match (interpreted, compiled) {
        (Err(a), Err(b)) => {
            assert_eq!((a.action, a.fault.kind), (b.action, b.fault.kind));
            if a.fault.kind == FaultKind::BadAddress && a.fault.value < nanoprobe_lang::interpret::SCRATCH_ADDRESS {
                assert_eq!(a.fault.value, b.fault.value);
            }
        }
        (Ok(a), Ok(b)) => assert_eq!(read(a), read(b), "interpreted and compiled, in {:?}", clause.span),
        (a, b) => panic!("interpreted {a:?}, compiled {b:?}"),
    }
}
