//! Rows of codes of any width: bit `j` of code `i` is bit `i * bits + j` of the row, and bit `p` of
//! the row is bit `p % 8` of byte `p / 8`.
//!
//! ```text
//! 4 bits   byte 0: code 0 low, code 1 high
//! 6 bits   byte 0: code 0, low 2 of code 1   byte 1: high 4 of code 1, low 4 of code 2
//!          byte 2: high 2 of code 2, code 3
//! 16, 32   little endian
//! ```

/// Code `idx` of a row.
///
/// # Panics
/// If the row is shorter.
#[inline]
pub fn read_code(row: &[u8], bits: usize, idx: usize) -> u32 {
    let at = idx * bits;
    let bytes = &row[at / 8..(at + bits).div_ceil(8)];
    let window = bytes.iter().rev().fold(0u64, |window, byte| window << 8 | u64::from(*byte));
    let code = window >> (at % 8) & (u64::MAX >> (64 - bits));
    #[expect(clippy::cast_possible_truncation, reason = "masked to the bits of a code")]
    let code = code as u32;
    code
}

/// Puts code `idx` into a row whose bits there are zero.
///
/// # Panics
/// If the row is shorter.
#[inline]
pub fn write_code(row: &mut [u8], bits: usize, idx: usize, code: u32) {
    let at = idx * bits;
    let window = u64::from(code) << (at % 8);
    for (byte, part) in row[at / 8..(at + bits).div_ceil(8)].iter_mut().zip(window.to_le_bytes()) {
        *byte |= part;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_every_width_come_back_and_lie_where_the_drawing_says() {
        for bits in 1..=32usize {
            let code = |i: u32| i.wrapping_mul(0x9e37_79b9) >> (32 - bits);
            let mut row = vec![0; (bits * 13).div_ceil(8)];
            for i in 0..13 {
                write_code(&mut row, bits, i as usize, code(i));
            }
            for i in 0..13 {
                assert_eq!(read_code(&row, bits, i as usize), code(i), "{bits} bits, code {i}");
            }
        }
        let mut row = [0; 3];
        for (i, code) in [0b11_1111, 0b00_0001, 0b10_0000, 0b11_0000].into_iter().enumerate() {
            write_code(&mut row, 6, i, code);
        }
        assert_eq!(row, [0b0111_1111, 0b0000_0000, 0b1100_0010]);
        let mut row = [0; 2];
        write_code(&mut row, 4, 1, 0xa);
        write_code(&mut row, 4, 2, 0x5);
        assert_eq!(row, [0xa0, 0x05]);
    }
}
