//! The agent's functions that handlers call.

/// A function of the agent that handlers call; what each does is said in `agent/contract.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // one name each, documented in the contract
pub enum AgentFunction {
    ThreadChanged,
    CopyIn,
    CopyInString,
    Load,
    StringLength,
    StringCompare,
    StringCopy,
    KeyInteger,
    KeyString,
    KeyStack,
    Aggregate,
    Quantize,
    LinearQuantize,
    LogLinearQuantize,
    StandardDeviation,
    DynamicGet,
    DynamicStore,
    Reserve,
    Commit,
    UserStack,
    UserCaller,
    Timestamp,
    VirtualTimestamp,
    WallTimestamp,
    Cpu,
    Error,
    Exit,
}

impl AgentFunction {
    /// Every function, in declaration order.
    pub const ALL: [AgentFunction; 27] = [
        AgentFunction::ThreadChanged,
        AgentFunction::CopyIn,
        AgentFunction::CopyInString,
        AgentFunction::Load,
        AgentFunction::StringLength,
        AgentFunction::StringCompare,
        AgentFunction::StringCopy,
        AgentFunction::KeyInteger,
        AgentFunction::KeyString,
        AgentFunction::KeyStack,
        AgentFunction::Aggregate,
        AgentFunction::Quantize,
        AgentFunction::LinearQuantize,
        AgentFunction::LogLinearQuantize,
        AgentFunction::StandardDeviation,
        AgentFunction::DynamicGet,
        AgentFunction::DynamicStore,
        AgentFunction::Reserve,
        AgentFunction::Commit,
        AgentFunction::UserStack,
        AgentFunction::UserCaller,
        AgentFunction::Timestamp,
        AgentFunction::VirtualTimestamp,
        AgentFunction::WallTimestamp,
        AgentFunction::Cpu,
        AgentFunction::Error,
        AgentFunction::Exit,
    ];
}
