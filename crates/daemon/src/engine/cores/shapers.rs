// SPDX-License-Identifier: MIT OR Apache-2.0
//! Qdiscs of a port as a scheduler of the engine's, where it has the same: htb, tbf, prio, and plain queues in them
//! (net/sched/sch_htb.c, sch_tbf.c, sch_prio.c).

use std::sync::Arc;

use freeway_api::schedule::{
    CLASSES_MAX, Class, DEPTH_MAX, LEAVES_MAX, RATE_ANY, Rules, Schedule, ScheduleConfig,
};
use freeway_cmm::Classes;
use freeway_kernel::model::{Class as KernelClass, Filter, Link, Qdisc, QdiscDetail, ShaperRate};

use super::schedules::Wanted;

/// What figures are from that no qdisc has.
pub(super) const CONFIGURED: &str = "configuration";
/// Octets of one that an MTU of 1500 allows, with tags.
const LONG_FRAME: u32 = 1600;
const TC_ROOT: u32 = u32::MAX;
const TC_INGRESS: u32 = 0xffff_fff1;
const MAJOR: u32 = 0xffff_0000;
/// ETH_P_ALL
const ALL: u16 = 0x0003;
/// Leaves have priorities of 0 to 7 (`TC_HTB_NUMPRIO`).
const PRIORITIES: u32 = 8;
/// Ethernet and two tags, beside the MTU.
const L2_ROOM: u64 = 22;

/// What hangs on a port.
pub struct Hung<'a> {
    pub link: &'a Link,
    pub qdiscs: Vec<&'a Qdisc>,
    pub classes: Vec<&'a KernelClass>,
    /// Of its qdiscs.
    pub filters: Vec<&'a Filter>,
}

/// As tc writes it.
fn handle(of: u32) -> String {
    match of & !MAJOR {
        0 => format!("{:x}:", of >> 16),
        minor => format!("{:x}:{minor:x}", of >> 16),
    }
}

/// A scheduler for a port.
pub(super) fn wanted(kind: String, port: u32, classes: Vec<Class>, rules: Classes) -> Wanted {
    Wanted {
        kind,
        schedule: Schedule {
            port,
            classes,
            other: rules.other,
            rules: Rules {
                past: rules.past.clone(),
                priorities: rules.priorities.clone(),
                marks: rules.marks.clone(),
                dscps: rules.dscps.clone(),
                priomap: rules.priomap.clone(),
            },
        },
        classes: Arc::new(rules),
    }
}

/// As `[engine.port.NAME.schedule]` says.
pub fn configured(port: u32, config: &ScheduleConfig) -> Wanted {
    let root = Class {
        name: "all".into(),
        ..rated(burst_of(config.rate_kbit))
    };
    let root = Class {
        ceiling: root.rate,
        ceiling_burst_ns: root.burst_ns,
        ..root
    };
    let mut classes = vec![root];
    let mut rules = Classes::default();
    for (name, class) in &config.class {
        let number = classes.len() as u16;
        let ceiling = burst_of(class.ceiling_kbit.unwrap_or(config.rate_kbit));
        let own = class.rate_kbit.map_or_else(ShaperRate::default, burst_of);
        classes.push(Class {
            name: name.clone(),
            id: number.into(),
            above: Some(0),
            priority: class.priority,
            quantum: class.weight * LONG_FRAME,
            limit: class.queue,
            limit_bytes: u64::MAX,
            ceiling: ceiling.rate,
            ceiling_burst_ns: ceiling.burst_ns,
            ..rated(own)
        });
        let dscps = class.dscp.iter().map(|dscp| (*dscp, number));
        rules.dscps.extend(dscps);
        let marks = class.mark.iter().map(|mark| (*mark, u32::MAX, number));
        rules.marks.extend(marks);
        if config.default_class() == Some(name) {
            rules.other = Some(number);
        }
    }
    wanted(CONFIGURED.into(), port, classes, rules)
}

/// A rate, and what is sent at once: a worker may look a little late, and a frame is sent as a whole.
fn burst_of(rate_kbit: u64) -> ShaperRate {
    let rate = rate_kbit * 125;
    ShaperRate {
        rate,
        burst_ns: 200_000 + u64::from(LONG_FRAME) * 1_000_000_000 / rate,
        ..ShaperRate::default()
    }
}

/// How long a leaf's queue is: frames, octets.
type Limit = (u32, u64);

