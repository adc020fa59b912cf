//! Structures, from their bytes. The layouts are those of the crate libc, which for x86-64 are the kernel's. Where
//! the C library's structure is another one, the kernel's is written out here.

use std::mem::{offset_of, size_of};

use libc::utsname;
use libc::{
    epoll_event, itimerspec, itimerval, pollfd, rlimit64, rusage, stat, statfs, statx, sysinfo, timespec, timeval, tms,
};

use crate::text::{quoted, terminated};
use crate::values::{self, flags};

/// The bytes of a structure of this name.
pub(crate) fn size(name: &str) -> Option<u32> {
    let bytes = match name {
        "stat" => size_of::<stat>(),
        "statfs" => size_of::<statfs>(),
        "statx" => size_of::<statx>(),
        "utsname" => size_of::<utsname>(),
        "rlimit" => size_of::<rlimit64>(),
        "rusage" => size_of::<rusage>(),
        "timespec" => size_of::<timespec>(),
        "timespecs" => 2 * size_of::<timespec>(),
        "timeval" => size_of::<timeval>(),
        // Two integers; libc does not say so.
        "timezone" => 8,
        "itimerval" => size_of::<itimerval>(),
        "itimerspec" => size_of::<itimerspec>(),
        "tms" => size_of::<tms>(),
        "sysinfo" => size_of::<sysinfo>(),
        "epoll_event" => size_of::<epoll_event>(),
        // handler, flags, restorer, mask
        "sigaction" => 32,
        "sigset" | "long" => 8,
        "stack" => 24,
        "int" | "id" | "uint[]" => 4,
        "fds" => 8,
        "open_how" => 24,
        _ => return None,
    };
    u32::try_from(bytes).ok()
}

/// The bytes of an element, where the result says how many there are.
pub(crate) fn element(name: &str) -> Option<u32> {
    (name == "gid[]").then_some(4)
}

/// An unsigned integer of at most eight bytes; `None`: the memory is cut.
pub(crate) fn unsigned(memory: &[u8], offset: usize, bytes: usize) -> Option<u64> {
    let part = memory.get(offset..offset.checked_add(bytes)?)?;
    let mut word = [0; 8];
    word.get_mut(..bytes)?.copy_from_slice(part);
    Some(u64::from_le_bytes(word))
}

pub(crate) fn word(memory: &[u8], offset: usize) -> Option<u64> {
    unsigned(memory, offset, 8)
}

pub(crate) fn half(memory: &[u8], offset: usize) -> Option<u32> {
    unsigned(memory, offset, 4).map(|value| value as u32)
}

fn signed(memory: &[u8], offset: usize) -> Option<i64> {
    word(memory, offset).map(|value| value as i64)
}

/// A structure, as strace writes it. `None`: the memory is cut.
pub(crate) fn structure(name: &str, memory: &[u8], call: &str) -> Option<String> {
    Some(match name {
        "stat" => of_stat(memory)?,
        "statx" => of_statx(memory)?,
        "statfs" => of_statfs(memory)?,
        "sysinfo" => of_sysinfo(memory)?,
        "utsname" => of_utsname(memory)?,
        "rlimit" => {
            let infinity = if call == "prlimit64" {
                "RLIM64_INFINITY"
            } else {
                "RLIM_INFINITY"
            };
            let limit = |offset| Some(of_limit(word(memory, offset)?, infinity));
            format!("{{rlim_cur={}, rlim_max={}}}", limit(0)?, limit(8)?)
        }
        "rusage" => {
            let at = |offset: usize| of_timeval(memory.get(offset..)?);
            format!("{{ru_utime={}, ru_stime={}, ...}}", at(0)?, at(16)?)
        }
        "timespec" => of_timespec(memory)?,
        "timespecs" => of_times(memory)?,
        "timeval" => of_timeval(memory)?,
        "timezone" => {
            let (west, summer) = (half(memory, 0)? as i32, half(memory, 4)? as i32);
            format!("{{tz_minuteswest={west}, tz_dsttime={summer}}}")
        }
        "itimerval" => {
            let (interval, value) = (of_timeval(memory)?, of_timeval(memory.get(16..)?)?);
            format!("{{it_interval={interval}, it_value={value}}}")
        }
        "itimerspec" => {
            let (interval, value) = (of_timespec(memory)?, of_timespec(memory.get(16..)?)?);
            format!("{{it_interval={interval}, it_value={value}}}")
        }
        "tms" => {
            let times = ["tms_utime", "tms_stime", "tms_cutime", "tms_cstime"]
                .into_iter()
                .enumerate();
            let times: Option<Vec<String>> = times
                .map(|(index, name)| Some(format!("{name}={}", signed(memory, 8 * index)?)))
                .collect();
            format!("{{{}}}", times?.join(", "))
        }
        "epoll_event" => of_epoll_event(memory)?,
        "sigaction" => of_sigaction(memory)?,
        "sigset" => values::signal_set(word(memory, 0)?),
        "stack" => of_stack(memory)?,
        "int" | "id" => format!("[{}]", half(memory, 0)? as i32),
        "uint[]" => format!("[{}]", half(memory, 0)?),
        "long" => format!("[{}]", signed(memory, 0)?),
        "fds" => format!("[{}, {}]", half(memory, 0)? as i32, half(memory, 4)? as i32),
        "gid[]" => {
            let ids = memory.chunks_exact(4).filter_map(|id| Some(half(id, 0)?.to_string()));
            format!("[{}]", ids.collect::<Vec<_>>().join(", "))
        }
        "open_how" => {
            let mode = match word(memory, 8)? {
                0 => String::new(),
                mode => format!(", mode={}", octal(mode)),
            };
            format!(
                "{{flags={}{mode}, resolve={}}}",
                values::open_flags(word(memory, 0)?),
                flags("resolve", word(memory, 16)?)
            )
        }
        _ => return None,
    })
}

