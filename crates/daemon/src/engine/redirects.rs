// SPDX-License-Identifier: MIT OR Apache-2.0
//! Redirected frames that the driver of an output does not take, and when it is asked again.
//!
//! A veth takes them while its peer has NAPI, which it has while it is up with GRO on or an XDP program. The kernel
//! goes by a flag of the veth (NDO_XMIT) and, behind that, by NAPI. What GRO is switched to while the peer is down changes
//! neither: NAPI follows when the peer goes up (`veth_open()`), the flag when GRO is switched while the peer is up
//! (`veth_set_features()`) or the veth itself goes up. So they can differ, either way: without the flag each redirect fails with
//! EOPNOTSUPP whatever the peer has, without NAPI with ENXIO.

use freeway_datapath::PortFault;
use freeway_kernel::model::Link;

/// Failed redirects after which an output is left to the kernel.
const LOST_MAX: u64 = 8;

/// How redirects to a port went, as it was last judged.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    /// Frames lost since they were last tried.
    pub lost: u64,
    errno: i32,
    /// The driver says that it takes none.
    mute: bool,
    /// [`Link::carrier_ups`] then.
    carrier_ups: u32,
    /// To be tried again at the next look.
    again: bool,
    /// The flag says what the kernel goes by.
    by_flag: bool,
}

impl Redirects {
    /// Takes note of what the driver says. True if what made redirects fail may have been put right since, so that
    /// they are to be tried again.
    pub(super) fn look(&mut self, link: &Link, can_send: bool) -> bool {
        let was_mute = std::mem::replace(&mut self.mute, !can_send);
        let ups = std::mem::replace(&mut self.carrier_ups, link.carrier_ups);
        let again = std::mem::take(&mut self.again);
        self.by_flag = is_veth(link);
        let other_carrier = self.fails() && ups != link.carrier_ups;
        can_send && (again || other_carrier || (was_mute && self.lost > 0))
    }

    /// Takes note of what the kernel has counted.
    pub(super) fn count(&mut self, fault: PortFault) {
        self.lost = fault.failed;
        self.errno = fault.errno;
    }

    /// The driver says that it takes them. True if they are to be tried again for that: the kernel refused them by what
    /// the driver said, which was another thing for so short a time that no look saw it.
    pub(super) fn retry(&mut self) -> bool {
        self.again = self.by_flag && !self.mute && self.fails() && self.errno == libc::EOPNOTSUPP;
        self.again
    }

    fn fails(&self) -> bool {
        self.lost >= LOST_MAX
    }

    /// Why the port is sent none, and what to do; nothing if it takes them.
    pub(super) fn refused(&self, link: &Link) -> Vec<String> {
        let (lost, veth) = (self.lost, is_veth(link));
        let failing = self.fails().then(|| match self.errno {
            libc::ENXIO if veth => format!(
                "its peer lost {lost} redirected frames, for it has no NAPI: switch GRO on there, then set it down and up"
            ),
            errno => format!(
                "the driver lost {lost} redirected frames: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
        });
        let mute = self.mute.then(|| match veth {
            true => "its peer does not take redirected frames: switch GRO off and on again there while it is up \
                     (what was switched while it was down does not count), or attach an XDP program"
                .to_owned(),
            false => "its driver cannot send redirected frames (no ndo_xdp_xmit)".to_owned(),
        });
        failing.into_iter().chain(mute).collect()
    }
}

fn is_veth(link: &Link) -> bool {
    link.kind.as_deref() == Some("veth")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::tests::link;

    fn failing(errno: i32) -> PortFault {
        PortFault {
            failed: 9,
            errno,
            ..PortFault::default()
        }
    }

    #[test]
    fn what_has_failed_is_tried_again_when_something_has_changed() {
        let mut veth = link(Some("veth"));
        let mut redirects = Redirects::default();
        assert!(!redirects.look(&veth, true));
        redirects.count(failing(libc::ENXIO));
        assert!(redirects.refused(&veth)[0].contains("set it down and up"));
        assert!(!redirects.look(&veth, true), "nothing has changed");
        assert!(!redirects.retry(), "the flag does not tell of NAPI");
        veth.carrier_ups += 1;
        assert!(redirects.look(&veth, true));
        redirects.count(PortFault::default());
        assert_eq!(redirects.refused(&veth), [""; 0]);
        veth.carrier_ups += 1;
        assert!(!redirects.look(&veth, true), "nothing has failed");
    }

    #[test]
    fn the_flag_is_believed() {
        let veth = link(Some("veth"));
        let mut redirects = Redirects::default();
        assert!(!redirects.look(&veth, false));
        assert!(redirects.refused(&veth)[0].contains("while it is up"));
        assert!(!redirects.retry());
        redirects.count(failing(libc::EOPNOTSUPP));
        assert!(redirects.look(&veth, true), "it takes them by now");
        // off and on again between two looks
        redirects.count(failing(libc::EOPNOTSUPP));
        assert!(!redirects.look(&veth, true));
        assert!(redirects.retry());
        assert!(redirects.look(&veth, true));
    }

    #[test]
    fn a_card_that_fails_is_not_tried_each_second() {
        let card = link(None);
        let mut redirects = Redirects::default();
        redirects.look(&card, true);
        redirects.count(failing(libc::EOPNOTSUPP));
        assert!(redirects.refused(&card)[0].contains("the driver lost 9"));
        assert!(!redirects.retry());
        redirects.look(&card, false);
        assert!(redirects.refused(&card)[1].contains("ndo_xdp_xmit"));
    }
}
