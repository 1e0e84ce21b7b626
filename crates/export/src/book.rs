// SPDX-License-Identifier: MIT OR Apache-2.0
//! The accounts of all connections.
//!
//! A connection's packets are those that conntrack counted and those that the fast path forwarded: no packet is both, for
//! what goes through the kernel to confirm a flow the data plane does not count. Both counts only grow, and what records
//! told of each is kept, so a record has what was added since, whenever either was read.
//!
//! A flow that left the table may count for a moment longer, so a connection whose end the kernel told waits for the places
//! of its flows to be given back. A flow that is learned anew has another place, and counts from nothing.

use std::collections::HashMap;

use freeway_kernel::model::{Connection, TcpState, Tuple};

use crate::account::{Account, Direction, Ended, FastCounts};
use crate::record::{Counts, EndReason, Record};
use crate::round::Round;

/// Rounds in which the kernel has to lack a connection before its end counts as missed: a dump may leave out what moves.
const MISSED: u8 = 2;

/// A record is due so much earlier: a connection is not looked at at the same moment of each round.
const SLACK_MS: u64 = 500;

/// When records are due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// A connection that goes on is told of so often, milliseconds.
    pub active_ms: u64,
    /// One of which nothing passed for so long is told of.
    pub idle_ms: u64,
}

/// A connection by what conntrack calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// Original tuple.
    pub orig: Tuple,
    /// Zone.
    pub zone: u16,
}

/// What became of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Records that were due.
    pub records: u64,
    /// Connections that ended without counters of the kernel: it counted nothing when they began.
    pub uncounted: u64,
    /// Connections whose end the kernel did not tell, or told when nobody could listen.
    pub missed: u64,
}

/// The flow at a place of the table.
#[derive(Clone, Copy, Debug)]
struct Owner {
    /// Its account; `NONE`: it has none.
    account: u32,
    direction: Direction,
    /// Octets of the link layer of each frame.
    link_octets: u16,
}

const NONE: u32 = u32::MAX;
const NOBODY: Owner = Owner {
    account: NONE,
    direction: Direction::Original,
    link_octets: 0,
};

/// The accounts.
#[derive(Debug)]
pub struct Book {
    times: Times,
    accounts: Vec<Option<Account>>,
    free: Vec<u32>,
    by_key: HashMap<Key, u32>,
    /// By flow index.
    owners: Vec<Owner>,
    round: Round,
    totals: Totals,
    /// Connections that end may be older than the book.
    settling: bool,
}

impl Book {
    /// Without any. What is told of connections until [`Book::settled`] is what was there before.
    #[must_use]
    pub fn new(times: Times) -> Self {
        Self {
            times,
            accounts: Vec::new(),
            free: Vec::new(),
            by_key: HashMap::new(),
            owners: Vec::new(),
            round: Round::default(),
            totals: Totals::default(),
            settling: true,
        }
    }

    /// From now on a connection that nothing is known of is a new one.
    pub fn settled(&mut self) {
        self.settling = false;
    }

