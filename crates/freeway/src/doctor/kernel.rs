// SPDX-License-Identifier: MIT OR Apache-2.0
//! The kernel's version and features.

use freeway_kernel::probe::{Outcome, ProbeResult, probe_all};
use freeway_kernel::sysctl;

use super::report::{Report, Severity};

const AREA: &str = "kernel";

/// Looks at the kernel.
pub fn examine(report: &mut Report) {
    let release = nix::sys::utsname::uname().map_or_else(
        |_| "of unknown version".to_owned(),
        |name| name.release().to_string_lossy().into_owned(),
    );
    report.add(AREA, Severity::Note, format!("Linux {release}"));
    for probe in probe_all() {
        feature(report, &probe);
    }
    // security_locked_down(LOCKDOWN_BPF_READ_KERNEL)
    let lockdown = std::fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    if lockdown.contains("[confidentiality]") {
        report.advise(
            AREA,
            Severity::Problem,
            "lockdown is `confidentiality`: no BPF program may read the kernel's memory, so Freeway's do not load",
            "boot with lockdown=integrity, which is what Secure Boot asks for",
        );
    }
    if sysctl::number("core/bpf_jit_enable") == Some(0) {
        report.advise(
            AREA,
            Severity::Warning,
            "BPF programs are interpreted, which is slow",
            "sysctl net.core.bpf_jit_enable=1",
        );
    }
}

fn feature(report: &mut Report, probe: &ProbeResult) {
    let ProbeResult {
        name,
        needed_for,
        required,
        since: (major, minor),
        outcome,
    } = probe;
    let bad = match required {
        true => Severity::Problem,
        false => Severity::Warning,
    };
    match outcome {
        Outcome::Present => report.add(AREA, Severity::Good, format!("{name}: {needed_for}")),
        Outcome::Missing(why) => report.advise(
            AREA,
            bad,
            format!("{name} is missing ({why}): {needed_for}"),
            format!("Linux {major}.{minor} or newer has it, if it is built or loaded"),
        ),
        // Why is said once at the end.
        Outcome::Unknown(_) if !report.complete => {
            let words = format!("{name}: cannot tell without root: {needed_for}");
            report.add(AREA, Severity::Note, words);
        }
        Outcome::Unknown(why) => {
            let words = format!("{name}: cannot tell ({why}): {needed_for}");
            report.add(AREA, Severity::Note, words);
        }
    }
}
