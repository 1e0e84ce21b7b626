// SPDX-License-Identifier: MIT OR Apache-2.0
//! A worker between rings, whose table and next hops are the test's.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::ptr;
use std::sync::{Mutex, OnceLock, PoisonError};

use freeway_abi::{
    FW_FLOW_ENGINE, FW_FLOW_OWNERS, fw_config, fw_control, fw_flow, fw_framed, fw_framing,
    fw_nexthop, fw_state,
};
use freeway_engine::eal::Eal;
use freeway_engine::ffi;
use freeway_engine::mirror::Mirror;
use freeway_lookup::{Memory, Pages};

use crate::control;
use crate::support::state::Flow;

/// Flows and next hops.
pub const FLOWS_MAX: u32 = 64;
/// Where the clock stands: shortly before it wraps.
pub const NOW: u32 = 0xffff_ff00;
pub const HZ: u32 = 250;
/// ifindex of the ports.
pub const PORTS: [u32; 3] = [1, 2, 3];
/// Frames of a port's ring.
pub const ROOM: u32 = 128;
const BUFFERS: u32 = 4095;

/// DPDK and the rings, which are made once in a process.
struct Once {
    _eal: Eal,
    rings: usize,
}

/// Runs `work` with the rings for itself, on a thread of its own: a worker is its thread's.
pub fn alone(work: impl FnOnce(*mut ffi::fwe_rings) + Send + 'static) {
    static ONCE: OnceLock<Mutex<Once>> = OnceLock::new();
    let once = ONCE.get_or_init(|| {
        let arguments = [
            "--no-huge",
            "--no-pci",
            "--no-telemetry",
            "--no-shconf",
            "-m",
            "64",
            "--log-level=error",
            "-l",
            "0",
        ];
        let arguments: Vec<_> = arguments.iter().map(|a| (*a).to_owned()).collect();
        let eal = Eal::start(&arguments).expect("DPDK without huge pages and devices");
        // SAFETY: once in this process.
        let rings = unsafe { ffi::fwe_rings_new(3, ROOM, BUFFERS) };
        assert!(!rings.is_null());
        Mutex::new(Once {
            _eal: eal,
            rings: rings as usize,
        })
    });
    let once = once.lock().unwrap_or_else(PoisonError::into_inner);
    let rings = once.rings;
    let thread = std::thread::spawn(move || work(rings as *mut ffi::fwe_rings));
    thread.join().unwrap();
}

/// What a worker's ports have, of the engine's memory.
pub struct Between {
    rings: *mut ffi::fwe_rings,
    worker: *mut ffi::fwe_worker,
    table: Memory,
    pub control: Box<fw_control>,
    pub nexthops: Box<[fw_nexthop]>,
    config: Box<fw_config>,
    clock: Box<ffi::fwe_clock>,
    places: Vec<u32>,
    // at a place that stays: the worker has its address
    #[allow(clippy::box_collection)]
    pub exceptions: Box<VecDeque<(Vec<u8>, u32)>>,
    framings: *mut ffi::fw_engine_framings,
}

/// The worker's exceptions are read, and freed.
unsafe extern "C" fn exception(
    context: *mut c_void,
    _port: *const ffi::fwe_port,
    frames: *mut *mut ffi::rte_mbuf,
    reasons: *const u8,
    count: u32,
) {
    // SAFETY: the context is what the worker was given, and there are so many frames.
    unsafe {
        let to = &mut *context.cast::<VecDeque<(Vec<u8>, u32)>>();
        for i in 0..count as usize {
            let mut frame = vec![0; 4096];
            let len = ffi::fwe_frame_read(*frames.add(i), frame.as_mut_ptr().cast(), 4096);
            frame.truncate(len as usize);
            to.push_back((frame, (*reasons.add(i)).into()));
        }
        ffi::fwe_frames_free(frames, count);
    }
}

/// A worker's, which frees what is the kernel's. What is pointed to lives as long as the worker.
fn settings(
    table: &Memory,
    nexthops: &[fw_nexthop],
    control: &fw_control,
    config: &fw_config,
    clock: &ffi::fwe_clock,
) -> ffi::fwe_config {
    ffi::fwe_config {
        memory: ffi::fwe_memory {
            flows: table.at().cast(),
            nexthops: nexthops.as_ptr(),
            control,
            config,
            watch: ptr::null(),
            nexthops_max: FLOWS_MAX,
            pad: 0,
        },
        clock,
        ports: ptr::null(),
        ports_count: 0,
        burst: 0,
        numa: -1,
        exception: None,
        source: None,
        extra: None,
        number: 0,
        sleep_us_max: 0,
        waker: ptr::null_mut(),
        context: ptr::null_mut(),
    }
}

