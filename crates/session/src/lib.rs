//! One tracing session: resolve, place, consume, take back.
