// SPDX-License-Identifier: MIT OR Apache-2.0
//! What the configuration says of the engine: `[engine]` of the file that the daemon reads, too.

use std::collections::BTreeMap;
use std::path::Path;

use freeway_api::engine::{EngineConfig, EnginePort};
use freeway_console::{Exit, Stop, unreadable};
use serde::Deserialize;

use crate::placement::Placement;
use crate::vhost::is_mapped_by_others;

/// Where the configuration is unless told otherwise.
pub const DEFAULT_PATH: &str = "/etc/freeway/freeway.toml";

/// The rest is the daemon's.
#[derive(Deserialize)]
struct File {
    engine: Option<EngineConfig>,
    #[serde(default)]
    daemon: DaemonPart,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct DaemonPart {
    socket: Option<std::path::PathBuf>,
}

/// `[engine]`, checked, and the daemon's control socket if the file names one.
pub fn load(path: &Path) -> Result<(EngineConfig, Option<std::path::PathBuf>), Stop> {
    let wrong = |what: String| Stop::new(Exit::Config, what);
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|error| wrong(format!("cannot read configuration {name}: {error}")))?;
    let file: File = toml::from_str(&text)
        .map_err(|error| unreadable(&name.to_string(), &text, error.span(), error.message()))?;
    let config = file
        .engine
        .filter(|config| !config.port.is_empty())
        .ok_or_else(|| {
            wrong(format!(
                "{name}: no [engine.port.NAME] table: the engine has no port"
            ))
        })?;
    config
        .check()
        .map_err(|error| wrong(format!("{name}: {error}")))?;
    Ok((config, file.daemon.socket))
}

/// DPDK's arguments for it; `cpus` are all that there are.
#[must_use]
pub fn eal_arguments(config: &EngineConfig, cpus: &[usize], placement: &Placement) -> Vec<String> {
    let all: Vec<_> = cpus.iter().map(usize::to_string).collect();
    let cores = config.workers().into_iter().chain(config.io_cores.clone());
    let cores = cores.zip(1..).map(|(cpu, lcore)| format!(",{lcore}@{cpu}"));
    let mut arguments = vec![
        // the first lcore is the main thread, which is not to be bound; workers follow, then I/O cores
        format!(
            "--lcores=0@({}){}",
            all.join(","),
            cores.collect::<String>()
        ),
        "--log-level=lib.*:warning".into(),
        "--log-level=pmd.*:warning".into(),
    ];
    arguments.extend(memory(&placement.memory_mib));
    // no files, and no hugetlbfs to be mounted: nothing is left behind by whatever end
    arguments.extend(match config.huge_pages {
        true => vec!["--in-memory".into()],
        false => vec!["--no-huge".into(), "--no-shconf".into()],
    });
    if config.huge_pages && is_mapped_by_others(config) {
        arguments.push("--single-file-segments".into());
    }
    let pci: Vec<_> = config
        .port
        .values()
        .filter_map(|port| port.pci.as_ref())
        .collect();
    if pci.is_empty() {
        arguments.push("--no-pci".into());
    }
    for address in pci {
        arguments.extend(["-a".into(), address.clone()]);
    }
    for vdev in config.port.values().filter_map(|port| port.vdev.as_ref()) {
        arguments.push(format!("--vdev={vdev}"));
    }
    arguments
}

/// So much of each node; of a machine that has one, or of which the first is enough, as DPDK finds it.
fn memory(memory_mib: &BTreeMap<u32, u32>) -> [String; 2] {
    match memory_mib.last_key_value() {
        Some((last, _)) if *last > 0 => {
            let nodes = (0..=*last).map(|node| memory_mib.get(&node).unwrap_or(&0).to_string());
            ["--socket-mem".into(), nodes.collect::<Vec<_>>().join(",")]
        }
        first => ["-m".into(), first.map_or(0, |(_, mib)| *mib).to_string()],
    }
}

