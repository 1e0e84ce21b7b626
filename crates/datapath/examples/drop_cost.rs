// SPDX-License-Identifier: MIT OR Apache-2.0
//! What it costs to drop a banned source ahead of the fast path, from BPF_PROG_TEST_RUN, needing root:
//! `cargo run --release -p freeway-datapath --example drop_cost`.
//!
//! A program before the scrubber gives the frame another source each time, of so many banned ones, and a right checksum.
//! Behind it stand by turns one that drops all, the scrubber, and the fast path alone; what is printed are ratios within a
//! run. `waiting`: it waits for all that was read before. Else the next frame's line of the table is fetched while this
//! frame is dropped; of a router that does more for a frame the truth is between the two.
//! With `TIMED` in the environment each address has an end.
//!
//! `within` and `over` are of a limit by source ahead of the program that drops all: each source has a bucket, and is within
//! its limit, or over it. As many sources as in the row send by turns.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use freeway_abi::{FW_SCRUB_CLASS_FIRST, fw_ratelimit_here, fw_scrub_here, fw_scrub_rule};
use freeway_datapath::{
    Datapath, Front, Hook, LoadOptions, PACKETS_PER_S_MAX, RateLimiter, ScrubKey, Scrubber,
    SourceRate,
};
use libbpf_sys::{BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_PROG_ARRAY, BPF_PROG_TYPE_XDP, bpf_insn};

type Failure = Box<dyn Error>;

/// Addresses in the table, and of these so many sources.
const SETS: [(u32, u32); 7] = [
    (1, 1),
    (1_000, 1_000),
    (100_000, 1_000),
    (1_000_000, 1_000),
    (100_000, 100_000),
    (1_000_000, 100_000),
    (1_000_000, 1_000_000),
];
/// Frames that are ready, one after the other.
const FRAMES: u32 = 1 << 20;
const RUNS: usize = 15;
const REPEAT: u32 = 200_000;
const FIRST: u32 = 0x0a00_0001;
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const CLASS: u32 = FW_SCRUB_CLASS_FIRST;
/// Of the frame: TTL, protocol and checksum; the source's address follows.
const WORD_AT: i16 = 22;

fn main() -> Result<(), Failure> {
    let drop_all = program(&[mov(0, 1), EXIT])?;
    let cases = SETS.map(|(entries, sources)| Case::new(entries, sources, &drop_all));
    let mut samples: Vec<[Vec<f64>; 6]> = SETS.map(|_| Default::default()).into();
    let mut ready = Vec::new();
    for case in cases {
        ready.push(case?);
    }
    for _ in 0..RUNS {
        for (case, samples) in ready.iter().zip(&mut samples) {
            let bare = run(&case.bare)?;
            let ratios = [
                bare,
                run(&case.drops)? / bare,
                run(&case.drops_waiting)? / run(&case.bare_waiting)?,
                run(&case.misses)? / run(&case.misses_bare)?,
                run(&case.within)? / bare,
                run(&case.over)? / bare,
            ];
            for (samples, ratio) in samples.iter_mut().zip(ratios) {
                samples.push(ratio);
            }
        }
    }
    println!("A bare drop in ns, and the others by it; medians of {RUNS} runs by turns\n");
    println!("addresses  sources  bare drop    drop  waiting  miss by none  within   over");
    for ((entries, sources), samples) in SETS.iter().zip(&mut samples) {
        let [bare, drop, waiting, miss, within, over] = samples.each_mut().map(|samples| {
            samples.sort_unstable_by(f64::total_cmp);
            samples[RUNS / 2]
        });
        println!(
            "{entries:>9} {sources:>8} {bare:>10.1} {drop:>7.2} {waiting:>8.2} {miss:>13.2} {within:>7.2} {over:>6.2}"
        );
    }
    Ok(())
}

struct Case {
    _datapath: Datapath,
    _scrubber: Scrubber,
    _frames: [OwnedFd; 2],
    _next: [OwnedFd; 5],
    _limiters: [(RateLimiter, Front); 2],
    bare: OwnedFd,
    bare_waiting: OwnedFd,
    drops: OwnedFd,
    drops_waiting: OwnedFd,
    misses: OwnedFd,
    misses_bare: OwnedFd,
    within: OwnedFd,
    over: OwnedFd,
}

