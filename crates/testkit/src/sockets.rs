// SPDX-License-Identifier: MIT OR Apache-2.0
//! Sockets of namespaces.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

use freeway_lab::Netns;
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};

fn family(address: SocketAddr) -> AddressFamily {
    if address.is_ipv4() {
        AddressFamily::Inet
    } else {
        AddressFamily::Inet6
    }
}

fn tcp_socket(address: SocketAddr) -> OwnedFd {
    let fd = socket(
        family(address),
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    setsockopt(&fd, sockopt::ReuseAddr, &true).unwrap();
    bind(fd.as_raw_fd(), &SockaddrStorage::from(address)).unwrap();
    fd
}

/// Listens in a namespace.
pub fn listen(netns: &Netns, address: SocketAddr) -> TcpListener {
    netns
        .enter(|| {
            let fd = tcp_socket(address);
            nix::sys::socket::listen(&fd, nix::sys::socket::Backlog::new(128).unwrap()).unwrap();
            // SAFETY: the descriptor is this function's own.
            unsafe { TcpListener::from_raw_fd(fd.into_raw_fd()) }
        })
        .unwrap()
}

/// Connects from a given address and port of a namespace; ports may be reused at once.
pub fn connect_from(netns: &Netns, from: SocketAddr, to: SocketAddr) -> std::io::Result<TcpStream> {
    netns
        .enter(|| {
            let fd = tcp_socket(from);
            connect(fd.as_raw_fd(), &SockaddrStorage::from(to))?;
            // SAFETY: the descriptor is this function's own.
            let stream = unsafe { TcpStream::from_raw_fd(fd.into_raw_fd()) };
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            stream.set_write_timeout(Some(Duration::from_secs(20)))?;
            stream.set_nodelay(true)?;
            Ok(stream)
        })
        .unwrap()
}

/// A connection through the router: the opener's end and the other one.
pub fn pair(
    from: (&Netns, SocketAddr),
    to: SocketAddr,
    listener: &TcpListener,
) -> (TcpStream, TcpStream) {
    let opener = connect_from(from.0, from.1, to).unwrap();
    let (other, _) = listener.accept().unwrap();
    other
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    other
        .set_write_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    other.set_nodelay(true).unwrap();
    (opener, other)
}

/// A UDP socket of a namespace.
pub fn udp(netns: &Netns, address: SocketAddr) -> UdpSocket {
    let socket = netns.enter(|| UdpSocket::bind(address)).unwrap().unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(1)))
        .unwrap();
    socket
}

/// The two wait longer: an engine that polls may not run for a while.
pub fn patient(ends: (UdpSocket, UdpSocket)) -> (UdpSocket, UdpSocket) {
    for socket in [&ends.0, &ends.1] {
        let patience = Some(Duration::from_secs(10));
        socket.set_read_timeout(patience).unwrap();
    }
    ends
}

/// Closes with a RST.
pub fn reset(stream: TcpStream) {
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    setsockopt(&stream, sockopt::Linger, &linger).unwrap();
}
