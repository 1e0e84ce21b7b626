// SPDX-License-Identifier: MIT OR Apache-2.0
//! A lab under load: a generator at the client, a sink at the server that follows every flow.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use freeway_lab::generator::Running;
use freeway_lab::{
    Generator, Lab, Load, MeasureSpec, Options, Proto, Sent, Sink, SinkSpec, Until, measure,
};

use crate::until::LEAST;
use crate::{Moment, build, build_with, dropped, forwarded, paced, until};

/// Of a bench at half the kernel's capacity.
pub const FLOWS: u32 = 1000;
/// The generator's, and with it the router's.
pub const CPU: usize = 0;
/// What rings and queues of a veth hold when a program goes.
pub const IN_FLIGHT: u64 = 600;

/// A lab with assured connections, a sink, and a generator.
pub struct Bench {
    pub lab: Lab,
    pub sink: Sink,
    pub generator: Arc<Generator>,
    pub pps: u64,
}

impl Bench {
    pub fn of_nat() -> Bench {
        let lab = build("nat");
        lab.prime(Proto::Udp, FLOWS, Some(CPU)).unwrap();
        let spec = MeasureSpec {
            flows: FLOWS,
            cpu: CPU,
            ..MeasureSpec::default()
        };
        let kernel = measure(
            &lab,
            &MeasureSpec {
                duration: Duration::from_millis(500),
                ..spec
            },
        )
        .unwrap();
        let capacity = kernel.received as f64 / kernel.elapsed_ns as f64 * 1e9;
        let pps = paced((capacity / 2.0) as u64);
        eprintln!("the kernel forwards {capacity:.0} frames/s; load: {pps}");
        Self::over(lab, FLOWS, pps)
    }

    /// A bench at a fixed rate, for what only has to go on.
    pub fn light(options: Options, flows: u32, pps: u64) -> Bench {
        let lab = build_with("nat", options);
        lab.prime(Proto::Udp, flows, None).unwrap();
        Self::over(lab, flows, pps)
    }

    /// Over connections that are there.
    pub fn over(lab: Lab, flows: u32, pps: u64) -> Bench {
        let sink = Sink::attach(lab.server_port(), SinkSpec::thorough(flows)).unwrap();
        let flows = lab.flows(Proto::Udp, flows, 64);
        let generator = Arc::new(Generator::new(lab.client_port(), &flows).unwrap());
        Bench {
            lab,
            sink,
            generator,
            pps,
        }
    }

    pub fn load(&self) -> Running {
        self.generator
            .start(Load::paced(Until::Stopped, self.pps).on_cpu(CPU))
            .unwrap()
    }

    /// Ends the load; all that can still arrive has arrived.
    pub fn end(&self, load: Running) -> Sent {
        let sent = load.stop().unwrap();
        let mut before = u64::MAX;
        until("silence at the sink", Duration::from_secs(2), || {
            let now = self.sink.counts().unwrap().frames;
            let silent = now == before;
            before = now;
            silent.then_some(())
        });
        sent
    }

    /// No more was lost than that and what ports had no room for, and what arrived is right.
    #[track_caller]
    pub fn check(&self, sent: &Sent, lost_max: u64) {
        let counts = self.sink.counts().unwrap();
        let lost = sent.frames.saturating_sub(counts.frames);
        let dropped = dropped(&self.lab);
        eprintln!(
            "{} frames sent, {lost} lost, {dropped} dropped by ports, {} late",
            sent.frames, counts.reordered
        );
        assert!(
            lost <= lost_max + dropped,
            "{lost} of {} frames are lost, {dropped} by ports",
            sent.frames
        );
        assert!(counts.frames <= sent.frames, "frames arrived twice");
        assert_eq!((counts.bad_ip_checksum, counts.bad_l4_checksum), (0, 0));
    }

    /// Frames that the generator has sent and that the router's kernel has forwarded.
    pub fn progress(&self) -> (u64, u64) {
        (
            self.generator.frames().unwrap(),
            forwarded(self.lab.router()),
        )
    }

    /// The kernel's part of what is sent in the next moment, or until something is.
    #[track_caller]
    pub fn kernel_share(&self, time: Duration) -> f64 {
        const FRAMES_MIN: u64 = 20;
        let before = self.progress();
        let after = until("frames that are sent", LEAST, || {
            thread::sleep(time);
            Some(self.progress()).filter(|after| after.0 - before.0 >= FRAMES_MIN)
        });
        (after.1 - before.1) as f64 / (after.0 - before.0) as f64
    }

    /// The kernel's part of what arrives next, of so many frames that a ring full of others (256) would not show, however late
    /// the sink is.
    #[track_caller]
    pub fn kernel_share_of_arrivals(&self) -> f64 {
        const FRAMES: u64 = 6000;
        const READINGS: usize = 20;
        let arrived = || self.sink.counts().unwrap().frames;
        // the two counters are read one after the other: of several readings that counts between which the fewest arrive
        let now = || {
            let mut best = (u64::MAX, (0, 0));
            for _ in 0..READINGS {
                let before = arrived();
                let forwarded = forwarded(self.lab.router());
                let between = arrived() - before;
                if between < best.0 {
                    best = (between, (before + between / 2, forwarded));
                }
                if between <= FRAMES / 100 {
                    break;
                }
            }
            best.1
        };
        let before = now();
        let after = until("frames at the sink", Duration::from_secs(20), || {
            Some(now()).filter(|after| after.0 - before.0 >= FRAMES)
        });
        (after.1 - before.1) as f64 / (after.0 - before.0) as f64
    }

    /// Waits until nearly all is fast.
    #[track_caller]
    pub fn wait_fast(&self, patience: Duration) -> Duration {
        self.wait_share(patience, |share| share < 0.05)
    }

    /// Waits until all is the kernel's.
    #[track_caller]
    pub fn wait_kernel(&self, patience: Duration) -> Duration {
        self.wait_share(patience, |share| share > 0.98)
    }

    #[track_caller]
    pub fn wait_share(&self, patience: Duration, enough: impl Fn(f64) -> bool) -> Duration {
        let patience = patience.max(LEAST);
        let start = Moment::now();
        let mut share = f64::NAN;
        while start.elapsed() < patience + Duration::from_millis(30) {
            let begin = start.elapsed();
            share = self.kernel_share(Duration::from_millis(30));
            if enough(share) {
                return begin;
            }
        }
        panic!("after {patience:?} the kernel has {:.1} %", share * 100.0);
    }
}
