// SPDX-License-Identifier: MIT OR Apache-2.0
//! Frames of one page, made by a BPF program that the kernel runs again and again (XDP live frames).
//!
//! The pace is the program's. It looks at the clock when it is asked for a frame, and gives none until one is due.

use std::io;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::OwnedFd;
use std::thread;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle};

use super::offer::{Offer, Offered, Way, checked, frames_of};
use crate::attach::{element, load_only, program, run_live, set_device_at, words};
use crate::clock::monotonic_ns;
use crate::error::{Context, LabError};
use crate::frame::{Direction, low32};
use crate::mix::Mix;
use crate::parked::Parked;
use crate::skel::stream::{StreamSkelBuilder, types};
use crate::topology::Family;

/// Calls of the program in which nothing else of the CPU runs,
const BATCH: u32 = 64;
/// and where frames have the time in them, which wait for the end of it.
const BATCH_STAMPED: u32 = 4;
/// A system call takes so long, for each sets up a pool of pages.
const SLICE_NS: u64 = 50_000_000;
/// A call of the program takes so long until it is known better: more than one that gives no frame, less than one that does.
/// What is called for too much gives none.
const CALL_NS: u64 = 250;

/// A loaded program.
#[derive(Debug)]
pub(super) struct LiveFrames {
    program: OwnedFd,
    state: MapHandle,
    template: Vec<u8>,
    ways: u64,
    /// As with the generator.
    _parked: Parked,
}

