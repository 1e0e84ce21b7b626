// SPDX-License-Identifier: MIT OR Apache-2.0
//! Colours of plots and page, by meaning, for light and dark.
//!
//! Plots are drawn in the light colours. A picture keeps them; an SVG has them exchanged for classes, whose colours a
//! style sheet chooses by the reader's preference.

use std::fmt::Write;

use plotters::style::RGBColor;

/// What a colour means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    /// Text.
    Ink,
    /// Text that steps back.
    Muted,
    /// Lines behind the figures.
    Grid,
    /// The kernel.
    Kernel,
    /// A kernel that does less than that.
    Less,
    /// A kernel that does more.
    More,
    /// A kernel that has less to do.
    Plain,
    /// nf_flowtable.
    Flowtable,
    /// The same from XDP.
    FlowtableXdp,
    /// The kernel's FIB from XDP.
    Fib,
    /// Routes in an LPM trie, from XDP.
    Lpm,
    /// Freeway.
    Freeway,
    /// Freeway's tc programs.
    Tc,
    /// A bare redirect.
    Redirect,
    /// What others have published.
    Published,
}

const TONES: [Tone; 15] = [
    Tone::Ink,
    Tone::Muted,
    Tone::Grid,
    Tone::Kernel,
    Tone::Less,
    Tone::More,
    Tone::Plain,
    Tone::Flowtable,
    Tone::FlowtableXdp,
    Tone::Fib,
    Tone::Lpm,
    Tone::Freeway,
    Tone::Tc,
    Tone::Redirect,
    Tone::Published,
];

impl Tone {
    fn class(self) -> &'static str {
        match self {
            Tone::Ink => "ink",
            Tone::Muted => "muted",
            Tone::Grid => "grid",
            Tone::Kernel => "kernel",
            Tone::Less => "less",
            Tone::More => "more",
            Tone::Plain => "plain",
            Tone::Flowtable => "flowtable",
            Tone::FlowtableXdp => "flowtable-xdp",
            Tone::Fib => "fib",
            Tone::Lpm => "lpm",
            Tone::Freeway => "freeway",
            Tone::Tc => "tc",
            Tone::Redirect => "redirect",
            Tone::Published => "published",
        }
    }

    /// On a light ground and on a dark one.
    fn colors(self) -> [u32; 2] {
        match self {
            Tone::Ink => [0x1b1f24, 0xe6e9ee],
            Tone::Muted => [0x59636e, 0x9aa4af],
            Tone::Grid => [0xdde2e7, 0x30373f],
            Tone::Kernel => [0x6f7a86, 0x939eab],
            Tone::Less => [0x98a4b0, 0x77828e],
            Tone::More => [0x464f59, 0xc2cad3],
            Tone::Plain => [0xa9987f, 0x8d7d66],
            Tone::Flowtable => [0xc47a10, 0xdf9f3a],
            Tone::FlowtableXdp => [0x9c4a1f, 0xd98a5c],
            Tone::Fib => [0x2a8c5c, 0x4fbf88],
            Tone::Lpm => [0x0f7f8c, 0x3fb5c4],
            Tone::Freeway => [0x1f6fd6, 0x5aa2ff],
            Tone::Tc => [0x7fb0ea, 0x3a78c2],
            Tone::Redirect => [0xb4bec8, 0x5d6874],
            Tone::Published => [0x8e5bc4, 0xb48ae0],
        }
    }

    /// To draw with.
    pub fn color(self) -> RGBColor {
        let [_, red, green, blue] = self.colors()[0].to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// The ground of page and pictures, light and dark.
const GROUND: [u32; 2] = [0xffffff, 0x14181d];

/// The variables, for the page and for SVGs that stand alone.
pub fn style() -> String {
    let variables = |at: usize| {
        let mut text = format!("--ground:#{:06x}", GROUND[at]);
        for tone in TONES {
            // writing to a String does not fail
            let _ = write!(text, ";--{}:#{:06x}", tone.class(), tone.colors()[at]);
        }
        text
    };
    let mut style = format!(
        ":root{{{}}}@media(prefers-color-scheme:dark){{:root{{{}}}}}",
        variables(0),
        variables(1)
    );
    for tone in TONES {
        let class = tone.class();
        let _ = write!(
            style,
            ".f-{class}{{fill:var(--{class})}}.s-{class}{{stroke:var(--{class})}}"
        );
    }
    style
}

/// Colours of a drawn SVG exchanged for classes.
pub fn with_classes(svg: &str) -> String {
    let mut themed = svg.to_owned();
    for tone in TONES {
        let hex = format!("#{:06X}", tone.colors()[0]);
        for (attribute, prefix) in [("fill", 'f'), ("stroke", 's')] {
            let class = format!("class=\"{prefix}-{}\"", tone.class());
            themed = themed.replace(&format!("{attribute}=\"{hex}\""), &class);
        }
    }
    themed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tones_are_told_apart() {
        for at in 0..2 {
            let mut colors: Vec<u32> = TONES.iter().map(|tone| tone.colors()[at]).collect();
            colors.sort_unstable();
            colors.dedup();
            assert_eq!(colors.len(), TONES.len());
        }
    }

    #[test]
    fn colours_become_classes() {
        let svg = r##"<rect fill="#1F6FD6" stroke="none"/><line stroke="#DDE2E7"/>"##;
        assert_eq!(
            with_classes(svg),
            r#"<rect class="f-freeway" stroke="none"/><line class="s-grid"/>"#
        );
        assert!(style().contains(".f-freeway{fill:var(--freeway)}"));
    }

    /// WCAG's ratio: 4.5 for text, 3 for what one must see.
    #[test]
    fn colours_are_seen_on_their_ground() {
        let luminance = |color: u32| -> f64 {
            let [_, channels @ ..] = color.to_be_bytes();
            let linear = channels.map(|channel| {
                let value = f64::from(channel) / 255.0;
                if value <= 0.04045 {
                    value / 12.92
                } else {
                    ((value + 0.055) / 1.055).powf(2.4)
                }
            });
            0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        };
        for (tone, least) in [
            (Tone::Ink, 7.0),
            (Tone::Muted, 4.5),
            (Tone::Kernel, 3.0),
            (Tone::More, 3.0),
            (Tone::Flowtable, 3.0),
            (Tone::FlowtableXdp, 3.0),
            (Tone::Fib, 3.0),
            (Tone::Lpm, 3.0),
            (Tone::Freeway, 4.5),
            (Tone::Published, 3.0),
        ] {
            for (color, ground) in tone.colors().into_iter().zip(GROUND) {
                let (a, b) = (luminance(color), luminance(ground));
                let contrast = (a.max(b) + 0.05) / (a.min(b) + 0.05);
                assert!(contrast >= least, "{tone:?}: {contrast:.1}");
            }
        }
    }
}
