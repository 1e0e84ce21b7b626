// SPDX-License-Identifier: MIT OR Apache-2.0
//! A drawn SVG as a picture.
//!
//! resvg needs no library of the system; letters come from a font file of the machine. None is bundled: without one there
//! are SVGs and no pictures.

use std::fs;
use std::sync::Arc;

use resvg::tiny_skia::{Color, Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// DejaVu Sans where Debian, Fedora, Arch and Alpine have it, and what may be there instead.
const FONTS: [[&str; 2]; 6] = [
    [
        "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
        "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf",
    ],
    [
        "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
        "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf",
    ],
    [
        "/usr/share/fonts/TTF/DejaVuSans.ttf",
        "/usr/share/fonts/TTF/DejaVuSans-Bold.ttf",
    ],
    [
        "/usr/share/fonts/dejavu/DejaVuSans.ttf",
        "/usr/share/fonts/dejavu/DejaVuSans-Bold.ttf",
    ],
    [
        "/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
        "/usr/share/fonts/truetype/liberation/LiberationSans-Bold.ttf",
    ],
    [
        "/usr/share/fonts/liberation-sans-fonts/LiberationSans-Regular.ttf",
        "/usr/share/fonts/liberation-sans-fonts/LiberationSans-Bold.ttf",
    ],
];

/// What makes pictures.
#[derive(Debug)]
pub struct Painter {
    options: Options<'static>,
}

impl Painter {
    /// With a font of this machine; says what is missing if there is none.
    pub fn new() -> Result<Self, String> {
        let mut fonts = Database::new();
        for files in FONTS {
            for data in files.iter().filter_map(|file| fs::read(file).ok()) {
                fonts.load_font_data(data);
            }
            let family = fonts
                .faces()
                .find_map(|face| Some(face.families.first()?.0.clone()));
            if let Some(family) = family {
                fonts.set_sans_serif_family(family);
                let options = Options {
                    fontdb: Arc::new(fonts),
                    ..Options::default()
                };
                return Ok(Self { options });
            }
        }
        Err("this machine has no font for them: apt-get install fonts-dejavu-core".into())
    }

    /// PNG of an SVG, on white.
    pub fn paint(&self, svg: &str) -> Result<Vec<u8>, String> {
        let tree = Tree::from_str(svg, &self.options).map_err(|error| error.to_string())?;
        let size = tree.size().to_int_size();
        let mut pixmap = Pixmap::new(size.width(), size.height())
            .ok_or_else(|| "the picture would be empty".to_owned())?;
        pixmap.fill(Color::WHITE);
        resvg::render(&tree, Transform::identity(), &mut pixmap.as_mut());
        pixmap.encode_png().map_err(|error| error.to_string())
    }
}
