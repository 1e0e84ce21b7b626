// SPDX-License-Identifier: MIT OR Apache-2.0
//! RTM_NEWMDB: the multicast databases of bridges (`br_mdb_fill_info`, `nlmsg_populate_mdb_fill`, `br_rports_fill_info`).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::model::{Mdb, MdbKey, RouterPort};
use crate::nla::{Attr, array, attrs_after, u8_at, u16_at, u32_at};

/// `struct br_port_msg`.
pub const HEADER: usize = 8;
/// `struct br_mdb_entry`.
const ENTRY: usize = 28;
const MDBA_MDB: u16 = 1;
const MDBA_ROUTER: u16 = 2;
const MDBA_MDB_ENTRY: u16 = 1;
const MDBA_MDB_ENTRY_INFO: u16 = 1;
const MDBA_MDB_EATTR_GROUP_MODE: u16 = 3;
const MDBA_MDB_EATTR_SOURCE: u16 = 4;
const MDBA_ROUTER_PORT: u16 = 1;
const MDBA_ROUTER_PATTR_VID: u16 = 5;
const MDB_FLAGS_BLOCKED: u8 = 1 << 3;
const MCAST_INCLUDE: u8 = 1;
const ETH_P_IP: u16 = 0x0800;
const ETH_P_IPV6: u16 = 0x86dd;

/// Ports that entries name, and ports with routers.
pub fn mdb(payload: &[u8]) -> Option<(Vec<Mdb>, Vec<RouterPort>)> {
    let bridge = u32_at(payload, 4)?;
    let (mut entries, mut routers) = (Vec::new(), Vec::new());
    for attr in attrs_after(payload, HEADER) {
        match attr.kind {
            MDBA_MDB => {
                let groups = attr.nested().filter(|attr| attr.kind == MDBA_MDB_ENTRY);
                let infos = groups.flat_map(|group| group.nested());
                let infos = infos.filter(|attr| attr.kind == MDBA_MDB_ENTRY_INFO);
                entries.extend(infos.filter_map(|info| entry(bridge, info)));
            }
            MDBA_ROUTER => {
                let ports = attr.nested().filter(|attr| attr.kind == MDBA_ROUTER_PORT);
                routers.extend(ports.filter_map(|port| {
                    let vlan = attrs_after(port.payload, 4).find(MDBA_ROUTER_PATTR_VID);
                    Some(RouterPort {
                        bridge,
                        port: port.u32()?,
                        vlan: vlan.and_then(|vlan| vlan.u16()).unwrap_or(0),
                    })
                }));
            }
            _ => {}
        }
    }
    Some((entries, routers))
}

/// `None` for groups of the link layer, by which IP does not go (`br_mdb_entry_skb_get`).
fn entry(bridge: u32, info: Attr<'_>) -> Option<Mdb> {
    let payload = info.payload;
    let protocol = array(payload, 24).map(u16::from_be_bytes)?;
    let group: IpAddr = match protocol {
        ETH_P_IP => Ipv4Addr::from(array::<4>(payload, 8)?).into(),
        ETH_P_IPV6 => Ipv6Addr::from(array::<16>(payload, 8)?).into(),
        _ => return None,
    };
    let attrs = attrs_after(payload, ENTRY);
    let mode = attrs.clone().find(MDBA_MDB_EATTR_GROUP_MODE);
    let includes = mode.and_then(|mode| mode.u8()) == Some(MCAST_INCLUDE);
    let source = attrs.clone().find(MDBA_MDB_EATTR_SOURCE);
    let source = source.and_then(|source| source.ip());
    Some(Mdb {
        key: MdbKey {
            bridge,
            group,
            vlan: u16_at(payload, 6)?,
            source,
            port: u32_at(payload, 0)?,
        },
        excluded: u8_at(payload, 5)? & MDB_FLAGS_BLOCKED != 0 || (source.is_none() && includes),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nla::Writer;

    fn message(flags: u8, mode: u8, source: Option<IpAddr>) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.raw(&[libc::AF_BRIDGE as u8, 0, 0, 0]);
        writer.raw(&9u32.to_ne_bytes());
        writer.nest(MDBA_MDB, |writer| {
            writer.nest(MDBA_MDB_ENTRY, |writer| {
                writer.nest(MDBA_MDB_ENTRY_INFO, |writer| {
                    let mut entry = [0; ENTRY];
                    entry[..4].copy_from_slice(&3u32.to_ne_bytes());
                    entry[5] = flags;
                    entry[6..8].copy_from_slice(&10u16.to_ne_bytes());
                    entry[8..12].copy_from_slice(&[239, 1, 2, 3]);
                    entry[24..26].copy_from_slice(&ETH_P_IP.to_be_bytes());
                    writer.raw(&entry);
                    writer.attr(MDBA_MDB_EATTR_GROUP_MODE, &[mode]);
                    if let Some(source) = source {
                        writer.attr_ip(MDBA_MDB_EATTR_SOURCE, source);
                    }
                });
            });
        });
        writer.nest(MDBA_ROUTER, |writer| {
            writer.nest(MDBA_ROUTER_PORT, |writer| {
                writer.raw(&4u32.to_ne_bytes());
                writer.attr(MDBA_ROUTER_PATTR_VID, &20u16.to_ne_bytes());
            });
        });
        writer.as_bytes().to_vec()
    }

    #[test]
    fn entries_and_routers() {
        let source = IpAddr::from([10, 0, 0, 1]);
        for (flags, mode, source, excluded) in [
            (0, 0, None, false),
            (0, MCAST_INCLUDE, None, true),
            (0, MCAST_INCLUDE, Some(source), false),
            (MDB_FLAGS_BLOCKED, 0, Some(source), true),
        ] {
            let (entries, routers) = mdb(&message(flags, mode, source)).unwrap();
            let key = MdbKey {
                bridge: 9,
                group: [239, 1, 2, 3].into(),
                vlan: 10,
                source,
                port: 3,
            };
            assert_eq!(entries, [Mdb { key, excluded }]);
            let router = RouterPort {
                bridge: 9,
                port: 4,
                vlan: 20,
            };
            assert_eq!(routers, [router]);
        }
    }
}
