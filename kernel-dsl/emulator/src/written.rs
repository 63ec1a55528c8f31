//! Which bytes of a memory were ever written.

use crate::types::low_mask;

/// A bit for each byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Written(Vec<u64>);

/// The words of a range, and which of their bits belong to it.
fn words(offset: usize, len: usize) -> impl Iterator<Item = (usize, u64)> {
    let end = offset + len;
    (offset / 64..end.div_ceil(64)).map(move |word| {
        let first = offset.max(word * 64) - word * 64;
        let count = end.min(word * 64 + 64) - word * 64 - first;
        (word, low_mask(count as u32) << first)
    })
}

impl Written {
    pub(crate) fn new(bytes: usize) -> Written {
        Written(vec![0; bytes.div_ceil(64)])
    }

    /// Whether all of a range was written.
    pub(crate) fn covers(&self, offset: usize, len: usize) -> bool {
        words(offset, len).all(|(word, bits)| self.0[word] & bits == bits)
    }

    pub(crate) fn mark(&mut self, offset: usize, len: usize) {
        for (word, bits) in words(offset, len) {
            self.0[word] |= bits;
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.fill(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_across_words_are_whole_or_not() {
        let mut written = Written::new(300);
        written.mark(60, 140);
        assert!(written.covers(60, 140) && written.covers(64, 64) && written.covers(199, 1));
        assert!(!written.covers(59, 2) && !written.covers(199, 2) && !written.covers(0, 300));
        assert!(written.covers(10, 0));
        written.clear();
        assert!(!written.covers(100, 1));
    }
}
