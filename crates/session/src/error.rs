//! What can end a session, each with what to do about it.

use nanoprobe_target::{AttachError, MemoryError, RemoteError, Sandbox, SpawnError, StopError};

/// Why a session could not begin, go on or end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The process cannot be traced.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The command could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// It cannot be stopped.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// Its memory cannot be read or written.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// A system call made in it failed.
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// A probe description that cannot be right.
    #[error(transparent)]
    Description(#[from] crate::probes::DescriptionError),
    /// What is wrong is wrong with one description of the program's.
    #[error("{error}")]
    AtDescription {
        /// Where it stands in the text.
        span: nanoprobe_lang::source::Span,
        /// What is wrong.
        error: Box<SessionError>,
    },
    /// The process that a description names cannot be traced.
    #[error("[D_PROC_GRAB] failed to grab process {pid}: {error}")]
    Grab {
        /// Which.
        pid: i32,
        /// Why.
        error: Box<SessionError>,
    },
    /// A function that is named without globs, in a module that is there, and that the module does not have.
    #[error(
        "[D_PROC_FUNC] probe description {description} does not match any probes: failed to lookup '{function}' in \
         module '{module}'{hint}"
    )]
    NoFunction {
        /// As written.
        description: String,
        /// Likewise.
        module: String,
        /// Likewise.
        function: String,
        /// What to do, beginning with a separator.
        hint: String,
    },
    /// A description that matches nothing.
    #[error("[D_PDESC_ZERO] probe description {description} does not match any probes{hint}")]
    NoMatch {
        /// As written.
        description: String,
        /// What to do, beginning with a separator.
        hint: String,
    },
    /// A description that means no instruction.
    #[error(transparent)]
    Name(#[from] crate::names::NameError),
    /// The program does not compile for the process that was started, though it did for its file: the caller has said
    /// what is wrong.
    #[error("the program does not compile for the process that was started")]
    Program,
    /// A clause cannot be enabled.
    #[error(transparent)]
    Enable(#[from] crate::enable::EnableError),
    /// The code generator cannot be set up.
    #[error("the code generator cannot be set up: {0}")]
    Compiler(#[from] nanoprobe_codegen::Error),
    /// The sizes that were asked for do not fit.
    #[error("the buffers do not fit: {0}; ask for smaller ones (bufsize, aggsize)")]
    Sizes(#[from] nanoprobe_arena::PlanError),
    /// No hole in the target's address space.
    #[error(
        "the process has no {bytes} bytes of address space free in one piece; ask for smaller buffers (bufsize, aggsize)"
    )]
    NoRoom {
        /// How many.
        bytes: u64,
    },
    /// The target's address space is limited, and tracing would take too much of what is left.
    #[error(
        "the address space of process {pid} is limited (ulimit -v): {} MiB are left, of which tracing would take more than half, {} MiB at least; raise the limit (prlimit --pid {pid} --as=...)",
        .spare >> 20,
        .smallest >> 20
    )]
    LimitedAddressSpace {
        /// Which process.
        pid: i32,
        /// Bytes that it may still map.
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
    /// While we attached, the process executed another program: what was known of it, and what was mapped
    /// in it, is of no use any more. Nothing of ours is left; who asks again gets what the process is now.
    #[error(
        "process {pid} executes other programs faster than nanoprobe can attach to it; try again when it stays with one, \
         or start it by -c"
    )]
    Executed {
        /// Which.
        pid: i32,
    },
    /// The process has just begun to execute its program: of the libraries that this
    /// needs not all are mapped yet. Who asks again in some milliseconds finds them.
    #[error("process {pid} has not mapped its libraries yet; try again")]
    Starting {
        /// Which.
        pid: i32,
        /// What was not found in it so far, where it was looked for.
        error: Option<Box<SessionError>>,
    },
    /// [`crate::interrupt::request`] has come before there was anything to be ended.
    #[error("interrupted")]
    Interrupted,
    /// Something is used before it is there.
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
    /// Nothing tells the threads of a process under seccomp apart.
    #[error(
        "the threads of process {pid} cannot be told apart: they share a thread pointer, and its seccomp filter is in the way \
         of asking the kernel; trace it before it enters seccomp"
    )]
    ThreadsAlike {
        /// Which.
        pid: i32,
    },
    /// A process under seccomp.
    #[error("process {pid} cannot be traced: {sandbox}")]
    Sandboxed {
        /// Which.
        pid: i32,
        /// What of its filter is in the way.
        sandbox: Sandbox,
    },
    /// `restore` found nothing.
    #[error("process {pid} carries no probes of nanoprobe; there is nothing to restore")]
    NothingToRestore {
        /// Which.
        pid: i32,
    },
    /// The tracer of a process lives.
    #[error(
        "process {pid} is being traced by another nanoprobe that runs (process {tracer}, as its own pid namespace counts); \
         end that one first"
    )]
    TracerLives {
        /// Which.
        pid: i32,
        /// Its tracer, as the arena tells.
        tracer: u32,
    },
    /// Whether the tracer of a process lives cannot be found out.
    #[error(
        "process {pid} carries probes, and whether their tracer still runs cannot be told: reading /proc/locks failed \
         ({reason}); try again outside of the container"
    )]
    LocksUnknown {
        /// Which.
        pid: i32,
        /// What the kernel said.
        reason: String,
    },
    /// The memory of a dead tracer tells nothing any more.
    #[error(
        "process {pid} carries the memory of a nanoprobe that was killed, and has overwritten it: what was changed in the \
         program's text cannot be told any more; restart the program"
    )]
    Overwritten {
        /// Which.
        pid: i32,
    },
    /// Somebody has taken our patches back.
    #[error(
        "the probes in process {pid} were taken back by somebody else (`nanoprobe restore`, or the process itself): nothing \
         was counted after that"
    )]
    TakenBack {
        /// Which.
        pid: i32,
    },
    /// Attaching failed, and taking back what was done by then failed, too.
    #[error("{error}; taking back what was done by then failed, too: {clean_up}. Process {pid} {left}")]
    NotCleanedUp {
        /// Which.
        pid: i32,
        /// Why attaching failed.
        error: Box<SessionError>,
        /// Why it could not be taken back.
        clean_up: Box<SessionError>,
        /// In what state it is left, and what to do.
        left: &'static str,
    },
    /// Two tracers attach at once.
    #[error("another nanoprobe is attaching to process {pid}; try again, or end that one first")]
    TwoTracers {
        /// Which.
        pid: i32,
    },
}

impl SessionError {
    /// Whether somebody else was quicker: has mapped something where, or when, we were about to.
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
    /// The same, with the place of the description that it is about.
    pub(crate) fn at(self, description: &nanoprobe_lang::program::ProbeDescription) -> SessionError {
        SessionError::AtDescription {
            span: description.span,
            error: Box::new(self),
        }
    }
}
