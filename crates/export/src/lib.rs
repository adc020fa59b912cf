//! What was recorded, in the formats people use.
