// SPDX-License-Identifier: MIT OR Apache-2.0
//! The generated skeletons of the BPF programs.

macro_rules! skeleton {
    ($name:ident, $file:literal) => {
        #[allow(
            missing_docs,
            unreachable_pub,
            dead_code,
            clippy::all,
            clippy::unwrap_used
        )]
        #[allow(clippy::expect_used, clippy::panic, missing_debug_implementations)]
        pub(crate) mod $name {
            include!(concat!(env!("OUT_DIR"), "/", $file));
        }
    };
}

skeleton!(fib, "fib.skel.rs");
skeleton!(flowtable, "flowtable.skel.rs");
skeleton!(generator, "generator.skel.rs");
skeleton!(lpm, "lpm.skel.rs");
skeleton!(reflector, "reflector.skel.rs");
skeleton!(sink, "sink.skel.rs");
skeleton!(rate, "rate.skel.rs");
skeleton!(reference, "reference.skel.rs");
skeleton!(stream, "stream.skel.rs");
skeleton!(meter, "meter.skel.rs");
skeleton!(tally, "tally.skel.rs");
skeleton!(xmit, "xmit.skel.rs");