/// A worker at the three ports. Frames come by these lanes, or where those are NULL by the ports' own rings.
fn worker(
    rings: *mut ffi::fwe_rings,
    lanes: &[*mut ffi::fwe_lane; 3],
    settings: ffi::fwe_config,
) -> *mut ffi::fwe_worker {
    let ports: Vec<_> = (0..3)
        .map(|port| ffi::fwe_port {
            sockets: ptr::null_mut(),
            lane: lanes[port as usize],
            // SAFETY: there are three.
            id: unsafe { ffi::fwe_rings_port(rings, port) },
            rx_queue: 0,
            tx_queue: 0,
            number: 0,
            ifindex: PORTS[port as usize],
            sourced_elsewhere: 0,
            wakes: 0,
        })
        .collect();
    let settings = ffi::fwe_config {
        ports: ports.as_ptr(),
        ports_count: 3,
        ..settings
    };
    let mut error = ptr::null();
    // SAFETY: what is pointed to lives as long as the worker, but for ports, which are copied.
    let worker = unsafe { ffi::fwe_worker_new(&raw const settings, &raw mut error) };
    assert!(!worker.is_null());
    worker
}

impl Between {
    pub fn new(rings: *mut ffi::fwe_rings, burst: u32) -> Self {
        let mut exceptions: Box<VecDeque<(Vec<u8>, u32)>> = Box::default();
        let context = (&raw mut *exceptions).cast();
        let mut between = Self::with(rings, burst, Some(exception), context);
        between.exceptions = exceptions;
        between
    }

    /// The same, with somebody else for the exceptions.
    pub fn with(
        rings: *mut ffi::fwe_rings,
        burst: u32,
        exception: ffi::fwe_exception,
        context: *mut c_void,
    ) -> Self {
        let mut config = Box::new(fw_config::default());
        // SAFETY: writes the structure it is given.
        unsafe { ffi::fwe_bench_table(&raw mut *config, FLOWS_MAX) };
        (config.hz, config.ct, config.ct_check_ticks) = (HZ, 1, HZ);
        let places = config.flow_mask as usize + 1;
        let table = Memory::new(Pages::Small, places * size_of::<fw_flow>()).unwrap();
        let control = Box::new(fw_control::default());
        let nexthops = vec![fw_nexthop::default(); FLOWS_MAX as usize + 1].into_boxed_slice();
        let clock = Box::new(ffi::fwe_clock {
            origin_ns: NOW.into(),
            hz: 0,
            pad: 0,
        });
        let settings = ffi::fwe_config {
            burst,
            exception,
            context,
            ..settings(&table, &nexthops, &control, &config, &clock)
        };
        let worker = worker(rings, &[ptr::null_mut(); 3], settings);
        Self {
            rings,
            worker,
            table,
            control,
            nexthops,
            config,
            clock,
            places: Vec::new(),
            exceptions: Box::default(),
            framings: ptr::null_mut(),
        }
    }

    /// One more worker, by the same table, for frames of these lanes. It is the caller's.
    pub fn beside(&self, lanes: &[*mut ffi::fwe_lane; 3]) -> *mut ffi::fwe_worker {
        self.beside_with(lanes, |_| ())
    }

    /// The same, with other settings.
    pub fn beside_with(
        &self,
        lanes: &[*mut ffi::fwe_lane; 3],
        change: impl FnOnce(&mut ffi::fwe_config),
    ) -> *mut ffi::fwe_worker {
        let mut settings = settings(
            &self.table,
            &self.nexthops,
            &self.control,
            &self.config,
            &self.clock,
        );
        change(&mut settings);
        worker(self.rings, lanes, settings)
    }

    /// The secret of the table.
    pub fn key(&self) -> [u64; 5] {
        self.config.hash_key
    }

    /// What comes in so is another's. Once.
    pub fn set_framing(&mut self, framing: &fw_framing, framed: &fw_framed) {
        assert!(self.framings.is_null());
        // SAFETY: one of each; the worker lives.
        unsafe {
            self.framings = ffi::fwe_framings_new(framing, framed, 1);
            ffi::fwe_worker_set_framings(self.worker, self.framings);
        }
    }

    /// Frames from the ports of a mask are copied to a pool before they leave at this port.
    pub fn copy(&self, output: u32, inputs: u64, pool: *mut ffi::rte_mempool) {
        // SAFETY: the worker does nothing meanwhile; the pool stays.
        unsafe { ffi::fwe_worker_copy(self.worker, output, inputs, pool) };
    }

    /// What is copied for who looks on; it stays as long as this, or until the next one.
    pub fn mirror(&self, mirror: Option<&Mirror>) {
        let given = mirror.map_or(ptr::null(), |mirror| ptr::from_ref(mirror.given()));
        // SAFETY: the worker does nothing meanwhile.
        unsafe { ffi::fwe_worker_set_mirror(self.worker, given) };
    }

    /// Tables of prefix paths, which stay as long as this, or until others.
    pub fn routes(&self, routes: Option<&ffi::fwe_routes>) {
        let given = routes.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the worker does nothing meanwhile.
        unsafe { ffi::fwe_worker_set_routes(self.worker, given) };
    }

    /// Schedulers of the ports, which stay as long as this, or until others.
    pub fn schedules(&self, schedules: Option<&ffi::fwe_schedules>) {
        let given = schedules.map_or(ptr::null(), ptr::from_ref);
        // SAFETY: the worker does nothing meanwhile.
        unsafe { ffi::fwe_worker_set_schedules(self.worker, given) };
    }

