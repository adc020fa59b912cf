//! /proc/PID/maps.
//!
//! ```text
//!   7f1c77858000-7f1c7787e000 r--p 00000000 fe:00 326269      /usr/lib/x86_64-linux-gnu/libc.so.6
//!   |start       |end         |    |offset  |device |inode    |path, or [heap] [stack] [vdso] ..., or nothing
//!                             read, write, execute; private or shared
//! ```
//!
//! A newline in a path is written `\012`. A deleted file's path ends in ` (deleted)`, but a file's own name may end so,
//! too. So compare an opened file with a [`Mapping`] by device and inode.

use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use nanoprobe_patch::TargetAddress;
use nanoprobe_patch::order::sort_by_number;

/// The process's own permissions for a mapping's bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Permissions {
    /// PROT_READ.
    pub read: bool,
    /// PROT_WRITE.
    pub write: bool,
    /// PROT_EXEC.
    pub execute: bool,
    /// MAP_SHARED: other processes see the bytes that are written here.
    pub shared: bool,
}

/// The contents of a mapping.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum MappingKind {
    /// A file, by its path in the process's own mount namespace.
    File {
        /// The path, without ` (deleted)`.
        path: PathBuf,
        /// Whether the file has no name any more (it was deleted or replaced, or is a memfd).
        deleted: bool,
    },
    /// Memory without a name.
    Anonymous,
    /// The program break.
    Heap,
    /// The main thread's stack, as the kernel made it.
    Stack,
    /// The kernel's code for the process.
    Vdso,
    /// The kernel's data that the code of the vDSO reads.
    Vvar,
    /// The vsyscall page, at a fixed address at the top of the address space. It cannot be changed.
    Vsyscall,
    /// Another `[name]`, for instance `[anon:...]` or `[uprobes]`.
    Other(String),
}

/// One line of /proc/PID/maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First byte.
    pub start: TargetAddress,
    /// The address after the mapping's last byte.
    pub end: TargetAddress,
    pub permissions: Permissions,
    /// The offset of `start` in the file, in bytes.
    pub offset: u64,
    /// Major and minor number of the file's device; 0, 0 without a file.
    pub device: (u32, u32),
    /// The file's inode; 0 without a file.
    pub inode: u64,
    pub kind: MappingKind,
}

impl Mapping {
    pub fn bytes(&self) -> u64 {
        self.end.0.saturating_sub(self.start.0)
    }

    pub fn contains(&self, address: TargetAddress) -> bool {
        self.start <= address && address < self.end
    }

