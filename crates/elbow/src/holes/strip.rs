//! A file as one line of a terminal: what each piece of it is.
//!
//! ```text
//!   [██████████▒··········▒█████]      █ data   · hole   ▒ both
//! ```

use std::io;

use elbow_file::{Extent, ExtentKind};
use rustix::termios::tcgetwinsize;

/// Where the terminal does not say how wide it is.
const COLUMNS_USUAL: usize = 80;

/// The picture, as wide as the terminal, in signs that it can show.
pub(super) fn for_terminal(extents: &[Extent], size_bytes: u64) -> String {
    let columns = tcgetwinsize(io::stdout()).map_or(0, |size| usize::from(size.ws_col));
    let columns = if columns > 2 { columns } else { COLUMNS_USUAL };
    let signs = if speaks_utf8() {
        ['█', '·', '▒']
    } else {
        ['#', '.', '+']
    };
    let cells: String = cells(extents, size_bytes, columns - 2)
        .into_iter()
        .map(|cell| signs[cell as usize])
        .collect();
    format!("[{cells}]")
}

/// As the C library decides it.
fn speaks_utf8() -> bool {
    let set = |name: &&str| std::env::var_os(name).filter(|value| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].iter().find_map(set).unwrap_or_default();
    let locale = locale.to_string_lossy().to_uppercase();
    locale.contains("UTF-8") || locale.contains("UTF8")
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cell {
    Data,
    Hole,
    Both,
}

/// What stands in each of so many equal pieces of a file; of fewer when it has fewer bytes.
fn cells(extents: &[Extent], size_bytes: u64, count: usize) -> Vec<Cell> {
    let count = (count as u64).clamp(1, size_bytes.max(1));
    let mut extents = extents.iter().peekable();
    let boundary = |index: u64| (u128::from(size_bytes) * u128::from(index) / u128::from(count)) as u64;
    (0..count)
        .map(|index| {
            let end = boundary(index + 1);
            let mut cell = None;
            while let Some(extent) = extents.peek() {
                let found = match extent.kind {
                    ExtentKind::Data => Cell::Data,
                    ExtentKind::Hole => Cell::Hole,
                };
                cell = Some(cell.map_or(found, |cell| if cell == found { cell } else { Cell::Both }));
                if extent.range.end > end {
                    break; // goes on in the next cell
                }
                let is_last = extent.range.end == end;
                extents.next();
                if is_last {
                    break;
                }
            }
            cell.unwrap_or(Cell::Hole)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(extents: &[(u64, ExtentKind)], count: usize) -> String {
        let mut at = 0;
        let extents: Vec<_> = extents
            .iter()
            .map(|&(end, kind)| {
                let range = at..end;
                at = end;
                Extent { range, kind }
            })
            .collect();
        let cells = cells(&extents, at, count).into_iter();
        cells.map(|cell| ['#', '.', '+'][cell as usize]).collect()
    }

    #[test]
    fn each_cell_says_what_is_in_it() {
        let (data, hole) = (ExtentKind::Data, ExtentKind::Hole);
        assert_eq!(drawn(&[(100, data)], 4), "####");
        assert_eq!(drawn(&[(50, data), (100, hole)], 4), "##..");
        assert_eq!(drawn(&[(51, data), (100, hole)], 4), "##+.");
        assert_eq!(drawn(&[(1, hole), (2, data), (100, hole)], 4), "+...");
        assert_eq!(drawn(&[(99, hole), (100, data)], 4), "...+");
        assert_eq!(drawn(&[(1, hole), (3, data)], 80), ".##", "not more cells than bytes");
        assert_eq!(drawn(&[(1 << 62, hole), ((1 << 62) + 5, data)], 4), "...+");
    }
}
