// SPDX-License-Identifier: MIT OR Apache-2.0
//! The pipeline compiled natively: the same C as in XDP and tc, in this process.

use std::ptr::NonNull;

use freeway_abi::{
    FW_PPPOE_LEN, FW_TAG_LEN, FW_TAGS_MAX, fw_candidate, fw_conn, fw_control, fw_flow, fw_framed,
    fw_framing, fw_kept, fw_limit, fw_nexthop, fw_olist,
};

use crate::DataplaneEvent;
use crate::object::limit;

/// Room ahead of a frame: tags may be put on.
const HEADROOM: u32 = FW_TAGS_MAX * FW_TAG_LEN + FW_PPPOE_LEN;

#[repr(C)]
struct Env {
    _opaque: [u8; 0],
}

/// `struct fw_user_frame`.
#[repr(C)]
struct InBuffer {
    buffer: *mut u8,
    at: u32,
    len: u32,
    port: u32,
    port_out: u32,
    olist: u32,
}

unsafe extern "C" {
    fn fw_user_new(flows: u32, nexthops: u32) -> *mut Env;
    fn fw_user_free(env: *mut Env);
    fn fw_user_control(env: *mut Env) -> *mut fw_control;
    fn fw_user_flow(env: *mut Env, index: u32) -> *mut fw_flow;
    fn fw_user_nexthop(env: *mut Env, index: u32) -> *mut fw_nexthop;
    fn fw_user_olist(env: *mut Env, index: u32) -> *mut fw_olist;
    fn fw_user_set_now(env: *mut Env, tick: u32);
    fn fw_user_set_straight(env: *mut Env, straight: u32);
    fn fw_user_set_leaves_closing(env: *mut Env, leaves: u32);
    fn fw_user_hits(env: *const Env) -> u64;
    fn fw_user_misses(env: *const Env) -> u64;
    fn fw_user_set_conn(env: *mut Env, conn: *const fw_conn);
    fn fw_user_kept(env: *mut Env, index: u32) -> *mut fw_kept;
    fn fw_user_set_window(env: *mut Env, window: u32);
    fn fw_user_insert(env: *mut Env, index: u32) -> i32;
    fn fw_user_remove(env: *mut Env, index: u32);
    fn fw_user_set_peer(env: *mut Env, index: u32, peer: u32);
    fn fw_user_count(env: *const Env, reason: u32) -> u64;
    fn fw_user_set_limit(env: *mut Env, reason: u32, limit: *const fw_limit);
    fn fw_user_policed(env: *const Env, reason: u32) -> u64;
    fn fw_user_seen(env: *mut Env, index: u32) -> u32;
    fn fw_user_forget(env: *mut Env, index: u32);
    fn fw_user_set_full(env: *mut Env, full: u32);
    fn fw_user_set_crowded(env: *mut Env, crowded: u32);
    fn fw_user_event(env: *mut Env, event: *mut u8, size: u32) -> u32;
    fn fw_user_set_framing(
        env: *mut Env,
        framing: *const fw_framing,
        framed: *const fw_framed,
    ) -> i32;
    fn fw_user_forward(env: *mut Env, frame: *mut InBuffer) -> u32;
    fn fw_user_leg(env: *mut Env, frame: *mut InBuffer, device: u32) -> i32;
    fn fw_user_ingress(env: *mut Env, frame: *mut u8, len: u32, port: u32, gso: u32) -> u32;
    fn fw_user_egress(
        env: *mut Env,
        frame: *mut u8,
        len: u32,
        port: u32,
        gso: u32,
        token: u32,
    ) -> u32;
}

/// What the pipeline did with a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// `FW_R_FAST`, `FW_R_POLICED` for a frame to be dropped, or why the kernel gets it (`FW_R_*`).
    pub reason: u32,
    /// Egress port if forwarded.
    pub port_out: Option<u32>,
    /// List of the ports to which it is to be copied, or 0.
    pub olist: u32,
}

/// A native pipeline with tables of its own.
pub struct Pipeline(NonNull<Env>);

// SAFETY: the environment is used by one thread at a time (`&mut self`), and C
// keeps no reference to it between calls.
unsafe impl Send for Pipeline {}

impl Pipeline {
    /// Empty tables; switched on, clock and deadline at tick 0. `None` if memory is short.
    #[must_use]
    pub fn new(flows: u32, nexthops: u32) -> Option<Self> {
        // SAFETY: allocates; NULL is handled.
        NonNull::new(unsafe { fw_user_new(flows, nexthops) }).map(Self)
    }

