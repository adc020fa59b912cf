//! Offsets and values of `agent/contract.h` that generated code uses.

/// `struct np_context`.
pub(crate) mod context {
    pub(crate) const FRAME: i32 = 8;
    pub(crate) const TARGET_RSP: i32 = 16;
    pub(crate) const ENABLING: i32 = 24;
    pub(crate) const RESULT: i32 = 40;
    pub(crate) const FAULT: i32 = 48;
    pub(crate) const FAULT_ADDRESS: i32 = 56;
    pub(crate) const CONTROL: i32 = 64;
    pub(crate) const TID_ADDRESS: i32 = 72;
    pub(crate) const TID: i32 = 80;
    pub(crate) const THREAD_KEY: i32 = 88;
    pub(crate) const SCRATCH_USED: i32 = 112;
    pub(crate) const KEY: i32 = 120;
    pub(crate) const KEY_BYTES: i32 = 128;
    pub(crate) const KEY_CAPACITY: i32 = 136;
    pub(crate) const LOCALS: i32 = 304;
    pub(crate) const CLAUSE_LOCALS: i32 = 320;
}

/// `struct np_enabling`.
pub(crate) mod enabling {
    pub(crate) const EPID: i32 = 0;
    pub(crate) const PROBE_ID: i32 = 4;
    pub(crate) const SITE: i32 = 8;
    pub(crate) const OFFSET: i32 = 16;
    pub(crate) const PROVIDER: i32 = 24;
    pub(crate) const MODULE: i32 = 32;
    pub(crate) const FUNCTION: i32 = 40;
    pub(crate) const NAME: i32 = 48;
    pub(crate) const SLOT_BASE: i32 = 56;
}

/// The detour's frame, from `context->frame`: `struct np_frame_below` under it, `struct np_frame` from it on.
pub(crate) mod frame {
    pub(crate) const R14: i32 = -104;
    pub(crate) const R13: i32 = -96;
    pub(crate) const R12: i32 = -88;
    pub(crate) const R11: i32 = -80;
    pub(crate) const R10: i32 = -72;
    pub(crate) const R9: i32 = -64;
    pub(crate) const R8: i32 = -56;
    pub(crate) const RBP: i32 = -48;
    pub(crate) const RDI: i32 = -40;
    pub(crate) const RSI: i32 = -32;
    pub(crate) const RDX: i32 = -24;
    pub(crate) const RCX: i32 = -16;
    pub(crate) const RBX: i32 = -8;
    pub(crate) const FLAGS: i32 = 0;
    pub(crate) const R15: i32 = 8;
    pub(crate) const RAX: i32 = 16;
}

/// `enum np_fault`.
pub(crate) mod fault {
    pub(crate) const DIVIDE: i64 = 2;
    pub(crate) const KEY_TOO_LONG: i64 = 4;
    pub(crate) const ILLEGAL: i64 = 6;
}

/// Set in the variable id of a thread-local dynamic variable.
pub(crate) const THREAD_LOCAL_VARIABLE: u32 = 1 << 31;
