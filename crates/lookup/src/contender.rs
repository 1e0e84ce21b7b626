// SPDX-License-Identifier: MIT OR Apache-2.0
//! A structure that is measured, and how it is called.

use std::ffi::c_void;
use std::io;
use std::time::{Duration, Instant};

use freeway_prefix::{Range, Table4, fw_prefix4};

use crate::candidates::{Block, blocks, dir24, dxr, poptrie};
use crate::pages::{Memory, Pages};
use crate::routes::Routes;

/// Looks addresses up and returns the sum of their next hops: structure, addresses, their number, and 0.
pub type Loop = unsafe extern "C" fn(*const c_void, *const u32, u32, u32) -> u64;

/// As XDP has them, as it has them if each depends on the one before, and by 64.
#[derive(Clone, Copy)]
pub struct Loops {
    /// One after the other.
    pub single: Loop,
    /// Each needs the next hop before.
    pub dependent: Loop,
    /// The number of addresses is a multiple of 64.
    pub burst: Loop,
}

/// What a structure is for, or whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Candidate,
    /// DPDK's.
    Dpdk,
}

/// A structure in memory.
pub struct Contender {
    /// As JSON has it.
    pub name: &'static str,
    /// Whose it is.
    pub kind: Kind,
    /// What a lookup may read.
    pub bytes: usize,
    /// From routes, or from ranges if it is built from those, to all of it.
    pub build: Duration,
    /// The size of its pages.
    pub pages: Pages,
    /// Where it is.
    pub at: *const c_void,
    /// Its code.
    pub loops: Loops,
    /// Kept while it is measured.
    pub memory: Option<Memory>,
}

impl Contender {
    /// The sum of the next hops.
    pub fn run(&self, of: impl Fn(&Loops) -> Loop, addresses: &[u32]) -> u64 {
        let count = addresses.len() as u32;
        // SAFETY: the loop is this structure's, which is there as long as its memory is.
        unsafe { of(&self.loops)(self.at, addresses.as_ptr(), count, 0) }
    }
}

macro_rules! loops {
    ($($name:ident: $single:ident $dependent:ident $burst:ident),* $(,)?) => {
        unsafe extern "C" {
            $(
                fn $single(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
                fn $dependent(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
                fn $burst(at: *const c_void, keys: *const u32, count: u32, zero: u32) -> u64;
            )*
        }
        $(const $name: Loops = Loops { single: $single, dependent: $dependent, burst: $burst };)*
    };
}

loops! {
    BITMAP: fwl_bitmap_single fwl_bitmap_dependent fwl_bitmap_burst,
    BLOCKS: fwl_blocks_single fwl_blocks_dependent fwl_blocks_burst,
    DIR24: fwl_dir24_single fwl_dir24_dependent fwl_dir24_burst,
    DXR: fwl_dxr_single fwl_dxr_dependent fwl_dxr_burst,
    DXR_FLAT: fwl_dxr_flat_single fwl_dxr_flat_dependent fwl_dxr_flat_burst,
    POPTRIE: fwl_poptrie_single fwl_poptrie_dependent fwl_poptrie_burst,
}

/// The structure that XDP takes.
pub const XDP: &str = "bitmap";

/// All of ours, in pages of each of these sizes. What does not fit is not among them.
pub fn candidates(
    routes: &Routes,
    ranges: &[Range],
    pages: &[Pages],
) -> io::Result<Vec<Contender>> {
    let mut all = Vec::new();
    let mut add = |name, loops, bytes, build, content: &[u8]| -> io::Result<()> {
        for &pages in pages {
            let memory = Memory::of(pages, content)?;
            all.push(Contender {
                name,
                kind: Kind::Candidate,
                bytes,
                build,
                pages,
                at: memory.at().cast(),
                loops,
                memory: Some(memory),
            });
        }
        Ok(())
    };
    let begun = Instant::now();
    let mut table = Table4::new();
    for (prefix, next_hop) in routes {
        table.set(*prefix, Some(*next_hop));
    }
    table.commit().map_err(io::Error::other)?;
    let (build, bytes) = (begun.elapsed(), table.bytes());
    // SAFETY: the table is all there, and nobody changes it.
    let content = unsafe {
        std::slice::from_raw_parts(
            table.memory().as_ptr().cast::<u8>(),
            size_of::<fw_prefix4>(),
        )
    };
    add(XDP, BITMAP, bytes, build, content)?;
    type Build = fn(&[Range]) -> Option<Block>;
    let builds: [(&[(&'static str, Loops)], Build); 4] = [
        (&[("dxr", DXR), ("dxr_flat", DXR_FLAT)], dxr),
        (&[("poptrie", POPTRIE)], poptrie),
        (&[("blocks", BLOCKS)], blocks),
        (&[("dir24", DIR24)], dir24),
    ];
    for (names, build) in builds {
        let begun = Instant::now();
        let Some(block) = build(ranges) else { continue };
        let took = begun.elapsed();
        for (name, loops) in names {
            add(name, *loops, block.bytes().len(), took, block.bytes())?;
        }
    }
    Ok(all)
}