impl Hung<'_> {
    /// The scheduler; an error is why the engine has not the same.
    pub fn scheduler(&self) -> Result<Wanted, String> {
        let root = self.below(TC_ROOT).ok_or("it has no root qdisc")?;
        let foreign = self.qdiscs.iter().find(|qdisc| {
            let known = |kind: &str| ["htb", "tbf", "prio", "pfifo", "bfifo"].contains(&kind);
            qdisc.parent != TC_INGRESS && !known(&qdisc.kind)
        });
        if let Some(qdisc) = foreign {
            return Err(format!("the engine has no {}", qdisc.kind));
        }
        let mut built = Built::default();
        match &root.detail {
            QdiscDetail::Htb { default, offloaded } => {
                if *offloaded {
                    return Err("its htb is offloaded to the device".into());
                }
                self.htb(root, root.handle | default, &mut built)?;
            }
            QdiscDetail::Tbf { .. } => self.tbf(root, &mut built)?,
            QdiscDetail::Prio { .. } => self.prio(root, None, &mut built)?,
            _ => return Err(format!("the engine has no {}", root.kind)),
        }
        if built.classes.len() > CLASSES_MAX {
            return Err(format!("the engine has {CLASSES_MAX} classes at a port"));
        }
        let wanted = wanted(
            root.kind.clone(),
            self.link.ifindex,
            built.classes,
            Classes {
                other: built.other,
                ..built.rules
            },
        );
        if wanted.schedule.leaves().count() > LEAVES_MAX {
            return Err(format!("the engine has {LEAVES_MAX} leaves at a port"));
        }
        Ok(wanted)
    }

    /// The qdisc in a class, or at the root.
    fn below(&self, parent: u32) -> Option<&Qdisc> {
        let mut all = self.qdiscs.iter();
        all.find(|qdisc| qdisc.parent == parent).copied()
    }

    /// The queue in a class: of a qdisc there, or the default one, which is not shown.
    fn limit(&self, class: u32, default: Limit) -> Result<Limit, String> {
        match self.below(class).map(|qdisc| &qdisc.detail) {
            None => Ok(default),
            Some(QdiscDetail::Pfifo(frames)) => Ok((*frames, u64::MAX)),
            Some(QdiscDetail::Bfifo(bytes)) => Ok((u32::MAX, (*bytes).into())),
            Some(_) => Err(format!("in class {} is more than a queue", handle(class))),
        }
    }

    fn default_limit(&self) -> Limit {
        (self.link.tx_queue_len.max(1), u64::MAX)
    }

    /// Filters by mark, with the class that each leads to; an error names one that the engine has not.
    fn marks(&self, qdisc: &Qdisc) -> Result<Vec<(u32, u32, u32)>, String> {
        let mut filters: Vec<_> = self.filters.clone();
        filters.sort_by_key(|filter| (filter.priority, filter.handle));
        let one = |filter: &&Filter| {
            let (mask, class) = filter.mark.ok_or_else(|| {
                format!("the engine does not classify by {} filters", filter.kind)
            })?;
            if filter.parent != qdisc.handle || filter.chain != 0 || filter.protocol != ALL {
                return Err(format!(
                    "an fw filter is not of all packets of {} (protocol all)",
                    handle(qdisc.handle)
                ));
            }
            let class = if class & MAJOR == 0 {
                qdisc.handle | class
            } else {
                class
            };
            Ok((filter.handle, mask, class))
        };
        filters.iter().map(one).collect()
    }

    fn htb(&self, qdisc: &Qdisc, default: u32, built: &mut Built) -> Result<(), String> {
        let marks = self.marks(qdisc)?;
        self.htb_below(TC_ROOT, (None, 0), built)?;
        let inner = |class: &KernelClass| self.classes.iter().any(|c| c.parent == class.handle);
        let leaf = |of: u32| {
            let place = built.classes.iter().position(|class| class.id == of);
            let leaf = self.classes.iter().any(|c| c.handle == of && !inner(c));
            place.filter(|_| leaf).map(|place| place as u16)
        };
        built.other = leaf(default);
        built.rules.past.push(qdisc.handle);
        for class in &self.classes {
            match (leaf(class.handle), built.other) {
                (Some(number), _) => built.rules.priorities.push((class.handle, number)),
                // no filters there
                (None, Some(other)) => built.rules.priorities.push((class.handle, other)),
                (None, None) => built.rules.past.push(class.handle),
            }
        }
        for (mark, mask, class) in marks {
            let number = leaf(class)
                .ok_or_else(|| format!("a filter leads to {}, which is no leaf", handle(class)))?;
            built.rules.marks.push((mark, mask, number));
        }
        Ok(())
    }

    /// Classes below another one, in the order of their turns.
    fn htb_below(
        &self,
        parent: u32,
        (above, depth): (Option<u16>, usize),
        built: &mut Built,
    ) -> Result<(), String> {
        if depth >= DEPTH_MAX {
            return Err(format!("more than {DEPTH_MAX} classes one above the other"));
        }
        let mut below: Vec<_> = self.classes.iter().filter(|c| c.parent == parent).collect();
        below.sort_by_key(|class| class.handle);
        for class in below {
            let (limit, limit_bytes) = self.limit(class.handle, self.default_limit())?;
            if class.rate.atm || class.ceiling.atm {
                return Err("it counts cells of ATM".into());
            }
            if (class.rate.overhead, class.rate.least)
                != (class.ceiling.overhead, class.ceiling.least)
            {
                return Err("rate and ceiling count lengths in different ways".into());
            }
            let number = built.add(Class {
                id: class.handle,
                above,
                priority: class.priority.min(PRIORITIES - 1) as u16,
                quantum: class.quantum.max(1),
                limit,
                limit_bytes,
                ceiling: class.ceiling.rate,
                ceiling_burst_ns: class.ceiling.burst_ns,
                ..rated(class.rate)
            });
            self.htb_below(class.handle, (Some(number), depth + 1), built)?;
        }
        Ok(())
    }

    fn tbf(&self, qdisc: &Qdisc, built: &mut Built) -> Result<(), String> {
        let QdiscDetail::Tbf {
            rate,
            peak,
            limit_bytes,
        } = &qdisc.detail
        else {
            return Err("it has no rate".into());
        };
        if !self.filters.is_empty() {
            return Err("the engine does not classify by its filters".into());
        }
        if rate.atm {
            return Err("it counts cells of ATM".into());
        }
        // the kernel drops what is longer
        let most = |rate: &ShaperRate| {
            let octets = u128::from(rate.burst_ns) * u128::from(rate.rate) / 1_000_000_000;
            octets >= u128::from(u64::from(self.link.mtu) + L2_ROOM)
        };
        if !most(rate) || !peak.as_ref().is_none_or(most) {
            return Err("a frame of the MTU is longer than its burst".into());
        }
        let inner = self
            .qdiscs
            .iter()
            .find(|below| below.parent & MAJOR == qdisc.handle);
        let limit = match inner {
            Some(below) if matches!(below.detail, QdiscDetail::Prio { .. }) => self.default_limit(),
            Some(below) => self.limit(below.parent, self.default_limit())?,
            None => (u32::MAX, (*limit_bytes).into()),
        };
        let ceiling = peak.unwrap_or(*rate);
        let number = built.add(Class {
            id: qdisc.handle,
            quantum: u32::MAX,
            limit: limit.0,
            limit_bytes: limit.1,
            ceiling: ceiling.rate,
            ceiling_burst_ns: ceiling.burst_ns,
            ..rated(*rate)
        });
        built.other = Some(number);
        match inner.filter(|below| matches!(below.detail, QdiscDetail::Prio { .. })) {
            Some(below) => self.prio(below, Some(number), built),
            None => Ok(()),
        }
    }

    fn prio(&self, qdisc: &Qdisc, above: Option<u16>, built: &mut Built) -> Result<(), String> {
        let QdiscDetail::Prio { bands, priomap } = &qdisc.detail else {
            return Err("it has no bands".into());
        };
        if *bands > PRIORITIES {
            return Err(format!("the engine has {PRIORITIES} priorities"));
        }
        let marks = self.marks(qdisc)?;
        let above = above.unwrap_or_else(|| {
            built.add(Class {
                id: qdisc.handle,
                rate: RATE_ANY,
                ceiling: RATE_ANY,
                ..Class::default()
            })
        });
        let first = built.classes.len() as u16;
        for band in 0..*bands {
            let id = qdisc.handle | (band + 1);
            let (limit, limit_bytes) = self.limit(id, self.default_limit())?;
            let number = built.add(Class {
                id,
                above: Some(above),
                priority: band as u16,
                quantum: u32::MAX,
                limit,
                limit_bytes,
                ceiling: RATE_ANY,
                ..Class::default()
            });
            built.rules.priorities.push((id, number));
        }
        let band = |number: u32| (number < *bands).then(|| first + number as u16);
        let map = priomap.iter().map(|to| band((*to).into()));
        built.rules.priomap = map
            .collect::<Option<_>>()
            .ok_or("its priomap names no band")?;
        built.other = built.rules.priomap.first().copied();
        for (mark, mask, class) in marks {
            let number = (class & !MAJOR).checked_sub(1).and_then(band);
            let number = number.filter(|_| class & MAJOR == qdisc.handle);
            let number = number
                .ok_or_else(|| format!("a filter leads to {}, which is no band", handle(class)))?;
            built.rules.marks.push((mark, mask, number));
        }
        Ok(())
    }
}

