// SPDX-License-Identifier: MIT OR Apache-2.0
//! On which node of a NUMA machine memory is, and who polls what: a function of what the machine and the configuration say.
//!
//! A device writes frames to memory of its own node, and whoever polls it is there as well, if one of the workers is. A frame
//! that leaves on another node is handed over as it is (`direct`), and the device there reads it from afar; or the worker
//! copies it (`copy`), once, to where that device reads it.

use std::collections::{BTreeMap, BTreeSet};

/// A CPU that forwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cpu {
    /// As the kernel counts them.
    pub number: u32,
    /// Where it is.
    pub node: u32,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Its name.
    pub name: String,
    /// Where its device is; none, if it is nowhere: a virtual one's memory is its worker's.
    pub node: Option<u32>,
    /// Inputs whose frames are copied before they leave here.
    pub copy_from: Vec<String>,
}

/// What there is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Those that forward.
    pub cpus: Vec<Cpu>,
    /// All ports.
    pub ports: Vec<Place>,
    /// For all nodes together.
    pub memory_mib: u32,
}

/// What is where. Ports and CPUs are in the order of the machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Memory of each node that has some, MiB. Frames, rings and workers there are of it.
    pub memory_mib: BTreeMap<u32, u32>,
    /// The node of each port's frames.
    pub node_of_port: Vec<u32>,
    /// The ports that each CPU's worker polls.
    pub ports_of_cpu: Vec<Vec<usize>>,
    /// The node of what is nowhere, and of what the kernel sends.
    pub home: u32,
    /// Input and output where frames are copied; between other ports they are handed over.
    pub copies: BTreeSet<(usize, usize)>,
}

/// Least memory of a node, MiB.
pub const NODE_MIB: u32 = 32;

/// Where everything goes, or why that cannot be, a line.
pub fn place(machine: &Machine) -> Result<Placement, String> {
    let first = machine.cpus.iter().min();
    let home = first.ok_or("engine: no CPU forwards")?.node;
    let node_of_port: Vec<u32> = machine
        .ports
        .iter()
        .map(|port| port.node.unwrap_or(home))
        .collect();
    let of_cpus: BTreeSet<u32> = machine.cpus.iter().map(|cpu| cpu.node).collect();
    // who is of no node's ports has those that are nobody's
    let polled_from = |node: u32| if of_cpus.contains(&node) { node } else { home };
    let ports_of_cpu = machine.cpus.iter().map(|cpu| {
        let ports = node_of_port.iter().enumerate();
        let own = ports.filter(|(_, node)| polled_from(**node) == cpu.node);
        own.map(|(port, _)| port).collect()
    });
    let ports_of_cpu: Vec<Vec<usize>> = ports_of_cpu.collect();
    for (cpu, ports) in machine.cpus.iter().zip(&ports_of_cpu) {
        if ports.is_empty() {
            return Err(format!(
                "engine: CPU {} is on node {}, where no port is: choose one of {}",
                cpu.number,
                cpu.node,
                nodes(&node_of_port)
            ));
        }
    }
    Ok(Placement {
        memory_mib: memory(machine.memory_mib, &node_of_port, home)?,
        copies: copies(machine, &node_of_port)?,
        node_of_port,
        ports_of_cpu,
        home,
    })
}

/// By the number of ports, and of the first worker's node at least what it needs itself.
fn memory(all_mib: u32, node_of_port: &[u32], home: u32) -> Result<BTreeMap<u32, u32>, String> {
    let mut ports: BTreeMap<u32, u32> = BTreeMap::from([(home, 0)]);
    for node in node_of_port {
        *ports.entry(*node).or_default() += 1;
    }
    let least = NODE_MIB * ports.len() as u32;
    if ports.len() > 1 && all_mib < least {
        return Err(format!(
            "engine.memory_mib = {all_mib} is for {} nodes: {least} is the least",
            ports.len()
        ));
    }
    if ports.len() == 1 {
        return Ok(BTreeMap::from([(home, all_mib)]));
    }
    let count = node_of_port.len().max(1) as u64;
    let rest = u64::from(all_mib - least);
    let of =
        |(node, ports): (u32, u32)| (node, NODE_MIB + (rest * u64::from(ports) / count) as u32);
    Ok(ports.into_iter().map(of).collect())
}

