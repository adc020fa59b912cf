//! What a parameter means, as far as its C type does not say it.

/// The direction in which memory is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// The kernel reads it.
    In,
    /// The kernel writes it.
    Out,
}

/// How bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bytes {
    /// As a string; unprintable bytes in octal.
    Quoted,
    /// All bytes in hexadecimal.
    Hexadecimal,
    /// A string that ends by a NUL, which is not shown.
    Terminated,
}

/// What the decoder makes of a parameter. A number is the index of another parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meaning {
    /// An integer of this many bytes.
    Number {
        bytes: u8,
        is_signed: bool,
    },
    /// A pointer, or a number that is one.
    Address,
    Hex,
    Offset,
    /// A file descriptor, whatever its type.
    Descriptor,
    /// A descriptor of a folder, or AT_FDCWD.
    Folder,
    /// A user or a group.
    Id,
    Signal,
    Mode,
    /// A mode, if the flags in this parameter create a file.
    ModeIf(usize),
    /// Flags of this table.
    Flags(&'static str),
    /// One value of this table.
    One(&'static str),
    SocketType,
    /// A protocol of the family in this parameter.
    Protocol(usize),
    SocketOption,
    Clone,
    Clone3,
    Futex,
    FutexTimeout,
    Ioctl,
    /// The argument of fcntl's command in this parameter.
    Fcntl(usize),
    Path,
    Strings,
    Environment,
    /// Bytes; their number is in this parameter.
    BytesIn(usize),
    /// Bytes; their number is the result.
    BytesOut(Bytes),
    /// A structure.
    Structure(Direction, &'static str),
    /// As many structures as this parameter says.
    PollFds(usize),
    Iovecs(Direction, usize),
    /// As many events as the result says.
    EpollEvents,
    /// An address of the length in this parameter; for `Out` it points to the length.
    SocketAddress(Direction, usize),
    /// A pointer to a length, which the kernel changes.
    Length,
    DirectoryEntries,
    /// A `struct msghdr`.
    Message(Direction),
    /// Several of them, with the bytes that each has moved.
    Messages(Direction),
    /// A set of descriptors below this parameter.
    DescriptorSet(usize),
    /// A structure that the kernel changes to the time that is left.
    Timeout(&'static str),
    /// The mask of pselect6: an address and a size.
    Mask,
    /// A status of wait.
    Status,
    /// A set of processors; its size is the result.
    Processors,
}

impl Meaning {
    /// The meaning of a type alone.
    pub(crate) fn of_type(c_type: &str) -> Meaning {
        let number = |bytes, is_signed| Meaning::Number { bytes, is_signed };
        match c_type.trim_start_matches("const ") {
            of if of.ends_with('*') || of.ends_with("const") || of.starts_with("cap_user_") => Meaning::Address,
            "int" | "pid_t" | "__s32" | "key_t" | "key_serial_t" | "mqd_t" | "timer_t" | "clockid_t" | "rwf_t"
            | "qid_t" => number(4, true),
            "unsigned int" | "u32" | "__u32" | "uid_t" | "gid_t" => number(4, false),
            "umode_t" => Meaning::Mode,
            "long" | "off_t" | "loff_t" => number(8, true),
            of if of.starts_with("enum ") => number(4, true),
            _ => number(8, false),
        }
    }

    /// The meaning that braces in the table give.
    pub(crate) fn parse(words: &'static str) -> Option<Meaning> {
        let mut parts = words.split(' ');
        let direction = |word| match word {
            Some("in") => Some(Direction::In),
            Some("out") => Some(Direction::Out),
            _ => None,
        };
        let index = |word: Option<&str>| word.and_then(|word| word.parse::<usize>().ok());
        Some(match (parts.next()?, parts.next(), parts.next()) {
            ("address", ..) => Meaning::Address,
            ("hex", ..) => Meaning::Hex,
            ("offset", ..) => Meaning::Offset,
            ("fd", ..) => Meaning::Descriptor,
            ("dirfd", ..) => Meaning::Folder,
            ("id", ..) => Meaning::Id,
            ("signal", ..) => Meaning::Signal,
            ("mode", None, _) => Meaning::Mode,
            ("mode", Some("if"), of) => Meaning::ModeIf(index(of)?),
            ("flags", Some(table), _) => Meaning::Flags(table),
            ("one", Some(table), _) => Meaning::One(table),
            ("socktype", ..) => Meaning::SocketType,
            ("protocol", of, _) => Meaning::Protocol(index(of)?),
            ("sockopt", ..) => Meaning::SocketOption,
            ("clone", ..) => Meaning::Clone,
            ("clone3", ..) => Meaning::Clone3,
            ("futex", None, _) => Meaning::Futex,
            ("futex", ..) => Meaning::FutexTimeout,
            ("ioctl", ..) => Meaning::Ioctl,
            ("fcntl", of, _) => Meaning::Fcntl(index(of)?),
            ("path", ..) => Meaning::Path,
            ("strings", ..) => Meaning::Strings,
            ("environment", ..) => Meaning::Environment,
            ("out", None, _) => Meaning::BytesOut(Bytes::Quoted),
            ("out", Some("hex"), _) => Meaning::BytesOut(Bytes::Hexadecimal),
            ("out", Some("string"), _) => Meaning::BytesOut(Bytes::Terminated),
            ("in", of, _) if index(of).is_some() => Meaning::BytesIn(index(of)?),
            ("in", Some(name), _) => Meaning::Structure(Direction::In, name),
            ("out", Some(name), _) => Meaning::Structure(Direction::Out, name),
            ("pollfds", of, _) => Meaning::PollFds(index(of)?),
            ("iovecs", way, of) => Meaning::Iovecs(direction(way)?, index(of)?),
            ("epoll", ..) => Meaning::EpollEvents,
            ("sockaddr", way, of) => Meaning::SocketAddress(direction(way)?, index(of)?),
            ("length", ..) => Meaning::Length,
            ("dirents", ..) => Meaning::DirectoryEntries,
            ("message", way, _) => Meaning::Message(direction(way)?),
            ("messages", way, _) => Meaning::Messages(direction(way)?),
            ("fdset", of, _) => Meaning::DescriptorSet(index(of)?),
            ("timeout", Some(name), _) => Meaning::Timeout(name),
            ("mask", ..) => Meaning::Mask,
            ("status", ..) => Meaning::Status,
            ("cpus", ..) => Meaning::Processors,
            _ => return None,
        })
    }
}
