// SPDX-License-Identifier: MIT OR Apache-2.0
//! The sink: counts and drops what arrives, and looks at it as closely as asked.

use std::cell::RefCell;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBufferBuilder};
use serde::Serialize;

use crate::attach::{Attached, admit_fragments, attach_xdp, counters, load_only, program, words};
use crate::error::{Context, LabError};
use crate::frame::{FLOWS_MAX, TAG_BYTES};
use crate::port::Port;
use crate::skel::sink::{SinkSkelBuilder, types};

/// How many rules a sink has.
pub const RULES: usize = 8;
/// The highest offset of a rule, bytes from the frame's start.
const RULE_OFFSET_MAX: u32 = 255;
/// Room for captured frames, a power of two; each takes 2 KiB.
const CAPTURE_BYTES: u32 = 1 << 24;

/// What a sink does beside counting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkSpec {
    /// Only count, whatever it is, ARP included: the cheapest sink.
    pub plain: bool,
    /// Verify IPv4 header, UDP and TCP checksums.
    pub verify: bool,
    /// Follow the sequence numbers of so many flows of the generator.
    pub flows: u32,
    /// Frames have a VLAN tag; others are left to the host's stack. A plain sink does not care.
    pub tagged: bool,
    /// Compare frames with the rules, see [`Sink::set_rule`].
    pub rules: bool,
    /// Capture every so manyth frame, 0 for none.
    pub capture_every: u32,
    /// Capture so many frames at most on each CPU.
    pub capture_limit: u32,
}

impl SinkSpec {
    /// The cheapest sink.
    pub fn plain() -> Self {
        Self {
            plain: true,
            ..Self::default()
        }
    }

    /// Checksums and sequence numbers of so many flows.
    pub fn thorough(flows: u32) -> Self {
        Self {
            verify: true,
            flows,
            ..Self::default()
        }
    }
}

/// What a sink has counted since it was attached. A plain sink counts frames and bytes only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SinkCounts {
    /// UDP and TCP frames, which it dropped; a plain sink counts every frame here.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
    /// Others, left to the host's stack.
    pub passed: u64,
    /// Wrong IPv4 header checksums.
    pub bad_ip_checksum: u64,
    /// Wrong UDP or TCP checksums.
    pub bad_l4_checksum: u64,
    /// Options, extension headers, fragments, or cut short: not verified.
    pub unverified: u64,
    /// Frames behind a later one of the same flow.
    pub reordered: u64,
    /// Frames without a sequence number of the flows that are followed.
    pub untracked: u64,
    /// Captured frames.
    pub captured: u64,
    /// Frames that found the capture buffer full.
    pub capture_lost: u64,
}

/// What a sink knows of one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FlowCounts {
    /// Frames that arrived.
    pub frames: u64,
    /// One more than the highest round that arrived.
    pub next_round: u32,
    /// Frames that arrived after a later one (RFC 4737, type-P-reordered).
    pub reordered: u32,
    /// How far behind the highest round at most, in rounds.
    pub extent_max: u32,
}

impl FlowCounts {
    /// Rounds that are missing, if none arrived twice. What is lost at the end does not show.
    pub fn lost(&self) -> u64 {
        u64::from(self.next_round).saturating_sub(self.frames)
    }
}

/// A pattern of 32 bits anywhere in the first 256 bytes of a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// Bytes from the frame's start, at most 255.
    pub offset: u32,
    /// The bits to compare, host byte order; 0 switches the rule off.
    pub mask: u32,
    /// What they should be, host byte order.
    pub value: u32,
}

impl Rule {
    /// Frames with this last byte of the source MAC address.
    pub fn source_mac(last: u8) -> Self {
        Self {
            offset: 8,
            mask: 0x0000_00ff,
            value: last.into(),
        }
    }

    /// Frames with this last byte of the destination MAC address.
    pub fn destination_mac(last: u8) -> Self {
        Self {
            offset: 2,
            mask: 0x0000_00ff,
            value: last.into(),
        }
    }

    /// IPv4 frames from this address.
    pub fn source_ipv4(address: std::net::Ipv4Addr) -> Self {
        Self {
            offset: 26,
            mask: u32::MAX,
            value: address.into(),
        }
    }

