// SPDX-License-Identifier: MIT OR Apache-2.0
//! What is shown, in which order and from where on.

use std::cmp::Ordering;

use freeway_api::{Top, TopFlow};
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::widgets::TableState;

use crate::render::{self, History};

/// What flows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Bits,
    Packets,
    Age,
    Source,
    Destination,
}

impl Order {
    const ALL: [Order; 5] = [
        Order::Bits,
        Order::Packets,
        Order::Age,
        Order::Source,
        Order::Destination,
    ];

    /// As the foot of the page has it.
    pub fn words(self) -> &'static str {
        match self {
            Order::Bits => "bit/s",
            Order::Packets => "packets/s",
            Order::Age => "age",
            Order::Source => "source",
            Order::Destination => "destination",
        }
    }

    fn after(self) -> Order {
        let at = Order::ALL.iter().position(|order| *order == self);
        Order::ALL[at.map_or(0, |at| (at + 1) % Order::ALL.len())]
    }

    /// The busiest and the oldest first, addresses in ascending order.
    fn sort(self, flows: &mut [TopFlow]) {
        flows.sort_by(|a, b| self.of(a, b));
    }

    fn of(self, a: &TopFlow, b: &TopFlow) -> Ordering {
        let (from, to) = (&a.flow, &b.flow);
        match self {
            Order::Bits => b.rate.bits_per_s.total_cmp(&a.rate.bits_per_s),
            Order::Packets => b.rate.packets_per_s.total_cmp(&a.rate.packets_per_s),
            Order::Age => to.age_s.total_cmp(&from.age_s),
            Order::Source => (from.src, from.sport).cmp(&(to.src, to.sport)),
            Order::Destination => (from.dst, from.dport).cmp(&(to.dst, to.dport)),
        }
    }
}

/// The page's.
#[derive(Debug)]
pub(super) struct State {
    pub top: Top,
    pub history: History,
    pub order: Order,
    /// Lines of flows that the screen had room for.
    pub room: usize,
    /// The first flow that is shown, and the one that is marked.
    pub place: TableState,
    /// Escape sequences of colour are wanted.
    pub color: bool,
    held: bool,
}

impl State {
    pub fn new(color: bool) -> State {
        State {
            top: Top::default(),
            history: History::default(),
            order: Order::Bits,
            room: 1,
            place: TableState::default(),
            color,
            held: false,
        }
    }

    /// Nothing new is asked for.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// What the daemon says now.
    pub fn learn(&mut self, top: Top) {
        render::remember(&mut self.history, &top);
        self.top = top;
        self.order.sort(&mut self.top.flows);
        let most = self.top.flows.len().saturating_sub(1);
        let marked = self.place.selected().map(|at| at.min(most));
        self.place.select(marked);
    }

    /// A key; true if it is the end.
    pub fn press(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return false;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let page = self.room.max(1);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return true,
            KeyCode::Char('q' | 'Q') | KeyCode::Esc => return true,
            KeyCode::Char('s') => self.sort(self.order.after()),
            KeyCode::Char('b') => self.sort(Order::Bits),
            KeyCode::Char('p') => self.sort(Order::Packets),
            KeyCode::Char(' ') => self.held = !self.held,
            KeyCode::Down | KeyCode::Char('j') => self.mark(|at, _| at + 1),
            KeyCode::Up | KeyCode::Char('k') => self.mark(|at, _| at.saturating_sub(1)),
            KeyCode::PageDown => self.mark(|at, _| at + page),
            KeyCode::PageUp => self.mark(|at, _| at.saturating_sub(page)),
            KeyCode::Home | KeyCode::Char('g') => self.mark(|_, _| 0),
            KeyCode::End | KeyCode::Char('G') => self.mark(|_, last| last),
            _ => {}
        }
        false
    }

    fn sort(&mut self, order: Order) {
        self.order = order;
        order.sort(&mut self.top.flows);
    }

    /// From where it is, and the last place that there is. The first key marks the first that is shown.
    fn mark(&mut self, to: impl Fn(usize, usize) -> usize) {
        let Some(last) = self.top.flows.len().checked_sub(1) else {
            return;
        };
        let at = match self.place.selected() {
            Some(at) => to(at, last),
            None => self.place.offset(),
        };
        self.place.select(Some(at.min(last)));
    }
}

#[cfg(test)]
mod tests {
    use freeway_api::fake;

    use super::*;

    fn of_many(flows: usize) -> State {
        let mut state = State::new(false);
        let mut top = fake::top();
        let one = top.flows[0].clone();
        top.flows = (0..flows)
            .map(|number| {
                let mut busy = one.clone();
                busy.flow.sport = number as u16;
                busy.rate.bits_per_s = (number * 7 % flows) as f64;
                busy.rate.packets_per_s = number as f64;
                busy
            })
            .collect();
        state.learn(top);
        state
    }

    fn ports(state: &State) -> Vec<u16> {
        let flows = state.top.flows.iter();
        flows.map(|busy| busy.flow.sport).collect()
    }

    fn press(state: &mut State, code: KeyCode) -> bool {
        state.press(code.into())
    }

    #[test]
    fn keys_sort() {
        let mut state = of_many(5);
        assert_eq!(ports(&state), [2, 4, 1, 3, 0]);
        press(&mut state, KeyCode::Char('s'));
        assert_eq!(
            (state.order, ports(&state)),
            (Order::Packets, vec![4, 3, 2, 1, 0])
        );
        for _ in 0..2 {
            press(&mut state, KeyCode::Char('s'));
        }
        assert_eq!(
            (state.order, ports(&state)),
            (Order::Source, vec![0, 1, 2, 3, 4])
        );
        press(&mut state, KeyCode::Char('b'));
        assert_eq!(ports(&state), [2, 4, 1, 3, 0]);
    }

    #[test]
    fn keys_move_the_mark_within_what_there_is() {
        let mut state = of_many(30);
        state.room = 10;
        for (code, wanted) in [
            (KeyCode::Down, 0),
            (KeyCode::Down, 1),
            (KeyCode::PageDown, 11),
            (KeyCode::Up, 10),
            (KeyCode::End, 29),
            (KeyCode::Down, 29),
            (KeyCode::PageUp, 19),
            (KeyCode::Home, 0),
            (KeyCode::Up, 0),
        ] {
            press(&mut state, code);
            assert_eq!(state.place.selected(), Some(wanted), "{code:?}");
        }
        press(&mut state, KeyCode::End);
        let mut fewer = fake::top();
        fewer.flows.truncate(1);
        state.learn(fewer);
        assert_eq!(state.place.selected(), Some(0));
    }

    #[test]
    fn keys_hold_and_end() {
        let mut state = of_many(0);
        assert!(!press(&mut state, KeyCode::Down));
        assert_eq!(state.place.selected(), None);
        assert!(!press(&mut state, KeyCode::Char(' ')) && state.is_held());
        assert!(!press(&mut state, KeyCode::Char(' ')) && !state.is_held());
        assert!(press(&mut state, KeyCode::Char('q')) && press(&mut state, KeyCode::Esc));
        assert!(state.press(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL)));
    }
}
