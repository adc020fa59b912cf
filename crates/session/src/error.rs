//! The errors that can end a session, each with what to do about it.

use nanoprobe_target::{AttachError, MemoryError, RemoteError, Sandbox, SpawnError, StopError};

/// Why a session could not begin, continue or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The process cannot be traced.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The command could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// The process cannot be stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// The process's memory cannot be read or written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A system call that was made in the process failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A probe description that cannot be right.
    #[error(transparent)]
    Description(#[from] crate::probes::DescriptionError),
    /// An error in one description of the program.
    #[error("{error}")]
    AtDescription {
        /// Where the description stands in the program's text.
        span: nanoprobe_lang::source::Span,
        /// The error in the description.
        error: Box<SessionError>,
    },
    /// The process that a description names cannot be traced.
    #[error("[D_PROC_GRAB] failed to grab process {pid}: {error}")]
    Grab {
        /// The number of the process.
        pid: i32,
        /// The reason.
        error: Box<SessionError>,
    },
    /// A function that is named without globs, and that its module, which is loaded, does not have.
    #[error(
        "[D_PROC_FUNC] probe description {description} does not match any probes: failed to lookup '{function}' in \
         module '{module}'{hint}"
    )]
    NoFunction {
        /// The description, as written.
        description: String,
        /// The module, as written.
        module: String,
        /// The function, as written.
        function: String,
        /// Advice on what to do, beginning with a separator.
        hint: String,
    },
    /// A description that matches no probe.
    #[error("[D_PDESC_ZERO] probe description {description} does not match any probes{hint}")]
    NoMatch {
        /// The description, as written.
        description: String,
        /// The remedy, beginning with a separator.
        hint: String,
    },
    /// A description that means no instruction.
    #[error(transparent)]
    Name(#[from] crate::names::NameError),
    /// The program does not compile for the process that was started, though it did for its file. The caller has
    /// reported why.
    #[error("the program does not compile for the process that was started")]
    Program,
    /// A clause cannot be enabled.
    #[error(transparent)]
    Enable(#[from] crate::enable::EnableError),
    /// The code generator cannot be set up.
    #[error("the code generator cannot be set up: {0}")]
    Compiler(#[from] nanoprobe_codegen::Error),
    /// The sizes that options ask for do not fit into an arena.
    #[error("the buffers do not fit: {0}; ask for smaller ones (bufsize, aggsize)")]
    Sizes(#[from] nanoprobe_arena::PlanError),
    /// No hole in the target's address space.
    #[error(
        "the process has no {bytes} bytes of address space free in one piece; ask for smaller buffers (bufsize, aggsize)"
    )]
    NoRoom {
        /// How many bytes are needed.
        bytes: u64,
    },
    /// The target's address space is limited, and tracing would take too much of the rest.
    #[error(
        "the address space of process {pid} is limited (ulimit -v): {} MiB are left, of which tracing would take more than half, {} MiB at least; raise the limit (prlimit --pid {pid} --as=...)",
        .spare >> 20,
        .smallest >> 20
    )]
    LimitedAddressSpace {
        /// The number of the process.
        pid: i32,
        /// The number of bytes that the process may still map.
        spare: u64,
        /// Bytes that arena and code take, without any thread's context.
        smallest: u64,
    },
    /// A space is full.
    #[error(transparent)]
    Full(#[from] nanoprobe_text::space::Full),
    /// Our own mapping of the arena failed.
    #[error("cannot map the memory shared with the process: {0}; is there a limit on address space (ulimit -v)?")]
    Arena(rustix::io::Errno),
    /// The arena makes no sense: the target scribbled over it.
    #[error("the memory shared with the process is damaged ({0}): the process wrote into it")]
    Damaged(#[from] nanoprobe_arena::Corrupt),
    /// While we attached, the process executed another program. The old program is gone, and with it our mappings. The
    /// caller may attach again to the new program.
    #[error(
        "process {pid} executes other programs faster than nanoprobe can attach to it; try again when it stays with one, \
         or start it by -c"
    )]
    Executed {
        /// The number of the process.
        pid: i32,
    },
    /// The process has just begun to execute its program, and not all libraries are mapped yet. The caller may try
    /// again in some milliseconds.
    #[error("process {pid} has not mapped its libraries yet; try again")]
    Starting {
        /// The number of the process.
        pid: i32,
        /// The error because of which something could not be found so far, if there is one.
        error: Option<Box<SessionError>>,
    },
    /// [`crate::interrupt::request`] was called before there was anything to end.
    #[error("interrupted")]
    Interrupted,
    /// An operation needs a process, and there is none.
    #[error("there is no process to trace")]
    NotAttached,
    /// The region table is full.
    #[error("too many pieces of near memory; narrow the probe descriptions")]
    TooManyRegions,
    /// The site table is full.
    #[error("too many probes; narrow the probe descriptions")]
    TooManySites,
    /// The table of semaphores is full.
    #[error("too many static probes with semaphores; narrow the probe descriptions")]
    TooManySemaphores,
    /// An option's value is wrong.
    #[error("{0}")]
    Option(String),
    /// The threads of a process under seccomp cannot be told apart.
    #[error(
        "the threads of process {pid} cannot be distinguished: they share a thread pointer, and its seccomp filter \
         does not let nanoprobe ask the kernel; trace it before it enters seccomp"
    )]
    ThreadsAlike {
        /// The number of the process.
        pid: i32,
    },
    /// A process under seccomp.
    #[error("process {pid} cannot be traced: {sandbox}")]
    Sandboxed {
        /// The number of the process.
        pid: i32,
        /// Which answer of the process's filters is in the way.
        sandbox: Sandbox,
    },
    /// `restore` found nothing.
    #[error("process {pid} carries no probes of nanoprobe; there is nothing to restore")]
    NothingToRestore {
        /// The number of the process.
        pid: i32,
    },
    /// The tracer of a process lives.
    #[error(
        "process {pid} is being traced by another nanoprobe that runs (process {tracer}, as its own pid namespace counts); \
         end that one first"
    )]
    TracerLives {
        /// The number of the process.
        pid: i32,
        /// The process id of the tracer, as the arena states it.
        tracer: u32,
    },
    /// It cannot be found out whether the tracer of a process lives.
    #[error(
        "process {pid} has probes, and whether their tracer still runs is not known: reading /proc/locks failed \
         ({reason}); try again outside of the container"
    )]
    LocksUnknown {
        /// The number of the process.
        pid: i32,
        /// The error that the kernel has reported.
        reason: String,
    },
    /// The memory of a dead tracer is destroyed, so nothing can be taken back.
    #[error(
        "process {pid} still has the memory of a killed nanoprobe, and has overwritten it: which instructions were \
         patched is not known any more; restart the program"
    )]
    Overwritten {
        /// The number of the process.
        pid: i32,
    },
    /// Another program has taken our patches back.
    #[error(
        "the probes in process {pid} were removed by somebody else (`nanoprobe restore`, or the process itself): \
         nothing was counted after that"
    )]
    TakenBack {
        /// The number of the process.
        pid: i32,
    },
    /// Attaching failed, and then the removal of code and data that were already in the process failed, too.
    #[error("{error}; undoing the changes made before that failed as well: {clean_up}. Process {pid} {left}")]
    NotCleanedUp {
        /// The number of the process.
        pid: i32,
        /// Why attaching failed.
        error: Box<SessionError>,
        /// Why the removal failed.
        clean_up: Box<SessionError>,
        /// The state in which the process is left, and what to do.
        left: &'static str,
    },
    /// A clause has `stack()`, and the kernel does not show its stacks.
    #[error(transparent)]
    KernelStacks(#[from] nanoprobe_target::KernelStackError),
    /// The types of the program's variables are others in this process.
    #[error(
        "the program's variables have other types in this process than in the first one: give the process a run of its own"
    )]
    OtherVariables,
    /// There is no room for another tracer.
    #[error(
        "process {pid} is traced by sixteen nanoprobes already, or by some with two million sites: end one of them first \
         (`nanoprobe ps` lists them)"
    )]
    TooManyTracers {
        /// The number of the process.
        pid: i32,
    },
    /// Two tracers attach at once.
    #[error("another nanoprobe is attaching to process {pid}; try again, or end that one first")]
    TwoTracers {
        /// The number of the process.
        pid: i32,
    },
}