/// A limit of whatever comes, with a program behind it.
fn limiter(
    datapath: &Datapath,
    packets_per_s: u32,
    behind: &OwnedFd,
) -> Result<(RateLimiter, Front), Failure> {
    let mut limiter = datapath.rate_limiter()?;
    let rate = SourceRate {
        packets_per_s,
        burst: 1,
        prefix_len4: 32,
        prefix_len6: 64,
    };
    limiter.set(0, &rate);
    let here = fw_ratelimit_here {
        limits: [1; 5],
        mac: MAC,
        ..fw_ratelimit_here::default()
    };
    limiter.at(1, here)?;
    let front = limiter.front(1)?;
    front.lead_to(behind.as_fd())?;
    Ok((limiter, front))
}

impl Case {
    fn new(entries: u32, sources: u32, drop_all: &OwnedFd) -> Result<Self, Failure> {
        let datapath = Datapath::load(&LoadOptions::default())?;
        let mut scrubber = datapath.scrubber([entries, 100])?;
        let later = datapath.clock.now_tick()?.wrapping_add(1 << 30);
        datapath.control.set_on(true);
        datapath.control.set_deadline(later);
        scrubber.set_rule(0, fw_scrub_rule::default());
        scrubber.set_class(CLASS, 1);
        let until_tick = if std::env::var_os("TIMED").is_some() {
            later
        } else {
            0
        };
        for number in 0..entries {
            let key = ScrubKey {
                addr: IpAddr::V4(Ipv4Addr::from(FIRST + number)),
                pair: 0,
            };
            scrubber.set(&key, CLASS, until_tick);
        }
        scrubber.set_valid(true);
        let here = fw_scrub_here {
            by_source: 1,
            mac: MAC,
            ..fw_scrub_here::default()
        };
        let scrub = scrubber.at(1, here)?.try_clone()?;
        let frames = [
            frames(FIRST, entries, entries / sources)?,
            frames(FIRST + 0x0100_0000, entries, entries / sources)?,
        ];
        let limiters = [
            limiter(&datapath, PACKETS_PER_S_MAX, drop_all)?,
            limiter(&datapath, 1, drop_all)?,
        ];
        let [within, over] = limiters
            .each_ref()
            .map(|(_, front)| front.prog().try_clone_to_owned());
        let next = [
            next(drop_all)?,
            next(&scrub)?,
            next(&datapath.prog(Hook::Xdp)?)?,
            next(&within?)?,
            next(&over?)?,
        ];
        Ok(Self {
            bare: source(&frames[0], &next[0], false)?,
            bare_waiting: source(&frames[0], &next[0], true)?,
            drops: source(&frames[0], &next[1], false)?,
            drops_waiting: source(&frames[0], &next[1], true)?,
            misses: source(&frames[1], &next[1], false)?,
            misses_bare: source(&frames[1], &next[2], false)?,
            within: source(&frames[0], &next[3], false)?,
            over: source(&frames[0], &next[4], false)?,
            _datapath: datapath,
            _scrubber: scrubber,
            _frames: frames,
            _next: next,
            _limiters: limiters,
        })
    }
}

fn word(addr: u32) -> u64 {
    let header = header(addr);
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&header[8..16]);
    u64::from_ne_bytes(bytes)
}

fn header(addr: u32) -> [u8; 20] {
    let mut ip = [
        0x45, 0, 0, 46, 0, 0, 0, 0, 64, 6, 0, 0, 0, 0, 0, 0, 198, 51, 100, 2,
    ];
    ip[12..16].copy_from_slice(&addr.to_be_bytes());
    let sum: u32 = ip
        .chunks_exact(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ip[10..12].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    ip
}

/// What the source's program writes, in no order: the state's word first.
fn frames(first: u32, entries: u32, step: u32) -> Result<OwnedFd, Failure> {
    let bytes = (FRAMES as usize + 1) * 8;
    let map = map(BPF_MAP_TYPE_ARRAY, bytes as u32)?;
    let mut random = 0x9e37_79b9_7f4a_7c15u64;
    let mut all = vec![0u8; bytes];
    for to in all.chunks_exact_mut(8).skip(1) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let one = (((random >> 32) * u64::from(entries)) >> 32) as u32 / step * step;
        to.copy_from_slice(&word(first + one).to_ne_bytes());
    }
    update(&map, &all)?;
    Ok(map)
}

fn next(prog: &OwnedFd) -> Result<OwnedFd, Failure> {
    let map = map(BPF_MAP_TYPE_PROG_ARRAY, 4)?;
    update(&map, &prog.as_raw_fd().to_ne_bytes())?;
    Ok(map)
}

