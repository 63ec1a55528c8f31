//! A content digest that travels with a page from pool to pool.

use super::cache::CacheView;
use super::check::Check;
use crate::launch::{BufferId, BufferType, CacheId, DeviceShapes, PlanError};

/// What a page's digest binds besides its bytes, so that a page of another request, place or time
/// never passes for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestKey {
    /// The owning transfer (made by the server, unique for the life of the process).
    pub owner: u64,
    /// Process generation and attempt of the transfer.
    pub generation: u64,
    /// Index of the page within its sequence.
    pub logical_page: u32,
    /// Tokens of the page that hold data; bytes past them do not count.
    pub valid_tokens: u32,
}

/// Digest of each layer of one page, and of its scale.
///
/// # Shapes
/// - `digests`: u64 `[num_layers]`; layer `l` binds `l`, the key, the scale's bits and the codes
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct PageDigest {
    pub cache: CacheId,
    pub page: u32,
    pub key: DigestKey,
    pub digests: BufferId,
}

impl PageDigest {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "page_digest", shapes };
        let spec = check.cache(self.cache)?;
        let (page, valid) = (self.page, self.key.valid_tokens);
        check.ensure((page as usize) < spec.num_pages, "page", page, "a page of the cache")?;
        let fits = valid as usize <= spec.page_size;
        check.ensure(fits, "valid_tokens", valid, "at most the page size")?;
        check.array("digests", self.digests, BufferType::U64, spec.num_layers)
    }

    /// Digests.
    pub fn reference(&self, cache: &CacheView<'_>, digests: &mut [u64]) {
        let spec = &cache.spec;
        let valid = self.key.valid_tokens as usize * spec.entry_bytes();
        for (layer, digest) in digests.iter_mut().enumerate().take(spec.num_layers) {
            let codes = &cache.data[spec.page_offset(layer, self.page as usize)..][..valid];
            *digest = digest_layer(&self.key, layer, cache.scale(layer, self.page as usize), codes);
        }
    }
}

/// Digest of one layer of a page: of its place, its scale and the codes of its valid tokens.
///
/// Each eight-byte word is mixed with its index by a bijection of 64 bits and then folded into the
/// state by another. One changed word therefore always changes the digest; any other accident
/// (words swapped, another page, a stale copy) passes with odds of about 2^-64. That is enough
/// against accidents, the only thing it is for: it is no signature, and whoever can write to the
/// cache can also make digests.
pub fn digest_layer(key: &DigestKey, layer: usize, k_scale: f32, codes: &[u8]) -> u64 {
    let place = u64::from(key.logical_page) << 32 | u64::from(key.valid_tokens);
    let header = [
        key.owner,
        key.generation,
        place,
        layer as u64,
        u64::from(k_scale.to_bits()),
        codes.len() as u64,
    ];
    let words = codes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    let mut state = 0x243f_6a88_85a3_08d3;
    for (index, word) in (0u64..).zip(header.into_iter().chain(words)) {
        state = mix(state ^ mix(word.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15))));
    }
    state
}

/// Multiply and xor-shift, twice: a bijection in which every input bit reaches every output bit.
pub(super) const fn mix(mut x: u64) -> u64 {
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^= x >> 32;
    x = x.wrapping_mul(0xd6e8_feb8_6659_fd93);
    x ^ (x >> 32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_bound_changes_the_digest() {
        let key = DigestKey { owner: 7, generation: 1, logical_page: 3, valid_tokens: 2 };
        let codes: Vec<u8> = (0..45).collect();
        let base = digest_layer(&key, 4, 0.5, &codes);
        let mut seen = vec![
            base,
            digest_layer(&DigestKey { owner: 8, ..key }, 4, 0.5, &codes),
            digest_layer(&DigestKey { generation: 2, ..key }, 4, 0.5, &codes),
            digest_layer(&DigestKey { logical_page: 4, ..key }, 4, 0.5, &codes),
            digest_layer(&DigestKey { valid_tokens: 1, ..key }, 4, 0.5, &codes),
            digest_layer(&key, 5, 0.5, &codes),
            digest_layer(&key, 4, 0.25, &codes),
            digest_layer(&key, 4, 0.5, &codes[..44]),
        ];
        for bit in 0..codes.len() * 8 {
            let mut codes = codes.clone();
            codes[bit / 8] ^= 1 << (bit % 8);
            seen.push(digest_layer(&key, 4, 0.5, &codes));
        }
        let mut swapped = codes.clone();
        swapped.rotate_left(8);
        seen.push(digest_layer(&key, 4, 0.5, &swapped));
        let count = seen.len();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count);
        assert_eq!(digest_layer(&key, 4, 0.5, &codes), base);
    }
}
