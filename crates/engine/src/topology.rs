// SPDX-License-Identifier: MIT OR Apache-2.0
//! The machine as sysfs has it: on which node CPUs and devices are.

use std::fs;
use std::path::Path;

use freeway_api::engine::{EngineConfig, EnginePort};

use crate::placement::{Cpu, Machine, Place};

/// Where the kernel shows it.
pub const SYS: &str = "/sys";

/// What the configuration's ports are, and the CPUs that poll them.
#[must_use]
pub fn machine(config: &EngineConfig, sys: &Path) -> Machine {
    let cpu = |number: u32| Cpu {
        number,
        node: node_of_cpu(sys, number),
    };
    let port = |(name, port): (&String, &EnginePort)| Place {
        name: name.clone(),
        node: node_of_port(sys, name, port),
        copy_from: port.copy_from.clone(),
    };
    let polling = match config.io_cores.is_empty() {
        true => config.workers(),
        false => config.io_cores.clone(),
    };
    Machine {
        cpus: polling.into_iter().map(cpu).collect(),
        ports: config.port.iter().map(port).collect(),
        memory_mib: config.memory_mib,
    }
}

/// A kernel without nodes has one.
fn node_of_cpu(sys: &Path, number: u32) -> u32 {
    let folder = sys.join(format!("devices/system/cpu/cpu{number}"));
    let links = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = links.filter_map(|link| link.file_name().into_string().ok());
    let mut nodes = names.filter_map(|name| name.strip_prefix("node")?.parse().ok());
    nodes.next().unwrap_or(0)
}

/// Of what is no device of a bus there is none: the kernel says -1.
fn node_of_port(sys: &Path, name: &str, port: &EnginePort) -> Option<u32> {
    let device = match &port.pci {
        Some(address) => sys.join("bus/pci/devices").join(address),
        None if port.af_xdp => sys.join("class/net").join(name).join("device"),
        None => return None,
    };
    let node = fs::read_to_string(device.join("numa_node")).ok()?;
    node.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read() {
        let sys = tempfile::tempdir().unwrap();
        let make = |path: &str, text: Option<&str>| {
            let path = sys.path().join(path);
            match text {
                Some(text) => {
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, text).unwrap();
                }
                None => fs::create_dir_all(path).unwrap(),
            }
        };
        make("devices/system/cpu/cpu3/node1", None);
        make("devices/system/cpu/cpu3/topology", None);
        make("bus/pci/devices/0000:01:00.0/numa_node", Some("1\n"));
        make("bus/pci/devices/0000:02:00.0/numa_node", Some("-1\n"));
        make("class/net/eth0/device/numa_node", Some("0\n"));
        let pci = |address: &str| EnginePort {
            pci: Some(address.into()),
            ..EnginePort::default()
        };
        let of_kernel = EnginePort {
            af_xdp: true,
            ..EnginePort::default()
        };
        let virtual_one = EnginePort {
            vdev: Some("net_null0".into()),
            ..EnginePort::default()
        };
        let ports = [
            ("a", pci("0000:01:00.0"), Some(1)),
            ("b", pci("0000:02:00.0"), None),
            ("c", pci("0000:03:00.0"), None),
            ("eth0", of_kernel.clone(), Some(0)),
            ("eth1", of_kernel, None),
            ("v", virtual_one, None),
        ];
        let config = EngineConfig {
            core: Some(3),
            port: ports
                .iter()
                .map(|(name, port, _)| ((*name).to_owned(), port.clone()))
                .collect(),
            ..EngineConfig::default()
        };
        let machine = machine(&config, sys.path());
        assert_eq!(machine.cpus, [Cpu { number: 3, node: 1 }]);
        assert_eq!(node_of_cpu(sys.path(), 4), 0);
        let nodes: Vec<_> = machine.ports.iter().map(|port| port.node).collect();
        let wanted: Vec<_> = ports.iter().map(|(_, _, node)| *node).collect();
        assert_eq!(nodes, wanted);
    }
}
