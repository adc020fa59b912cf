//! Names that the kernel knows: paths of files and directories, names of threads.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use core::mem::offset_of;
use std::os::fd::AsRawFd as _;

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::{Context, FAULT_ILLEGAL, FAULT_SCRATCH};

const FOLDER: i64 = -100;
const ROOT: i64 = -101;

fn path(target: &Target, context: u64, descriptor: i64) -> (String, u64) {
    let (result, fault) = target.run(context, Function::Path, &[descriptor as u64]);
    (text(target, result), fault)
}

/// A string; after its NUL there are zeros to the end of the word.
fn text(target: &Target, address: u64) -> String {
    let mut bytes = Vec::new();
    while !bytes.contains(&0) {
        bytes.extend(target.bytes(address + bytes.len() as u64, 8));
    }
    let end = bytes.iter().position(|byte| *byte == 0).unwrap();
    assert!(bytes[end..].iter().all(|byte| *byte == 0), "{bytes:?}");
    String::from_utf8(bytes[..end].to_vec()).unwrap()
}

#[test]
fn paths_are_the_kernels() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    target.begin(context);
    let here = std::env::current_dir().unwrap().display().to_string();
    assert_eq!(path(&target, context, FOLDER), (here, 0));
    assert_eq!(path(&target, context, ROOT), ("/".to_owned(), 0));
    for none in [
        -1,
        1_000_000,
        i64::from(i32::MAX),
        i64::from(i32::MIN),
        -102,
        0xffff_ff9c,
        i64::MAX,
    ] {
        assert_eq!(path(&target, context, none), ("<none>".to_owned(), 0), "{none}");
    }
    let folder = tempfile::tempdir().unwrap();
    for length in 1..20 {
        target.begin(context);
        let name = folder.path().canonicalize().unwrap().join("n".repeat(length));
        let file = std::fs::File::create(&name).unwrap();
        let found = path(&target, context, file.as_raw_fd().into());
        assert_eq!(found, (name.display().to_string(), 0));
        let taken = target.get(context, offset_of!(Context, scratch_used));
        assert_eq!(taken, (found.0.len() as u64 + 1).next_multiple_of(8));
    }
}

/// If there is no room, there is no path, rather than half a path or "<none>".
#[test]
fn no_path_is_cut() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().canonicalize().unwrap().join("n".repeat(200));
    let file = std::fs::File::create(&name).unwrap();
    let descriptor = file.as_raw_fd() as u64;
    let length = name.as_os_str().len() as u64;
    // 4096 bytes of scratch.
    for left in (64..=length + 8).step_by(8) {
        target.begin(context);
        assert_eq!(target.run(context, Function::Allocate, &[4096 - left]).1, 0);
        let (_, fault) = target.run(context, Function::Path, &[descriptor]);
        let fits = length < left - 1;
        assert_eq!(fault == 0, fits, "{left} bytes for {length}");
        assert_eq!(fault == u64::from(FAULT_SCRATCH), !fits);
    }
    // Only the child is in a deep directory.
    let deep = folder.path().join("d".repeat(100)).join("e".repeat(100));
    std::fs::create_dir_all(&deep).unwrap();
    let status = common::in_child(|| {
        std::env::set_current_dir(&deep).unwrap();
        target.begin(context);
        assert_eq!(target.run(context, Function::Allocate, &[4096 - 128]).1, 0);
        let (_, fault) = target.run(context, Function::Path, &[FOLDER as u64]);
        i32::from(fault != u64::from(FAULT_SCRATCH))
    });
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
}

#[test]
fn threads_have_names() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    target.begin(context);
    for name in ["a", "seven77", "eight888", "fifteen fifteen"] {
        let named = std::ffi::CString::new(name).unwrap();
        // SAFETY: the name is a string that lives until the call returns.
        unsafe { libc::prctl(libc::PR_SET_NAME, named.as_ptr()) };
        let (result, fault) = target.run(context, Function::ThreadName, &[]);
        assert_eq!((text(&target, result).as_str(), fault), (name, 0));
    }
}

#[test]
fn nothing_is_asked_for_without_room_or_leave() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    target.begin(context);
    assert_eq!(target.run(context, Function::Allocate, &[4096 - 56]).1, 0);
    for (function, arguments) in [(Function::Path, &[0][..]), (Function::ThreadName, &[])] {
        if matches!(function, Function::ThreadName) {
            target.begin(context);
            assert_eq!(target.run(context, Function::Allocate, &[4096 - 8]).1, 0);
        }
        assert_eq!(target.run(context, function, arguments).1, u64::from(FAULT_SCRATCH));
    }
    let target = Target::new(&Options {
        allow_syscalls: false,
        ..Options::default()
    });
    let context = target.enter();
    target.begin(context);
    assert_eq!(target.run(context, Function::Path, &[0]).1, u64::from(FAULT_ILLEGAL));
    target.begin(context);
    assert_eq!(
        target.run(context, Function::ThreadName, &[]).1,
        u64::from(FAULT_ILLEGAL)
    );
}

