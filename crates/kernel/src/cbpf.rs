// SPDX-License-Identifier: MIT OR Apache-2.0
//! Runs a classic BPF socket filter over a frame, as `bpf_prog_run` would (`bpf_convert_filter`), or over what is known of
//! frames.

mod bits;
mod machine;
mod program;
mod sketch;

use machine::{L2_HEADER, Machine, Next};
pub use program::{Ancillary, Instruction};
pub use sketch::Sketch;

/// Steps until a filter counts as taking what may meet it: as many as a filter may have instructions (BPF_MAXINSNS), twice.
const STEPS_MAX: u32 = 2 * 4096;

/// How many bytes of the frame the filter accepts; 0 rejects it. `None` for a filter or an ancillary load that is
/// not understood: take it as accepting.
pub fn run(filter: &[Instruction], frame: &[u8], ancillary: Ancillary) -> Option<u32> {
    let mut machine = Machine::of_frame(frame, ancillary);
    let mut at = 0usize;
    // Jumps only lead forward, so a filter ends after at most its length.
    loop {
        let instruction = filter.get(at)?;
        at += 1;
        match machine.step(*instruction)? {
            Next::Here => {}
            Next::Skip(count) => at = at.checked_add(count as usize)?,
            Next::Either(_) => return None,
            Next::Return(accepted) => return accepted.exact(),
        }
    }
}

/// Whether the filter accepts anything of some frame that looks so, whatever is not known of it: of what depends on that,
/// both ways are gone. What is not understood, or takes too long, counts as accepting. `cut` does not matter.
pub fn may_accept(filter: &[Instruction], sketch: &Sketch, ancillary: Ancillary) -> bool {
    let mut ways = vec![(0usize, Machine::of_sketch(sketch, ancillary))];
    let mut steps = 0;
    while let Some((mut at, mut machine)) = ways.pop() {
        loop {
            steps += 1;
            let Some(instruction) = filter.get(at).filter(|_| steps <= STEPS_MAX) else {
                return true;
            };
            at += 1;
            match machine.step(*instruction) {
                None => return true,
                Some(Next::Here) => {}
                Some(Next::Skip(count)) => at = at.saturating_add(count as usize),
                Some(Next::Either([one, other])) => {
                    ways.push((at + usize::from(other), machine.clone()));
                    at += usize::from(one);
                }
                Some(Next::Return(accepted)) if accepted.most() > 0 => return true,
                Some(Next::Return(_)) => break,
            }
        }
    }
    false
}

/// Whether [`run`] understands all of a filter, on whatever way it takes, where the interface is not known: each step alone,
/// jumps that stay inside, and a return at the end.
pub fn is_whole(filter: &[Instruction]) -> bool {
    let inside = |at: usize, skip: u32| {
        let to = (at + 1).checked_add(skip as usize);
        to.is_some_and(|to| to < filter.len())
    };
    let whole = |(at, of): (usize, &Instruction)| {
        let stays = match (of.code, of.code & 0x07) {
            (0x05, _) => inside(at, of.k),
            (_, 0x05) => inside(at, of.jt.into()) && inside(at, of.jf.into()),
            _ => true,
        };
        let mut machine = Machine::of_frame(&[0; L2_HEADER], Ancillary::default());
        stays && machine.step(*of).is_some()
    };
    let returns = filter.last().is_some_and(|last| last.code & 0x07 == 0x06);
    returns && filter.iter().enumerate().all(whole)
}
