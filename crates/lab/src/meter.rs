// SPDX-License-Identifier: MIT OR Apache-2.0
//! The receiving end of a stream: counts its frames, and how long those took that have the time in them.

use std::mem::{MaybeUninit, offset_of};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use crate::attach::{Attached, admit_fragments, attach_xdp, program, words};
use crate::error::{Context, LabError};
use crate::port::Port;
use crate::skel::meter::{MeterSkelBuilder, types};
use crate::topology::Family;

/// Buckets of a power of two, as a power of two.
const SUB_BITS: u32 = 6;
/// Where the buckets are among the 64-bit words of a count.
const BUCKETS_AT: usize = offset_of!(types::meter_counts, buckets) / 8;

/// What a meter has counted since it was attached or cleared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metered {
    /// Frames of the stream.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Others, left to the host's stack.
    pub other: u64,
    /// Frames whose time had not come: clocks of two CPUs differ.
    pub early: u64,
    /// The longest time, nanoseconds, exact.
    pub max_ns: u64,
    /// Times that frames took, nanoseconds, the middle of their bucket, and how many took that; in order. A bucket is at
    /// most 1.6 % wide.
    pub times: Vec<(u64, u64)>,
}

impl Metered {
    /// Frames whose time was taken.
    pub fn timed(&self) -> u64 {
        self.times.iter().map(|(_, count)| count).sum()
    }
}

/// A meter on a port; dropping it detaches it.
#[derive(Debug)]
pub struct Meter {
    counts: MapHandle,
    // The link goes with it; the program's descriptor is not needed any more.
    _attached: Attached,
    _program: OwnedFd,
}

impl Meter {
    /// Puts a meter of UDP frames of that family on a port.
    pub fn attach(port: &Port, family: Family) -> Result<Self, LabError> {
        let config = types::meter_config {
            v6: (family == Family::Ipv6).into(),
            ..Default::default()
        };
        Self::load(port, config)
    }

    /// Puts a meter of UDP frames to one address and port, and to the port's MAC address, on a port that has other traffic, too.
    pub fn attach_for(port: &Port, to: SocketAddr) -> Result<Self, LabError> {
        let mut config = types::meter_config {
            v6: to.is_ipv6().into(),
            only: true.into(),
            dport_be: to.port().to_be(),
            ..Default::default()
        };
        for (word, octets) in config.mac_be.iter_mut().zip(port.mac.as_chunks().0) {
            *word = u16::from_ne_bytes(*octets);
        }
        match to.ip() {
            IpAddr::V4(v4) => config.daddr_be[0] = u32::from_ne_bytes(v4.octets()),
            IpAddr::V6(v6) => {
                for (word, octets) in config.daddr_be.iter_mut().zip(v6.octets().as_chunks().0) {
                    *word = u32::from_ne_bytes(*octets);
                }
            }
        }
        Self::load(port, config)
    }

    fn load(port: &Port, config: types::meter_config) -> Result<Self, LabError> {
        let mut storage = MaybeUninit::uninit();
        let mut open = MeterSkelBuilder::default()
            .open(&mut storage)
            .context("open the meter")?;
        let frags = admit_fragments(open.open_object_mut(), port)?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.ok_or_else(|| LabError::Invalid("the meter has no data".into()))?;
        rodata.config = config;
        rodata.config.frags = frags.into();
        let skel = open.load().context("load the meter")?;
        let program = program(skel.object(), "meter")?;
        Ok(Self {
            counts: MapHandle::try_from(&skel.maps.counts).context("open the meter's counts")?,
            _attached: attach_xdp(program.as_fd(), port)?,
            _program: program,
        })
    }

    /// The counts of all CPUs.
    pub fn read(&self) -> Result<Metered, LabError> {
        let mut metered = Metered::default();
        let mut buckets = Vec::new();
        for value in self.values()? {
            let of_cpu: Vec<u64> = words(&value).collect();
            let word = |at: usize| of_cpu.get(at / 8).copied().unwrap_or(0);
            metered.frames += word(offset_of!(types::meter_counts, frames));
            metered.bytes += word(offset_of!(types::meter_counts, bytes));
            metered.other += word(offset_of!(types::meter_counts, other));
            metered.early += word(offset_of!(types::meter_counts, early));
            let max_ns = word(offset_of!(types::meter_counts, max_ns));
            metered.max_ns = metered.max_ns.max(max_ns);
            let of_cpu = of_cpu.get(BUCKETS_AT..).unwrap_or_default();
            buckets.resize(of_cpu.len().max(buckets.len()), 0);
            for (sum, count) in buckets.iter_mut().zip(of_cpu) {
                *sum += count;
            }
        }
        let times = (0..).zip(buckets).filter(|(_, count)| *count > 0);
        metered.times = times.map(|(index, count)| (middle(index), count)).collect();
        Ok(metered)
    }

    /// Frames alone.
    pub fn frames(&self) -> Result<u64, LabError> {
        let values = self.values()?;
        Ok(values.iter().filter_map(|value| words(value).next()).sum())
    }

    /// Begins anew; nothing arrives meanwhile.
    pub fn clear(&self) -> Result<(), LabError> {
        let mut values = self.values()?;
        for value in &mut values {
            value.fill(0);
        }
        self.counts
            .update_percpu(&0u32.to_ne_bytes(), &values, MapFlags::ANY)
            .context("clear the meter")
    }

    fn values(&self) -> Result<Vec<Vec<u8>>, LabError> {
        let key = 0u32.to_ne_bytes();
        let values = self.counts.lookup_percpu(&key, MapFlags::ANY);
        let values = values.context("read the meter")?;
        values.ok_or_else(|| LabError::Incomplete("the meter has no counts".into()))
    }
}

/// The middle of a bucket.
fn middle(index: u64) -> u64 {
    let shift = (index >> SUB_BITS).saturating_sub(1);
    let low = (index - (shift << SUB_BITS)) << shift;
    low + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the program has it.
    fn bucket(value: u64) -> u64 {
        let shift = value.checked_ilog2().unwrap_or(0).saturating_sub(SUB_BITS);
        (u64::from(shift) << SUB_BITS) + (value >> shift)
    }

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut last = 0;
        for value in
            (0..200).chain((0..37).flat_map(|bits| [(1 << bits) - 1, 1 << bits, 3 << bits >> 1]))
        {
            let found = middle(bucket(value));
            assert!(found.abs_diff(value) * 64 <= value, "{value}: {found}");
        }
        for index in 0..2048 {
            let found = middle(index);
            assert_eq!(bucket(found), index);
            assert!(index == 0 || found > last, "{index}");
            last = found;
        }
    }
}
