//! The instructions that a sequence may contain: they have the same effect each time from the same state, and do not
//! endanger the process.

use iced_x86::{
    Code, FlowControl, Instruction, InstructionInfoFactory, MemorySize, Mnemonic, OpAccess, OpKind, Register,
};

/// Whether a straight-line instruction may be executed.
pub fn is_allowed(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    if instruction.is_invalid() || !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::Exception) {
        return false;
    }
    !is_unpredictable(instruction) && !is_harmful(instruction) && moves_stack_simply(factory, instruction)
}

/// Instructions with different results each time. Those that only clobber registers are in
/// the templates instead.
fn is_unpredictable(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let by_mnemonic = matches!(
        instruction.mnemonic(),
        Cpuid | Rdtsc | Rdtscp | Rdpmc | Rdrand | Rdseed | Rdpid | Rdpru | Xgetbv
        // Instructions that write the processor's record of the state, and not the state.
        | Xsave | Xsave64 | Xsavec | Xsavec64 | Xsaveopt | Xsaveopt64 | Xsaves | Xsaves64
        // Instructions that wait.
        | Tpause | Umwait | Mwait | Mwaitx | Umonitor | Monitor | Monitorx
        // Instructions that the processor may refuse, and that the kernel then emulates with values of its own.
        | Sgdt | Sidt | Sldt | Str | Smsw
        // Instructions that store the address of the last x87 instruction, which is the copy's.
        | Fnstenv | Fstenv | Fnsave | Fsave | Fxsave | Fxsave64
    );
    by_mnemonic
}

/// Instructions that would take control away from the executor.
fn is_harmful(instruction: &Instruction) -> bool {
    use Mnemonic::*;
    let segment = |index: u32| {
        instruction.op_kind(index) == OpKind::Register && instruction.op_register(index).is_segment_register()
    };
    let loads_segment = match instruction.mnemonic() {
        Mov | Pop => instruction.op_count() != 0 && segment(0),
        Lds | Les | Lfs | Lgs | Lss => true,
        _ => false,
    };
    let by_mnemonic = matches!(
        instruction.mnemonic(),
        Wrfsbase | Wrgsbase | Swapgs | Wrpkru | Popf | Popfd | Popfq | Iret | Iretd | Iretq | Uiret
        | Xrstor | Xrstor64 | Xrstors | Xrstors64 | Fxrstor | Fxrstor64
        | Vmcall | Vmmcall | Vmfunc | Vmlaunch | Vmresume | Vmgexit | Tdcall | Seamcall | Seamret | Seamops | Getsec
        | Encls | Enclu | Enclv | Enqcmd | Enqcmds | Senduipi | Stui | Clui
        | Wrssd | Wrssq | Wrussd | Wrussq | Rstorssp | Incsspd | Incsspq | Setssbsy | Clrssbsy | Saveprevssp
        // Tiles are not enabled for this process, and 8 KiB of them not compared.
        | Ldtilecfg | Sttilecfg | Tilerelease | Tilezero | Tileloadd | Tileloaddt1 | Tilestored
        | Int1 | Int3 | Int | Into | Syscall | Sysenter | Sysret | Sysretq | Sysexit | Sysexitq | Xabort | Xbegin | Xend
    );
    by_mnemonic || loads_segment
}

/// Whether an instruction leaves the stack pointer alone, or is a push or pop of one word. rsp must always point to a
/// stack, because detours push.
fn moves_stack_simply(factory: &mut InstructionInfoFactory, instruction: &Instruction) -> bool {
    if matches!(
        instruction.code(),
        Code::Enterw_imm16_imm8 | Code::Enterd_imm16_imm8 | Code::Enterq_imm16_imm8
    ) {
        return false;
    }
    let is_stack_register =
        |register: Register| matches!(register, Register::RSP | Register::ESP | Register::SP | Register::SPL);
    let writes = |access: OpAccess| {
        !matches!(
            access,
            OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess
        )
    };
    let info = factory.info(instruction);
    let written = info
        .used_registers()
        .iter()
        .any(|used| is_stack_register(used.register()) && writes(used.access()));
    if !written {
        return true;
    }
    use Mnemonic::*;
    let simple = matches!(instruction.mnemonic(), Push | Pop | Pushf | Pushfq);
    let first_is_stack = instruction.op_count() != 0
        && instruction.op_kind(0) == OpKind::Register
        && is_stack_register(instruction.op_register(0));
    simple && !(instruction.mnemonic() == Pop && first_is_stack) && instruction.memory_size() != MemorySize::UInt32
}
