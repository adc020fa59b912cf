//! The agent: a freestanding C runtime that runs inside the target. This crate carries it as bytes.
//!
//! The C beside this file is compiled and linked at build time into one flat image, position independent and without
//! any writable byte; `agent.h` states its rules. The image begins with `struct np_image`. The tracer fills this
//! structure in ([`image_with`]) and then writes the image to executable memory of the target. [`Function::offset`]
//! is the place of each function of `contract.h` in the image.

use core::arch::x86_64::{__cpuid, __cpuid_count};

/// The image as compiled; its header is empty except for the magic.
pub static IMAGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent.bin"));

#[allow(non_upper_case_globals, dead_code)]
mod symbols {
    include!(concat!(env!("OUT_DIR"), "/symbols.rs"));
}

macro_rules! functions {
    ($($(#[$meta:meta])* $name:ident = $symbol:ident,)*) => {
        /// A function of the agent. `contract.h` says what each does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Function {
            $( $(#[$meta])* $name, )*
        }

        impl Function {
            /// All functions of the agent.
            pub const ALL: &'static [Function] = &[$(Function::$name,)*];

            /// The function's name in `contract.h`.
            pub const fn symbol(self) -> &'static str {
                match self {
                    $( Function::$name => stringify!($symbol), )*
                }
            }

            /// The offset in bytes from the start of the image.
            pub const fn offset(self) -> u32 {
                match self {
                    $( Function::$name => symbols::$symbol, )*
                }
            }
        }
    };
}

functions! {
    /// `u64 np_enter(void)`; the only one with a return value.
    Enter = np_enter,
    /// `np_thread_changed(context)`
    ThreadChanged = np_thread_changed,
    /// `np_copyin(context, address, bytes)`
    CopyIn = np_copyin,
    /// `np_copyinstr(context, address, limit)`
    CopyInString = np_copyinstr,
    /// `np_load(context, address, bytes)`
    Load = np_load,
    /// `np_strlen(context, string)`
    StringLength = np_strlen,
    /// `np_strcmp(context, left, right)`
    StringCompare = np_strcmp,
    /// `np_strcpy(context, destination, source, capacity)`
    StringCopy = np_strcpy,
    /// `np_alloca(context, bytes)`
    Allocate = np_alloca,
    /// `np_copyinto(context, address, bytes, destination)`
    CopyInTo = np_copyinto,
    /// `np_store_scratch(context, address, bytes, value)`
    StoreScratch = np_store_scratch,
    /// `np_fetch_into(context, destination, address, bytes)`
    FetchInto = np_fetch_into,
    /// `np_strjoin(context, left, right)`
    StringJoin = np_strjoin,
    /// `np_strchr(context, string, wanted, last)`
    StringCharacter = np_strchr,
    /// `np_strstr(context, string, wanted)`
    StringSearch = np_strstr,
    /// `np_strtok(context, state, separators)`
    StringToken = np_strtok,
    /// `np_substr(context, string, index, count)`
    Substring = np_substr,
    /// `np_index(context, string, wanted, position)`
    Index = np_index,
    /// `np_rindex(context, string, wanted, position)`
    LastIndex = np_rindex,
    /// `np_strcase(context, string, upper)`
    StringCase = np_strcase,
    /// `np_basename(context, string)`
    BaseName = np_basename,
    /// `np_dirname(context, string)`
    DirectoryName = np_dirname,
    /// `np_cleanpath(context, string)`
    CleanPath = np_cleanpath,
    /// `np_lltostr(context, value, base)`
    NumberToString = np_lltostr,
    /// `np_strtoll(context, string, base)`
    StringToNumber = np_strtoll,
    /// `np_inet_ntop(context, family, address, short_form)`
    AddressToString = np_inet_ntop,
    /// `np_link_ntop(context, type, address)`
    LinkToString = np_link_ntop,
    /// `np_path(context, descriptor)`
    Path = np_path,
    /// `np_thread_name(context)`
    ThreadName = np_thread_name,
    /// `np_file_status(context, descriptor, part)`
    FileStatus = np_file_status,
    /// `np_file_system(context, descriptor, part, mounts)`
    FileSystem = np_file_system,
    /// `np_vector_bytes(context, address, count)`
    VectorBytes = np_vector_bytes,
    /// `np_socket(context, descriptor, part, given)`
    Socket = np_socket,
    /// `np_socket_address(context, descriptor, which, given)`
    SocketAddress = np_socket_address,
    /// `np_message_bytes(context, address, count)`
    MessageBytes = np_message_bytes,
    /// `np_signal_frame(context, stack, signal, site, mixed)`
    SignalFrame = np_signal_frame,
    /// `np_rand(context)`
    Random = np_rand,
    /// `np_json(context, text, path)`
    Json = np_json,
    /// `np_copyout(context, buffer, address, bytes)`
    CopyOut = np_copyout,
    /// `np_copyoutstr(context, string, address, bytes)`
    CopyOutString = np_copyoutstr,
    /// `np_speculation(context)`
    Speculation = np_speculation,
    /// `np_speculate(context, id, bytes)`
    Speculate = np_speculate,
    /// `np_end_speculation(context, id)`
    EndSpeculation = np_end_speculation,
    /// `np_key_integer(context, value)`
    KeyInteger = np_key_integer,
    /// `np_key_string(context, string)`
    KeyString = np_key_string,
    /// `np_key_stack(context, frames)`
    KeyStack = np_key_stack,
    /// `np_aggregate(context, aggregation, value_words)`
    Aggregate = np_aggregate,
    /// `np_quantize(context, words, value, weight)`
    Quantize = np_quantize,
    /// `np_lquantize(context, words, value, weight, parameters)`
    LinearQuantize = np_lquantize,
    /// `np_llquantize(context, words, value, weight, parameters)`
    LogLinearQuantize = np_llquantize,
    /// `np_stddev(context, words, value)`
    StandardDeviation = np_stddev,
    /// `np_dynamic_get(context, variable, value_bytes)`
    DynamicGet = np_dynamic_get,
    /// `np_dynamic_store(context, variable, value_bytes, value)`
    DynamicStore = np_dynamic_store,
    /// `np_reserve(context, epid, bytes)`
    Reserve = np_reserve,
    /// `np_commit(context)`
    Commit = np_commit,
    /// `np_ustack(context, destination, frames)`
    UserStack = np_ustack,
    /// `np_ucaller(context)`
    UserCaller = np_ucaller,
    /// `np_errno(context)`
    Errno = np_errno,
    /// `np_goroutine(context, slot, offsets, task)`
    Goroutine = np_goroutine,
    /// `np_timestamp(context, tsc)`
    Timestamp = np_timestamp,
    /// `np_vtimestamp(context)`
    VirtualTimestamp = np_vtimestamp,
    /// `np_walltimestamp(context, tsc)`
    WallTimestamp = np_walltimestamp,
    /// `np_cpu(context)`
    Cpu = np_cpu,
    /// `np_error(context, action)`
    Error = np_error,
    /// `np_exit(context, status)`
    Exit = np_exit,
    /// `np_library_event(context)`
    LibraryEvent = np_library_event,
    /// A handler's entry: the context is in r15.
    LibraryEventHandler = np_library_event_handler,
    /// A handler's entry: remembers the number of a system call that begins.
    CallBegin = np_call_begin_handler,
    /// A handler's entry: finds the number of the system call that has returned.
    CallEnd = np_call_end_handler,
    /// A handler's entry: calls a clause at a system call that begins, if it is enabled for the call's number.
    CallEntry = np_call_entry_handler,
    /// A handler's entry: as `CallEntry`, at a system call that has returned.
    CallReturn = np_call_return_handler,
    /// Counts under the number of the call that has ended.
    CallCount = np_call_count_handler,
    /// `SA_SIGINFO` handler of SIGTRAP and SIGILL.
    OnTrap = np_on_trap,
    /// `SA_SIGINFO` handler of SIGSEGV and SIGBUS.
    OnFault = np_on_fault,
    /// A guest's part of the handlers, which its host calls.
    OnSignalOfHost = np_on_signal_of_host,
    /// `sa_restorer` of both signal handlers.
    Restorer = np_restorer,
    /// `u64 np_return_take(context, slot, stub)`
    ReturnTake = np_return_take,
    /// Replaces a return address, like `ReturnTake`, for detours: stub in rax, slot in rsi, context in r15; the result
    /// is in rax.
    ReturnTakeAt = np_return_take_at,
    /// As `ReturnTakeAt`, at a jump to another function.
    ReturnTakeAtJump = np_return_take_at_jump_from,
    /// At the entry of a function that looks at its own return address: needs no context.
    ReturnGiveBack = np_return_give_back,
    /// The target of thunks.
    ReturnArrive = np_return_arrive,
    /// The target of stubs, with the context in r15.
    ReturnLeave = np_return_leave,
    /// The target of stubs, without a context.
    ReturnLeaveBare = np_return_leave_bare,
    /// `int np_emulate(emulation, ucontext)`
    Emulate = np_emulate,
    /// `np_return_put_back()`: needs no context.
    ReturnPutBack = np_return_put_back,
    /// `np_return_suspend()`: needs no context.
    ReturnSuspend = np_return_suspend,
    /// `u64 np_shim_syscall(registers)`, which a replacement calls.
    ShimSyscall = np_shim_syscall,
}

/// `struct np_image` without its magic: the tracer's settings for the agent. Addresses are the target's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageHeader {
    /// Address of the control block.
    pub control: u64,
    /// Address of the thread table.
    pub table: u64,
    /// Address of the rows that name the current tables ([`redirect_table`]), or of the only row.
    pub tables: u64,
    /// Address of a byte for each row; 0: there is one row.
    pub rows: u64,
    /// `KEY_*`.
    pub thread_key_mode: u64,
    /// The address at which image and handlers begin.
    pub code_start: u64,
    /// The address after image and handlers.
    pub code_end: u64,
    /// Whether the agent may make system calls other than `gettid`.
    pub allow_syscalls: bool,
    /// Address of the instances of replaced return addresses.
    pub returns: u64,
    /// Address of their thunks.
    pub thunks: u64,
    /// Address of the handler stacks; 0: there are none.
    pub stacks: u64,
    /// Address of the thread table of the agent that handles this one's signals; 0: it does so itself.
    pub host_table: u64,
    /// Whether system calls of code that the program has made may trap.
    pub made_calls: bool,
    /// `FOLLOWS_*`: whether forked children record, too.
    pub follows: u64,
}

/// Offset of `fault_hook` in the image, which [`image_with`] leaves 0.
pub const FAULT_HOOK_OFFSET: u32 = 96;

/// Offset of `event_hook`, likewise.
pub const EVENT_HOOK_OFFSET: u32 = 104;

/// Offset of `readers`, likewise.
pub const READERS_OFFSET: u32 = 112;

/// The bytes of a `struct np_redirect_table`: pairs of `from` and `to`, which must be sorted by
/// `from`. They must be written at a multiple of 8.
pub fn redirect_table(entries: impl ExactSizeIterator<Item = (u64, u64)>) -> Vec<u8> {
    redirect_table_over(0, entries)
}

/// As [`redirect_table`], with a link to the table at `older`, which has no such link itself. Look-ups use the older
/// table for addresses that this table lacks.
pub fn redirect_table_over(older: u64, entries: impl ExactSizeIterator<Item = (u64, u64)>) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(16 * (entries.len() + 1));
    bytes.extend((entries.len() as u64).to_le_bytes());
    bytes.extend(older.to_le_bytes());
    for (from, to) in entries {
        bytes.extend(from.to_le_bytes());
        bytes.extend(to.to_le_bytes());
    }
    bytes
}

