//! What the kernel says of a socket.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;

use common::{Options, Target};
use nanoprobe_agent::Function;
use nanoprobe_arena::layout::FAULT_ILLEGAL;

const PROTOCOL: u64 = 0;
const VERSION: u64 = 1;
const LOCAL: u64 = 2;
const PEER: u64 = 3;
const NAMED: u64 = 4;
const COOKIE: u64 = 5;
const CONNECTED: u64 = 6;

/// Asks about a descriptor. Each question begins a clause, which has its own scratch memory.
struct Asked {
    target: Target,
    context: u64,
}

impl Asked {
    fn new() -> Self {
        let target = Target::new(&Options::default());
        let context = target.enter();
        Self { target, context }
    }

    fn number(&self, descriptor: i32, part: u64, given: u64) -> u64 {
        self.target.begin(self.context);
        let arguments = [descriptor as u64, part, given];
        let (result, fault) = self.target.run(self.context, Function::Socket, &arguments);
        assert_eq!(fault, 0);
        result
    }

    fn address(&self, descriptor: i32, which: u64, given: u64) -> String {
        self.target.begin(self.context);
        let arguments = [descriptor as u64, which, given];
        let (result, fault) = self.target.run(self.context, Function::SocketAddress, &arguments);
        assert_eq!(fault, 0);
        let bytes = self.target.bytes(result, 48);
        let end = bytes.iter().position(|byte| *byte == 0).unwrap();
        String::from_utf8(bytes[..end].to_vec()).unwrap()
    }

    fn end(&self, descriptor: i32, which: u64) -> (String, u64) {
        (self.address(descriptor, which, 0), self.number(descriptor, which, 0))
    }
}

fn shown(end: SocketAddr) -> (String, u64) {
    (end.ip().to_canonical().to_string(), end.port().into())
}

#[test]
fn the_ends_of_a_connection_are_the_kernels() {
    let asked = Asked::new();
    for (listens, connects, version) in [
        ("127.0.0.1:0", "127.0.0.1", 4),
        ("[::1]:0", "::1", 6),
        ("[::]:0", "::ffff:127.0.0.1", 4),
    ] {
        let listener = TcpListener::bind(listens).unwrap();
        let at = SocketAddr::new(connects.parse().unwrap(), listener.local_addr().unwrap().port());
        let client = TcpStream::connect(at).unwrap();
        let (server, _) = listener.accept().unwrap();
        let fd = client.as_raw_fd();
        assert_eq!(asked.number(fd, PROTOCOL, 0), 6);
        assert_eq!(asked.number(fd, VERSION, 0), version);
        assert_eq!(asked.end(fd, LOCAL), shown(client.local_addr().unwrap()));
        assert_eq!(asked.end(fd, PEER), shown(client.peer_addr().unwrap()));
        assert_eq!(asked.end(fd, NAMED), shown(client.peer_addr().unwrap()));
        assert_eq!(asked.number(fd, CONNECTED, 0), u64::from(at.port()));
        assert_eq!(asked.end(server.as_raw_fd(), PEER), shown(client.local_addr().unwrap()));
        let cookies = [fd, server.as_raw_fd(), listener.as_raw_fd()].map(|one| asked.number(one, COOKIE, 0));
        assert!(cookies.iter().all(|one| *one != 0) && cookies[0] != cookies[1] && cookies[1] != cookies[2]);
        let copy = client.try_clone().unwrap();
        assert_eq!(asked.number(copy.as_raw_fd(), COOKIE, 0), cookies[0]);
        // A connection that has ended has ends, but is none.
        client.shutdown(std::net::Shutdown::Write).unwrap();
        drop(server);
        while client.peer_addr().is_ok() {
            std::thread::yield_now();
        }
        assert_eq!(asked.end(fd, PEER), shown(at));
        assert_eq!(asked.number(fd, CONNECTED, 0), 0);
        assert_eq!(asked.end(listener.as_raw_fd(), PEER), ("<none>".to_owned(), 0));
    }
}

/// A `struct sockaddr` of the program is used if the kernel knows no other end, or before that which it knows.
#[test]
fn an_address_of_the_program_is_read_with_care() {
    let asked = Asked::new();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let fd = socket.as_raw_fd();
    assert_eq!(asked.number(fd, PROTOCOL, 0), 17);
    let mut v6 = [0_u8; 28];
    v6[..4].copy_from_slice(&[10, 0, 0x12, 0x34]);
    (v6[8], v6[9], v6[23]) = (0x20, 1, 5);
    let v4 = [2_u8, 0, 0x43, 0x21, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    for which in [PEER, NAMED] {
        for (bytes, address, port) in [(&v6[..], "2001::5", 0x1234), (&v4[..], "192.0.2.1", 0x4321)] {
            let given = bytes.as_ptr() as u64;
            assert_eq!(asked.address(fd, which, given), address);
            assert_eq!(asked.number(fd, which, given), port);
        }
        for bad in [0, 8, u64::MAX - 8, [1_u8; 28].as_ptr() as u64] {
            assert_eq!(asked.address(fd, which, bad), "<none>");
            assert_eq!(asked.number(fd, which, bad), 0);
        }
    }
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(other.local_addr().unwrap()).unwrap();
    let given = v4.as_ptr() as u64;
    assert_eq!(asked.address(fd, PEER, given), "127.0.0.1");
    assert_eq!(asked.address(fd, NAMED, given), "192.0.2.1");
}

#[test]
fn other_descriptors_are_no_sockets_of_the_internet() {
    let asked = Asked::new();
    let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
    let (pipe, _) = std::io::pipe().unwrap();
    for fd in [one.as_raw_fd(), pipe.as_raw_fd(), -1, 1_000_000] {
        for part in [PROTOCOL, LOCAL, PEER, NAMED, CONNECTED, VERSION] {
            assert_eq!(asked.number(fd, part, 0), 0, "{fd} {part}");
        }
        assert_eq!(asked.end(fd, LOCAL), ("<none>".to_owned(), 0));
    }
    let target = Target::new(&Options {
        allow_syscalls: false,
        ..Options::default()
    });
    let context = target.enter();
    for function in [Function::Socket, Function::SocketAddress] {
        target.begin(context);
        assert_eq!(target.run(context, function, &[0, 0, 0]).1, u64::from(FAULT_ILLEGAL));
    }
}

#[test]
fn the_bytes_of_messages_are_added() {
    let asked = Asked::new();
    let mut messages = [[0_u32; 16]; 3];
    for (message, bytes) in messages.iter_mut().zip([30, 20, 7]) {
        message[14] = bytes;
        message[15] = 77;
    }
    let at = messages.as_ptr() as u64;
    let sum = |address: u64, count: u64| {
        asked
            .target
            .run(asked.context, Function::MessageBytes, &[address, count])
    };
    asked.target.begin(asked.context);
    assert_eq!([sum(at, 0), sum(at, 1), sum(at, 3)], [(0, 0), (30, 0), (57, 0)]);
    assert_eq!(sum(8, u64::MAX), (0, 0));
}
