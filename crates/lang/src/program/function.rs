//! Subroutines: functions that yield a value.

/// A subroutine that yields a value. Strings are `String`, numbers `int64_t`, addresses and sizes
/// `uint64_t`. The front end fills in the optional arguments that a program omits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// `copyin(address, size)` -> `Bytes`.
    CopyIn,
    /// `copyinstr(address[, size])` -> `String`; only here may the size be absent.
    CopyInString,
    /// `strlen(string)` -> size_t.
    StringLength,
    /// `alloca(size)` -> `void *`: zeros in scratch memory.
    Allocate,
    /// `copyinto(address, size, destination)`, and `bcopy` with its arguments in this order; the
    /// result is void.
    CopyInTo,
    /// `strjoin(left, right)` -> `String`.
    StringJoin,
    /// `strchr(string, character)` -> `String`.
    StringCharacter,
    /// `strrchr(string, character)` -> `String`.
    StringLastCharacter,
    /// `strstr(string, wanted)` -> `String`.
    StringSearch,
    /// `strtok(state, separators)` -> `String`: takes the token off a clause-local string variable.
    StringToken,
    /// `substr(string, index, count)` -> `String`.
    Substring,
    /// `index(string, wanted, position)` -> int.
    Index,
    /// `rindex(string, wanted, position)` -> int.
    LastIndex,
    /// `toupper(string)` -> `String`.
    UpperCase,
    /// `tolower(string)` -> `String`.
    LowerCase,
    /// `basename(path)` -> `String`.
    BaseName,
    /// `dirname(path)` -> `String`.
    DirectoryName,
    /// `cleanpath(path)` -> `String`.
    CleanPath,
    /// `lltostr(number, base)` -> `String`.
    NumberToString,
    /// `strtoll(string, base)` -> int64_t.
    StringToNumber,
    /// `inet_ntop(family, address)` -> `String`; `inet_ntoa` is the same with a constant family.
    AddressToString,
    /// `inet_ntoa6(address)` -> `String`.
    AddressToString6,
    /// `link_ntop(type, address)` -> `String`.
    LinkToString,
    /// `htons`, `ntohs` -> uint16_t: the bytes of the number in reverse order.
    Swap16,
    /// `htonl`, `ntohl` -> uint32_t.
    Swap32,
    /// `htonll`, `ntohll` -> uint64_t.
    Swap64,
    /// `rand()` -> int.
    Random,
    /// `json(text, path)` -> `String`.
    Json,
    /// `uframe(number)` -> uint64_t: the address of a frame of the thread's stack; 0: there is none.
    UserFrame,
    /// `progenyof(pid)` -> int: whether the process or one of its ancestors has this number.
    ProgenyOf,
    /// `fds[descriptor].fi_pathname` -> `String`: [`CURRENT_FOLDER`] means `cwd`, [`ROOT_FOLDER`] means `root`.
    Path,
    /// `fds[descriptor].fi_fs`, part 0, and `fi_mount`, part 1 -> `String`.
    FileSystem,
    /// `threadname` -> `String`.
    ThreadName,
    /// Of a file, by its descriptor, for built-in texts. Part 0: whether it is a regular file or a block device; 1:
    /// the device that it is on, or that it is: the major number above the minor one.
    FileStatus,
    /// The bytes of all parts of an array of `struct iovec`, by its address and length, for built-in texts.
    VectorBytes,
    /// Of an internet socket, by its descriptor, a part, and the address of a `struct sockaddr` or 0, for built-in
    /// texts. The parts are those of `agent/contract/functions.h`.
    Socket,
    /// The address of an end of an internet socket -> `String`, with the same arguments.
    SocketAddress,
    /// The bytes that were moved by an array of `struct mmsghdr`, by its address and length, for built-in texts.
    MessageBytes,
    /// Whether the delivery of a signal has led to a handler, by the stack pointer, the signal, the address and the
    /// other registers, for built-in texts: see `agent/contract/functions.h`.
    SignalFrame,
    /// `speculation()` -> int: the number of a free speculation, 0: none.
    Speculation,
    /// `copyout(buffer, address, size)`: from scratch memory to the target's memory.
    CopyOut,
    /// `copyoutstr(string, address, size)`: at most `size` bytes of the string and its NUL.
    CopyOutString,
}

/// How many frames `uframe()` can name.
pub const USER_FRAMES_MAX: u32 = 16;

/// The descriptor that means the current directory in [`Function::Path`]: `AT_FDCWD`.
pub const CURRENT_FOLDER: i64 = -100;
/// The descriptor that means the root directory.
pub const ROOT_FOLDER: i64 = -101;
/// With the numbers of a block device, a descriptor that means what /sys/dev/block links to.
pub const PATH_OF_DEVICE: i64 = 1 << 61;
/// With the number of a process, a descriptor that means the program that it executes.
pub const PATH_OF_PROGRAM: i64 = 1 << 60;