fn map(kind: u32, value: u32) -> Result<OwnedFd, Failure> {
    // SAFETY: no name and no options.
    let fd = unsafe {
        libbpf_sys::bpf_map_create(kind, std::ptr::null(), 4, value, 1, std::ptr::null())
    };
    owned(fd)
}

fn update(map: &OwnedFd, value: &[u8]) -> Result<(), Failure> {
    // SAFETY: as long as the map's values.
    let rc = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const ZERO).cast(),
            value.as_ptr().cast(),
            0,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error().into())
    }
}

static ZERO: u32 = 0;

fn owned(fd: i32) -> Result<OwnedFd, Failure> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd).into());
    }
    // SAFETY: fresh.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

const fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> bpf_insn {
    bpf_insn {
        code,
        _bitfield_align_1: [],
        _bitfield_1: libbpf_sys::__BindgenBitfieldUnit::new([dst | src << 4]),
        off,
        imm,
    }
}

const EXIT: bpf_insn = insn(0x95, 0, 0, 0, 0);
const fn mov(dst: u8, imm: i32) -> bpf_insn {
    insn(0xb7, dst, 0, 0, imm)
}
const fn copy(dst: u8, src: u8) -> bpf_insn {
    insn(0xbf, dst, src, 0, 0)
}

/// The frame's next source, and on to another program.
fn source(frames: &OwnedFd, next: &OwnedFd, waits: bool) -> Result<OwnedFd, Failure> {
    let (frames, next) = (frames.as_raw_fd(), next.as_raw_fd());
    let wait = if waits {
        insn(0x85, 0, 0, 0, 5)
    } else {
        mov(0, 0)
    }; // bpf_ktime_get_ns
    program(&[
        copy(6, 1),
        wait,
        insn(0x61, 2, 6, 0, 0), // data
        insn(0x61, 3, 6, 4, 0), // data_end
        copy(4, 2),
        insn(0x07, 4, 0, 0, 34),
        insn(0x2d, 4, 3, 18, 0),
        insn(0x18, 7, 2, 0, frames), // the map's value
        insn(0, 0, 0, 0, 0),
        insn(0x61, 8, 7, 0, 0),
        copy(9, 8),
        insn(0x07, 9, 0, 0, 1),
        insn(0x63, 7, 9, 0, 0),
        insn(0x57, 8, 0, 0, (FRAMES - 1) as i32),
        insn(0x67, 8, 0, 0, 3),
        insn(0x0f, 7, 8, 0, 0),
        insn(0x79, 0, 7, 8, 0),
        insn(0x7b, 2, 0, WORD_AT, 0),
        copy(1, 6),
        insn(0x18, 2, 1, 0, next),
        insn(0, 0, 0, 0, 0),
        mov(3, 0),
        insn(0x85, 0, 0, 0, 12), // bpf_tail_call
        mov(0, 3),
        EXIT,
        mov(0, 4),
        EXIT,
    ])
}

fn program(insns: &[bpf_insn]) -> Result<OwnedFd, Failure> {
    let mut opts = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as _,
        // as those that it is before or behind
        expected_attach_type: libbpf_sys::BPF_XDP,
        ..Default::default()
    };
    // SAFETY: as many as said.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_XDP,
            std::ptr::null(),
            c"GPL".as_ptr(),
            insns.as_ptr(),
            insns.len() as u64,
            &mut opts,
        )
    };
    owned(fd)
}

fn run(prog: &OwnedFd) -> Result<f64, Failure> {
    let mut frame = [MAC, [2, 0, 0, 0, 0, 2]].concat();
    frame.extend([8, 0]);
    frame.extend(header(FIRST));
    frame.extend([0; 26]);
    let mut opts = libbpf_sys::bpf_test_run_opts {
        sz: size_of::<libbpf_sys::bpf_test_run_opts>() as _,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: REPEAT as i32,
        ..Default::default()
    };
    let before = cpu_time();
    // SAFETY: the frame outlives the call, and nothing is written back.
    match unsafe { libbpf_sys::bpf_prog_test_run_opts(prog.as_fd().as_raw_fd(), &mut opts) } {
        0 => {}
        e => return Err(io::Error::from_raw_os_error(-e).into()),
    }
    // opts.duration has no fractions
    Ok((cpu_time() - before) / f64::from(REPEAT))
}

/// This thread's, in ns.
fn cpu_time() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: written by the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}
