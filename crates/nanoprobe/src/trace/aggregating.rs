//! The aggregations of a run, brought up to date when they are needed. Also applies `-x maxcost` to
//! the hits among them.

use nanoprobe_export::AggregateTable;
use nanoprobe_lang::program::{Clause, RecordKind, Statement};
use nanoprobe_session::{Known, Tracing};

use crate::cost::hits;
use crate::cost::limit::Limit;
use crate::output::Names;
use crate::places::{OfProcess, Places};

/// All aggregations of a run.
#[derive(Default)]
pub struct Aggregated {
    pub table: AggregateTable,
    /// Whether any value was ever aggregated.
    pub is_any: bool,
    /// The limit of `-x maxcost`.
    limit: Option<Limit>,
    /// The names of addresses in keys, where several processes are traced.
    pub places: Places,
    /// Whether several processes are traced, so that addresses in keys are replaced by numbers.
    merges: bool,
    first: OfProcess,
}

impl Aggregated {
    /// `bytes_max`: `aggmax`.
    pub fn new(limit: Option<Limit>, bytes_max: u64) -> Aggregated {
        Aggregated {
            table: AggregateTable::with_limit(bytes_max),
            is_any: false,
            limit,
            places: Places::default(),
            merges: false,
            first: OfProcess::new(),
        }
    }

    /// Another process is traced, too, from now on. All values so far are those of the first one.
    pub fn begin_merging(&mut self, first: &Known) {
        if std::mem::replace(&mut self.merges, true) {
            return;
        }
        let (places, numbers) = (&mut self.places, &mut self.first);
        self.table.replace_addresses(first.program(), &mut |address, of| {
            places.number(first, numbers, address, of)
        });
    }

    /// Whether several processes were traced.
    pub fn is_of_several(&self) -> bool {
        self.merges
    }

    /// Brings the aggregations up to date.
    pub fn load(&mut self, tracing: &mut Tracing) -> Result<(), anyhow::Error> {
        let (mut limit, mut numbers) = (self.limit.take(), std::mem::take(&mut self.first));
        let loaded = self.load_from(tracing, limit.as_mut(), &mut numbers);
        (self.limit, self.first) = (limit, numbers);
        loaded
    }

    /// Adds the aggregations of one process. `limit`: what `-x maxcost` permits there. `numbers`: of its addresses.
    pub fn load_from(
        &mut self,
        tracing: &mut Tracing,
        limit: Option<&mut Limit>,
        numbers: &mut OfProcess,
    ) -> Result<(), anyhow::Error> {
        let mut new = tracing.take_aggregations()?;
        self.is_any |= !new.is_empty();
        let known = tracing.known();
        // The counting clause's aggregation is never printed.
        if let Some(id) = hits::aggregation(known.program()) {
            let hits = new.split_off(id);
            if let Some(limit) = limit {
                limit.add(known.program(), hits);
            }
        }
        let mut new = new.with_symbols(known.program(), &mut Names(known));
        if self.merges {
            let places = &mut self.places;
            new = new.with_addresses(known.program(), &mut |address, of| {
                places.number(known, numbers, address, of)
            });
        }
        self.table.add(known.program(), new);
        Ok(())
    }

    /// Whether the cost of probes is to be looked at now.
    pub fn is_cost_due(&self) -> bool {
        self.limit.as_ref().is_some_and(Limit::is_due)
    }

    /// The limit of the first process.
    pub fn limit(&mut self) -> Option<&mut Limit> {
        self.limit.as_mut()
    }
}

/// Whether printing a clause's records needs the aggregations.
pub fn needs_aggregations(clause: &Clause) -> bool {
    clause.statements.iter().any(|statement| match statement {
        Statement::Record(action) => matches!(
            action.kind,
            RecordKind::Printa { .. }
                | RecordKind::Clear(_)
                | RecordKind::Truncate { .. }
                | RecordKind::Normalize { .. }
                | RecordKind::Denormalize(_)
        ),
        _ => false,
    })
}
