// SPDX-License-Identifier: MIT OR Apache-2.0
//! The page, as large as the terminal.

use freeway_api::{Rate, ReasonRate};
use freeway_console::{bit_rate, count, duration, plural, rate};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Scrollbar, ScrollbarOrientation, ScrollbarState, Table};

use super::state::State;
use crate::render::{busiest, engine_lines, flow_name, to_kernel};

/// Lines of ports, and of reasons, at most.
const MOST: usize = 6;
/// Lines of flows that ports and reasons leave where there is little room.
const FLOWS_MIN: u16 = 4;
const RATE: Constraint = Constraint::Length(11);
const SPARK: Constraint = Constraint::Length(12);

/// All of it.
pub(super) fn draw(frame: &mut Frame, state: &mut State) {
    let reasons = busiest(&state.top);
    let engine = state.top.engine.as_ref().map(engine_lines);
    let engine: Vec<Line> = engine.into_iter().flatten().map(Line::from).collect();
    let of_engine = if engine.is_empty() {
        0
    } else {
        engine.len() as u16 + 1
    };
    let room = frame
        .area()
        .height
        .saturating_sub(7 + of_engine + FLOWS_MIN);
    let ports = lines(state.top.ports.len(), room);
    let told = lines(reasons.len(), room.saturating_sub(ports));
    let [head, _, paths, by_engine, by_port, by_reason, flows, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(4),
        Constraint::Length(of_engine),
        Constraint::Length(ports),
        Constraint::Length(told),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title(state), head);
    draw_paths(frame, paths, state);
    frame.render_widget(Paragraph::new(engine), by_engine);
    draw_ports(frame, by_port, state);
    draw_reasons(frame, by_reason, state, &reasons);
    draw_flows(frame, flows, state);
    frame.render_widget(keys(state), foot);
}

/// A heading, the lines and one that is empty; none where there is no room for a line.
fn lines(wanted: usize, room: u16) -> u16 {
    let wanted = wanted.min(MOST) as u16;
    let fit = wanted.min(room.saturating_sub(2));
    if fit == 0 { 0 } else { fit + 2 }
}

fn title(state: &State) -> Line<'static> {
    let top = &state.top;
    let (word, color) = if top.on {
        ("on", Color::Green)
    } else {
        ("off", Color::Yellow)
    };
    let span = if state.is_held() {
        "held".to_owned()
    } else if top.interval_s == 0.0 {
        "rates follow".to_owned()
    } else {
        format!("rates over {}", duration(top.interval_s))
    };
    let table = &top.table;
    let flows = table.active + table.preparing + table.suspended + table.unconfirmed;
    Line::from(vec![
        Span::raw("Freeway is "),
        Span::styled(word, toned(state, Style::new().fg(color))),
        Span::raw(format!(
            ": {} in a table for {}, {span}",
            plural(flows, "flow"),
            count(table.capacity)
        )),
    ])
}

fn keys(state: &State) -> Line<'static> {
    let words = format!(
        "q quit  s sort (by {})  up/down, PgUp/PgDn, Home/End scroll  space {}",
        state.order.words(),
        if state.is_held() { "go on" } else { "hold" },
    );
    Line::styled(words, toned(state, Style::new().dim()))
}

fn toned(state: &State, style: Style) -> Style {
    if state.color { style } else { Style::new() }
}