/// Regular files and block devices are files of a disk; their device is the kernel's.
#[test]
fn the_status_of_a_file_is_the_kernels() {
    use std::os::unix::fs::MetadataExt as _;
    let target = Target::new(&Options::default());
    let context = target.enter();
    target.begin(context);
    let status = |descriptor: i64, part: u64| {
        let (result, fault) = target.run(context, Function::FileStatus, &[descriptor as u64, part]);
        assert_eq!(fault, 0);
        result
    };
    let file = tempfile::tempfile().unwrap();
    let fd = i64::from(file.as_raw_fd());
    let device = file.metadata().unwrap().dev();
    let (major, minor) = (device >> 8 & 0xfff, (device & 0xff) | (device >> 12 & 0xfff00));
    assert_eq!((status(fd, 0), status(fd, 1)), (1, major << 32 | minor));
    let null = std::fs::File::open("/dev/null").unwrap();
    let folder = std::fs::File::open("/").unwrap();
    let (pipe, _) = std::io::pipe().unwrap();
    let others = [null.as_raw_fd(), folder.as_raw_fd(), pipe.as_raw_fd(), -1, 1_000_000];
    for other in others {
        assert_eq!(status(other.into(), 0), 0, "{other}");
    }
    let (_, fault) = target.run(context, Function::Path, &[1 << 61 | (0xffff << 32) | 77]);
    assert_eq!(fault, 0, "no such device");
}

#[test]
fn the_bytes_of_a_vector_are_added() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    target.begin(context);
    let parts: [u64; 6] = [0x1000, 30, 0x2000, 20, 0x3000, 7];
    let sum = |address: u64, count: u64| target.run(context, Function::VectorBytes, &[address, count]);
    let at = parts.as_ptr() as u64;
    assert_eq!([sum(at, 0), sum(at, 1), sum(at, 3)], [(0, 0), (30, 0), (57, 0)]);
    assert_eq!(sum(8, 3), (0, 0));
    assert_eq!(sum(8, u64::MAX), (0, 0));
}

/// By the number of the mount: `mnt_id` of the descriptor, as /proc says it.
#[test]
fn the_file_system_of_a_file_is_that_of_its_mount() {
    let target = Target::new(&Options::default());
    let context = target.enter();
    let file = tempfile::tempfile().unwrap();
    let fd = file.as_raw_fd();
    let information = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let number = information
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))
        .unwrap()
        .trim()
        .to_owned();
    let (pipe, _) = std::io::pipe().unwrap();
    let (socket, _) = std::os::unix::net::UnixStream::pair().unwrap();
    let asked = |fd: i64, mounts: &str| {
        target.begin(context);
        let mounts = std::ffi::CString::new(mounts).unwrap();
        [0, 1].map(|part| {
            let (result, fault) = target.run(
                context,
                Function::FileSystem,
                &[fd as u64, part, mounts.as_ptr() as u64],
            );
            assert_eq!(fault, 0);
            text(&target, result)
        })
    };
    let before = format!("1{number} 0:1 proc /proc\n");
    for (name, folder) in [("a", "/"), ("ext4", "/mnt/with space"), ("fuse.sshfs", "/seven77")] {
        for end in ["", "\n", "\n7 0:1 sysfs /sys\n"] {
            let mounts = format!("{before}{number} 0:77 {name} {folder}{end}");
            assert_eq!(asked(fd.into(), &mounts), [name, folder]);
        }
    }
    for mounts in ["", &before, "\n", "no number"] {
        assert_eq!(asked(fd.into(), mounts), ["<unknown>", "<unknown>"], "{mounts}");
        assert_eq!(asked(pipe.as_raw_fd().into(), mounts), ["pipefs", "<unknown>"]);
        assert_eq!(asked(socket.as_raw_fd().into(), mounts), ["sockfs", "<unknown>"]);
        assert_eq!(asked(-1, mounts), ["<none>", "<none>"]);
    }
    target.begin(context);
    assert_eq!(target.run(context, Function::Allocate, &[4096 - 56]).1, 0);
    assert_eq!(
        target.run(context, Function::FileSystem, &[0, 0, 0]).1,
        u64::from(FAULT_SCRATCH)
    );
}