impl SessionError {
    /// Whether the cause is another tracer, which was faster and has mapped something at or just below our place.
    pub(crate) fn is_another_tracers(&self) -> bool {
        let taken = |error: &RemoteError| {
            matches!(
                error,
                RemoteError::Call {
                    errno: nix::errno::Errno::EEXIST,
                    ..
                }
            )
        };
        match self {
            SessionError::TwoTracers { .. } | SessionError::Stop(StopError::Refused { .. }) => true,
            SessionError::Remote(error) => taken(error),
            _ => false,
        }
    }
}

impl From<nanoprobe_arena::OutOfBounds> for SessionError {
    fn from(error: nanoprobe_arena::OutOfBounds) -> SessionError {
        SessionError::Damaged(error.into())
    }
}

impl SessionError {
    /// This error of a description that matches nothing, with the remedy if a program was meant that the process
    /// executes later. A hint has another remedy already.
    pub(crate) fn unless_later(mut self) -> SessionError {
        if let SessionError::AtDescription { error, .. } = &mut self
            && let SessionError::NoMatch { hint, .. } | SessionError::NoFunction { hint, .. } = &mut **error
            && (hint.is_empty() || hint.contains("there is no such module"))
        {
            *hint += "; in programs that it executes it may match with -Z";
        }
        self
    }

    /// This error, with the place of the description that caused it.
    pub(crate) fn at(self, description: &nanoprobe_lang::program::ProbeDescription) -> SessionError {
        SessionError::AtDescription {
            span: description.span,
            error: Box::new(self),
        }
    }
}