    /// It is on, and has one flow.
    pub fn admit(&mut self, flow: &Flow) {
        *self.control = control(1, NOW.wrapping_add(500));
        let record = flow.record(1, false, flow.state(NOW, HZ));
        self.insert_all(&[(record, flow.nexthop(7))]);
    }

    /// Flows and next hops 1, 2, ...
    pub fn insert_all(&mut self, records: &[(fw_flow, fw_nexthop)]) {
        for (number, (record, nexthop)) in (1..).zip(records) {
            self.nexthops[number as usize] = *nexthop;
            self.insert(number, record);
        }
    }

    /// Returns where the flow is then; it is the engine's if it is nobody's.
    pub fn insert(&mut self, number: u32, record: &fw_flow) -> u32 {
        let mut record = *record;
        if u32::from(record.flags) & FW_FLOW_OWNERS == 0 {
            record.flags |= FW_FLOW_ENGINE as u8;
        }
        let (flows, config) = (self.table.at().cast(), &raw const *self.config);
        // SAFETY: the table is as large as its configuration says.
        let place = unsafe { ffi::fw_table_insert(flows, config, &raw const record, number) };
        assert_ne!(place, 0);
        self.places.push(place);
        place
    }

    /// Of a flow that is at a place.
    pub fn state(&self, place: u32) -> fw_state {
        // SAFETY: a place that insert() gave.
        unsafe { (*self.table.at().cast::<fw_flow>().add(place as usize)).state }
    }

    /// States of the batch's flows, which leave the table.
    pub fn end(&mut self) -> Vec<String> {
        let mut states = Vec::new();
        for place in std::mem::take(&mut self.places) {
            states.push(format!("{:?}", self.state(place)));
            // SAFETY: as above.
            unsafe {
                ffi::fw_table_remove(self.table.at().cast(), &raw const *self.config, place);
                ffi::fw_table_release(self.table.at().cast(), place);
            }
        }
        states
    }

    pub fn put(&self, port: u32, frame: &[u8], segment: u32) -> bool {
        let (at, len) = (frame.as_ptr().cast(), frame.len() as u32);
        // SAFETY: so long is the frame.
        unsafe { ffi::fwe_rings_put(self.rings, port, at, len, segment) == 0 }
    }

    pub fn turn(&self) -> u32 {
        // SAFETY: on the one thread of this worker.
        unsafe { ffi::fwe_worker_turn(self.worker) }
    }

    pub fn take(&self, port: u32) -> Option<Vec<u8>> {
        let mut frame = vec![0; 4096];
        // SAFETY: so long is the buffer.
        let len = unsafe { ffi::fwe_rings_take(self.rings, port, frame.as_mut_ptr().cast(), 4096) };
        assert!(
            len >= -1,
            "a frame whose segments are not as long as it says"
        );
        frame.truncate(usize::try_from(len).ok()?);
        Some(frame)
    }

    pub fn stats(&self) -> &ffi::fwe_stats {
        // SAFETY: the worker lives, and does nothing meanwhile.
        unsafe { &*ffi::fwe_worker_stats(self.worker) }
    }

    pub fn events(&self) -> u64 {
        let mut event = [0u8; 128];
        let mut count = 0;
        // SAFETY: so long is the buffer.
        while unsafe { ffi::fwe_worker_event(self.worker, event.as_mut_ptr().cast(), 128) } > 0 {
            count += 1;
        }
        count
    }

    pub fn missing(&self) -> u32 {
        // SAFETY: it lives.
        unsafe { ffi::fwe_rings_missing(self.rings) }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        // SAFETY: the worker has ended, and nothing is used any more.
        unsafe {
            ffi::fwe_worker_free(self.worker);
            ffi::fwe_framings_free(self.framings);
        }
    }
}

/// One class, of any rate.
pub struct Scheduler(*mut ffi::fwe_schedule);

impl Scheduler {
    pub fn new() -> Self {
        let class = ffi::fwe_class {
            id: 1,
            above: ffi::FWE_CLASS_NONE as u16,
            priority: 0,
            quantum: 1500,
            limit: 1000,
            limit_bytes: u64::MAX,
            rate: u64::MAX,
            ceiling: u64::MAX,
            burst_ns: 0,
            ceiling_burst_ns: 0,
            overhead: 0,
            least: 0,
        };
        let mut error = ptr::null();
        // SAFETY: one class; the error is a constant string.
        let schedule = unsafe { ffi::fwe_schedule_new(&class, 1, 0, 255, &raw mut error) };
        assert!(!schedule.is_null());
        Self(schedule)
    }

    /// It is that of this port, and no other has one.
    pub fn at(&self, port: u32) -> ffi::fwe_schedules {
        let mut of = [ptr::null_mut(); ffi::FWE_PORTS_MAX as usize];
        of[port as usize] = self.0;
        ffi::fwe_schedules { of }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: no worker has it any more.
        unsafe { ffi::fwe_schedule_free(self.0) };
    }
}
