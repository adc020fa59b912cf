//! The agent image.