    pub fn path(&self) -> Option<&Path> {
        match &self.kind {
            MappingKind::File { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// A snapshot of the mappings, ascending and disjoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Map {
    mappings: Vec<Mapping>,
}

impl Map {
    /// Parses the text of /proc/PID/maps. Nonsensical lines are left out.
    pub fn parse(text: &[u8]) -> Map {
        let mut mappings: Vec<Mapping> = text.split(|&byte| byte == b'\n').filter_map(parse_line).collect();
        // The kernel writes the lines in order and disjoint, but a map that changes while it is read may repeat a
        // line.
        sort_by_number(&mut mappings, |mapping| mapping.start.0);
        let mut last_end = TargetAddress(0);
        mappings.retain(|mapping| {
            let keep = mapping.start >= last_end;
            if keep {
                last_end = mapping.end;
            }
            keep
        });
        Map { mappings }
    }

    pub fn mappings(&self) -> &[Mapping] {
        &self.mappings
    }

    /// The mapping that holds an address.
    pub fn find(&self, address: TargetAddress) -> Option<&Mapping> {
        let after = self.mappings.partition_point(|mapping| mapping.start <= address);
        self.mappings
            .get(after.checked_sub(1)?)
            .filter(|mapping| mapping.contains(address))
    }

    /// The memory that the process may read directly: merged, ascending, disjoint. The kernel's pages whose reading may
    /// fail or has side effects (`[vvar]`, `[vsyscall]`, devices) are left out.
    pub fn readable(&self) -> Vec<Range<TargetAddress>> {
        let mut ranges: Vec<Range<TargetAddress>> = Vec::new();
        for mapping in &self.mappings {
            let plain = match &mapping.kind {
                MappingKind::Vvar | MappingKind::Vsyscall => false,
                MappingKind::File { path, .. } => !path.starts_with("/dev") || path.starts_with("/dev/shm"),
                _ => true,
            };
            if !mapping.permissions.read || !plain {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if last.end == mapping.start => last.end = mapping.end,
                _ => ranges.push(mapping.start..mapping.end),
            }
        }
        ranges
    }
}

fn parse_line(line: &[u8]) -> Option<Mapping> {
    let (range, rest) = word(line)?;
    let (permissions, rest) = word(rest)?;
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    let (start, end) = range.split_once('-')?;
    let (start, end) = (hexadecimal(start)?, hexadecimal(end)?);
    if start >= end {
        return None;
    }
    let (major, minor) = device.split_once(':')?;
    let flags = permissions.as_bytes();
    let inode: u64 = inode.parse().ok()?;
    let name = rest
        .iter()
        .position(|&byte| byte != b' ')
        .and_then(|first| rest.get(first..))
        .unwrap_or_default();
    Some(Mapping {
        start: TargetAddress(start),
        end: TargetAddress(end),
        permissions: Permissions {
            read: flags.first() == Some(&b'r'),
            write: flags.get(1) == Some(&b'w'),
            execute: flags.get(2) == Some(&b'x'),
            shared: flags.get(3) == Some(&b's'),
        },
        offset: hexadecimal(offset)?,
        device: (
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        ),
        inode,
        kind: kind(name, inode),
    })
}

fn word(line: &[u8]) -> Option<(&str, &[u8])> {
    let length = line.iter().position(|&byte| byte == b' ').unwrap_or(line.len());
    let (word, rest) = line.split_at_checked(length)?;
    Some((std::str::from_utf8(word).ok()?, rest.get(1..).unwrap_or_default()))
}

fn hexadecimal(text: &str) -> Option<u64> {
    u64::from_str_radix(text, 16).ok()
}

fn kind(name: &[u8], inode: u64) -> MappingKind {
    match name {
        b"" => MappingKind::Anonymous,
        b"[heap]" => MappingKind::Heap,
        b"[stack]" => MappingKind::Stack,
        b"[vdso]" => MappingKind::Vdso,
        b"[vvar]" | b"[vvar_vclock]" => MappingKind::Vvar,
        b"[vsyscall]" => MappingKind::Vsyscall,
        [b'[', ..] if inode == 0 => MappingKind::Other(String::from_utf8_lossy(name).into_owned()),
        _ => {
            let (path, deleted) = match name.strip_suffix(b" (deleted)") {
                Some(path) => (path, true),
                None => (name, false),
            };
            MappingKind::File {
                path: unescape(path),
                deleted,
            }
        }
    }
}

fn unescape(path: &[u8]) -> PathBuf {
    const NEWLINE: &[u8] = br"\012";
    if !path.contains(&b'\\') {
        return PathBuf::from(OsStr::from_bytes(path));
    }
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(NEWLINE) {
            bytes.push(b'\n');
            rest = behind;
        } else {
            bytes.push(first);
            rest = tail;
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"00400000-00401000 r--p 00000000 fe:00 12 /usr/bin/with space\n\
        00401000-00402000 r-xp 00001000 fe:00 12                     /usr/bin/with space\n\
        00403000-00404000 rw-p 00002000 fe:1f 13                     /tmp/a\\012b\\n (deleted)\n\
        00500000-00521000 rw-p 00000000 00:00 0                      [heap]\n\
        7f0000000000-7f0000001000 rw-s 00000000 00:01 99             /memfd:x (deleted)\n\
        7f0000001000-7f0000002000 ---p 00000000 00:00 0 \n\
        7f0000002000-7f0000003000 rw-p 00000000 00:00 0              [anon:glibc: malloc]\n\
        7ffc2fa0b000-7ffc2fa2c000 rw-p 00000000 00:00 0              [stack]\n\
        7ffc2fa45000-7ffc2fa49000 r--p 00000000 00:00 0              [vvar]\n\
        7ffc2fa4b000-7ffc2fa4d000 r-xp 00000000 00:00 0              [vdso]\n\
        ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0      [vsyscall]\n";

    #[test]
    fn reads_every_kind_of_line() {
        let map = Map::parse(TEXT);
        assert_eq!(map.mappings().len(), 11);
        let text = map.find(TargetAddress(0x401fff)).unwrap();
        assert_eq!(text.path(), Some(Path::new("/usr/bin/with space")));
        assert_eq!((text.offset, text.device, text.inode), (0x1000, (0xfe, 0), 12));
        assert!(text.permissions.execute && !text.permissions.write && !text.permissions.shared);
        assert_eq!(
            map.find(TargetAddress(0x403000)).unwrap().kind,
            MappingKind::File {
                path: PathBuf::from("/tmp/a\nb\\n"),
                deleted: true
            }
        );
        assert_eq!(map.find(TargetAddress(0x402000)), None, "a hole");
        assert_eq!(map.find(TargetAddress(0x3fffff)), None);
        assert!(map.find(TargetAddress(0x7f0000000000)).unwrap().permissions.shared);
        assert_eq!(
            map.find(TargetAddress(0x7f0000001000)).unwrap().kind,
            MappingKind::Anonymous
        );
        assert_eq!(
            map.find(TargetAddress(0x7f0000002000)).unwrap().kind,
            MappingKind::Other("[anon:glibc: malloc]".to_owned())
        );
        assert_eq!(
            map.find(TargetAddress(0xffffffffff600000)).unwrap().kind,
            MappingKind::Vsyscall
        );
    }

    #[test]
    fn readable_memory_is_merged_and_excludes_the_kernels() {
        let at = TargetAddress;
        assert_eq!(
            Map::parse(TEXT).readable(),
            [
                at(0x400000)..at(0x402000),
                at(0x403000)..at(0x404000),
                at(0x500000)..at(0x521000),
                at(0x7f0000000000)..at(0x7f0000001000),
                at(0x7f0000002000)..at(0x7f0000003000),
                at(0x7ffc2fa0b000)..at(0x7ffc2fa2c000),
                at(0x7ffc2fa4b000)..at(0x7ffc2fa4d000),
            ]
        );
    }

    #[test]
    fn nonsense_is_left_out() {
        let text = b"\n\xff\xfe\n1-2\n2000-1000 r--p 0 0:0 0\nzz-1 r--p 0 0:0 0 x\n\
            1000-2000 r--p 0 0:0 0\n1000-2000 r--p 0 0:0 0\n1800-2800 rw-p 0 0:0 0\n3000-4000 r--p";
        let map = Map::parse(text);
        assert_eq!(map.mappings().len(), 1);
        assert_eq!(map.mappings()[0].start, TargetAddress(0x1000));
    }
}
