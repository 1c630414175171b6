//! What stands where: panels in rows, and in each its heading, its legend in lines of its own, its graph.
//!
//! ```text
//!   +-- title ---------------------------+
//!   | heading          | heading         |
//!   | # seek # rotation| # seek ...      |   <- the legend is above the graph, so that it covers nothing
//!   | graph            | graph           |
//!   +------------------+-----------------+
//! ```

/// Of one panel, in pixels, without its legend.
pub(super) const PANEL: (u32, u32) = (470, 330);
pub(super) const TITLE_HEIGHT: u32 = 40;
/// Of a line of a legend.
pub(super) const LINE: u32 = 20;
/// From a legend's sign to its text, and from there to the next sign.
pub(super) const SIGN: u32 = 22;
const GAP: u32 = 16;
/// Pixels of a letter in a legend.
const LETTER: u32 = 7;

/// How many panels of so many stand side by side.
pub(super) fn columns(panels: usize) -> usize {
    match panels {
        4 => 2,
        few if few < 4 => few,
        _ => 3,
    }
}

/// Where the names of a legend begin: from the left, and in which line.
pub(super) fn legend(names: &[String], width: u32) -> Vec<(u32, u32)> {
    let (mut x, mut line) = (0, 0);
    let mut places = Vec::new();
    for name in names {
        let needs = SIGN + name.chars().count() as u32 * LETTER;
        if x > 0 && x + needs > width {
            (x, line) = (0, line + 1);
        }
        places.push((x, line));
        x += needs + GAP;
    }
    places
}

/// Lines of a legend.
pub(super) fn legend_lines(names: &[String], width: u32) -> u32 {
    legend(names, width).last().map_or(0, |&(_, line)| line + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_have_no_room_begin_a_line() {
        let names = ["range in the mini-group", "range in the group", "paper, classic"].map(str::to_owned);
        let places = legend(&names, 400);
        assert_eq!(places[0], (0, 0));
        assert!(places[1].1 == 0 && places[1].0 >= SIGN + 23 * 6);
        assert_eq!(places[2], (0, 1));
        assert_eq!((legend_lines(&names, 400), legend_lines(&[], 400)), (2, 0));
    }
}
