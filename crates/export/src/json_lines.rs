//! JSON lines. The schema is in `docs/json.md`.
//!
//! ```text
//! {"type":"record","epid":1,"id":4,"provider":"pid7","module":"a.out","function":"f","name":"entry","cpu":1,"thread":0,
//!  "data":[{"action":"trace","value":5},{"action":"printf","text":"5\n","values":[5]}]}
//! {"type":"aggregation","name":"@","function":"quantize","key":["f"],"value":[{"from":4,"below":8,"count":2}]}
//! ```

use std::collections::BTreeSet;
use std::io::Write;

use nanoprobe_lang::interpret::{ClauseFault, FaultKind};
use nanoprobe_lang::options::Options;
use nanoprobe_lang::program::AggregationId;

use crate::Error;
use crate::console::Console;
use crate::event::{Event, ProbeName};
use crate::json::Json;
use crate::json_data::{datum, sorted};
use crate::message::error_message;
use crate::sink::{Action, Ended, Loss, Matched, Sink, Unplaced, View};

/// The members of an object, in their order.
type Members = Vec<(&'static str, Json)>;

/// The state of the output.
#[derive(Default)]
pub struct JsonLines {
    /// The data of the record that has begun.
    data: Vec<Json>,
    printed: BTreeSet<AggregationId>,
}

impl JsonLines {
    /// The state before the first line.
    #[must_use]
    pub fn new() -> JsonLines {
        JsonLines::default()
    }
}

/// Writes a line.
fn line(out: &mut dyn Write, kind: &'static str, mut members: Members) -> Result<(), Error> {
    members.insert(0, ("type", kind.into()));
    Ok(writeln!(out, "{}", Json::Object(members))?)
}

/// The members that name a probe.
fn named(probe: &ProbeName) -> Members {
    let mut members: Members = vec![
        ("id", probe.id.into()),
        ("provider", probe.provider.as_str().into()),
        ("module", probe.module.as_str().into()),
        ("function", probe.linked.as_str().into()),
        ("name", probe.name.as_str().into()),
    ];
    if probe.shown != probe.linked {
        members.insert(4, ("demangled", probe.shown.as_str().into()));
    }
    members
}

/// The members that name an enabled probe.
fn enabled(epid: u32, probe: &ProbeName) -> Members {
    let mut members = named(probe);
    members.insert(0, ("epid", epid.into()));
    members
}

impl Sink for JsonLines {
    fn listed(&mut self, out: &mut dyn Console, probe: &ProbeName) -> Result<(), Error> {
        line(out, "probe", named(probe))
    }

    fn matched(&mut self, out: &mut dyn Console, found: &Matched) -> Result<(), Error> {
        let probes = u64::try_from(found.probes).unwrap_or(u64::MAX);
        let members = vec![
            ("of", found.of.into()),
            ("text", found.text.as_str().into()),
            ("probes", probes.into()),
        ];
        line(out, "match", members)
    }

    fn refused(&mut self, out: &mut dyn Console, new: &[Unplaced]) -> Result<(), Error> {
        for refused in new {
            let members = vec![
                ("function", refused.function.as_str().into()),
                ("site", refused.site.map_or(Json::Null, Json::from)),
                ("reason", refused.reason.as_str().into()),
            ];
            line(out, "refused", members)?;
        }
        Ok(())
    }

    fn record_begins(&mut self, _: &mut dyn Console, _: &Options, _: &Event<'_>) -> Result<(), Error> {
        self.data.clear();
        Ok(())
    }

    fn action(&mut self, _: &mut dyn Console, view: &mut View<'_>, action: Action<'_>) -> Result<(), Error> {
        let (program, table) = (view.program, view.aggregations);
        let found = datum(&mut view.context(), (program, table), action.kind, action.recorded)?;
        if let Some((data, printed)) = found {
            self.data.extend(data);
            self.printed.extend(printed);
        }
        Ok(())
    }

    fn record_ends(&mut self, out: &mut dyn Console, _: &Options, event: &Event<'_>) -> Result<(), Error> {
        let mut members = enabled(event.epid, event.probe);
        members.push(("cpu", event.cpu.into()));
        members.push(("thread", event.thread.into()));
        members.push(("data", Json::List(std::mem::take(&mut self.data))));
        line(out, "record", members)
    }

    fn fault(&mut self, out: &mut dyn Console, epid: u32, probe: &ProbeName, fault: &ClauseFault) -> Result<(), Error> {
        let mut members = enabled(epid, probe);
        members.push(("action", fault.action.into()));
        members.push(("fault", fault.fault.kind.to_string().into()));
        if fault.fault.kind == FaultKind::BadAddress {
            members.push(("address", fault.fault.value.into()));
        }
        members.push(("message", error_message(epid, probe, fault).into()));
        line(out, "error", members)
    }

    fn warning(&mut self, out: &mut dyn Console, text: &str) -> Result<(), Error> {
        line(out, "warning", vec![("message", text.into())])
    }

    fn losses(&mut self, out: &mut dyn Console, losses: &[Loss]) -> Result<(), Error> {
        for loss in losses {
            let members = vec![
                ("kind", loss.kind.into()),
                ("count", loss.count.into()),
                ("message", loss.text.as_str().into()),
            ];
            line(out, "drops", members)?;
        }
        Ok(())
    }

    fn exited(&mut self, out: &mut dyn Console, pid: Option<i32>, how: Ended) -> Result<(), Error> {
        let mut members = Vec::new();
        members.extend(pid.map(|pid| ("pid", Json::from(pid))));
        match how {
            Ended::Status(status) => members.push(("status", status.into())),
            Ended::Signal { number, .. } => members.push(("signal", number.into())),
            Ended::Unknown => {}
        }
        line(out, "exited", members)
    }

    fn aggregations(&mut self, out: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        let program = view.program;
        let rows = view.aggregations.rest(program, &self.printed);
        for members in sorted(&mut view.context(), program, rows) {
            line(out, "aggregation", members)?;
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut dyn Console, status: i32) -> Result<(), Error> {
        line(out, "exit", vec![("status", status.into())])
    }
}