impl LiveFrames {
    /// Loads it for one or two directions.
    pub(super) fn load(ways: &[Way<'_>], mix: &Mix) -> Result<Self, LabError> {
        let first = checked(ways)?;
        let family = first.flows.family();
        let order = mix.order()?;
        let mut config = types::stream_config {
            order_len: order.len() as u32,
            ways_len: ways.len() as u32,
            flows: first.flows.flows,
            ..Default::default()
        };
        config.order[..order.len()].copy_from_slice(&order);
        let mut longest = Vec::new();
        for (way, place) in ways.iter().zip(&mut config.ways) {
            let flows = way.flows;
            place.near_addr = low32(flows.near);
            place.near_port = flows.near_port;
            place.far_port = flows.far_port;
            place.reverse = (flows.direction == Direction::Reply).into();
            place.near_fixed = flows.near_fixed.into();
            for (size, shape) in mix.sizes().zip(&mut place.shapes) {
                let spec = frames_of(&flows, size);
                spec.check()?;
                let (template, ip_sum, l4_sum) = spec.template();
                for (place, word) in shape.words.iter_mut().zip(words(&template)) {
                    *place = word;
                }
                shape.ip_sum = ip_sum.into();
                shape.l4_sum = l4_sum.into();
                shape.len = template.len() as u32;
                if template.len() > longest.len() {
                    longest = template;
                }
            }
        }
        config.len = longest.len() as u32;
        let mut storage = MaybeUninit::uninit();
        let mut open = StreamSkelBuilder::default()
            .open(&mut storage)
            .context("open the stream")?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.ok_or_else(|| LabError::Invalid("the stream has no data".into()))?;
        if let Some(beyond) = first.flows.beyond {
            let hosts = beyond.addresses();
            config.hosts = hosts.len() as u32;
            let bss = open.maps.bss_data.as_deref_mut();
            let bss = bss.ok_or_else(|| LabError::Invalid("the stream has no state".into()))?;
            for (place, address) in bss.far_hosts.iter_mut().zip(hosts) {
                *place = address.into();
            }
        }
        rodata.config = config;
        let wanted = match family {
            Family::Ipv4 => "offer_udp4",
            Family::Ipv6 => "offer_udp6",
        };
        load_only(open.open_object_mut(), wanted);
        let skel = open.load().context("load the stream")?;
        let program = program(skel.object(), wanted)?;
        let out = MapHandle::try_from(&skel.maps.out).context("open the stream's port map")?;
        let state = MapHandle::try_from(&skel.maps.bss).context("open the stream's state")?;
        for (index, way) in (0..).zip(ways) {
            set_device_at(&out, index, way.port)?;
        }
        Ok(Self {
            state,
            template: longest,
            ways: ways.len() as u64,
            _parked: Parked::new(&program)?,
            program,
        })
    }

    pub(super) fn drive(&self, offer: &Offer) -> Result<Offered, LabError> {
        let duration_ns = offer.duration.as_nanos() as u64;
        let start_ns = monotonic_ns();
        let end_ns = start_ns + duration_ns;
        let stamp_ns = offer.stamp_ns();
        let per_s = offer.per_s(self.ways);
        self.begin(&types::stream_load {
            start_ns,
            end_ns,
            per_s,
            frames: offer.frames.unwrap_or(0),
            stamp_ns,
            stamp_spread: offer.stamp_spread(),
        })?;
        let batch = if stamp_ns > 0 { BATCH_STAMPED } else { BATCH };
        let mut offered = Offered::default();
        let mut call_ns = CALL_NS;
        loop {
            let now_ns = monotonic_ns();
            let done = offer.frames.is_some_and(|wanted| offered.frames >= wanted);
            if now_ns >= end_ns || done {
                offered.elapsed_ns = now_ns.min(end_ns) - start_ns;
                offered.last_ns = offered.last_ns.saturating_sub(start_ns);
                return Ok(offered);
            }
            let mut repeat = (end_ns - now_ns).min(SLICE_NS) / call_ns;
            match (offer.frames, per_s) {
                // each call gives one
                (Some(wanted), 0) => repeat = repeat.min(wanted - offered.frames),
                // the last is due then
                (Some(wanted), _) => {
                    let due_ns = u128::from(wanted) * 1_000_000_000 / u128::from(per_s);
                    let left_ns = (u128::from(start_ns) + due_ns).saturating_sub(now_ns.into());
                    repeat = repeat.min(left_ns as u64 / call_ns);
                }
                (None, _) => {}
            }
            let repeat = repeat.clamp(u64::from(batch), 1 << 24) as u32;
            self.emit(repeat, batch)?;
            let took_ns = monotonic_ns() - now_ns;
            call_ns = (took_ns / u64::from(repeat)).clamp(10, 100_000);
            offered = self.offered()?;
        }
    }

    /// Sets the load and clears the counts; no program runs.
    fn begin(&self, load: &types::stream_load) -> Result<(), LabError> {
        let mut value = element(&self.state)?;
        let mut put = |at: usize, word: u64| value[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        let at = offset_of!(types::bss, load);
        for (field, word) in [
            (offset_of!(types::stream_load, start_ns), load.start_ns),
            (offset_of!(types::stream_load, end_ns), load.end_ns),
            (offset_of!(types::stream_load, per_s), load.per_s),
            (offset_of!(types::stream_load, frames), load.frames),
            (offset_of!(types::stream_load, stamp_ns), load.stamp_ns),
            (
                offset_of!(types::stream_load, stamp_spread),
                load.stamp_spread,
            ),
        ] {
            put(at + field, word);
        }
        let at = offset_of!(types::bss, state);
        for field in [
            offset_of!(types::stream_state, frames),
            offset_of!(types::stream_state, left_out),
            offset_of!(types::stream_state, stamped),
            offset_of!(types::stream_state, next_stamp_ns),
            offset_of!(types::stream_state, last_ns),
            // with the frames until the next time
            offset_of!(types::stream_state, credit),
        ] {
            put(at + field, 0);
        }
        self.state
            .update(&0u32.to_ne_bytes(), &value, MapFlags::ANY)
            .context("set the stream's load")
    }

    fn offered(&self) -> Result<Offered, LabError> {
        let value = element(&self.state)?;
        let at = offset_of!(types::bss, state);
        let word = |field: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&value[at + field..at + field + 8]);
            u64::from_ne_bytes(bytes)
        };
        Ok(Offered {
            frames: word(offset_of!(types::stream_state, frames)),
            left_out: word(offset_of!(types::stream_state, left_out)),
            stamped: word(offset_of!(types::stream_state, stamped)),
            elapsed_ns: 0,
            last_ns: word(offset_of!(types::stream_state, last_ns)),
        })
    }

    /// One test run of so many calls, or fewer if a signal cuts it short.
    fn emit(&self, repeat: u32, batch: u32) -> Result<(), LabError> {
        match run_live(&self.program, &self.template, repeat, batch) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                // whoever ends the program comes to it
                thread::yield_now();
                Ok(())
            }
            done => done.context("run the stream"),
        }
    }
}
