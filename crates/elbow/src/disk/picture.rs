//! A picture as PNG, of its SVG.

use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::Database;
use resvg::usvg::{Options, Tree};

/// Pixels of the PNG for one of the SVG: sharp in print.
const SCALE: f32 = 2.0;
/// What "sans-serif" may be, best first; any other font where there is none of them.
const FONTS: [&str; 5] = ["DejaVu Sans", "Liberation Sans", "Noto Sans", "Arial", "Helvetica"];

/// `None` on a machine without fonts, where nothing could be read in it.
pub(crate) fn png(svg: &str) -> Result<Option<Vec<u8>>> {
    let Some(fonts) = fonts() else {
        return Ok(None);
    };
    let options = Options {
        fontdb: Arc::new(fonts),
        ..Options::default()
    };
    let tree = Tree::from_str(svg, &options).context("cannot read the picture to make a PNG of it")?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let mut pixels = size
        .and_then(|size| Pixmap::new(size.width(), size.height()))
        .ok_or_else(|| anyhow!("the picture is too large for a PNG: {:?}", tree.size()))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    Ok(Some(pixels.encode_png().context("cannot make a PNG")?))
}

fn fonts() -> Option<Database> {
    let mut fonts = Database::new();
    fonts.load_system_fonts();
    let families: Vec<String> = fonts
        .faces()
        .flat_map(|face| face.families.iter().map(|family| family.0.clone()))
        .collect();
    let best = FONTS.iter().find(|&&font| families.iter().any(|family| family == font));
    fonts.set_sans_serif_family(best.map_or_else(|| families.first().cloned(), |&best| Some(best.to_owned()))?);
    Some(fonts)
}
