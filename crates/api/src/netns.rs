// SPDX-License-Identifier: MIT OR Apache-2.0
//! Which network namespace this is.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where control sockets and locks live.
pub const RUN_DIR: &str = "/run/freeway";

/// The inode that names the network namespace of the calling thread.
pub fn inode() -> io::Result<u64> {
    fs::metadata("/proc/thread-self/ns/net").map(|meta| meta.ino())
}

/// True in the initial network namespace. This sysctl is registered there alone (net/core/sysctl_net_core.c); comparing
/// with /proc/1/ns/net would need the privileges of process 1, which clients lack.
fn is_initial() -> bool {
    Path::new("/proc/sys/net/core/netdev_max_backlog").exists()
}

/// The control socket of this network namespace: the daemon and its clients find the same one without arguments.
pub fn default_socket() -> io::Result<PathBuf> {
    let name = if is_initial() {
        "freeway.sock".into()
    } else {
        socket_name(inode()?)
    };
    Ok(Path::new(RUN_DIR).join(name))
}

/// The name of the control socket of a network namespace that is not the initial one.
pub fn socket_name(inode: u64) -> String {
    format!("netns-{inode}.sock")
}

/// The lock that says that a daemon serves this network namespace, whatever its socket.
pub fn lock_path() -> io::Result<PathBuf> {
    Ok(Path::new(RUN_DIR).join(format!("netns-{}.lock", inode()?)))
}