/// What DPDK calls the device of a port.
#[must_use]
pub fn device(port: &EnginePort) -> &str {
    let named = port.pci.as_deref().or(port.vdev.as_deref());
    let named = named.unwrap_or_default();
    named.split_once(',').map_or(named, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_text(text: &str) -> Result<EngineConfig, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        load(file.path()).map(|(config, _)| config).map_err(|stop| {
            stop.to_string()
                .replace(&file.path().display().to_string(), "x")
        })
    }

    #[test]
    fn errors_name_file_line_and_key() {
        for (text, words) in [
            ("", "x: no [engine.port.NAME] table"),
            ("[engine]\ncore = 1\n", "x: no [engine.port.NAME] table"),
            ("[engine]\nkernels = 1\n", "x:2:1: unknown field `kernels`"),
            (
                "[engine]\ndispatch = \"even\"\n",
                "x:2:12: unknown variant `even`, expected one of `rss`",
            ),
            (
                "[engine]\ndispatch = \"dispatch\"\n[engine.port.lan0]\nvdev = \"net_null0\"\n",
                "x: engine.port.lan0: dispatch = \"dispatch\" takes an I/O core",
            ),
            (
                "[engine.port.lan0]\n",
                "x: engine.port.lan0: it names no device",
            ),
            (
                "[engine.port.lan0]\naf_xdp = 1\n",
                "x:2:10: key `af_xdp`: invalid type: integer `1`, expected a boolean",
            ),
            (
                "[engine.port.lan0]\naf_xdp = true\nqueues = 0\n",
                "x:3:1: unknown field `queues`",
            ),
            (
                "[engine.port.lan0]\nvdev = \"a\"\ncopy_from = [\"wan7\"]\n",
                "x: engine.port.lan0: copy_from names wan7, which is no port of the engine",
            ),
            (
                "[engine.port.lan0]\naf_xdp = true\ncopy_from = [\"lan0\"]\n",
                "x: engine.port.lan0: with af_xdp each frame is copied",
            ),
            (
                "[engine]\nidle = \"nap\"\n",
                "x:2:8: key `idle`: unknown variant `nap`",
            ),
        ] {
            let error = load_text(text).unwrap_err();
            assert!(error.contains(words), "{error}");
        }
    }

    fn on(memory_mib: &[(u32, u32)]) -> Placement {
        Placement {
            memory_mib: memory_mib.iter().copied().collect(),
            ..Placement::default()
        }
    }

    #[test]
    fn dpdk_gets_what_the_configuration_says() {
        let config = load_text(
            "[flows]\nmax = 5\n[engine]\ncore = 3\nhuge_pages = false\nmemory_mib = 64\n\
             [engine.port.lan0]\nvdev = \"net_af_packet0,iface=eth0\"\n\
             [engine.port.wan0]\npci = \"0000:01:00.0\"\n",
        )
        .unwrap();
        let arguments = eal_arguments(&config, &[0, 1, 2, 3], &on(&[(0, 64)])).join(" ");
        for wanted in [
            "--lcores=0@(0,1,2,3),1@3",
            "--no-huge",
            "-m 64",
            "-a 0000:01:00.0",
            "--vdev=net_af_packet0,iface=eth0",
        ] {
            assert!(arguments.contains(wanted), "{arguments}");
        }
        assert!(!arguments.contains("--no-pci"));
        assert!(!arguments.contains("--single-file-segments"));
        let config = load_text(
            "[engine]\ncores = [2, 3]\nio_cores = [1]\n[engine.port.lan0]\nvdev = \"net_null0\"\n",
        )
        .unwrap();
        let cores = eal_arguments(&config, &[0, 1, 2, 3], &on(&[(0, 64)])).remove(0);
        assert_eq!(cores, "--lcores=0@(0,1,2,3),1@2,2@3,3@1");
        let config = load_text(
            "[flows]\nmax = 5\n[engine]\ncore = 3\nhuge_pages = false\nmemory_mib = 64\n\
             [engine.port.lan0]\nvdev = \"net_af_packet0,iface=eth0\"\n\
             [engine.port.wan0]\npci = \"0000:01:00.0\"\n",
        )
        .unwrap();
        assert_eq!(device(&config.port["lan0"]), "net_af_packet0");
        assert_eq!(device(&config.port["wan0"]), "0000:01:00.0");
        let text = "[engine.port.wan0]\nvdev = \"net_virtio_user0,path=/run/a.sock,server=1\"\n";
        let config = load_text(text).unwrap();
        let arguments = eal_arguments(&config, &[0, 1], &on(&[(0, 32), (2, 96)])).join(" ");
        assert!(
            arguments.contains("--in-memory --single-file-segments"),
            "{arguments}"
        );
        assert!(arguments.contains("--socket-mem 32,0,96"), "{arguments}");
    }
}
