// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's version and features.

use std::path::Path;

use super::{Report, Severity, sysctl};

const AREA: &str = "kernel";
/// The oldest kernel that Freeway runs on.
const MINIMUM: (u32, u32) = (6, 1);

/// Looks at the kernel.
pub fn examine(report: &mut Report) {
    version(report);
    if Path::new("/sys/kernel/btf/vmlinux").exists() {
        report.add(AREA, Severity::Good, "type information (BTF) is there");
    } else {
        report.advise(
            AREA,
            Severity::Problem,
            "no type information: /sys/kernel/btf/vmlinux is missing",
            "use a kernel with CONFIG_DEBUG_INFO_BTF, as distributions build it, and mount /sys",
        );
    }
    match sysctl("net/core/bpf_jit_enable") {
        Some(0) => report.advise(
            AREA,
            Severity::Warning,
            "BPF programs are interpreted, which is slow",
            "sysctl net.core.bpf_jit_enable=1",
        ),
        _ => report.add(AREA, Severity::Good, "BPF programs are compiled (JIT)"),
    }
    if has_function("bpf_xdp_ct_lookup") {
        report.add(
            AREA,
            Severity::Good,
            "XDP can look connections up (bpf_xdp_ct_lookup)",
        );
    } else {
        report.advise(
            AREA,
            Severity::Warning,
            "XDP cannot look connections up: connections that change without an event are noticed late",
            "modprobe nf_conntrack, or use a kernel with connection tracking (Linux 6.0)",
        );
    }
    let root = nix::unistd::geteuid().is_root();
    if !root {
        report.add(
            AREA,
            Severity::Note,
            "without root some of what follows cannot be seen",
        );
    }
}

fn version(report: &mut Report) {
    let Ok(name) = nix::sys::utsname::uname() else {
        report.add(
            AREA,
            Severity::Problem,
            "the kernel does not tell its version",
        );
        return;
    };
    let release = name.release().to_string_lossy().into_owned();
    let (major, minor) = MINIMUM;
    match number(&release) {
        Some(version) if version >= MINIMUM => {
            report.add(
                AREA,
                Severity::Good,
                format!("Linux {release} is new enough ({major}.{minor})"),
            );
        }
        _ => report.advise(
            AREA,
            Severity::Problem,
            format!("Linux {release} is too old"),
            format!("use Linux {major}.{minor} or newer"),
        ),
    }
}

fn number(release: &str) -> Option<(u32, u32)> {
    let mut parts = release.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Whether the kernel's or conntrack's type information names a function.
fn has_function(name: &str) -> bool {
    ["/sys/kernel/btf/vmlinux", "/sys/kernel/btf/nf_conntrack"]
        .into_iter()
        .any(|file| {
            // Names in BTF are terminated by 0.
            let pattern: Vec<u8> = [&[0], name.as_bytes(), &[0]].concat();
            std::fs::read(file)
                .is_ok_and(|btf| btf.windows(pattern.len()).any(|window| window == pattern))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(number("6.1.0-28-amd64"), Some((6, 1)));
        assert_eq!(number("6.18.5"), Some((6, 18)));
        assert_eq!(number("6"), None);
        assert!(number("5.15.0") < Some(MINIMUM));
    }
}