fn copies(machine: &Machine, node_of_port: &[u32]) -> Result<BTreeSet<(usize, usize)>, String> {
    let mut copies = BTreeSet::new();
    for (to, port) in machine.ports.iter().enumerate() {
        for input in &port.copy_from {
            let wrong = |why: &str| {
                Err(format!(
                    "engine.port.{}: copy_from names {input}, {why}",
                    port.name
                ))
            };
            let Some(from) = machine.ports.iter().position(|port| port.name == *input) else {
                return wrong("which is no port of the engine");
            };
            let (at, there) = (node_of_port[to], node_of_port[from]);
            if at == there {
                return wrong(&format!(
                    "which is on node {at} as well: there is nothing to copy"
                ));
            }
            copies.insert((from, to));
        }
    }
    Ok(copies)
}

/// As they are written: `node 0, node 1`.
fn nodes(nodes: &[u32]) -> String {
    let nodes: BTreeSet<_> = nodes.iter().collect();
    let words: Vec<_> = nodes.iter().map(|node| format!("node {node}")).collect();
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::*;

    /// Up to four nodes, eight CPUs that forward and twelve ports, some of them nowhere.
    fn machines() -> impl Strategy<Value = Machine> {
        let cpus = (1..=8usize, 1..=4u32).prop_flat_map(|(count, nodes)| {
            let numbers = subsequence((0..64).collect::<Vec<u32>>(), count).prop_shuffle();
            let at = prop::collection::vec(0..nodes, count);
            (numbers, at, Just(nodes))
        });
        let ports =
            |nodes: u32| prop::collection::vec(prop::option::weighted(0.8, 0..nodes), 1..=12usize);
        let all = cpus.prop_flat_map(move |(numbers, at, nodes)| {
            (Just((numbers, at)), ports(nodes), 0..1024u32)
        });
        let named = all.prop_flat_map(|(cpus, ports, memory_mib)| {
            let pairs = prop::collection::vec((0..ports.len(), 0..ports.len()), 0..3);
            (Just((cpus, ports, memory_mib)), pairs)
        });
        named.prop_map(|(((numbers, at), nodes, memory_mib), pairs)| {
            let cpus = numbers.into_iter().zip(at);
            let cpus = cpus.map(|(number, node)| Cpu { number, node }).collect();
            let name = |port: usize| format!("eth{port}");
            let ports = nodes.into_iter().enumerate().map(|(port, node)| Place {
                name: name(port),
                node,
                copy_from: pairs
                    .iter()
                    .filter(|(_, to)| *to == port)
                    .map(|(from, _)| name(*from))
                    .collect(),
            });
            Machine {
                cpus,
                ports: ports.collect(),
                memory_mib,
            }
        })
    }

    fn home(machine: &Machine) -> u32 {
        let first = machine.cpus.iter().min_by_key(|cpu| cpu.number);
        first.unwrap().node
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        #[test]
        fn frames_are_where_their_device_is(machine in machines()) {
            let placed = place(&machine);
            // too many that are refused fail the test
            prop_assume!(placed.is_ok());
            let placed = placed.unwrap();
            prop_assert_eq!(placed.node_of_port.len(), machine.ports.len());
            for (port, node) in machine.ports.iter().zip(&placed.node_of_port) {
                prop_assert_eq!(*node, port.node.unwrap_or(home(&machine)));
                prop_assert!(placed.memory_mib.contains_key(node));
            }
        }

        #[test]
        fn each_port_is_polled_and_from_its_own_node_if_one_can(machine in machines()) {
            let placed = place(&machine);
            // too many that are refused fail the test
            prop_assume!(placed.is_ok());
            let placed = placed.unwrap();
            for (port, node) in placed.node_of_port.iter().enumerate() {
                let has = |cpu: &Vec<usize>| cpu.contains(&port);
                let all = machine.cpus.iter().zip(&placed.ports_of_cpu);
                let by: Vec<_> = all.filter(|(_, ports)| has(ports)).map(|(cpu, _)| cpu).collect();
                prop_assert!(!by.is_empty());
                let near = machine.cpus.iter().filter(|cpu| cpu.node == *node).count();
                if near > 0 {
                    // by all of them, each with a queue of its own, and by nobody else
                    prop_assert_eq!(by.len(), near);
                    prop_assert!(by.iter().all(|cpu| cpu.node == *node));
                } else {
                    prop_assert!(by.iter().all(|cpu| cpu.node == home(&machine)));
                }
            }
            // nobody polls in vain, and none twice
            for ports in &placed.ports_of_cpu {
                prop_assert!(!ports.is_empty());
                let once: BTreeSet<_> = ports.iter().collect();
                prop_assert_eq!(once.len(), ports.len());
            }
        }

        #[test]
        fn memory_is_divided_and_not_exceeded(machine in machines()) {
            let placed = place(&machine);
            // too many that are refused fail the test
            prop_assume!(placed.is_ok());
            let placed = placed.unwrap();
            let all: u32 = placed.memory_mib.values().sum();
            prop_assert!(all <= machine.memory_mib);
            // what rounding leaves is less than one for each
            prop_assert!(machine.memory_mib - all <= placed.memory_mib.len() as u32);
            if placed.memory_mib.len() > 1 {
                prop_assert!(placed.memory_mib.values().all(|mib| *mib >= NODE_MIB));
            }
            let mut wanted: BTreeSet<u32> = placed.node_of_port.iter().copied().collect();
            wanted.insert(home(&machine));
            prop_assert_eq!(placed.memory_mib.keys().copied().collect::<BTreeSet<_>>(), wanted);
        }

        #[test]
        fn copied_is_what_is_asked_for_between_nodes(machine in machines()) {
            let placed = place(&machine);
            // too many that are refused fail the test
            prop_assume!(placed.is_ok());
            let placed = placed.unwrap();
            let asked = machine.ports.iter().enumerate().flat_map(|(to, port)| {
                let inputs = port.copy_from.iter();
                inputs.map(move |name| (name.trim_start_matches("eth").parse().unwrap(), to))
            });
            prop_assert_eq!(&placed.copies, &asked.collect::<BTreeSet<_>>());
            for (from, to) in &placed.copies {
                prop_assert_ne!(placed.node_of_port[*from], placed.node_of_port[*to]);
            }
        }

        /// What is refused has one of the reasons that there are, in a line.
        #[test]
        fn refusals_have_a_reason(machine in machines()) {
            let placed = place(&machine);
            prop_assume!(placed.is_err());
            let why = placed.unwrap_err();
            prop_assert!(!why.contains('\n'));
            let at = |port: &Place| port.node.unwrap_or(home(&machine));
            let nodes: BTreeSet<u32> = machine.ports.iter().map(at).collect();
            if why.starts_with("engine: CPU ") {
                let idle = |cpu: &Cpu| cpu.node != home(&machine) && !nodes.contains(&cpu.node);
                let homeless = |cpu: &Cpu| cpu.node == home(&machine) && !nodes.contains(&cpu.node);
                prop_assert!(machine.cpus.iter().any(|cpu| idle(cpu) || homeless(cpu)));
            } else if why.contains("memory_mib") {
                prop_assert!(machine.memory_mib < NODE_MIB * (nodes.len() as u32 + 1));
            } else {
                prop_assert!(why.contains("there is nothing to copy"), "{why}");
                let same = machine.ports.iter().any(|port| {
                    let inputs = port.copy_from.iter();
                    let from = |name: &String| machine.ports.iter().find(|p| p.name == *name);
                    inputs.filter_map(from).any(|from| at(from) == at(port))
                });
                prop_assert!(same);
            }
        }

        /// By whatever order the machine is told.
        #[test]
        fn order_decides_nothing(machine in machines(), seed in any::<u64>()) {
            let mut other = machine.clone();
            let turn = seed as usize % other.ports.len();
            other.ports.rotate_left(turn);
            other.cpus.reverse();
            let by_name = |machine: &Machine, placed: &Placement| {
                let name = |port: &usize| machine.ports[*port].name.clone();
                let cpus = machine.cpus.iter().zip(&placed.ports_of_cpu);
                let cpus = cpus.map(|(cpu, ports)| {
                    (cpu.number, ports.iter().map(name).collect::<BTreeSet<_>>())
                });
                let copies = placed.copies.iter().map(|(from, to)| (name(from), name(to)));
                (
                    cpus.collect::<BTreeMap<_, _>>(),
                    copies.collect::<BTreeSet<_>>(),
                    placed.memory_mib.clone(),
                )
            };
            match (place(&machine), place(&other)) {
                (Ok(one), Ok(two)) => {
                    prop_assert_eq!(by_name(&machine, &one), by_name(&other, &two));
                }
                (Err(_), Err(_)) => {}
                (one, two) => prop_assert!(false, "{one:?} {two:?}"),
            }
        }
    }

    #[test]
    fn a_machine_of_one_node_is_as_before() {
        let port = |name: &str| Place {
            name: name.into(),
            node: None,
            copy_from: Vec::new(),
        };
        let machine = Machine {
            cpus: vec![Cpu { number: 1, node: 0 }],
            ports: vec![port("lan0"), port("wan0")],
            memory_mib: 7,
        };
        let placed = place(&machine).unwrap();
        assert_eq!(placed.memory_mib, BTreeMap::from([(0, 7)]));
        assert_eq!(placed.ports_of_cpu, [[0, 1]]);
        assert!(placed.copies.is_empty());
    }

    #[test]
    fn what_cannot_be_is_named() {
        let port = |name: &str, node, copy_from: &[&str]| Place {
            name: name.into(),
            node: Some(node),
            copy_from: copy_from.iter().map(|&name| name.into()).collect(),
        };
        let machine = |cpus: &[(u32, u32)], ports: &[Place], memory_mib| Machine {
            cpus: cpus
                .iter()
                .map(|&(number, node)| Cpu { number, node })
                .collect(),
            ports: ports.to_vec(),
            memory_mib,
        };
        let two = [port("lan0", 0, &[]), port("wan0", 1, &["lan0"])];
        for (machine, words) in [
            (machine(&[], &two, 64), "engine: no CPU forwards"),
            (
                machine(&[(1, 0), (9, 2)], &two, 64),
                "engine: CPU 9 is on node 2, where no port is: choose one of node 0, node 1",
            ),
            (
                machine(&[(1, 0)], &two, 63),
                "engine.memory_mib = 63 is for 2 nodes: 64 is the least",
            ),
            (
                machine(&[(1, 0)], &[port("lan0", 0, &["wan7"])], 64),
                "engine.port.lan0: copy_from names wan7, which is no port of the engine",
            ),
            (
                machine(
                    &[(1, 0)],
                    &[port("lan0", 0, &[]), port("wan0", 0, &["lan0"])],
                    64,
                ),
                "engine.port.wan0: copy_from names lan0, which is on node 0 as well: there is nothing to copy",
            ),
        ] {
            assert_eq!(place(&machine).unwrap_err(), words);
        }
        let placed = place(&machine(&[(1, 0)], &two, 64)).unwrap();
        assert_eq!(placed.copies, BTreeSet::from([(0, 1)]));
        assert_eq!(placed.ports_of_cpu, [[0, 1]]);
    }
}