    /// IPv4 frames with this TTL.
    pub fn ttl_ipv4(ttl: u8) -> Self {
        Self {
            offset: 22,
            mask: 0xff00_0000,
            value: u32::from(ttl) << 24,
        }
    }
}

/// When a rule matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Mark {
    /// How often.
    pub count: u64,
    /// CLOCK_MONOTONIC of the first match, nanoseconds, 0 for never.
    pub first_seen_ns: u64,
    /// CLOCK_MONOTONIC of the last match, nanoseconds, 0 for never.
    pub last_seen_ns: u64,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When it arrived: CLOCK_MONOTONIC from a [`Sink`], CLOCK_REALTIME from a [`crate::capture::Capture`], nanoseconds.
    pub time_ns: u64,
    /// The frame without FCS.
    pub bytes: Vec<u8>,
}

/// A sink on a port; dropping it detaches it.
#[derive(Debug)]
pub struct Sink {
    spec: SinkSpec,
    counters: MapHandle,
    flows: MapHandle,
    rules: MapHandle,
    marks: MapHandle,
    captures: MapHandle,
    // The link goes with it; the program's descriptor is not needed any more.
    _attached: Attached,
    _program: OwnedFd,
}

impl Sink {
    /// Puts a sink on a port. With a plain sink the port's hosts need static neighbours. Of frames of several pages it sees the first.
    pub fn attach(port: &Port, spec: SinkSpec) -> Result<Self, LabError> {
        if spec.flows > FLOWS_MAX {
            return Err(LabError::Invalid(format!(
                "{} flows: at most {FLOWS_MAX}",
                spec.flows
            )));
        }
        let mut storage = MaybeUninit::uninit();
        let mut open = SinkSkelBuilder::default()
            .open(&mut storage)
            .context("open the sink")?;
        admit_fragments(open.open_object_mut(), port)?;
        let rodata = open.maps.rodata_data.as_deref_mut();
        let rodata = rodata.ok_or_else(|| LabError::Invalid("the sink has no data".into()))?;
        rodata.config = types::sink_config {
            verify: spec.verify.into(),
            track: (spec.flows > 0).into(),
            r#match: spec.rules.into(),
            tag_len: if spec.tagged { TAG_BYTES as u8 } else { 0 },
            flows: spec.flows,
            capture_every: spec.capture_every,
            capture_limit: spec.capture_limit,
        };
        open.maps
            .flows
            .set_max_entries(spec.flows.max(1))
            .context("size the flow table")?;
        let room = if spec.capture_every > 0 {
            CAPTURE_BYTES
        } else {
            4096
        };
        open.maps
            .captures
            .set_max_entries(room)
            .context("size the capture buffer")?;
        let wanted = if spec.plain { "sink_plain" } else { "sink" };
        load_only(open.open_object_mut(), wanted);
        let skel = open.load().context("load the sink")?;
        let program = program(skel.object(), wanted)?;
        let map = |map| MapHandle::try_from(map).context("open a map of the sink");
        Ok(Self {
            spec,
            counters: map(&skel.maps.counters)?,
            flows: map(&skel.maps.flows)?,
            rules: map(&skel.maps.rules)?,
            marks: map(&skel.maps.marks)?,
            captures: map(&skel.maps.captures)?,
            _attached: attach_xdp(program.as_fd(), port)?,
            _program: program,
        })
    }

    /// The counters, summed over the CPUs.
    pub fn counts(&self) -> Result<SinkCounts, LabError> {
        let sums = counters(&self.counters)?;
        let [
            frames,
            bytes,
            passed,
            bad_ip_checksum,
            bad_l4_checksum,
            unverified,
            reordered,
            untracked,
            captured,
            capture_lost,
        ] = sums[..]
        else {
            return Err(LabError::Invalid("the sink counts something else".into()));
        };
        Ok(SinkCounts {
            frames,
            bytes,
            passed,
            bad_ip_checksum,
            bad_l4_checksum,
            unverified,
            reordered,
            untracked,
            captured,
            capture_lost,
        })
    }

