//! Operations on operands whose types are known, in the program form.
//!
//! [`crate::check`] finds the meaning of a text, and asks this module for each operation. Nothing
//! here knows the syntax. An operand is an expression of the program. For a structure or an array,
//! the expression gives its place ([`memory`]).
//!
//! | file | holds |
//! |---|---|
//! | `constant`, `convert`, `coerce` | constants; conversions |
//! | `operators`, `arithmetic`, `pointers`, `characters` | operators |
//! | `memory`, `registers` | structures and arrays, where they lie |
//! | `variables`, `temporaries`, `implicit_width` | the program's variables, and values that are computed once |
//! | `store`, `bit_fields`, `block_copy` | assignments |
//! | `structures`, `access_path` | members, elements; structures that are assigned |
//! | `scalarize`, `unions` | structures in associative arrays, structures that hold strings, and their unions |
//! | `sequence`, `effects` | one expression after another; expressions that may be computed twice |
//! | `refusals` | errors that several operations share |

pub(crate) mod access_path;
pub(crate) mod arithmetic;
pub(crate) mod bit_fields;
pub(crate) mod block_copy;
pub(crate) mod characters;
pub(crate) mod coerce;
pub(crate) mod constant;
pub(crate) mod convert;
pub(crate) mod effects;
pub(crate) mod enumerations;
pub(crate) mod implicit_width;
pub(crate) mod memory;
pub(crate) mod operators;
pub(crate) mod pointers;
pub(crate) mod refusals;
pub(crate) mod registers;
pub(crate) mod scalarize;
pub(crate) mod sequence;
pub(crate) mod store;
pub(crate) mod structures;
pub(crate) mod temporaries;
pub(crate) mod unions;
pub(crate) mod variables;

/// An operation in the program form, or why there is no such operation.
pub(crate) type Lowered<T> = Result<T, crate::diagnostic::Diagnostic>;