impl Function {
    /// Whether the subroutine changes the target.
    #[must_use]
    pub fn is_destructive(self) -> bool {
        matches!(self, Function::CopyOut | Function::CopyOutString)
    }

    /// The name in D; the first one, if several names share the subroutine.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Function::CopyIn => "copyin",
            Function::CopyInString => "copyinstr",
            Function::StringLength => "strlen",
            Function::Allocate => "alloca",
            Function::CopyInTo => "copyinto",
            Function::StringJoin => "strjoin",
            Function::StringCharacter => "strchr",
            Function::StringLastCharacter => "strrchr",
            Function::StringSearch => "strstr",
            Function::StringToken => "strtok",
            Function::Substring => "substr",
            Function::Index => "index",
            Function::LastIndex => "rindex",
            Function::UpperCase => "toupper",
            Function::LowerCase => "tolower",
            Function::BaseName => "basename",
            Function::DirectoryName => "dirname",
            Function::CleanPath => "cleanpath",
            Function::NumberToString => "lltostr",
            Function::StringToNumber => "strtoll",
            Function::AddressToString => "inet_ntop",
            Function::AddressToString6 => "inet_ntoa6",
            Function::LinkToString => "link_ntop",
            Function::Swap16 => "htons",
            Function::Swap32 => "htonl",
            Function::Swap64 => "htonll",
            Function::Random => "rand",
            Function::Json => "json",
            Function::UserFrame => "uframe",
            Function::ProgenyOf => "progenyof",
            Function::Path | Function::FileSystem => "fds[]",
            Function::ThreadName => "threadname",
            Function::FileStatus => "__file_status",
            Function::VectorBytes => "__vector_bytes",
            Function::Socket => "__socket",
            Function::SocketAddress => "__socket_address",
            Function::MessageBytes => "__message_bytes",
            Function::SignalFrame => "__signal_frame",
            Function::Speculation => "speculation",
            Function::CopyOut => "copyout",
            Function::CopyOutString => "copyoutstr",
        }
    }

    /// The types of the parameters, and how many of them are required.
    #[must_use]
    pub fn parameters(self) -> (&'static [Parameter], usize) {
        use Parameter::{Address, Number, Text};
        let all: &[Parameter] = match self {
            Function::CopyIn => &[Address, Address],
            Function::CopyInString => return (&[Address, Address], 1),
            Function::CopyInTo | Function::CopyOut => &[Address, Address, Address],
            Function::CopyOutString => &[Text, Address, Address],
            Function::UserFrame | Function::ProgenyOf | Function::Path => &[Number],
            Function::Allocate => &[Address],
            Function::StringJoin | Function::StringSearch | Function::StringToken | Function::Json => &[Text, Text],
            Function::StringCharacter | Function::StringLastCharacter => &[Text, Number],
            Function::Substring => &[Text, Number, Number],
            Function::Index | Function::LastIndex => &[Text, Text, Number],
            Function::StringLength
            | Function::UpperCase
            | Function::LowerCase
            | Function::BaseName
            | Function::DirectoryName
            | Function::CleanPath => &[Text],
            Function::NumberToString => &[Number, Number],
            Function::StringToNumber => &[Text, Number],
            Function::AddressToString | Function::LinkToString => &[Number, Address],
            Function::FileSystem | Function::FileStatus | Function::VectorBytes | Function::MessageBytes => {
                &[Number, Number]
            }
            Function::Socket | Function::SocketAddress => &[Number, Number, Number],
            Function::SignalFrame => &[Number, Number, Number, Number],
            Function::AddressToString6 => &[Address],
            Function::Swap16 | Function::Swap32 | Function::Swap64 => &[Number],
            Function::Random | Function::Speculation | Function::ThreadName => &[],
        };
        (all, all.len())
    }

    /// Whether the subroutine yields a string.
    #[must_use]
    pub fn yields_string(self) -> bool {
        matches!(
            self,
            Function::CopyInString
                | Function::StringJoin
                | Function::StringCharacter
                | Function::StringLastCharacter
                | Function::StringSearch
                | Function::StringToken
                | Function::Substring
                | Function::UpperCase
                | Function::LowerCase
                | Function::BaseName
                | Function::DirectoryName
                | Function::CleanPath
                | Function::NumberToString
                | Function::AddressToString
                | Function::AddressToString6
                | Function::LinkToString
                | Function::Path
                | Function::FileSystem
                | Function::SocketAddress
                | Function::ThreadName
                | Function::Json
        )
    }
}

/// The kind of an argument of a subroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parameter {
    Text,
    /// A number: `int64_t`.
    Number,
    /// An address, or a number of bytes: `uint64_t`.
    Address,
}
