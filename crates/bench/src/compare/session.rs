// SPDX-License-Identifier: MIT OR Apache-2.0
//! A PPPoE session is XDP's once the kernel's own frames have shown which device it is, and that nothing in it is compressed
//! (`dataplane/session.h`). The flows measured show neither: they are UDP's and of one direction.

use std::thread;
use std::time::{Duration, Instant};

use freeway_api::{PathChoice, PortPath};
use freeway_console::Stop;
use freeway_lab::Lab;
use freeway_rig::RouterDaemon;

/// The daemon looks at sessions once a second; an emulated machine is slow.
const PATIENCE: Duration = Duration::from_secs(60);
/// A greeting ahead of the first look shows nothing.
const GREET_EVERY: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(20);

/// Has frames pass until the WAN's session is XDP's, if the WAN is one and `path` allows it.
pub fn show(lab: &Lab, daemon: &RouterDaemon, path: PathChoice) -> Result<(), Stop> {
    if lab.options().pppoe.is_none() || path == PathChoice::Tc {
        return Ok(());
    }
    let wan = lab.wan_interface();
    let is_xdp = || -> Result<bool, Stop> {
        let status = daemon.status()?;
        let mut ports = status.ports.iter();
        Ok(ports.any(|port| port.name == wan && port.path == PortPath::Xdp))
    };
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        lab.greet()?;
        let greeted = Instant::now();
        while greeted.elapsed() < GREET_EVERY {
            if is_xdp()? {
                return Ok(());
            }
            thread::sleep(POLL);
        }
    }
    Err(Stop::failure(format!(
        "the PPPoE session {wan} of the lab's router is not in XDP after {} s; --path tc measures it in tc",
        PATIENCE.as_secs()
    )))
}
