//! Programs that want to harm their tracer, or to have it harm others (invariants I9 and I12).

mod decoys;
mod elsewhere;
mod limits;
mod liveness;
mod remains;
mod scribbling;
