// SPDX-License-Identifier: MIT OR Apache-2.0
//! `freeway top` on a terminal: a page that keys sort, scroll and hold.

mod screen;
mod state;

use std::io;
use std::time::{Duration, Instant};

use freeway_api::Top;
use freeway_console::{Stop, Terminal};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use crate::live::Signals;
use state::State;

/// A signal is noticed after so long at most.
const PATIENCE: Duration = Duration::from_millis(100);

/// Asks and shows every `interval`, until `q`, Escape, Ctrl-C or a signal. The terminal is as it was before then.
pub fn run(interval: Duration, ask: impl FnMut() -> Result<Top, Stop>) -> Result<(), Stop> {
    let mut signals = Signals::block()?;
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let end = turn(&mut terminal, &mut signals, interval, ask);
    ratatui::try_restore().map_err(failed)?;
    end
}

fn failed(error: io::Error) -> Stop {
    Stop::failure(format!("cannot use the terminal: {error}"))
}

fn turn(
    terminal: &mut DefaultTerminal,
    signals: &mut Signals,
    interval: Duration,
    mut ask: impl FnMut() -> Result<Top, Stop>,
) -> Result<(), Stop> {
    let mut state = State::new(Terminal::stdout().color);
    let mut next = Instant::now();
    loop {
        if next <= Instant::now() {
            next = Instant::now() + interval;
            if !state.is_held() {
                state.learn(ask()?);
            }
        }
        terminal
            .draw(|frame| screen::draw(frame, &mut state))
            .map_err(failed)?;
        let left = next.saturating_duration_since(Instant::now());
        if event::poll(left.min(PATIENCE)).map_err(failed)? {
            // of another size it is drawn anew
            if let Event::Key(key) = event::read().map_err(failed)?
                && state.press(key)
            {
                return Ok(());
            }
        }
        if signals.came()? {
            return Ok(());
        }
    }
}