/// Whether this machine has `rdpid`. The target runs on the same machine.
fn has_rdpid() -> bool {
    let highest = __cpuid(0).eax;
    highest >= 7 && __cpuid_count(7, 0).ecx & (1 << 22) != 0
}

/// Thunks of replaced return addresses, to be written at `at`; the image lies at `image`, at most 2
/// GiB away. A thunk is
///
/// ```text
///   48 8d 64 24 e8    lea rsp, [rsp - 24]     the slot, and two words below it
///   50                push rax
///   b8 imm32          mov eax, number
///   e9 rel32          jmp np_return_arrive
/// ```
pub fn thunks(image: u64, at: u64, count: u32) -> Vec<u8> {
    let arrive = image.wrapping_add(u64::from(Function::ReturnArrive.offset()));
    let mut bytes = Vec::with_capacity(count as usize * 16);
    for number in 0..count {
        let end = at.wrapping_add(16 * (u64::from(number) + 1));
        bytes.extend_from_slice(&[0x48, 0x8d, 0x64, 0x24, 0xe8, 0x50, 0xb8]);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.push(0xe9);
        bytes.extend_from_slice(&(arrive.wrapping_sub(end) as u32).to_le_bytes());
    }
    bytes
}

/// The image with its header filled in.
pub fn image_with(header: ImageHeader) -> Vec<u8> {
    let words = [
        header.control,
        header.table,
        header.tables,
        header.rows,
        header.thread_key_mode,
        header.code_start,
        header.code_end,
        u64::from(header.allow_syscalls),
        u64::from(has_rdpid()),
        header.returns,
        header.thunks,
        // The hooks and the counts of readers: only the library sets them.
        0,
        0,
        0,
        header.stacks,
        u64::from(header.made_calls),
        header.host_table,
        header.follows,
    ];
    let mut image = IMAGE.to_vec();
    // The magic stays unchanged; these words come after it.
    for (to, from) in image
        .iter_mut()
        .skip(8)
        .zip(words.iter().flat_map(|word| word.to_le_bytes()))
    {
        *to = from;
    }
    image
}