fn octal(mode: u64) -> String {
    format!("{mode:#03o}").replacen("0o", "0", 1)
}

fn of_limit(limit: u64, infinity: &str) -> String {
    match limit {
        u64::MAX => infinity.to_owned(),
        _ if limit > 1024 && limit.is_multiple_of(1024) => format!("{}*1024", limit / 1024),
        _ => limit.to_string(),
    }
}

pub(crate) fn of_timespec(memory: &[u8]) -> Option<String> {
    Some(format!(
        "{{tv_sec={}, tv_nsec={}}}",
        signed(memory, 0)?,
        signed(memory, 8)?
    ))
}

pub(crate) fn of_timeval(memory: &[u8]) -> Option<String> {
    Some(format!(
        "{{tv_sec={}, tv_usec={}}}",
        signed(memory, 0)?,
        signed(memory, 8)?
    ))
}

fn of_times(memory: &[u8]) -> Option<String> {
    const NOW: i64 = libc::UTIME_NOW;
    const OMIT: i64 = libc::UTIME_OMIT;
    let of = |offset: usize| {
        Some(match signed(memory, offset + 8)? {
            NOW => "UTIME_NOW".to_owned(),
            OMIT => "UTIME_OMIT".to_owned(),
            _ => of_timespec(memory.get(offset..)?)?,
        })
    };
    Some(format!("[{}, {}]", of(0)?, of(16)?))
}

/// The type of a file and its permissions: `S_IFREG|0644`.
fn of_mode(mode: u32) -> String {
    let kind = values::one("file type", u64::from(mode & libc::S_IFMT));
    let special = [
        (libc::S_ISUID, "S_ISUID|"),
        (libc::S_ISGID, "S_ISGID|"),
        (libc::S_ISVTX, "S_ISVTX|"),
    ];
    let special: String = special
        .iter()
        .filter(|(bit, _)| mode & bit != 0)
        .map(|(_, name)| *name)
        .collect();
    format!("{kind}|{special}{}", octal(u64::from(mode & 0o777)))
}

fn of_stat(memory: &[u8]) -> Option<String> {
    let mode = half(memory, offset_of!(stat, st_mode))?;
    let rest = match mode & libc::S_IFMT {
        libc::S_IFCHR | libc::S_IFBLK => {
            let device = word(memory, offset_of!(stat, st_rdev))?;
            format!(
                "st_rdev=makedev({:#x}, {:#x})",
                libc::major(device),
                libc::minor(device)
            )
        }
        _ => format!("st_size={}", signed(memory, offset_of!(stat, st_size))?),
    };
    Some(format!("{{st_mode={}, {rest}, ...}}", of_mode(mode)))
}

fn of_statx(memory: &[u8]) -> Option<String> {
    let mask = half(memory, offset_of!(statx, stx_mask))?;
    let attributes = word(memory, offset_of!(statx, stx_attributes))?;
    let mode = unsigned(memory, offset_of!(statx, stx_mode), 2)? as u32;
    let size = word(memory, offset_of!(statx, stx_size))?;
    let mask = flags("statx_mask", u64::from(mask));
    let attributes = flags("statx_attributes", attributes);
    Some(format!(
        "{{stx_mask={mask}, stx_attributes={attributes}, stx_mode={}, stx_size={size}, ...}}",
        of_mode(mode)
    ))
}

