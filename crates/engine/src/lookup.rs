// SPDX-License-Identifier: MIT OR Apache-2.0
//! `rte_fib` and `rte_lpm` beside the project's own structures, in one process, for `freeway bench lookup`.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::ptr::NonNull;
use std::time::Instant;

use freeway_lookup::{Contender, Job, Kind, Loops, Memory, Pages, Slots, Table, slots};

use crate::eal::Eal;

unsafe extern "C" {
    fn fwe_fib_new(name: *const c_char, socket: c_int, routes: u32, longs: u32) -> *mut c_void;
    fn fwe_fib_add(fib: *mut c_void, address: u32, length: u8, next_hop: u16) -> c_int;
    fn fwe_fib_free(fib: *mut c_void);
    fn fwe_fib_vector(fib: *mut c_void, vector: c_int) -> c_int;
    fn fwe_fib_bytes(fib: *mut c_void, longs: u32) -> u64;
    fn fwe_fib_to_huge(fib: *mut c_void) -> c_int;
    fn fwe_fib_single(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
    fn fwe_fib_dependent(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
    fn fwe_fib_burst(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
    fn fwe_lpm_bytes(groups: u32) -> u64;
    fn fwe_lpm_fill(memory: *mut c_void, slots: *const u16, groups: *const u16, count: u32);
    fn fwe_lpm_single(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
    fn fwe_lpm_dependent(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
    fn fwe_lpm_burst(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
}

const FIB: Loops = Loops {
    single: fwe_fib_single,
    dependent: fwe_fib_dependent,
    burst: fwe_fib_burst,
};
const LPM: Loops = Loops {
    single: fwe_lpm_single,
    dependent: fwe_lpm_dependent,
    burst: fwe_lpm_burst,
};
/// Memory is from wherever it is.
const ANY_SOCKET: c_int = -1;
/// Of each prefix in `rte_rib`, two of which `rte_fib` asks for; and what the 2^24 take, all of it twice or more.
const MEGABYTES: usize = 2048;

/// All tables of the job, on this CPU.
pub fn measured(job: &Job, cpu: usize, progress: &dyn Fn(&str)) -> io::Result<Vec<Table>> {
    let arguments = [
        "--no-huge".to_owned(),
        "--no-shconf".to_owned(),
        "--no-pci".to_owned(),
        "--no-telemetry".to_owned(),
        "--log-level=critical".to_owned(),
        // otherwise AVX-512 is not offered
        "--force-max-simd-bitwidth=512".to_owned(),
        "-m".to_owned(),
        MEGABYTES.to_string(),
        format!("--lcores=0@{cpu}"),
    ];
    let eal = Eal::start(&arguments)?;
    let mut fibs: Vec<Fib> = Vec::new();
    let tables = job.run(
        &mut |routes, ranges, pages| {
            // those of the table before are no longer measured
            fibs.clear();
            let Some(slots) = slots(ranges) else {
                return Ok(Vec::new());
            };
            let mut all = Vec::new();
            for &pages in pages {
                all.push(lpm(&slots, pages)?);
                for vector in [false, true] {
                    let longs = slots.groups.len() as u32 / 256;
                    let begun = Instant::now();
                    let Some(fib) = Fib::new(fibs.len(), routes.len() as u32, longs) else {
                        return Err(io::Error::other("rte_fib has no room"));
                    };
                    for (prefix, next_hop) in routes {
                        fib.add(prefix.first(), prefix.length(), *next_hop)?;
                    }
                    let build = begun.elapsed();
                    if fib.choose(vector).is_err() || fib.move_to(pages).is_err() {
                        continue;
                    }
                    all.push(Contender {
                        name: if vector { "rte_fib_avx512" } else { "rte_fib" },
                        kind: Kind::Dpdk,
                        bytes: fib.bytes(longs),
                        build,
                        pages,
                        at: fib.0.as_ptr(),
                        loops: FIB,
                        memory: None,
                    });
                    fibs.push(fib);
                }
            }
            Ok(all)
        },
        progress,
    );
    drop(fibs);
    drop(eal);
    tables
}

/// As `rte_lpm_add()` fills it, without the minutes that this takes.
fn lpm(slots: &Slots, pages: Pages) -> io::Result<Contender> {
    let groups = slots.groups.len() as u32 / 256;
    let begun = Instant::now();
    // SAFETY: a number.
    let bytes = unsafe { fwe_lpm_bytes(groups) } as usize;
    let memory = Memory::new(pages, bytes)?;
    // SAFETY: the memory is so long and 0, and there are 2^24 slots.
    unsafe {
        fwe_lpm_fill(
            memory.at().cast(),
            slots.slots.as_ptr(),
            slots.groups.as_ptr(),
            groups,
        );
    }
    Ok(Contender {
        name: "rte_lpm",
        kind: Kind::Dpdk,
        bytes,
        build: begun.elapsed(),
        pages,
        at: memory.at().cast(),
        loops: LPM,
        memory: Some(memory),
    })
}

struct Fib(NonNull<c_void>);

impl Fib {
    fn new(number: usize, routes: u32, longs: u32) -> Option<Self> {
        let name = CString::new(format!("fib{number}")).ok()?;
        // `longs` counts what is divided at the end; one more on the way
        // SAFETY: EAL runs, and the name is copied.
        let fib = unsafe { fwe_fib_new(name.as_ptr(), ANY_SOCKET, routes + 1, longs + 1) };
        NonNull::new(fib).map(Self)
    }

    fn add(&self, address: u32, length: u8, next_hop: u16) -> io::Result<()> {
        // SAFETY: it is one.
        result(unsafe { fwe_fib_add(self.0.as_ptr(), address, length, next_hop) })
    }

    fn choose(&self, vector: bool) -> io::Result<()> {
        // SAFETY: it is one.
        result(unsafe { fwe_fib_vector(self.0.as_ptr(), vector.into()) })
    }

    fn move_to(&self, pages: Pages) -> io::Result<()> {
        match pages {
            Pages::Small => Ok(()),
            // SAFETY: it is one.
            Pages::Huge => result(unsafe { fwe_fib_to_huge(self.0.as_ptr()) }),
        }
    }

    fn bytes(&self, longs: u32) -> usize {
        // SAFETY: it is one.
        unsafe { fwe_fib_bytes(self.0.as_ptr(), longs) as usize }
    }
}

impl Drop for Fib {
    fn drop(&mut self) {
        // SAFETY: it is one, and EAL still runs.
        unsafe { fwe_fib_free(self.0.as_ptr()) };
    }
}

fn result(result: c_int) -> io::Result<()> {
    match result {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(-errno)),
    }
}
