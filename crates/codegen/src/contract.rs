//! Offsets and values of `agent/contract.h` that generated code uses, taken from the arena's mirror of that header.

/// The six integer registers in which the ABI passes arguments.
pub(crate) const REGISTER_PARAMETERS: usize = 6;

/// Offsets of fields as displacements of instructions.
macro_rules! offsets {
    ($structure:ty { $($name:ident = $field:ident,)* }) => {
        use nanoprobe_arena::layout;
        $(pub(crate) const $name: i32 = core::mem::offset_of!($structure, $field) as i32;)*
    };
}

/// `struct np_context`.
pub(crate) mod context {
    offsets!(layout::Context {
        FRAME = frame,
        TARGET_RSP = target_rsp,
        ENABLING = enabling,
        RESULT = result,
        FAULT = fault,
        FAULT_ADDRESS = fault_address,
        CONTROL = control,
        TID_ADDRESS = tid_address,
        TID = tid,
        PID = pid,
        PARENT = parent,
        ANCESTORS = ancestors,
        THREAD_KEY = thread_key,
        SCRATCH = scratch,
        SCRATCH_USED = scratch_used,
        KEY = key,
        KEY_BYTES = key_bytes,
        KEY_CAPACITY = key_capacity,
        LOCALS = locals,
        CLAUSE_LOCALS = clause_locals,
    });
}

/// `struct np_control`.
pub(crate) mod control {
    offsets!(layout::Control {
        EXIT_REQUESTED = exit_requested,
        SPECULATION_COUNT = speculation_count,
    });
}

/// `struct np_record`.
pub(crate) mod record {
    offsets!(layout::RecordHeader {
        TSC = tsc,
    });
}

/// `struct np_enabling`.
pub(crate) mod enabling {
    offsets!(layout::Enabling {
        EPID = epid,
        PROBE_ID = probe_id,
        SITE = site,
        OFFSET = offset,
        PROVIDER = provider,
        MODULE = module,
        FUNCTION = function,
        NAME = name,
        SLOT_BASE = slot_base,
    });
}

/// The detour's frame, relative to `context->frame`: `struct np_frame_below` lies below this address, `struct np_frame`
/// from it on.
pub(crate) mod frame {
    offsets!(layout::Frame {
        FLAGS = flags,
        R15 = r15,
        RAX = rax,
    });

    const BELOW: i32 = size_of::<layout::FrameBelow>() as i32;

    macro_rules! below {
        ($($name:ident = $field:ident,)*) => {
            $(pub(crate) const $name: i32 = core::mem::offset_of!(layout::FrameBelow, $field) as i32 - BELOW;)*
        };
    }
    below! {
        R14 = r14,
        R13 = r13,
        R12 = r12,
        R11 = r11,
        R10 = r10,
        R9 = r9,
        R8 = r8,
        RBP = rbp,
        RDI = rdi,
        RSI = rsi,
        RDX = rdx,
        RCX = rcx,
        RBX = rbx,
    }
}

/// `enum np_fault`.
pub(crate) mod fault {
    pub(crate) const BAD_ADDRESS: i64 = nanoprobe_arena::layout::FAULT_BAD_ADDRESS as i64;
    pub(crate) const DIVIDE: i64 = nanoprobe_arena::layout::FAULT_DIVIDE as i64;
    pub(crate) const KEY_TOO_LONG: i64 = nanoprobe_arena::layout::FAULT_KEY_TOO_LONG as i64;
    pub(crate) const ILLEGAL: i64 = nanoprobe_arena::layout::FAULT_ILLEGAL as i64;
}

/// The bit in the id of a dynamic variable that marks it as thread-local.
pub const THREAD_LOCAL_VARIABLE: u32 = 1 << 31;