    /// What is known of flow `index`.
    pub fn flow(&self, index: u32) -> Result<FlowCounts, LabError> {
        if index >= self.spec.flows {
            return Err(LabError::Invalid(format!("flow {index} is not followed")));
        }
        let value = self
            .flows
            .lookup(&index.to_ne_bytes(), MapFlags::ANY)
            .context("read a flow")?;
        let value = value.unwrap_or_default();
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&value[at..at + 4]);
            u32::from_ne_bytes(bytes)
        };
        Ok(FlowCounts {
            frames: words(&value).next().unwrap_or(0),
            next_round: word(offset_of!(types::sink_flow, next_round)),
            reordered: word(offset_of!(types::sink_flow, reordered)),
            extent_max: word(offset_of!(types::sink_flow, extent_max)),
        })
    }

    /// All flows that are followed. At a million this takes about a second.
    pub fn flows(&self) -> Result<Vec<FlowCounts>, LabError> {
        (0..self.spec.flows).map(|index| self.flow(index)).collect()
    }

    /// Sets rule `index` and forgets when it matched. Needs [`SinkSpec::rules`].
    pub fn set_rule(&self, index: usize, rule: Rule) -> Result<(), LabError> {
        if !self.spec.rules || index >= RULES || rule.offset > RULE_OFFSET_MAX {
            let what = format!(
                "rule {index} at offset {}: this sink cannot match it",
                rule.offset
            );
            return Err(LabError::Invalid(what));
        }
        let mut value = [0; size_of::<types::sink_rule>()];
        let mut put = |at: usize, bytes: [u8; 4]| value[at..at + 4].copy_from_slice(&bytes);
        put(
            offset_of!(types::sink_rule, offset),
            rule.offset.to_ne_bytes(),
        );
        put(
            offset_of!(types::sink_rule, mask_be),
            rule.mask.to_be_bytes(),
        );
        put(
            offset_of!(types::sink_rule, value_be),
            rule.value.to_be_bytes(),
        );
        let key = (index as u32).to_ne_bytes();
        let update = |map: &MapHandle, value: &[u8]| {
            map.update(&key, value, MapFlags::ANY)
                .context("write the sink's rules")
        };
        // Off while its mark is cleared, so that the old rule leaves nothing in it.
        update(&self.rules, &[0; size_of::<types::sink_rule>()])?;
        update(&self.marks, &[0; size_of::<types::sink_mark>()])?;
        update(&self.rules, &value)
    }

    /// When rule `index` matched.
    pub fn mark(&self, index: usize) -> Result<Mark, LabError> {
        let key = (index as u32).to_ne_bytes();
        let value = self
            .marks
            .lookup(&key, MapFlags::ANY)
            .context("read the sink's marks")?;
        let value = value.ok_or_else(|| LabError::Invalid(format!("there is no rule {index}")))?;
        let mut values = words(&value);
        let mut next = || values.next().unwrap_or(0);
        Ok(Mark {
            count: next(),
            first_seen_ns: next(),
            last_seen_ns: next(),
        })
    }

    /// The frames captured since the last call.
    pub fn captured(&self) -> Result<Vec<Captured>, LabError> {
        let frames = RefCell::new(Vec::new());
        let mut builder = RingBufferBuilder::new();
        let take = |slot: &[u8]| {
            // struct sink_capture: a time, a length of 32 bits and a gap, the frame.
            let mut head = words(slot);
            let time_ns = head.next().unwrap_or(0);
            let mut len = [0; 4];
            len.copy_from_slice(&slot[8..12]);
            let end = 16 + u32::from_ne_bytes(len) as usize;
            let bytes = slot.get(16..end).unwrap_or_default().to_vec();
            frames.borrow_mut().push(Captured { time_ns, bytes });
            0
        };
        builder
            .add(&self.captures, take)
            .context("open the capture buffer")?;
        let ring = builder.build().context("open the capture buffer")?;
        ring.poll(Duration::ZERO)
            .context("read the capture buffer")?;
        drop(ring);
        Ok(frames.into_inner())
    }
}
