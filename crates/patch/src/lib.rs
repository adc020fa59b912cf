//! x86-64 patching as a pure function: decode, choose a tactic, relocate, build detours.