    /// The switches.
    pub fn control(&mut self) -> &mut fw_control {
        // SAFETY: part of the environment, borrowed with it.
        unsafe { &mut *fw_user_control(self.0.as_ptr()) }
    }

    /// A flow; `None` if there is no such index.
    pub fn flow(&mut self, index: u32) -> Option<&mut fw_flow> {
        // SAFETY: NULL or part of the environment, borrowed with it.
        unsafe { fw_user_flow(self.0.as_ptr(), index).as_mut() }
    }

    /// A next hop; `None` if there is no such index.
    pub fn nexthop(&mut self, index: u32) -> Option<&mut fw_nexthop> {
        // SAFETY: NULL or part of the environment, borrowed with it.
        unsafe { fw_user_nexthop(self.0.as_ptr(), index).as_mut() }
    }

    /// A list of ports for copies; `None` if there is no such number.
    pub fn olist(&mut self, number: u32) -> Option<&mut fw_olist> {
        // SAFETY: NULL or part of the environment, borrowed with it.
        unsafe { fw_user_olist(self.0.as_ptr(), number).as_mut() }
    }

    /// Sets the clock.
    pub fn set_now(&mut self, tick: u32) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_now(self.0.as_ptr(), tick) }
    }

    /// False: plain hits and misses take the pipeline too, step by step.
    pub fn set_straight(&mut self, straight: bool) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_straight(self.0.as_ptr(), straight.into()) }
    }

    /// True: what closes a connection is left to the kernel, as in the engine.
    pub fn set_leaves_closing(&mut self, leaves: bool) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_leaves_closing(self.0.as_ptr(), leaves.into()) }
    }

    /// Frames that went the straight way.
    #[must_use]
    pub fn straight_hits(&self) -> u64 {
        // SAFETY: a plain read.
        unsafe { fw_user_hits(self.0.as_ptr()) }
    }

    /// Frames that were told straight to be of no flow.
    #[must_use]
    pub fn straight_misses(&self) -> u64 {
        // SAFETY: a plain read.
        unsafe { fw_user_misses(self.0.as_ptr()) }
    }

    /// Sets what conntrack answers.
    pub fn set_conn(&mut self, conn: &fw_conn) {
        // SAFETY: copied during the call.
        unsafe { fw_user_set_conn(self.0.as_ptr(), conn) }
    }

    /// What the connection was when the flow was learned; `None` if there is no such index.
    pub fn kept(&mut self, index: u32) -> Option<&mut fw_kept> {
        // SAFETY: NULL or part of the environment, borrowed with it.
        unsafe { fw_user_kept(self.0.as_ptr(), index).as_mut() }
    }

    /// The largest window of the connection, octets, with which conntrack is liberal; 0: it is not.
    pub fn set_window(&mut self, window: u32) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_window(self.0.as_ptr(), window) }
    }

    /// Publishes the flow written at `index`; false if no place is free.
    #[must_use]
    pub fn insert(&mut self, index: u32) -> bool {
        // SAFETY: the index is checked.
        unsafe { fw_user_insert(self.0.as_ptr(), index) == 0 }
    }

    /// Hides the flow at `index`.
    pub fn remove(&mut self, index: u32) {
        // SAFETY: the index is checked.
        unsafe { fw_user_remove(self.0.as_ptr(), index) }
    }

    /// Names the other direction of a flow; both are in the table.
    pub fn set_peer(&mut self, index: u32, peer: u32) {
        // SAFETY: the indices are checked.
        unsafe { fw_user_set_peer(self.0.as_ptr(), index, peer) }
    }

    /// Takes the mark of a TCP flow of which the kernel confirmed a packet.
    #[must_use]
    pub fn take_seen(&mut self, index: u32) -> bool {
        // SAFETY: the index is checked.
        unsafe { fw_user_seen(self.0.as_ptr(), index) != 0 }
    }

    /// Forgets that the flow at `index` was offered.
    pub fn forget(&mut self, index: u32) {
        // SAFETY: the index is checked.
        unsafe { fw_user_forget(self.0.as_ptr(), index) }
    }

    /// Whether there is no room for events.
    pub fn set_full(&mut self, full: bool) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_full(self.0.as_ptr(), full.into()) }
    }

    /// Whether half of the room for events is taken.
    pub fn set_crowded(&mut self, crowded: bool) {
        // SAFETY: a plain write.
        unsafe { fw_user_set_crowded(self.0.as_ptr(), crowded.into()) }
    }

    /// Packets counted under a reason.
    #[must_use]
    pub fn count(&self, reason: u32) -> u64 {
        // SAFETY: a plain read; the index is checked.
        unsafe { fw_user_count(self.0.as_ptr(), reason) }
    }

    /// Limits what the kernel is given for a reason.
    pub fn set_limit(&mut self, reason: u32, packets_per_s: u32) {
        // SAFETY: copied during the call; the index is checked.
        unsafe { fw_user_set_limit(self.0.as_ptr(), reason, &limit(packets_per_s)) }
    }

    /// Packets over the limit of a reason.
    #[must_use]
    pub fn policed(&self, reason: u32) -> u64 {
        // SAFETY: a plain read; the index is checked.
        unsafe { fw_user_policed(self.0.as_ptr(), reason) }
    }

    /// Takes the last event.
    pub fn event(&mut self) -> Option<DataplaneEvent> {
        let mut record = [0u8; size_of::<fw_candidate>()];
        // SAFETY: writes at most the size given.
        let len =
            unsafe { fw_user_event(self.0.as_ptr(), record.as_mut_ptr(), record.len() as u32) };
        DataplaneEvent::decode(record.get(..len as usize)?)
    }

    /// What comes in at `framing`'s port with its tags and session is `framed`'s; false if there are too many.
    #[must_use]
    pub fn set_framing(&mut self, framing: &fw_framing, framed: &fw_framed) -> bool {
        // SAFETY: copied during the call.
        unsafe { fw_user_set_framing(self.0.as_ptr(), framing, framed) == 0 }
    }

    /// The fast path: rewrites `frame`, trimming its padding, taking tags off and putting them on.
    pub fn forward(&mut self, frame: &mut Vec<u8>, port: u32) -> Verdict {
        let len = u32::try_from(frame.len()).unwrap_or(0);
        let mut buffer = vec![0; HEADROOM as usize];
        buffer.append(frame);
        let mut lies = InBuffer {
            buffer: buffer.as_mut_ptr(),
            at: HEADROOM,
            len,
            port,
            port_out: 0,
            olist: 0,
        };
        // SAFETY: the buffer is `at` and `len` bytes long, and C stays within.
        let reason = unsafe { fw_user_forward(self.0.as_ptr(), &raw mut lies) };
        let fast = reason == freeway_abi::FW_R_FAST;
        let frame_now = lies.at as usize..lies.at as usize + lies.len as usize;
        frame.extend_from_slice(buffer.get(frame_now).unwrap_or_default());
        Verdict {
            reason,
            port_out: fast.then_some(lies.port_out),
            olist: lies.olist,
        }
    }

    /// What the copy of a forwarded frame for a device of a list is, and the port at which it leaves; `None` if the
    /// list has no such device.
    #[must_use]
    pub fn copy(&mut self, frame: &[u8], olist: u32, device: u32) -> Option<(Vec<u8>, u32)> {
        let mut buffer = vec![0; HEADROOM as usize];
        buffer.extend_from_slice(frame);
        let mut lies = InBuffer {
            buffer: buffer.as_mut_ptr(),
            at: HEADROOM,
            len: u32::try_from(frame.len()).unwrap_or(0),
            port: 0,
            port_out: 0,
            olist,
        };
        // SAFETY: as in forward().
        let result = unsafe { fw_user_leg(self.0.as_ptr(), &raw mut lies, device) };
        let copy = buffer.get(lies.at as usize..lies.at as usize + lies.len as usize)?;
        (result == 0).then(|| (copy.to_vec(), lies.port_out))
    }

    /// tc ingress of the slow path: the token, or 0.
    pub fn ingress(&mut self, frame: &mut [u8], port: u32, gso_size: u32) -> u32 {
        let len = u32::try_from(frame.len()).unwrap_or(0);
        // SAFETY: the frame is `len` bytes long, and C stays within.
        unsafe { fw_user_ingress(self.0.as_ptr(), frame.as_mut_ptr(), len, port, gso_size) }
    }

    /// tc egress of the slow path: the reason (`FW_R_*`).
    pub fn egress(&mut self, frame: &mut [u8], port: u32, gso_size: u32, token: u32) -> u32 {
        let len = u32::try_from(frame.len()).unwrap_or(0);
        // SAFETY: the frame is `len` bytes long, and C stays within.
        unsafe {
            fw_user_egress(
                self.0.as_ptr(),
                frame.as_mut_ptr(),
                len,
                port,
                gso_size,
                token,
            )
        }
    }
}

impl Drop for Pipeline {
    fn drop(&mut self) {
        // SAFETY: made by fw_user_new and freed once.
        unsafe { fw_user_free(self.0.as_ptr()) }
    }
}