/// What has been made of the qdiscs until now.
#[derive(Default)]
struct Built {
    classes: Vec<Class>,
    rules: Classes,
    other: Option<u16>,
}

impl Built {
    fn add(&mut self, class: Class) -> u16 {
        self.classes.push(Class {
            name: handle(class.id),
            ..class
        });
        (self.classes.len() - 1) as u16
    }
}

fn rated(rate: ShaperRate) -> Class {
    Class {
        rate: rate.rate,
        burst_ns: rate.burst_ns,
        overhead: rate.overhead.into(),
        least: rate.least.into(),
        ..Class::default()
    }
}

#[cfg(test)]
mod tests {
    use freeway_api::schedule::ClassConfig;

    use super::*;

    const MBIT: u64 = 125_000;

    fn qdisc(parent: u32, handle: u32, kind: &str, detail: QdiscDetail) -> Qdisc {
        Qdisc {
            ifindex: 3,
            kind: kind.into(),
            handle,
            parent,
            ingress_block: None,
            egress_block: None,
            detail,
        }
    }

    fn rate(rate: u64) -> ShaperRate {
        ShaperRate {
            rate,
            burst_ns: 2_000_000_000_000 / rate,
            ..ShaperRate::default()
        }
    }

    fn class(handle: u32, parent: u32, own: u64, ceiling: u64) -> KernelClass {
        KernelClass {
            ifindex: 3,
            kind: "htb".into(),
            handle,
            parent,
            rate: rate(own * MBIT),
            ceiling: rate(ceiling * MBIT),
            quantum: 1500,
            priority: 1,
            ..KernelClass::default()
        }
    }

