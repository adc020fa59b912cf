//! The tables of flags.

use super::Name;

/// Flags that may be combined. A name of several bits stands before those of one.
pub(super) static FLAGS: &[(&str, &[Name])] = &[
    ("access", names! { R_OK, W_OK, X_OK }),
    (
        "at",
        names! {
            AT_SYMLINK_NOFOLLOW, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, AT_NO_AUTOMOUNT, AT_EMPTY_PATH
        },
    ),
    ("unlinkat", names! { AT_REMOVEDIR }),
    ("faccessat", names! { AT_SYMLINK_NOFOLLOW, AT_EACCESS, AT_EMPTY_PATH }),
    (
        "statx",
        values! {
            AT_SYMLINK_NOFOLLOW = 0x100, AT_REMOVEDIR = 0x200, AT_SYMLINK_FOLLOW = 0x400, AT_NO_AUTOMOUNT = 0x800,
            AT_EMPTY_PATH = 0x1000, AT_STATX_FORCE_SYNC = 0x2000, AT_STATX_DONT_SYNC = 0x4000
        },
    ),
    (
        "statx_mask",
        values! {
            STATX_ALL = 0xfff, STATX_BASIC_STATS = 0x7ff, STATX_TYPE = 1, STATX_MODE = 2, STATX_NLINK = 4, STATX_UID = 8,
            STATX_GID = 0x10, STATX_ATIME = 0x20, STATX_MTIME = 0x40, STATX_CTIME = 0x80, STATX_INO = 0x100, STATX_SIZE =
            0x200, STATX_BLOCKS = 0x400, STATX_BTIME = 0x800, STATX_MNT_ID = 0x1000, STATX_DIOALIGN = 0x2000
        },
    ),
    (
        "statx_attributes",
        values! {
            STATX_ATTR_COMPRESSED = 4, STATX_ATTR_IMMUTABLE = 0x10, STATX_ATTR_APPEND = 0x20, STATX_ATTR_NODUMP = 0x40,
            STATX_ATTR_ENCRYPTED = 0x800, STATX_ATTR_AUTOMOUNT = 0x1000, STATX_ATTR_MOUNT_ROOT = 0x2000, STATX_ATTR_VERITY =
            0x100000, STATX_ATTR_DAX = 0x200000
        },
    ),
    (
        "open",
        // libc's O_LARGEFILE is 0 for programs of 64 bits: the kernel adds the flag itself.
        values! {
            O_CREAT = libc::O_CREAT as u64, O_EXCL = libc::O_EXCL as u64, O_NOCTTY = libc::O_NOCTTY as u64,
            O_TRUNC = libc::O_TRUNC as u64, O_APPEND = libc::O_APPEND as u64, O_NONBLOCK = libc::O_NONBLOCK as u64,
            O_SYNC = libc::O_SYNC as u64, O_DSYNC = libc::O_DSYNC as u64, O_DIRECT = libc::O_DIRECT as u64,
            O_LARGEFILE = 0o100_000, O_NOFOLLOW = libc::O_NOFOLLOW as u64, O_NOATIME = libc::O_NOATIME as u64,
            O_CLOEXEC = libc::O_CLOEXEC as u64, O_PATH = libc::O_PATH as u64, O_TMPFILE = libc::O_TMPFILE as u64,
            O_DIRECTORY = libc::O_DIRECTORY as u64, FASYNC = libc::O_ASYNC as u64
        },
    ),
    ("vsock", values! { VMADDR_FLAG_TO_HOST = 1 }),
    ("fd", names! { O_NONBLOCK, O_CLOEXEC, O_DIRECT }),
    (
        "prot",
        names! { PROT_READ, PROT_WRITE, PROT_EXEC, PROT_GROWSDOWN, PROT_GROWSUP },
    ),
    (
        "map",
        names! {
            MAP_FIXED, MAP_ANONYMOUS, MAP_32BIT, MAP_NORESERVE, MAP_POPULATE, MAP_NONBLOCK, MAP_GROWSDOWN, MAP_DENYWRITE,
            MAP_EXECUTABLE, MAP_LOCKED, MAP_STACK, MAP_HUGETLB, MAP_SYNC, MAP_FIXED_NOREPLACE
        },
    ),
    ("mremap", names! { MREMAP_MAYMOVE, MREMAP_FIXED, MREMAP_DONTUNMAP }),
    ("msync", names! { MS_ASYNC, MS_INVALIDATE, MS_SYNC }),
    ("mlockall", names! { MCL_CURRENT, MCL_FUTURE, MCL_ONFAULT }),
    (
        "msg",
        names! {
            MSG_OOB, MSG_PEEK, MSG_DONTROUTE, MSG_CTRUNC, MSG_TRUNC, MSG_DONTWAIT, MSG_EOR, MSG_WAITALL, MSG_FIN, MSG_SYN,
            MSG_CONFIRM, MSG_RST, MSG_ERRQUEUE, MSG_NOSIGNAL, MSG_MORE, MSG_WAITFORONE, MSG_FASTOPEN, MSG_CMSG_CLOEXEC
        },
    ),
    (
        "wait",
        names! { WNOHANG, WUNTRACED, WEXITED, WCONTINUED, WNOWAIT, __WALL, __WNOTHREAD },
    ),
    ("flock", names! { LOCK_SH, LOCK_EX, LOCK_NB, LOCK_UN }),
    (
        "mount",
        names! {
            MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_SYNCHRONOUS, MS_REMOUNT, MS_MANDLOCK, MS_DIRSYNC, MS_NOATIME,
            MS_NODIRATIME, MS_BIND, MS_MOVE, MS_REC, MS_SILENT, MS_PRIVATE, MS_SLAVE, MS_SHARED, MS_RELATIME,
            MS_STRICTATIME, MS_LAZYTIME
        },
    ),
    ("umount", names! { MNT_FORCE, MNT_DETACH, MNT_EXPIRE, UMOUNT_NOFOLLOW }),
    ("xattr", names! { XATTR_CREATE, XATTR_REPLACE }),
    ("timer", names! { TIMER_ABSTIME }),
    (
        "inotify",
        names! {
            IN_ACCESS, IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE, IN_CLOSE_NOWRITE, IN_OPEN, IN_MOVED_FROM, IN_MOVED_TO,
            IN_CREATE, IN_DELETE, IN_DELETE_SELF, IN_MOVE_SELF, IN_ONLYDIR, IN_DONT_FOLLOW, IN_EXCL_UNLINK, IN_MASK_ADD,
            IN_ISDIR, IN_ONESHOT
        },
    ),
    ("inotify_init", names! { IN_NONBLOCK, IN_CLOEXEC }),
    (
        "splice",
        names! { SPLICE_F_MOVE, SPLICE_F_NONBLOCK, SPLICE_F_MORE, SPLICE_F_GIFT },
    ),
    ("sock", names! { SOCK_CLOEXEC, SOCK_NONBLOCK }),
    ("timerfd", names! { TFD_CLOEXEC, TFD_NONBLOCK }),
    ("timerfd_set", names! { TFD_TIMER_ABSTIME, TFD_TIMER_CANCEL_ON_SET }),
    ("signalfd", names! { SFD_CLOEXEC, SFD_NONBLOCK }),
    ("eventfd", names! { EFD_SEMAPHORE, EFD_CLOEXEC, EFD_NONBLOCK }),
    ("epoll_create", names! { EPOLL_CLOEXEC }),
    (
        "epoll events",
        names! {
            EPOLLIN, EPOLLPRI, EPOLLOUT, EPOLLRDNORM, EPOLLRDBAND, EPOLLWRNORM, EPOLLWRBAND, EPOLLMSG, EPOLLERR, EPOLLHUP,
            EPOLLRDHUP, EPOLLEXCLUSIVE, EPOLLWAKEUP, EPOLLONESHOT, EPOLLET
        },
    ),
    (
        "poll",
        names! {
            POLLIN, POLLPRI, POLLOUT, POLLERR, POLLHUP, POLLNVAL, POLLRDNORM, POLLRDBAND, POLLWRNORM, POLLWRBAND, POLLRDHUP
        },
    ),
    ("rename", names! { RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT }),
    ("random", names! { GRND_NONBLOCK, GRND_RANDOM, GRND_INSECURE }),
    (
        "memfd",
        names! { MFD_CLOEXEC, MFD_ALLOW_SEALING, MFD_HUGETLB, MFD_NOEXEC_SEAL, MFD_EXEC },
    ),
    ("close_range", names! { CLOSE_RANGE_UNSHARE, CLOSE_RANGE_CLOEXEC }),
    (
        "resolve",
        names! {
            RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_CACHED
        },
    ),
    (
        "clone",
        names! {
            CLONE_VM, CLONE_FS, CLONE_FILES, CLONE_SIGHAND, CLONE_PIDFD, CLONE_PTRACE, CLONE_VFORK, CLONE_PARENT,
            CLONE_THREAD, CLONE_NEWNS, CLONE_SYSVSEM, CLONE_SETTLS, CLONE_PARENT_SETTID, CLONE_CHILD_CLEARTID,
            CLONE_DETACHED, CLONE_UNTRACED, CLONE_CHILD_SETTID, CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER,
            CLONE_NEWPID, CLONE_NEWNET, CLONE_IO
        },
    ),
    // SA_RESTORER is the kernel's own.
    (
        "sigaction",
        values! {
            SA_RESTORER = 0x0400_0000, SA_ONSTACK = libc::SA_ONSTACK as u64, SA_RESTART = libc::SA_RESTART as u64,
            SA_NODEFER = libc::SA_NODEFER as u64, SA_RESETHAND = libc::SA_RESETHAND as u32 as u64, SA_SIGINFO =
            libc::SA_SIGINFO as u64, SA_NOCLDSTOP = libc::SA_NOCLDSTOP as u64, SA_NOCLDWAIT = libc::SA_NOCLDWAIT as u64
        },
    ),
    ("sigaltstack", names! { SS_ONSTACK, SS_DISABLE }),
    // ST_VALID is the kernel's own.
    (
        "statfs",
        values! {
            ST_VALID = 0x20, ST_MANDLOCK = 0x40, ST_RDONLY = 1, ST_NOSUID = 2, ST_NODEV = 4, ST_NOEXEC = 8, ST_SYNCHRONOUS =
            0x10, ST_NOATIME = 0x400, ST_NODIRATIME = 0x800, ST_RELATIME = 0x1000
        },
    ),
];
