//! Programs that try to harm their tracer, or to make it harm others (invariants I9 and I12).

mod decoys;
mod elsewhere;
mod forged;
mod limits;
mod liveness;
mod remains;
mod scribbling;
