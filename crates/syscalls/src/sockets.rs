//! Addresses, types, protocols and options of sockets.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::names;
use crate::structures::{half, unsigned};
use crate::text::{quoted, terminated};
use crate::values;

const UNIX: u64 = libc::AF_UNIX as u64;
const INET: u64 = libc::AF_INET as u64;
const INET6: u64 = libc::AF_INET6 as u64;
const NETLINK: u64 = libc::AF_NETLINK as u64;
const VSOCK: u64 = libc::AF_VSOCK as u64;

/// An address, as strace writes it. `None`: the memory is cut.
pub(crate) fn address(memory: &[u8]) -> Option<String> {
    let family = unsigned(memory, 0, 2)?;
    let port = || memory.get(2..4).map(|port| u16::from_be_bytes([port[0], port[1]]));
    let name = values::name("family", family).map_or_else(|| format!("{family:#x} /* AF_??? */"), str::to_owned);
    let rest = match family {
        UNIX => match memory.get(2..)? {
            [] => String::new(),
            [0, rest @ ..] => format!(", sun_path=@{}", quoted(rest, false)),
            path => format!(", sun_path={}", quoted(terminated(path).0, false)),
        },
        INET => {
            let address = Ipv4Addr::from(<[u8; 4]>::try_from(memory.get(4..8)?).ok()?);
            format!(", sin_port=htons({}), sin_addr=inet_addr(\"{address}\")", port()?)
        }
        INET6 => {
            let flow = u32::from_be(half(memory, 4)?);
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(memory.get(8..24)?).ok()?);
            let scope = half(memory, 24)?;
            format!(
                ", sin6_port=htons({}), sin6_flowinfo=htonl({flow}), inet_pton(AF_INET6, \"{address}\", &sin6_addr), \
                 sin6_scope_id={scope}",
                port()?
            )
        }
        NETLINK => netlink(memory)?,
        VSOCK => vsock(memory)?,
        _ => format!(", sa_data={}", quoted(memory.get(2..)?, false)),
    };
    Some(format!("{{sa_family={name}{rest}}}"))
}

fn netlink(memory: &[u8]) -> Option<String> {
    let pad = match unsigned(memory, 2, 2)? {
        0 => String::new(),
        pad => format!(", nl_pad={pad:#x}"),
    };
    // C's %#08x writes no 0x before a zero.
    let groups = match half(memory, 8)? {
        0 => "00000000".to_owned(),
        groups => format!("{groups:#08x}"),
    };
    Some(format!("{pad}, nl_pid={}, nl_groups={groups}", half(memory, 4)?))
}

fn vsock(memory: &[u8]) -> Option<String> {
    let port = match half(memory, 4)? {
        libc::VMADDR_PORT_ANY => "VMADDR_PORT_ANY".to_owned(),
        port => values::hexadecimal(u64::from(port)),
    };
    let context = u64::from(half(memory, 8)?);
    let context = values::name("vsock", context).map_or_else(|| values::hexadecimal(context), str::to_owned);
    let flags = values::flags("vsock", unsigned(memory, 12, 1)?);
    Some(format!(", svm_cid={context}, svm_port={port}, svm_flags={flags}"))
}

/// The type of a socket, with its flags.
pub(crate) fn kind(value: u64) -> String {
    const FLAGS: u64 = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
    let name = values::one("socket type", value & !FLAGS & 0xffff_ffff);
    match value & FLAGS {
        0 => name,
        bits => format!("{name}|{}", values::flags("sock", bits)),
    }
}

/// The protocol of a socket of this family.
pub(crate) fn protocol(family: u64, value: u64) -> String {
    let table = match family {
        INET | INET6 => "protocol",
        NETLINK => "netlink",
        _ => return value.to_string(),
    };
    values::one(table, value)
}

/// An option of a socket, by its level.
pub(crate) fn option(level: u64, value: u64) -> String {
    let level = values::name("level", level).unwrap_or_default();
    match names::one(level) {
        [] => values::hexadecimal(value),
        _ => values::one(level, value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of strace 6.1.
    #[test]
    fn addresses_are_those_of_strace() {
        let inet = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let text = r#"{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}"#;
        assert_eq!(address(&inet).as_deref(), Some(text));
        let text = r#"{sa_family=AF_UNIX, sun_path="/run/s"}"#;
        assert_eq!(address(b"\x01\0/run/s\0").as_deref(), Some(text));
        assert_eq!(
            address(b"\x01\0\0ab").as_deref(),
            Some(r#"{sa_family=AF_UNIX, sun_path=@"ab"}"#)
        );
        assert_eq!(address(b"\x01\0").as_deref(), Some("{sa_family=AF_UNIX}"));
        assert_eq!((address(b"\x02\0\0"), address(b"")), (None, None));
        let text = "{sa_family=AF_NETLINK, nl_pad=0x7, nl_pid=5, nl_groups=0x000006}";
        assert_eq!(address(b"\x10\0\x07\0\x05\0\0\0\x06\0\0\0").as_deref(), Some(text));
        let text = r#"{sa_family=0x63 /* AF_??? */, sa_data="ab"}"#;
        assert_eq!(address(b"\x63\0ab").as_deref(), Some(text));
        assert_eq!(kind(0x80802), "SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK");
        assert_eq!(
            (protocol(2, 6), protocol(1, 0)),
            ("IPPROTO_TCP".to_owned(), "0".to_owned())
        );
        assert_eq!(option(1, 2), "SO_REUSEADDR");
    }
}
