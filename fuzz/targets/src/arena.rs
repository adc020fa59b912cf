//! The arena as the tracer reads it while it traces: rings, aggregations, variables, the registry.

use nanoprobe_arena::layout::Context;
use nanoprobe_arena::{
    AggregateTables, Bytes, ContextPlan, DynamicVariables, Memory as _, RingReader, registry, static_words, variables,
};

/// Bytes of a context's parts.
const PART: u64 = 4096;
/// The limit of records that are taken: the reader ends before, whatever the ring says.
const RECORDS_MAX: usize = 1 << 16;

/// The contents of one thread's context, and of the memory after it.
pub fn arena(data: &[u8]) {
    let Ok(plan) = ContextPlan::new(256, 64, 64, 256, 256, PART, PART) else {
        return;
    };
    let mut whole = data.to_vec();
    whole.resize(plan.stride as usize + PART as usize, 0);
    let memory = Bytes::from(&*whole);
    for policy in 0..3 {
        let mut reader = RingReader::new(0, &plan, policy);
        for taken in 0.. {
            assert!(taken < RECORDS_MAX, "a ring of 4 KiB has no end");
            match reader.next(&memory) {
                Ok(Some(record)) => assert!(record.payload.len() as u64 <= PART),
                Ok(None) | Err(_) => break,
            }
        }
        let _told = (reader.drops(&memory), reader.outstanding(&memory));
    }
    // The contents may name any thread, or none. This thread is asked to switch its tables, and they are emptied.
    let said = memory.load_u64(core::mem::offset_of!(Context, aggregates) as u64);
    let [first, _] = plan.aggregates;
    let mut tables = AggregateTables::new(0, said.unwrap_or(0).wrapping_sub(first), &plan);
    for _ in 0..3 {
        for table in tables.in_use() {
            let reader = tables.reader(table);
            assert!(reader.taken(&memory).is_ok_and(|taken| taken <= PART) || reader.taken(&memory).is_err());
            for (taken, entry) in reader.entries(&memory).into_iter().flatten().enumerate() {
                assert!(taken < RECORDS_MAX, "a table of 4 KiB has no end");
                if entry.is_err() {
                    break;
                }
            }
        }
        let _told = (tables.empty(&memory), tables.turn(&memory), tables.left(&memory));
    }
    let _words = static_words(&memory, 0, plan.slots, 32);
    let _string = variables::read_string(&memory, plan.locals, plan.locals_bytes);
    let dynamic = DynamicVariables::new(plan.stride, PART);
    let _values = dynamic.values(&memory);
    let read = |address: u64, into: &mut [u8]| {
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        let found = start.checked_add(into.len()).and_then(|end| data.get(start..end));
        found.is_some_and(|found| {
            into.copy_from_slice(found);
            true
        })
    };
    let _listed = registry::read(0, data.len() as u64, &read);
}
