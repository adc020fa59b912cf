//! The arena as the tracer reads it while it traces: rings, aggregations, variables, the registry.

use nanoprobe_arena::{
    AggregateReader, Bytes, ContextPlan, DynamicVariables, RingReader, registry, static_words, variables,
};

/// Bytes of a context's parts.
const PART: u64 = 4096;
/// Records that are taken: the reader ends before, whatever the ring says.
const RECORDS_MAX: usize = 1 << 16;

/// The contents of one thread's context, with what lies behind it.
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
    if let Ok(entries) = AggregateReader::new(0, &plan).entries(&memory) {
        for (taken, entry) in entries.enumerate() {
            assert!(taken < RECORDS_MAX, "a table of 4 KiB has no end");
            if entry.is_err() {
                break;
            }
        }
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
