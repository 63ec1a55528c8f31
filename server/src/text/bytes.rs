//! The byte-level BPE alphabet: which character stands for which byte in a vocabulary.

use std::collections::HashMap;

/// Maps each alphabet character to its byte.
///
/// Printable Latin-1 bytes stand for themselves; the other 68 bytes take the code points from
/// U+0100 upwards, in byte order.
///
/// # Source
/// The alphabet of the GPT-2 vocabulary files; written from the description, no code taken.
pub(super) fn alphabet() -> HashMap<char, u8> {
    let mut next = 0x100_u32;
    let mut map = HashMap::with_capacity(256);
    for byte in 0..=255_u8 {
        let printable = matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF);
        let ch = if printable {
            char::from(byte)
        } else {
            next += 1;
            char::from_u32(next - 1).expect("U+0100..U+0144 are characters")
        };
        map.insert(ch, byte);
    }
    map
}

/// The bytes that a vocabulary entry stands for, or `None` if it leaves the alphabet.
pub(super) fn token_bytes(token: &str, alphabet: &HashMap<char, u8>) -> Option<Vec<u8>> {
    token.chars().map(|ch| alphabet.get(&ch).copied()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_entries_map_to_their_bytes() {
        let alphabet = alphabet();
        let check = |token: &str, bytes: &[u8]| {
            assert_eq!(token_bytes(token, &alphabet).as_deref(), Some(bytes), "{token}");
        };
        check("Ġthe", b" the");
        check("Ċ", b"\n");
        check("ðŁĺĢ", "😀".as_bytes());
        check("Ã©", "é".as_bytes());
        check("ł", &[0xA0]);
        check("Ń", &[0xAD]);
        assert_eq!(token_bytes("▁the", &alphabet), None);
    }
}