fn of_statfs(memory: &[u8]) -> Option<String> {
    let kind = values::one("file system", word(memory, offset_of!(statfs, f_type))?);
    let number = |offset| word(memory, offset);
    // val, of the kernel's __kernel_fsid_t; libc keeps it private.
    let id = offset_of!(statfs, f_fsid);
    let (first, second) = (half(memory, id)?, half(memory, id + 4)?);
    let hexadecimal = |value: u32| {
        if value == 0 {
            "0".to_owned()
        } else {
            format!("{value:#x}")
        }
    };
    Some(format!(
        "{{f_type={kind}, f_bsize={}, f_blocks={}, f_bfree={}, f_bavail={}, f_files={}, f_ffree={}, \
         f_fsid={{val=[{}, {}]}}, f_namelen={}, f_frsize={}, f_flags={}}}",
        number(offset_of!(statfs, f_bsize))?,
        number(offset_of!(statfs, f_blocks))?,
        number(offset_of!(statfs, f_bfree))?,
        number(offset_of!(statfs, f_bavail))?,
        number(offset_of!(statfs, f_files))?,
        number(offset_of!(statfs, f_ffree))?,
        hexadecimal(first),
        hexadecimal(second),
        number(offset_of!(statfs, f_namelen))?,
        number(offset_of!(statfs, f_frsize))?,
        flags("statfs", number(offset_of!(statfs, f_frsize) + 8)?),
    ))
}

fn of_sysinfo(memory: &[u8]) -> Option<String> {
    let at = |offset: usize| word(memory, offset);
    let loads = offset_of!(sysinfo, loads);
    Some(format!(
        "{{uptime={}, loads=[{}, {}, {}], totalram={}, freeram={}, sharedram={}, bufferram={}, totalswap={}, freeswap={}, \
         procs={}, totalhigh={}, freehigh={}, mem_unit={}}}",
        at(offset_of!(sysinfo, uptime))? as i64,
        at(loads)?,
        at(loads + 8)?,
        at(loads + 16)?,
        at(offset_of!(sysinfo, totalram))?,
        at(offset_of!(sysinfo, freeram))?,
        at(offset_of!(sysinfo, sharedram))?,
        at(offset_of!(sysinfo, bufferram))?,
        at(offset_of!(sysinfo, totalswap))?,
        at(offset_of!(sysinfo, freeswap))?,
        unsigned(memory, offset_of!(sysinfo, procs), 2)?,
        at(offset_of!(sysinfo, totalhigh))?,
        at(offset_of!(sysinfo, freehigh))?,
        half(memory, offset_of!(sysinfo, mem_unit))?,
    ))
}

fn of_utsname(memory: &[u8]) -> Option<String> {
    let name = |offset: usize| {
        let bytes = memory.get(offset..offset + 65)?;
        Some(quoted(terminated(bytes).0, false))
    };
    Some(format!("{{sysname={}, nodename={}, ...}}", name(0)?, name(65)?))
}

pub(crate) fn of_epoll_event(memory: &[u8]) -> Option<String> {
    let events = flags("epoll events", u64::from(half(memory, 0)?));
    let data = word(memory, 4)?;
    Some(format!("{{events={events}, data={{u32={}, u64={data}}}}}", data as u32))
}

pub(crate) fn of_pollfd(memory: &[u8], field: &str) -> Option<String> {
    let offset = match field {
        "revents" => offset_of!(pollfd, revents),
        _ => offset_of!(pollfd, events),
    };
    let fd = half(memory, 0)? as i32;
    let events = flags("poll", unsigned(memory, offset, 2)?);
    Some(match fd {
        ..0 => format!("{{fd={fd}}}"),
        _ => format!("{{fd={fd}, {field}={events}}}"),
    })
}

fn of_sigaction(memory: &[u8]) -> Option<String> {
    let handler = match word(memory, 0)? {
        0 => "SIG_DFL".to_owned(),
        1 => "SIG_IGN".to_owned(),
        handler => format!("{handler:#x}"),
    };
    let bits = word(memory, 8)?;
    let restorer = match flags("sigaction", bits) {
        of if of.contains("SA_RESTORER") => format!(", sa_restorer={:#x}", word(memory, 16)?),
        _ => String::new(),
    };
    let mask = values::signal_set(word(memory, 24)?);
    Some(format!(
        "{{sa_handler={handler}, sa_mask={mask}, sa_flags={}{restorer}}}",
        flags("sigaction", bits)
    ))
}

fn of_stack(memory: &[u8]) -> Option<String> {
    let (pointer, bits, size) = (word(memory, 0)?, half(memory, 8)?, word(memory, 16)?);
    let bits = flags("sigaltstack", u64::from(bits));
    Some(format!(
        "{{ss_sp={}, ss_flags={bits}, ss_size={size}}}",
        values::address(pointer)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysinfo_tells_has_its_names() {
        let mut memory: Vec<u8> = (1..=14_u64).flat_map(u64::to_le_bytes).collect();
        let text = "{uptime=1, loads=[2, 3, 4], totalram=5, freeram=6, sharedram=7, bufferram=8, totalswap=9, \
                    freeswap=10, procs=11, totalhigh=12, freehigh=13, mem_unit=14}";
        assert_eq!(structure("sysinfo", &memory, "sysinfo").as_deref(), Some(text));
        assert_eq!(size("sysinfo"), Some(memory.len() as u32));
        memory.truncate(100);
        assert_eq!(structure("sysinfo", &memory, "sysinfo"), None);
    }
}
