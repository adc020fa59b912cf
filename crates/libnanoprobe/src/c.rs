//! The types of `nanoprobe.h`, field by field.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

/// `NP_PROBE_DISABLED`.
pub const PROBE_DISABLED: c_uint = 1;
/// `NP_PROBE_NO_SIMD`.
pub const PROBE_NO_SIMD: c_uint = 2;
/// `NP_PROBE_TRAP`.
pub const PROBE_TRAP: c_uint = 4;
/// `NP_PROBE_JUMP_ONLY`.
pub const PROBE_JUMP_ONLY: c_uint = 8;
/// `NP_RETPROBE_AUTO`.
pub const RETPROBE_AUTO: c_int = 0;
/// `NP_RETPROBE_EXITS`.
pub const RETPROBE_EXITS: c_int = 1;
/// `NP_RETPROBE_ADDRESS`.
pub const RETPROBE_ADDRESS: c_int = 2;
/// `NP_RETPROBE_DATA_MAX`.
pub const RETPROBE_DATA_MAX: usize = 4096;
/// `NP_RETPROBE_MAXACTIVE`.
pub const RETPROBE_MAXACTIVE: u64 = 1024;
/// `NP_RETPROBE_MAXACTIVE_MAX`.
pub const RETPROBE_MAXACTIVE_MAX: u64 = 1 << 20;

/// `struct np_regs`: the thread's state at the probed instruction.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "registers have their names")]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub rip: u64,
    pub rflags: u64,
    pub rsp: u64,
}

/// `np_pre_handler`.
pub type PreHandler = unsafe extern "C" fn(probe: *mut Probe, registers: *mut Registers) -> c_int;
/// `np_post_handler`.
pub type PostHandler = unsafe extern "C" fn(probe: *mut Probe, registers: *mut Registers, flags: c_ulong);
/// `np_fault_handler`.
pub type FaultHandler = unsafe extern "C" fn(probe: *mut Probe, registers: *mut Registers, signal: c_int) -> c_int;

/// `struct np_probe`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct Probe {
    pub size: usize,
    pub addr: *mut c_void,
    pub symbol: *const c_char,
    pub offset: usize,
    pub pre_handler: Option<PreHandler>,
    pub post_handler: Option<PostHandler>,
    pub fault_handler: Option<FaultHandler>,
    pub flags: c_uint,
    pub user: *mut c_void,
    pub reserved: [*mut c_void; 4],
}

/// `struct np_jprobe`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct JumperProbe {
    pub probe: Probe,
    pub entry: *mut c_void,
}

/// `struct np_retprobe_instance`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct ReturnInstance {
    pub retprobe: *mut ReturnProbe,
    pub return_address: *mut c_void,
    pub frame: *mut c_void,
    pub data: *mut c_void,
}

/// `np_retprobe_handler`.
pub type ReturnHandler = unsafe extern "C" fn(instance: *mut ReturnInstance, registers: *mut Registers) -> c_int;

/// `struct np_retprobe`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct ReturnProbe {
    pub probe: Probe,
    pub handler: Option<ReturnHandler>,
    pub entry_handler: Option<ReturnHandler>,
    pub data_size: usize,
    pub maxactive: c_int,
    pub form: c_int,
}

/// `np_watch_handler`.
pub type WatchHandler = unsafe extern "C" fn(watchpoint: *mut Watchpoint, registers: *mut Registers);

/// `struct np_watchpoint`.
#[repr(C)]
#[allow(missing_docs, reason = "nanoprobe.h says what each is")]
pub struct Watchpoint {
    pub size: usize,
    pub addr: *mut c_void,
    pub length: usize,
    pub kind: c_int,
    pub flags: c_uint,
    pub handler: Option<WatchHandler>,
    pub user: *mut c_void,
    pub reserved: [*mut c_void; 4],
}