    fn mark(handle: u32, class: u32) -> Filter {
        Filter {
            ifindex: 3,
            parent: 0x1_0000,
            kind: "fw".into(),
            chain: 0,
            priority: 1,
            protocol: ALL,
            handle,
            name: None,
            prog_id: None,
            mark: Some((u32::MAX, class)),
        }
    }

    fn scheduler(
        qdiscs: &[Qdisc],
        classes: &[KernelClass],
        filters: &[Filter],
    ) -> Result<Wanted, String> {
        let link = Link {
            ifindex: 3,
            mtu: 1500,
            tx_queue_len: 77,
            ..Link::default()
        };
        Hung {
            link: &link,
            qdiscs: qdiscs.iter().collect(),
            classes: classes.iter().collect(),
            filters: filters.iter().collect(),
        }
        .scheduler()
    }

    fn htb(default: u32) -> Qdisc {
        let detail = QdiscDetail::Htb {
            default,
            offloaded: false,
        };
        qdisc(TC_ROOT, 0x1_0000, "htb", detail)
    }

    fn tree() -> Vec<KernelClass> {
        vec![
            class(0x1_0020, 0x1_0001, 20, 100),
            class(0x1_0001, TC_ROOT, 100, 100),
            class(0x1_0010, 0x1_0001, 10, 30),
        ]
    }

    #[test]
    fn classes_are_as_configured() {
        let config = ScheduleConfig {
            rate_kbit: 8000,
            default: Some("rest".into()),
            class: [
                ("rest", 7, None, vec![]),
                ("voice", 0, Some(1000), vec![46]),
            ]
            .map(|(name, priority, rate_kbit, dscp)| {
                let class = ClassConfig {
                    priority,
                    rate_kbit,
                    dscp,
                    ..ClassConfig::default()
                };
                (name.to_owned(), class)
            })
            .into(),
        };
        assert_eq!(config.check("t"), Ok(()));
        let wanted = configured(3, &config);
        let classes = &wanted.schedule.classes;
        assert_eq!((classes[0].rate, classes[0].ceiling), (MBIT * 8, MBIT * 8));
        assert_eq!((classes[1].rate, classes[2].rate), (0, MBIT));
        assert_eq!(classes[2].ceiling, MBIT * 8);
        assert_eq!(wanted.classes.of(6, 0, 46 << 2), Some(2));
        assert_eq!(wanted.classes.of(6, 0, 0), Some(1));
    }