    /// Other times hold from now on.
    pub fn set_times(&mut self, times: Times) {
        self.times = times;
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.accounts.len() - self.free.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What became of connections.
    #[must_use]
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The fast path has a flow of a connection at this index of its table, which counts from nothing. `ports`: where it
    /// comes in and where it leaves.
    pub fn entered(
        &mut self,
        index: u32,
        key: Key,
        direction: Direction,
        link_octets: u16,
        [port_in, port_out]: [u32; 2],
        now_ms: u64,
    ) {
        let number = self.account(key, now_ms);
        let place = index as usize;
        if self.owners.len() <= place {
            self.owners.resize(place + 1, NOBODY);
        }
        self.owners[place] = Owner {
            account: number,
            direction,
            link_octets,
        };
        if let Some(account) = self.at(number) {
            let fast = account.fast.get_or_insert_default();
            fast.live.push(index);
            fast.ports = match direction {
                Direction::Original => [port_in, port_out],
                Direction::Reply => [port_out, port_in],
            };
        }
    }

    /// What a flow has counted so far is not told: it was there before anybody was to be told.
    pub fn disregard(&mut self, index: u32, counted: FastCounts) {
        let Some(owner) = self.owner(index) else {
            return;
        };
        let counts = counted.counts(owner.link_octets);
        if let Some(fast) = self.at(owner.account).and_then(|a| a.fast.as_mut()) {
            fast.told[owner.direction as usize].add(counts);
        }
    }

    /// The place of a flow is given back: it has counted all that it will.
    pub fn released(&mut self, index: u32, counted: FastCounts, emit: &mut Vec<Record>) {
        let Some(owner) = self.owner(index) else {
            return;
        };
        self.owners[index as usize] = NOBODY;
        let counts = counted.counts(owner.link_octets);
        let Some(account) = self.at(owner.account) else {
            return;
        };
        if let Some(fast) = &mut account.fast {
            fast.live.retain(|live| *live != index);
            fast.retired[owner.direction as usize].add(counts);
        }
        if account.ended.is_some() && !account.is_live() {
            self.close(owner.account, emit);
        }
    }

    /// The kernel has forgotten a connection, and counted this.
    pub fn destroyed(&mut self, connection: &Connection, now_ms: u64, emit: &mut Vec<Record>) {
        self.round.destroyed(connection.id);
        let kernel = counts_of(connection);
        self.totals.uncounted += u64::from(kernel.is_none());
        let key = key_of(connection);
        let known = self.by_key.get(&key).copied();
        if known.is_none() && (kernel.is_none() || self.settling) {
            return;
        }
        let number = known.unwrap_or_else(|| self.account(key, now_ms));
        self.by_key.remove(&key);
        let Some(account) = self.at(number) else {
            return;
        };
        identify(account, connection, kernel);
        let kernel = kernel.unwrap_or(account.told);
        account.ended = Some(Box::new(Ended {
            kernel,
            end_ms: ended_ms(connection).unwrap_or(now_ms),
            reason: reason_of(connection),
        }));
        if !account.is_live() {
            self.close(number, emit);
        }
    }

    /// A connection as the kernel has it, in a round of looks. `read`: what the flow at an index has counted.
    pub fn seen(
        &mut self,
        connection: &Connection,
        read: impl Fn(u32) -> FastCounts,
        now_ms: u64,
        emit: &mut Vec<Record>,
    ) {
        if self.round.is_gone(connection.id) {
            return;
        }
        let times = self.times;
        let forced = self.round.forces();
        let Some((number, kernel)) = self.look(connection, now_ms) else {
            return;
        };
        let fast = self.fast(number, read);
        let Some(account) = self.at(number) else {
            return;
        };
        // the clock may have been set back
        account.told_ms = account.told_ms.min(now_ms);
        account.changed_ms = account.changed_ms.min(now_ms);
        account.start_ms = account.start_ms.min(now_ms);
        let packets = [kernel, fast].iter().flatten().map(|c| c.packets).sum();
        if account.packets != packets {
            account.packets = packets;
            account.changed_ms = now_ms;
        }
        let due = if forced {
            Some(EndReason::Forced)
        } else if now_ms.saturating_sub(account.told_ms) + SLACK_MS >= times.active_ms {
            Some(EndReason::Active)
        } else if now_ms.saturating_sub(account.changed_ms) + SLACK_MS >= times.idle_ms {
            Some(EndReason::Idle)
        } else {
            None
        };
        let record = due.and_then(|reason| account.tell(kernel, fast, (now_ms, reason)));
        self.totals.records += u64::from(record.is_some());
        emit.extend(record);
    }

    /// A connection that was there before anybody was to be told: what it has counted so far is not.
    pub fn known(&mut self, connection: &Connection, now_ms: u64) {
        if let Some((number, kernel)) = self.look(connection, now_ms)
            && let Some(account) = self.at(number)
        {
            account.told = kernel;
            account.known = true;
            account.start_ms = now_ms;
        }
    }

    /// The accounts of a connection that the kernel has, and its counters.
    fn look(&mut self, connection: &Connection, now_ms: u64) -> Option<(u32, [Counts; 2])> {
        let kernel = counts_of(connection);
        let key = key_of(connection);
        let number = match self.by_key.get(&key) {
            Some(number) => *number,
            // nothing will ever be told of it
            None if kernel.is_none() => return None,
            None => {
                let number = self.account(key, now_ms);
                if let (Some(started), Some(account)) = (started_ms(connection), self.at(number)) {
                    account.told_ms = started.min(now_ms);
                }
                number
            }
        };
        let round = self.round.number();
        let account = self.at(number)?;
        identify(account, connection, kernel);
        (account.round, account.missed) = (round, 0);
        Some((number, kernel.unwrap_or(account.told)))
    }

    /// A round of looks begins. `forced`: each connection is told of.
    pub fn begin_round(&mut self, forced: bool) {
        self.round.begin(forced);
    }

    /// All that the kernel has was seen: the rest is looked at by [`Book::sweep`].
    pub fn end_round(&mut self) {
        self.round.end(self.accounts.len());
    }

    /// Not all that the kernel has could be seen.
    pub fn give_up_round(&mut self) {
        self.round.end(0);
    }

    /// Looks for a number of accounts of which the kernel has nothing; true if there are more.
    pub fn sweep(&mut self, most: usize, emit: &mut Vec<Record>) -> bool {
        let round = self.round.number();
        for number in self.round.take(most) {
            let Some(account) = self.at(number as u32) else {
                continue;
            };
            if account.round == round || account.ended.is_some() || account.is_live() {
                continue;
            }
            account.missed += 1;
            if account.missed < MISSED {
                continue;
            }
            account.ended = Some(Box::new(Ended {
                kernel: account.told,
                end_ms: account.changed_ms,
                reason: EndReason::End,
            }));
            let key = Key {
                orig: account.orig,
                zone: account.zone,
            };
            self.by_key.remove(&key);
            self.totals.missed += 1;
            self.close(number as u32, emit);
        }
        self.round.sweeps()
    }

    /// Nothing more will be told: flows of connections that have ended count no longer.
    pub fn finish(&mut self, read: impl Fn(u32) -> FastCounts, emit: &mut Vec<Record>) {
        for index in 0..self.owners.len() as u32 {
            let waits = |account: &Account| account.ended.is_some();
            let owner = self.owner(index);
            if owner.is_some_and(|owner| self.at(owner.account).is_some_and(|a| waits(a))) {
                self.released(index, read(index), emit);
            }
        }
    }

    /// What the flows of an account have counted, those that left included.
    fn fast(&self, number: u32, read: impl Fn(u32) -> FastCounts) -> [Counts; 2] {
        let account = self.accounts.get(number as usize).and_then(Option::as_ref);
        let Some(fast) = account.and_then(|account| account.fast.as_ref()) else {
            return Default::default();
        };
        let mut sums = fast.retired;
        for index in &fast.live {
            if let Some(owner) = self.owner(*index) {
                sums[owner.direction as usize].add(read(*index).counts(owner.link_octets));
            }
        }
        sums
    }

    /// Writes the last record of an account whose flows are no more.
    fn close(&mut self, number: u32, emit: &mut Vec<Record>) {
        let Some(mut account) = self
            .accounts
            .get_mut(number as usize)
            .and_then(Option::take)
        else {
            return;
        };
        self.free.push(number);
        let fast = account.fast.as_ref().map(|fast| fast.retired);
        if let Some(ended) = account.ended.take() {
            let how = (ended.end_ms, ended.reason);
            let record = account.tell(ended.kernel, fast.unwrap_or_default(), how);
            self.totals.records += u64::from(record.is_some());
            emit.extend(record);
        }
    }

    /// The account of a connection, old or new.
    fn account(&mut self, key: Key, now_ms: u64) -> u32 {
        if let Some(number) = self.by_key.get(&key) {
            return *number;
        }
        let account = Account::new(key.orig, key.zone, self.round.number(), now_ms);
        let number = match self.free.pop() {
            Some(number) => {
                self.accounts[number as usize] = Some(account);
                number
            }
            None => {
                self.accounts.push(Some(account));
                (self.accounts.len() - 1) as u32
            }
        };
        self.by_key.insert(key, number);
        number
    }

    fn at(&mut self, number: u32) -> Option<&mut Account> {
        self.accounts.get_mut(number as usize)?.as_mut()
    }

    fn owner(&self, index: u32) -> Option<Owner> {
        let owner = self.owners.get(index as usize).copied();
        owner.filter(|owner| owner.account != NONE)
    }
}

/// The kernel's words on a connection. Counters that are less than they were are another connection's, whose predecessor
/// ended unseen, or somebody has set them back: they count from nothing.
fn identify(account: &mut Account, connection: &Connection, kernel: Option<[Counts; 2]>) {
    let other = account.id != 0 && account.id != connection.id;
    let less = kernel.is_some_and(|kernel| {
        let mut pairs = kernel.iter().zip(&account.told);
        pairs.any(|(now, told)| now.packets < told.packets)
    });
    if other || less {
        account.told = Default::default();
    }
    account.id = connection.id;
    account.reply = connection.reply;
    if let Some(started) = started_ms(connection).filter(|_| !account.known) {
        account.start_ms = started.min(account.start_ms);
    }
}

fn key_of(connection: &Connection) -> Key {
    Key {
        orig: connection.orig,
        zone: match connection.zone {
            0 => connection.zone_orig.unwrap_or(0),
            zone => zone,
        },
    }
}

/// `None`: the kernel does not count it.
fn counts_of(connection: &Connection) -> Option<[Counts; 2]> {
    let both = [connection.counters_orig, connection.counters_reply];
    let counts = both.map(|counters| {
        counters.map(|counters| Counts {
            packets: counters.packets,
            octets: counters.bytes,
        })
    });
    match counts {
        [Some(orig), Some(reply)] => Some([orig, reply]),
        _ => None,
    }
}

fn started_ms(connection: &Connection) -> Option<u64> {
    connection.start_ns.map(|ns| ns / 1_000_000)
}

fn ended_ms(connection: &Connection) -> Option<u64> {
    connection.stop_ns.map(|ns| ns / 1_000_000)
}

/// TCP ends by what its ends say, all else by silence.
fn reason_of(connection: &Connection) -> EndReason {
    match connection.tcp.map(|tcp| tcp.state) {
        Some(
            TcpState::FinWait
            | TcpState::CloseWait
            | TcpState::LastAck
            | TcpState::TimeWait
            | TcpState::Close,
        ) => EndReason::End,
        _ => EndReason::Idle,
    }
}
