// SPDX-License-Identifier: MIT OR Apache-2.0
//! Routers that are built at the same time.

use std::thread;

use freeway_console::Stop;

/// Builds each in a thread of its own, for most of the time is the wait for links to be up. Processes end with the thread that
/// starts them.
pub fn at_once<I: Send, T: Send, const N: usize>(
    of: [I; N],
    build: impl Fn(I) -> Result<T, Stop> + Sync,
) -> Result<[T; N], Stop> {
    let build = &build;
    let built = thread::scope(|scope| {
        let threads = of.map(|one| scope.spawn(move || build(one)));
        threads.map(|thread| {
            let failed = |_| Stop::failure("a thread that builds a router ended badly");
            thread.join().map_err(failed)?
        })
    });
    let built: Vec<T> = built.into_iter().collect::<Result<_, _>>()?;
    let lost = |_| Stop::failure("a router was lost");
    built.try_into().map_err(lost)
}
