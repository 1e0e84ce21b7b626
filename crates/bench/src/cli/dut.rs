// SPDX-License-Identifier: MIT OR Apache-2.0
//! Arguments of `bench` loop, generator and sink.

use std::net::{IpAddr, SocketAddr};

use clap::Args;
use freeway_lab::frame::FRAME_BYTES_MAX;

use super::seconds::trial_seconds;
use crate::dut::mac;
use crate::rfc2544::Size;

/// Where frames go, and how many.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// Source address [default: the sending port's]
    #[arg(long, value_name = "ADDR")]
    pub from: Option<IpAddr>,
    /// The router's address at the sending port [default: as this host's routes say]
    #[arg(long, value_name = "ADDR")]
    pub gateway: Option<IpAddr>,
    /// The router's MAC address there [default: the kernel asks for it]
    #[arg(long, value_name = "MAC", value_parser = mac)]
    pub gateway_mac: Option<[u8; 6]>,
    /// Frame size, FCS counted: 64, 128, 256, 512, 1024, 1280, 1518, or imix (28 of 64 bytes, 16 of 570, 4 of 1518); repeat
    /// for more
    #[arg(long = "size", value_name = "BYTES", default_values = ["64", "imix", "1518"], value_parser = one_page)]
    pub sizes: Vec<Size>,
    /// Flows, which differ in their source port
    #[arg(long, value_name = "NUMBER", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=32_768))]
    pub flows: u32,
    /// Have all done in 8 seconds and 6 for each size, with short trials and coarse bounds
    #[arg(long, conflicts_with_all = ["seconds", "trials"])]
    pub quick: bool,
    /// Seconds of the search's last trials, and of those at fixed loads; latencies take five times that, 0.02 to 60
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = trial_seconds)]
    pub seconds: f64,
    /// Trials that decide about a load; of several, half may exceed the loss ratio
    #[arg(long, value_name = "NUMBER", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub trials: u32,
    /// Do not search: send so many frames a second, once, and tell the loss
    #[arg(long, value_name = "NUMBER", conflicts_with_all = ["quick", "trials"], value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub pps: Option<u64>,
    /// CPU that sends
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub cpu: usize,
    /// Also by ports that carry the default route or no link
    #[arg(long)]
    pub force: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl LoadArgs {
    /// Octets of the longest frame, FCS counted.
    pub fn longest(&self) -> u32 {
        let longest = |size: &Size| size.mix().sizes().max();
        self.sizes.iter().filter_map(longest).max().unwrap_or(0)
    }
}

fn one_page(text: &str) -> Result<Size, String> {
    let size: Size = text.parse()?;
    match size {
        Size::Bytes(bytes) if bytes > FRAME_BYTES_MAX => Err(format!(
            "frames leave by XDP in one page each: at most {FRAME_BYTES_MAX} bytes"
        )),
        size => Ok(size),
    }
}

pub(super) const LOOP_HELP: &str = "\
Example: freeway bench loop --out eth1 --in eth2 --gateway 192.0.2.1
         freeway bench loop --out eth1 --in eth2 --gateway 192.0.2.1 --size 64 --pps 100000

eth1 has an address of the router's network there, eth2 one of the router's other network.";

/// Arguments of `bench loop`.
#[derive(Debug, Args)]
pub struct LoopArgs {
    /// Port that frames leave by, to the router
    #[arg(long, value_name = "PORT")]
    pub out: String,
    /// Port that they come back at
    #[arg(long = "in", value_name = "PORT")]
    pub input: String,
    /// Destination address [default: the receiving port's]
    #[arg(long, value_name = "ADDR")]
    pub to: Option<IpAddr>,
    #[command(flatten)]
    pub load: LoadArgs,
}

pub(super) const GENERATOR_HELP: &str = "\
Example: freeway bench sink --port eth1 --listen 10.0.0.2:12544      on the one host
         freeway bench generator --port eth1 --sink 10.0.0.2:12544 --to 198.51.100.2";

/// Arguments of `bench generator`.
#[derive(Debug, Args)]
pub struct GeneratorArgs {
    /// Port that frames leave by, to the router
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Where the sink listens; better not through the router
    #[arg(long, value_name = "ADDR:PORT")]
    pub sink: SocketAddr,
    /// Destination address, behind the router, of the sink's port
    #[arg(long, value_name = "ADDR")]
    pub to: IpAddr,
    #[command(flatten)]
    pub load: LoadArgs,
}

pub(super) const SINK_HELP: &str = "\
Example: freeway bench sink --port eth1 --listen 10.0.0.2:12544";

/// Arguments of `bench sink`.
#[derive(Debug, Args)]
pub struct SinkArgs {
    /// Port that frames come in at
    #[arg(long, value_name = "PORT")]
    pub port: String,
    /// Address and TCP port for the generator's connection
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:12544")]
    pub listen: SocketAddr,
    /// End after one generator
    #[arg(long)]
    pub once: bool,
    /// Also at a port that carries the default route or no link, or does not have the destination address
    #[arg(long)]
    pub force: bool,
}
