// SPDX-License-Identifier: MIT OR Apache-2.0
//! What a frame costs the worker that leaves on another node than it came in at: handed over (`direct`), or copied there (`copy`).
//! Two pools play the nodes where a machine has one; on one that has two the nodes are its arguments.
//!
//!     sudo -E cargo run --release -p freeway-engine --example copy_cost [FROM TO]

use freeway_engine::eal::Eal;
use freeway_engine::ffi::{fwe_copy_cost, fwe_pool_free, fwe_pool_new};

/// As many as a core's caches do not hold.
const POOL: u32 = 16_383;
const ROOM: u16 = 2048;
const FRAMES: u64 = 2_000_000;
const ROUNDS: usize = 7;

fn main() -> Result<(), String> {
    let nodes: Vec<i32> = std::env::args()
        .skip(1)
        .map(|node| node.parse().map_err(|_| format!("{node} is no node")))
        .collect::<Result<_, _>>()?;
    let (from, to) = match nodes[..] {
        [] => (-1, -1),
        [from, to] => (from, to),
        _ => return Err("usage: copy_cost [FROM TO]".into()),
    };
    let mut arguments = vec!["--no-pci", "--no-telemetry", "--log-level=error", "-l", "0"];
    if nodes.is_empty() {
        arguments.extend(["--no-huge", "--no-shconf", "-m", "160"]);
    } else {
        arguments.push("--in-memory");
    }
    let arguments: Vec<_> = arguments.into_iter().map(str::to_owned).collect();
    let _eal = Eal::start(&arguments).map_err(|error| format!("DPDK does not start: {error}"))?;
    // SAFETY: DPDK has been started.
    let pools = unsafe { [fwe_pool_new(POOL, ROOM, from), fwe_pool_new(POOL, ROOM, to)] };
    if pools.iter().any(|pool| pool.is_null()) {
        return Err("memory is short".into());
    }
    println!("octets  direct ns  copy ns");
    for len in [60, 250, 500, 1000, 1514] {
        let median = |copied: i32| {
            let mut rounds: Vec<f64> = (0..ROUNDS)
                // SAFETY: two pools that nobody else uses.
                .map(|_| unsafe { fwe_copy_cost(pools[0], pools[1], len, FRAMES, copied) })
                .collect();
            rounds.sort_by(f64::total_cmp);
            rounds[ROUNDS / 2]
        };
        println!("{len:6}  {:9.1}  {:7.1}", median(0), median(1));
    }
    for pool in pools {
        // SAFETY: nothing is out of it.
        unsafe { fwe_pool_free(pool) };
    }
    Ok(())
}
