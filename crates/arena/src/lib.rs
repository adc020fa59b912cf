//! The memory that target and tracer share: its layout, and readers that trust none of it.
