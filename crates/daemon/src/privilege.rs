// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the daemon must be allowed to do.

use freeway_console::{Exit, Stop};

/// Capabilities that the daemon needs: name and number (linux/capability.h).
const NEEDED: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_BPF", 39), ("CAP_PERFMON", 38)];
/// Stands for CAP_BPF and CAP_PERFMON. And only who has it may look at the types of a module (`bpf_btf_get_fd_by_id()` in
/// kernel/bpf/syscall.c), without which no program that calls its functions can be loaded.
const CAP_SYS_ADMIN: u32 = 21;

/// One line if a capability is missing.
pub fn check() -> Result<(), Stop> {
    let missing = missing(effective(), conntrack_is_a_module());
    if missing.is_empty() {
        return Ok(());
    }
    let why = match missing.contains(&"CAP_SYS_ADMIN") {
        true => ", for this kernel's nf_conntrack is a module",
        false => "",
    };
    let missing = missing.join(", ");
    Err(Stop::new(
        Exit::Privilege,
        format!("`freeway run` lacks {missing}{why}: run it as root, or by the systemd unit"),
    ))
}

/// It is there, and no part of the kernel proper.
fn conntrack_is_a_module() -> bool {
    freeway_kernel::sysctl::has_conntrack()
        && !freeway_datapath::has_builtin_kfunc(c"bpf_skb_ct_lookup")
}

/// The effective capabilities of this process; none if they cannot be read.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    field
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0)
}

fn missing(effective: u64, of_a_module: bool) -> Vec<&'static str> {
    let has = |number: u32| effective >> number & 1 == 1;
    let lacks = |(name, number): &(&str, u32)| {
        !has(*number) && (*name == "CAP_NET_ADMIN" || !has(CAP_SYS_ADMIN))
    };
    let of_a_module = (of_a_module && !has(CAP_SYS_ADMIN)).then_some("CAP_SYS_ADMIN");
    let needed = NEEDED.into_iter().filter(lacks).map(|(name, _)| name);
    needed.chain(of_a_module).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_and_new_capabilities() {
        let all = ["CAP_NET_ADMIN", "CAP_BPF", "CAP_PERFMON"];
        assert_eq!(missing(0, false), all);
        for of_a_module in [false, true] {
            assert_eq!(missing(u64::MAX, of_a_module), [""; 0]);
            assert_eq!(missing(1 << 12 | 1 << 21, of_a_module), [""; 0]);
        }
        assert_eq!(missing(1 << 12 | 1 << 39, false), ["CAP_PERFMON"]);
        let without = 1 << 12 | 1 << 38 | 1 << 39;
        assert_eq!(missing(without, false), [""; 0]);
        assert_eq!(missing(without, true), ["CAP_SYS_ADMIN"]);
    }
}
