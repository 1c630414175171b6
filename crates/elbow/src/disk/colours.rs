//! The colours of figures.

/// Red, green and blue of Okabe and Ito's colours, which most people can tell apart.
pub(super) const COLOURS: [(u8, u8, u8); 6] = [
    (0, 114, 178),
    (230, 159, 0),
    (0, 158, 115),
    (213, 94, 0),
    (204, 121, 167),
    (86, 180, 233),
];
