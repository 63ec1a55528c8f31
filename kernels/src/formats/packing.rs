//! Words of eight four-bit integers, as checkpoints pack them, to the codes of a
//! [`super::PackedMatrix`] and back. The layout is declared by the checkpoint's format, never
//! guessed from the data: every word is valid in each of them.

/// How eight integers in -8..=7 share a little-endian 32-bit word.
#[derive(Debug, PartialEq, Eq)]
pub struct NibbleLayout {
    /// Name in configs and messages.
    pub name: &'static str,
    /// Which of the eight integers lies in nibble `k` (bits `4 * k..4 * k + 4`).
    pub order: [u8; 8],
    /// What turns a nibble into the code `q + 8`: 0 where it is that already, 8 for two's
    /// complement (flipping the sign bit adds 8 modulo 16).
    pub flip: u8,
}

/// Every layout we read.
///
/// ```text
/// bit                 0    4    8   12   16   20   24   28
/// compressed-tensors  e0   e1   e2   e3   e4   e5   e6   e7    nibble = q + 8
/// twos-complement     e0   e1   e2   e3   e4   e5   e6   e7    nibble = q modulo 16
/// awq                 e0   e2   e4   e6   e1   e3   e5   e7    nibble = q + 8
/// ```
pub static NIBBLE_LAYOUTS: &[NibbleLayout] = &[
    NibbleLayout { name: "compressed-tensors", order: [0, 1, 2, 3, 4, 5, 6, 7], flip: 0 },
    NibbleLayout { name: "twos-complement", order: [0, 1, 2, 3, 4, 5, 6, 7], flip: 8 },
    NibbleLayout { name: "awq", order: [0, 2, 4, 6, 1, 3, 5, 7], flip: 0 },
];

/// The layout of that name.
pub fn nibble_layout(name: &str) -> Option<&'static NibbleLayout> {
    NIBBLE_LAYOUTS.iter().find(|layout| layout.name == name)
}

/// Words that do not fit the shape they are said to have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{layout}: {got} bytes of packed words for [{rows}, {cols}], needs {want}")]
#[expect(missing_docs, reason = "the message is the doc")]
pub struct PackingError {
    pub layout: &'static str,
    pub rows: usize,
    pub cols: usize,
    pub got: usize,
    pub want: usize,
}

impl NibbleLayout {
    /// Whether the words of rows of `cols` integers are, byte for byte, the codes of a matrix.
    pub fn is_codes(&self, cols: usize) -> bool {
        self.flip == 0 && self.order.is_sorted() && cols.is_multiple_of(8)
    }

    /// Codes (two a byte, rows start on a byte) of words packed along the rows.
    ///
    /// - `words`: i32 `[rows, ceil(cols / 8)]`; what lies past `cols` is ignored
    ///
    /// # Errors
    /// [`PackingError`] if `words` has another length.
    pub fn codes(&self, words: &[u8], rows: usize, cols: usize) -> Result<Vec<u8>, PackingError> {
        let words_across = cols.div_ceil(8);
        self.check(words, rows, cols, rows.saturating_mul(words_across).saturating_mul(4))?;
        let mut codes = Vec::with_capacity(rows * cols.div_ceil(2));
        for row in words.chunks_exact(words_across * 4) {
            for c in (0..cols).step_by(2) {
                let high = if c + 1 < cols { self.nibble(row, c + 1) } else { 0 };
                codes.push(self.nibble(row, c) | high << 4);
            }
        }
        Ok(codes)
    }

    /// Words of codes, the inverse of [`NibbleLayout::codes`]; nibbles past `cols` are zero.
    ///
    /// # Errors
    /// [`PackingError`] if `codes` is not `rows * ceil(cols / 2)` long.
    pub fn words(&self, codes: &[u8], rows: usize, cols: usize) -> Result<Vec<u8>, PackingError> {
        let row_bytes = cols.div_ceil(2);
        self.check(codes, rows, cols, rows.saturating_mul(row_bytes))?;
        let words_across = cols.div_ceil(8);
        let mut words = vec![0; rows * words_across * 4];
        let rows = words.chunks_exact_mut(words_across * 4).zip(codes.chunks_exact(row_bytes));
        for (words, codes) in rows {
            for c in 0..cols {
                let code = codes[c / 2] >> (4 * (c % 2)) & 15;
                let (at, shift) = self.place(c);
                words[at] |= (code ^ self.flip) << shift;
            }
        }
        Ok(words)
    }

    /// Zero points, one byte a tile, of words packed down the columns.
    ///
    /// - `words`: i32 `[ceil(rows / 8), tiles_across]`: eight rows of one tile column a word
    ///
    /// # Errors
    /// [`PackingError`] if `words` has another length.
    pub fn zero_points(
        &self,
        words: &[u8],
        rows: usize,
        tiles_across: usize,
    ) -> Result<Vec<u8>, PackingError> {
        let want = rows.div_ceil(8).saturating_mul(tiles_across).saturating_mul(4);
        self.check(words, rows, tiles_across, want)?;
        let mut zero_points = Vec::with_capacity(rows * tiles_across);
        for row in 0..rows {
            for tile in 0..tiles_across {
                let word = &words[(row / 8 * tiles_across + tile) * 4..];
                zero_points.push(self.nibble(word, row % 8));
            }
        }
        Ok(zero_points)
    }

    fn check(
        &self,
        bytes: &[u8],
        rows: usize,
        cols: usize,
        want: usize,
    ) -> Result<(), PackingError> {
        if bytes.len() == want && cols > 0 {
            return Ok(());
        }
        Err(PackingError { layout: self.name, rows, cols, got: bytes.len(), want })
    }

    /// Byte and shift of integer `c` in a run of words.
    fn place(&self, c: usize) -> (usize, usize) {
        let within = self.order.iter().position(|e| usize::from(*e) == c % 8);
        let nibble = within.expect("an order is a permutation of 0..8");
        (c / 8 * 4 + nibble / 2, nibble % 2 * 4)
    }

    fn nibble(&self, words: &[u8], c: usize) -> u8 {
        let (at, shift) = self.place(c);
        (words[at] >> shift & 15) ^ self.flip
    }
}