fn heading(state: &State, words: &[&'static str]) -> Row<'static> {
    let cells = words.iter().enumerate().map(|(at, word)| {
        let line = Line::from(*word);
        if at == 0 || word.is_empty() {
            line
        } else {
            line.right_aligned()
        }
    });
    Row::new(cells).style(toned(state, Style::new().bold()))
}

fn right(text: String) -> Line<'static> {
    Line::from(text).right_aligned()
}

fn draw_paths(frame: &mut Frame, area: Rect, state: &State) {
    let top = &state.top;
    let rows = [
        Row::new([
            Line::from("fast path"),
            right(rate(top.fast.packets_per_s)),
            right(bit_rate(top.fast.bits_per_s)),
            Line::from(state.history.line("fast")),
        ]),
        Row::new([
            Line::from("kernel"),
            right(rate(to_kernel(top))),
            Line::default(),
            Line::from(state.history.line("kernel")),
        ]),
    ];
    let table = Table::new(rows, [Constraint::Length(16), RATE, RATE, SPARK])
        .header(heading(state, &["Packets by", "packets/s", "bit/s", ""]));
    frame.render_widget(table, area);
}

fn draw_ports(frame: &mut Frame, area: Rect, state: &State) {
    let rows = state.top.ports.iter().take(MOST).map(|port| {
        let Rate {
            packets_per_s,
            bits_per_s,
        } = port.received;
        Row::new([
            Line::from(port.name.clone()),
            right(rate(packets_per_s)),
            right(bit_rate(bits_per_s)),
            right(rate(port.sent.packets_per_s)),
            right(bit_rate(port.sent.bits_per_s)),
            Line::from(state.history.line(&format!("port {}", port.name))),
        ])
    });
    let names = ["Port", "in pkt/s", "in bit/s", "out pkt/s", "out bit/s", ""];
    let table = Table::new(
        rows,
        [Constraint::Length(16), RATE, RATE, RATE, RATE, SPARK],
    )
    .header(heading(state, &names));
    frame.render_widget(table, area);
}

fn draw_reasons(frame: &mut Frame, area: Rect, state: &State, reasons: &[&ReasonRate]) {
    let rows = reasons.iter().take(MOST).map(|reason| {
        Row::new([
            Line::from(reason.name.clone()),
            right(rate(reason.packets_per_s)),
            Line::from(state.history.line(&format!("reason {}", reason.name))),
            Line::from(reason.words.clone()),
        ])
    });
    let widths = [Constraint::Length(16), RATE, SPARK, Constraint::Min(0)];
    let table = Table::new(rows, widths).header(heading(state, &["Reason", "packets/s", "", ""]));
    frame.render_widget(table, area);
}

fn draw_flows(frame: &mut Frame, area: Rect, state: &mut State) {
    if state.top.flows.is_empty() {
        return;
    }
    // one line is the heading
    state.room = usize::from(area.height.saturating_sub(1));
    let rows = state.top.flows.iter().map(|busy| {
        let name = flow_name(&busy.flow);
        let spark = state.history.line(&name);
        Row::new([
            Line::from(name),
            right(rate(busy.rate.packets_per_s)),
            right(bit_rate(busy.rate.bits_per_s)),
            Line::from(spark),
        ])
    });
    let [body, edge] = Layout::horizontal([Constraint::Min(0), Constraint::Length(2)]).areas(area);
    let table = Table::new(rows, [Constraint::Min(20), RATE, RATE, SPARK])
        .header(heading(state, &["Flow", "packets/s", "bit/s", ""]))
        .row_highlight_style(Style::new().reversed());
    frame.render_stateful_widget(table, body, &mut state.place);
    let hidden = state.top.flows.len().saturating_sub(state.room);
    if hidden > 0 {
        let mut bar = ScrollbarState::new(hidden).position(state.place.offset());
        let symbols = Scrollbar::new(ScrollbarOrientation::VerticalRight)
            .begin_symbol(None)
            .end_symbol(None)
            .track_symbol(Some("|"))
            .thumb_symbol("#");
        frame.render_stateful_widget(symbols, edge, &mut bar);
    }
}

#[cfg(test)]
mod tests {
    use freeway_api::fake;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui::crossterm::event::KeyCode;

    use super::*;
    use crate::render::History;

    fn shown(state: &mut State, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let text = terminal.backend().to_string();
        // the backend quotes its lines
        let lines = text.lines().map(|line| line.trim_matches('"').trim_end());
        lines.collect::<Vec<_>>().join("\n")
    }

    fn state() -> State {
        let mut state = State::new(false);
        state.history = History::ascii();
        state
    }

    #[test]
    fn a_page_of_24_lines() {
        let mut state = state();
        state.learn(fake::top());
        insta::assert_snapshot!(shown(&mut state, 80, 24));
    }

    #[test]
    fn flows_that_do_not_fit_are_scrolled() {
        let mut state = state();
        let mut top = fake::top();
        let one = top.flows[0].clone();
        top.flows = (0..40)
            .map(|number| {
                let mut busy = one.clone();
                busy.flow.sport = 1000 + number;
                busy.rate.bits_per_s -= f64::from(number) * 1e6;
                busy
            })
            .collect();
        state.learn(top);
        assert!(shown(&mut state, 80, 20).contains(":1000 "));
        for _ in 0..2 {
            state.press(KeyCode::End.into());
        }
        insta::assert_snapshot!(shown(&mut state, 80, 20));
        // no size is too small
        for (width, height) in [(1, 1), (10, 3), (40, 8), (200, 60)] {
            shown(&mut state, width, height);
        }
    }
}
