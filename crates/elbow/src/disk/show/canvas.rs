//! A picture of dots, eight in each letter (the Braille patterns of Unicode), with other letters on top.

/// Dots of a letter across and down.
const DOTS: (usize, usize) = (2, 4);
/// By row and column of a dot: its bit in the number of the pattern (Unicode, *Braille Patterns*, U+2800).
const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
const EMPTY: u32 = 0x2800;

/// The picture; places are from -1 to 1 in both directions.
pub(super) struct Canvas {
    columns: usize,
    rows: usize,
    dots: Vec<u8>,
    letters: Vec<Option<char>>,
}

impl Canvas {
    /// An empty one; as high as wide where a letter is twice as high.
    pub(super) fn new(rows: usize) -> Canvas {
        let columns = rows * DOTS.1 / DOTS.0;
        Canvas {
            columns,
            rows,
            dots: vec![0; rows * columns],
            letters: vec![None; rows * columns],
        }
    }

    pub(super) fn dot(&mut self, place: (f64, f64)) {
        let (x, y) = (self.columns * DOTS.0, self.rows * DOTS.1);
        if let Some((x, y)) = within(place, (x, y)) {
            self.dots[y / DOTS.1 * self.columns + x / DOTS.0] |= BITS[y % DOTS.1][x % DOTS.0];
        }
    }

    pub(super) fn letter(&mut self, place: (f64, f64), letter: char) {
        if let Some((x, y)) = within(place, (self.columns, self.rows)) {
            self.letters[y * self.columns + x] = Some(letter);
        }
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let cell = |at: usize| self.letters[at].unwrap_or_else(|| pattern(self.dots[at]));
        let line = |row: usize| (row * self.columns..(row + 1) * self.columns).map(cell).collect();
        (0..self.rows).map(line).collect()
    }
}

fn pattern(dots: u8) -> char {
    match dots {
        0 => ' ',
        dots => char::from_u32(EMPTY + u32::from(dots)).unwrap_or('.'),
    }
}

/// Which of so many cells across and down, if any.
fn within((x, y): (f64, f64), (across, down): (usize, usize)) -> Option<(usize, usize)> {
    let cell = |part: f64, cells: usize| ((part + 1.0) / 2.0 * (cells - 1) as f64).round();
    let (x, y) = (cell(x, across), cell(y, down));
    let is_within = (0.0..across as f64).contains(&x) && (0.0..down as f64).contains(&y);
    is_within.then_some((x as usize, y as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_and_letters_are_where_they_should_be() {
        let mut canvas = Canvas::new(2);
        canvas.dot((-1.0, -1.0));
        canvas.dot((1.0, 1.0));
        canvas.letter((-1.0, 1.0), 'x');
        canvas.dot((7.0, 0.0));
        assert_eq!(canvas.lines(), ["\u{2801}   ", "x  \u{2880}"]);
    }
}