    #[test]
    fn htb_is_taken_over() {
        let fifo = qdisc(0x1_0010, 0x10_0000, "pfifo", QdiscDetail::Pfifo(9));
        let wanted = scheduler(&[htb(0x20), fifo], &tree(), &[mark(6, 0x1_0010)]).unwrap();
        let classes = &wanted.schedule.classes;
        let names: Vec<_> = classes.iter().map(|class| class.name.as_str()).collect();
        assert_eq!(names, ["1:1", "1:10", "1:20"]);
        assert_eq!(classes[1].above, Some(0));
        assert_eq!(
            (classes[1].rate, classes[1].ceiling),
            (10 * MBIT, 30 * MBIT)
        );
        assert_eq!((classes[1].limit, classes[2].limit), (9, 77));
        assert_eq!(wanted.schedule.other, Some(2));
        let rules = &wanted.classes;
        assert_eq!(rules.of(0x1_0010, 0, 0), Some(1));
        assert_eq!(rules.of(0, 6, 0), Some(1));
        // htb_classify(): an inner class has its own filters, of which there are none
        assert_eq!(rules.of(0x1_0001, 6, 0), Some(2));
        assert_eq!(rules.of(0x1_0000, 0, 0), None);
        assert_eq!(rules.of(2, 7, 0), Some(2));
        let direct = scheduler(&[htb(0)], &tree(), &[]).unwrap();
        assert_eq!(direct.classes.of(2, 7, 0), None);
        assert_eq!(direct.classes.of(0x1_0020, 7, 0), Some(2));
    }

    #[test]
    fn tbf_and_prio_are_taken_over() {
        let detail = QdiscDetail::Tbf {
            rate: rate(10 * MBIT),
            peak: None,
            limit_bytes: 30_000,
        };
        let tbf = qdisc(TC_ROOT, 0x8001_0000, "tbf", detail);
        let wanted = scheduler(std::slice::from_ref(&tbf), &[], &[]).unwrap();
        assert_eq!(wanted.schedule.classes[0].name, "8001:");
        assert_eq!(wanted.schedule.classes[0].limit_bytes, 30_000);
        assert_eq!(wanted.classes.of(6, 6, 0), Some(0));
        let priomap = [1, 2, 2, 2, 1, 2, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        let detail = QdiscDetail::Prio { bands: 3, priomap };
        let within = qdisc(0x8001_0001, 0x2_0000, "prio", detail.clone());
        let wanted = scheduler(&[tbf, within], &[], &[]).unwrap();
        let classes = &wanted.schedule.classes;
        assert_eq!(classes.len(), 4);
        assert_eq!((classes[1].rate, classes[1].priority), (0, 0));
        assert_eq!(wanted.classes.of(6, 0, 0), Some(1));
        assert_eq!(wanted.classes.of(0x2_0003, 0, 0), Some(3));
        let alone = qdisc(TC_ROOT, 0x2_0000, "prio", detail);
        let wanted = scheduler(&[alone], &[], &[]).unwrap();
        assert_eq!(wanted.schedule.classes[0].rate, RATE_ANY);
        assert_eq!(wanted.classes.of(0, 0, 0), Some(2));
    }

    #[test]
    fn what_the_engine_has_not_is_named() {
        let refused =
            |qdiscs: &[Qdisc], classes: &[KernelClass], filters: &[Filter], words: &str| {
                let error = scheduler(qdiscs, classes, filters).unwrap_err();
                assert!(error.contains(words), "{error}");
            };
        let other = |parent, kind: &str| qdisc(parent, 0x5_0000, kind, QdiscDetail::Other);
        refused(&[other(TC_ROOT, "cake")], &[], &[], "no cake");
        refused(
            &[htb(0x20), other(0x1_0010, "fq_codel")],
            &tree(),
            &[],
            "no fq_codel",
        );
        let u32_filter = Filter {
            kind: "u32".into(),
            mark: None,
            ..mark(6, 0x1_0010)
        };
        refused(&[htb(0x20)], &tree(), &[u32_filter], "u32 filters");
        let of_ip = Filter {
            protocol: 0x0800,
            ..mark(6, 0x1_0010)
        };
        refused(&[htb(0x20)], &tree(), &[of_ip], "protocol all");
        refused(
            &[htb(0x20)],
            &tree(),
            &[mark(6, 0x1_0001)],
            "1:1, which is no leaf",
        );
        let detail = QdiscDetail::Tbf {
            rate: ShaperRate {
                burst_ns: 1000,
                ..rate(MBIT)
            },
            peak: None,
            limit_bytes: 30_000,
        };
        let tbf = qdisc(TC_ROOT, 0x8001_0000, "tbf", detail);
        refused(&[tbf], &[], &[], "longer than its burst");
    }
}
