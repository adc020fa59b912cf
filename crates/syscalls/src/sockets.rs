//! Addresses, types, protocols and options of sockets.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::made::Made;
use crate::names::{self, Name, links};
use crate::structures::{half, unsigned};
use crate::text::{quoted, terminated};
use crate::values;

const UNIX: u64 = libc::AF_UNIX as u64;
const INET: u64 = libc::AF_INET as u64;
const INET6: u64 = libc::AF_INET6 as u64;
const NETLINK: u64 = libc::AF_NETLINK as u64;
const VSOCK: u64 = libc::AF_VSOCK as u64;
const PACKET: u64 = libc::AF_PACKET as u64;
const ALG: u64 = libc::AF_ALG as u64;

/// An address, as strace writes it. `None`: the memory is cut.
pub(crate) fn address(made: &Made, memory: &[u8]) -> Option<String> {
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
        PACKET if memory.len() >= 20 => packet(made, memory)?,
        ALG if memory.len() > 24 => algorithm(memory)?,
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

/// The name of a value in two tables; without one, a comment.
fn link(value: u32, tables: [&[Name]; 2], prefix: &str) -> String {
    let known = tables
        .into_iter()
        .flatten()
        .find(|(_, known)| *known == u64::from(value));
    let unknown = || format!("{} /* {prefix}_??? */", values::hexadecimal(u64::from(value)));
    known.map_or_else(unknown, |(name, _)| (*name).to_owned())
}

/// A protocol of Ethernet, from the bytes that are those of the network.
fn ethernet(bytes: u16) -> String {
    let tables = [links::PROTOCOLS, links::MORE_PROTOCOLS];
    format!("htons({})", link(u32::from(u16::from_be(bytes)), tables, "ETH_P"))
}

fn packet(made: &Made, memory: &[u8]) -> Option<String> {
    let protocol = ethernet(unsigned(memory, 2, 2)? as u16);
    let index = half(memory, 4)?;
    let interface = match (made.interfaces.0)(index) {
        Some(name) => format!("if_nametoindex({})", quoted(name.as_bytes(), false)),
        None => index.to_string(),
    };
    let hardware = link(
        unsigned(memory, 8, 2)? as u32,
        [links::HARDWARE, links::MORE_HARDWARE],
        "ARPHRD",
    );
    let kind = link(unsigned(memory, 10, 1)? as u32, [links::PACKETS, &[]], "PACKET");
    let length = unsigned(memory, 11, 1)?;
    let bytes = memory.get(12..20)?.iter().take(length as usize);
    // C's %#02x writes no 0x before a zero.
    let mut bytes: Vec<String> = bytes
        .map(|byte| {
            if *byte == 0 {
                "00".to_owned()
            } else {
                format!("{byte:#x}")
            }
        })
        .collect();
    if length > 8 {
        bytes.push("...".to_owned());
    }
    let bytes = match length {
        0 => String::new(),
        _ => format!(", sll_addr=[{}]", bytes.join(", ")),
    };
    Some(format!(
        ", sll_protocol={protocol}, sll_ifindex={interface}, sll_hatype={hardware}, sll_pkttype={kind}, \
         sll_halen={length}{bytes}"
    ))
}

fn algorithm(memory: &[u8]) -> Option<String> {
    const DRIVER_ONLY: u32 = 0x1000;
    let name = |bytes: &[u8]| match (terminated(bytes), bytes) {
        ((found, true), _) => quoted(found, false),
        (_, [bytes @ .., _]) => quoted(bytes, true),
        _ => quoted(&[], true),
    };
    let bits = |offset: usize| {
        let bits = half(memory, offset)?;
        Some(match (bits & DRIVER_ONLY, bits & !DRIVER_ONLY) {
            (0, 0) => "0".to_owned(),
            (0, _) => format!("{bits:#x} /* CRYPTO_ALG_??? */"),
            (_, 0) => format!("{bits:#x} /* CRYPTO_ALG_KERN_DRIVER_ONLY */"),
            (_, rest) => format!("{bits:#x} /* CRYPTO_ALG_KERN_DRIVER_ONLY|{rest:#x} */"),
        })
    };
    let (kind, of) = (name(memory.get(2..16)?), name(memory.get(24..)?));
    Some(format!(
        ", salg_type={kind}, salg_feat={}, salg_mask={}, salg_name={of}",
        bits(16)?,
        bits(20)?
    ))
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
        PACKET => return ethernet(value as u16),
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
        let made = Made::default();
        let inet = [2, 0, 0, 80, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        let text = r#"{sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}"#;
        assert_eq!(address(&made, &inet).as_deref(), Some(text));
        let text = r#"{sa_family=AF_UNIX, sun_path="/run/s"}"#;
        assert_eq!(address(&made, b"\x01\0/run/s\0").as_deref(), Some(text));
        assert_eq!(
            address(&made, b"\x01\0\0ab").as_deref(),
            Some(r#"{sa_family=AF_UNIX, sun_path=@"ab"}"#)
        );
        assert_eq!(address(&made, b"\x01\0").as_deref(), Some("{sa_family=AF_UNIX}"));
        assert_eq!((address(&made, b"\x02\0\0"), address(&made, b"")), (None, None));
        let text = "{sa_family=AF_NETLINK, nl_pad=0x7, nl_pid=5, nl_groups=0x000006}";
        assert_eq!(
            address(&made, b"\x10\0\x07\0\x05\0\0\0\x06\0\0\0").as_deref(),
            Some(text)
        );
        let text = r#"{sa_family=0x63 /* AF_??? */, sa_data="ab"}"#;
        assert_eq!(address(&made, b"\x63\0ab").as_deref(), Some(text));
        assert_eq!(kind(0x80802), "SOCK_DGRAM|SOCK_CLOEXEC|SOCK_NONBLOCK");
        assert_eq!(
            (protocol(2, 6), protocol(1, 0)),
            ("IPPROTO_TCP".to_owned(), "0".to_owned())
        );
        assert_eq!(option(1, 2), "SO_REUSEADDR");
    }

    /// Lines of strace 6.1, too.
    #[test]
    fn links_and_algorithms_have_names() {
        let mut made = Made::default();
        made.interfaces.0 = |index| (index == 1).then(|| "lo".to_owned());
        let mut link = [17, 0, 8, 0, 1, 0, 0, 0, 1, 0, 3, 3, 1, 0, 255, 4, 5, 6, 7, 8];
        let text = "{sa_family=AF_PACKET, sll_protocol=htons(ETH_P_IP), sll_ifindex=if_nametoindex(\"lo\"), \
                    sll_hatype=ARPHRD_ETHER, sll_pkttype=PACKET_OTHERHOST, sll_halen=3, sll_addr=[0x1, 00, 0xff]}";
        assert_eq!(address(&made, &link).as_deref(), Some(text));
        link[2..12].copy_from_slice(&[0x12, 0x34, 231, 3, 0, 0, 0x34, 0x12, 99, 9]);
        let text = "{sa_family=AF_PACKET, sll_protocol=htons(0x1234 /* ETH_P_??? */), sll_ifindex=999, \
                    sll_hatype=0x1234 /* ARPHRD_??? */, sll_pkttype=0x63 /* PACKET_??? */, sll_halen=9, \
                    sll_addr=[0x1, 00, 0xff, 0x4, 0x5, 0x6, 0x7, 0x8, ...]}";
        assert_eq!(address(&made, &link).as_deref(), Some(text));
        let mut algorithm = [&b"\x26\0hash\0\0\0\0\0\0\0\0\0\0"[..], &[0; 8], b"sha256\0\0"].concat();
        let text = r#"{sa_family=AF_ALG, salg_type="hash", salg_feat=0, salg_mask=0, salg_name="sha256"}"#;
        assert_eq!(address(&made, &algorithm).as_deref(), Some(text));
        algorithm[6..16].fill(b'a');
        algorithm[16..24].copy_from_slice(&[5, 0, 0, 0, 0x34, 0x12, 0, 0]);
        let text = r#"{sa_family=AF_ALG, salg_type="hashaaaaaaaaa"..., salg_feat=0x5 /* CRYPTO_ALG_??? */, salg_mask=0x1234 /* CRYPTO_ALG_KERN_DRIVER_ONLY|0x234 */, salg_name="sha"...}"#;
        assert_eq!(address(&made, &algorithm[..28]).as_deref(), Some(text));
        assert_eq!(protocol(PACKET, 0x300), "htons(ETH_P_ALL)");
    }
}
