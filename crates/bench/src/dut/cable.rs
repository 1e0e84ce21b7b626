// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway bench loop`: the device is cabled between two ports of this host.

use freeway_console::{Exit, Stop, show};

use super::port::HostPort;
use super::receiver::Local;
use super::sender::Sender;
use super::table::table;
use super::trials::Trials;
use super::{Dut, ReceiverEnd, endpoint, require_root};
use crate::cli::LoopArgs;

/// Measures and prints.
pub fn cable(args: &LoopArgs) -> Result<(), Stop> {
    let result = measured(args)?;
    show(args.load.json, &result, |terminal| table(&result, terminal))
}

fn measured(args: &LoopArgs) -> Result<Dut, Stop> {
    let usage = |message: String| Stop::new(Exit::Usage, message);
    let same = || usage("--out and --in: the router is between two ports".into());
    if args.out == args.input {
        return Err(same());
    }
    require_root()?;
    let [out, input] = [&args.out, &args.input].map(|name| HostPort::find(name));
    let (out, input) = (out?, input?);
    if out.port.ifindex == input.port.ifindex {
        return Err(same());
    }
    for port in [&out, &input] {
        port.check(args.load.force)?;
    }
    input.check_free()?;
    input.check_frame(args.load.longest())?;
    let v6 = args.load.from.map(|from| from.is_ipv6());
    let own = v6.map_or_else(
        || input.address(false).or_else(|| input.address(true)),
        |v6| input.address(v6),
    );
    let to = args.to.or(own).ok_or_else(|| {
        let name = input.name();
        usage(format!(
            "{name} has no address to send to: `ip address add ADDRESS/LENGTH dev {name}`, or --to"
        ))
    })?;
    input.check_answers(to, args.load.force)?;
    let mut receiver = Local::attach(&input, endpoint(to))?;
    let sender = Sender::new(&out, to, &args.load)?;
    let end = ReceiverEnd {
        port: input.name().into(),
        address: to,
        sink: None,
    };
    Trials::new(&sender, &mut receiver, &args.load).run(end)
}
