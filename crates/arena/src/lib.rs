//! The memory that target and tracer share: its layout, and readers that trust none of it.
//!
//! The target runs our code and all other code in one address space, so a stray pointer may have written anything into
//! the arena. The readers here take every byte as hostile. Sizes and offsets are checked before they are used. Every
//! loop has a bound that does not come from the arena. A senseless structure is reported as [`Corrupt`]. No byte makes
//! a reader panic, hang or read outside.
//!
//! * [`layout`] mirrors `agent/contract.h`; [`ContextPlan`] has the offsets in a thread's context.
//! * [`Memory`] is access to an arena, [`Mapping`] a shared mapping, [`Bytes`] plain bytes.
//! * [`ControlBlock`] reads and writes the arena's head.
//! * [`RingReader`] takes records, and [`RingMerge`] puts the records of all rings in order.
//! * [`AggregateReader`] and [`static_words`] read aggregations. [`AggregateTables`] makes a thread
//!   switch to its other table.
//! * [`DynamicVariables`] and [`variables`] serve the tracer's own clauses.
//! * [`registry`] is the list of the probes that a program has put on itself.
//! * [`buckets`] has the bucket functions of `quantize`, `lquantize` and `llquantize`, and their inverse.
//!
//! Only one file, [`Mapping`]'s, contains unsafe code.
#![allow(missing_docs, reason = "an item whose name says what it is has no comment")]
#![deny(unsafe_code)]

mod aggregate;
pub mod buckets;
mod control;
mod dynamic;
mod error;
mod hash;
pub mod layout;
mod mapping;
mod memory;
mod merge;
mod plan;
pub mod registry;
mod ring;
mod structure;
mod turns;
pub mod variables;

pub use aggregate::{Aggregate, AggregateEntries, AggregateReader, read_words, static_words};
pub use control::ControlBlock;
pub use dynamic::{DynamicError, DynamicValue, DynamicVariables};
pub use error::Corrupt;
pub use mapping::Mapping;
pub use memory::{Bytes, Memory, OutOfBounds};
pub use merge::RingMerge;
pub use plan::{ContextPlan, PlanError, Turn};
pub use ring::{Record, RingReader};
pub use structure::{Field, Structure};
pub use turns::AggregateTables;
