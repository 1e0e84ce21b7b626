// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sending side: where frames leave, what they are, and how many of them the port's driver has taken.

use std::net::IpAddr;

use freeway_console::{Exit, Stop};
use freeway_lab::frame::mac_text;
use freeway_lab::{FlowSpec, Meter, Offer, Offered, Port, Stream, Way, Xmit};

use super::neighbour::{mac_of, next_hop};
use super::port::HostPort;
use super::{SenderEnd, endpoint};
use crate::cli::LoadArgs;
use crate::rfc2544::Size;

/// A port that frames leave by.
#[derive(Debug)]
pub struct Sender {
    /// As results have it.
    pub end: SenderEnd,
    flows: FlowSpec,
    xmit: Xmit,
    port: Port,
    // Some drivers send frames of XDP only while their port has a program; this one takes none that may come.
    _program: Option<Meter>,
}

impl Sender {
    /// Looks for the way to an address, by a port that was checked.
    pub fn new(host: &HostPort, to: IpAddr, args: &LoadArgs) -> Result<Self, Stop> {
        let usage = |message: String| Err(Stop::new(Exit::Usage, message));
        if to.is_unspecified() || to.is_loopback() || to.is_multicast() {
            return usage(format!(
                "frames to {to} are no router's: name a host's address"
            ));
        }
        host.check_frame(args.longest())?;
        let name = host.name();
        let Some(from) = args.from.or_else(|| host.address(to.is_ipv6())) else {
            let family = if to.is_ipv6() { "IPv6" } else { "IPv4" };
            return usage(format!(
                "{name} has no {family} address: `ip address add ADDRESS/LENGTH dev {name}`, or name the source with --from"
            ));
        };
        if from.is_ipv6() != to.is_ipv6() {
            return usage(format!("{from} and {to} are of different families"));
        }
        // before the neighbour is asked for: a driver may take its link down for a program
        let program = Meter::attach_for(&host.port, endpoint(to)).ok();
        host.wait_for_carrier()?;
        let (gateway, gateway_mac) = match args.gateway_mac {
            Some(mac) => (args.gateway, mac),
            None => {
                let found = args.gateway.map_or_else(|| next_hop(host, to), Ok)?;
                (Some(found), mac_of(host, from, found)?)
            }
        };
        Ok(Self {
            end: SenderEnd {
                port: name.into(),
                address: from,
                gateway,
                gateway_mac: mac_text(gateway_mac),
            },
            flows: FlowSpec {
                flows: args.flows,
                mac_source: host.port.mac,
                mac_destination: gateway_mac,
                near: from,
                near_fixed: true,
                far: to,
                stamped: true,
                ..FlowSpec::default()
            },
            xmit: Xmit::watch(&host.port)?,
            port: host.port.clone(),
            _program: program,
        })
    }

    /// Flows, which take turns.
    pub fn flows(&self) -> u32 {
        self.flows.flows
    }

    /// The mean size that frames really have, FCS counted: they hold headers and a time.
    pub fn mean_bytes(&self, size: Size) -> f64 {
        size.mix().mean_bytes(self.flows.wire_bytes())
    }

    /// What sends frames of a size.
    pub fn stream(&self, size: Size) -> Result<Stream, Stop> {
        let way = Way {
            port: &self.port,
            flows: self.flows,
        };
        Ok(Stream::new(&[way], &size.mix())?)
    }

    /// Sends, and counts as frames what the driver has taken.
    pub fn send(&self, stream: &Stream, offer: &Offer) -> Result<Offered, Stop> {
        let before = self.xmit.taken()?;
        let offered = stream.run(offer)?;
        let frames = self.xmit.taken()?.saturating_sub(before);
        if frames == 0 && offered.frames > 0 {
            let name = &self.port.name;
            return Err(if before > 0 {
                Stop::failure(format!(
                    "{name} takes no frames any more: look at the cable, at its other end and at `ip -s link show dev {name}`"
                ))
            } else {
                let message = format!(
                    "the driver of {name} takes no frames of XDP (ndo_xdp_xmit): take a port whose driver does; a veth does if its other end had GRO on when it was brought up"
                );
                Stop::new(Exit::Unavailable, message)
            });
        }
        Ok(Offered { frames, ..offered })
    }
}
