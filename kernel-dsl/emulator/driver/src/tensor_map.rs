//! Tensor maps: what a tiled copy of the tensor memory accelerator knows of a tensor, checked as
//! CUDA documents it and written into 128 bytes of our own layout.
//!
//! ```text
//! offset  size  what
//!      0     8  magic, b"TESSTMAP"
//!      8     8  global address
//!     16    40  sizes of the dimensions, elements, innermost first, 5 x u64 (1 beyond the rank)
//!     56    32  strides of the dimensions 1 to 4, bytes, 4 x u64 (0 beyond the rank)
//!     88    20  box sizes, elements, 5 x u32 (1 beyond the rank)
//!    108    10  element strides, 5 x u16 (1 beyond the rank)
//!    118     1  data type, as `CUtensorMapDataType`
//!    119     1  rank
//!    120     1  interleave, as `CUtensorMapInterleave`
//!    121     1  swizzle, as `CUtensorMapSwizzle`
//!    122     1  L2 promotion, as `CUtensorMapL2promotion`
//!    123     1  out-of-bounds fill, as `CUtensorMapFloatOOBfill`
//!    124     4  zero
//! ```

use crate::code::{Code, Outcome, ensure};

/// The first bytes of a tensor map.
const MAGIC: [u8; 8] = *b"TESSTMAP";

/// What `cuTensorMapEncodeTiled` is told. The lists have one element a dimension, innermost first,
/// but for the strides, which the innermost dimension does not have.
#[derive(Clone, Debug)]
pub(crate) struct Tiled {
    pub(crate) data_type: u32,
    pub(crate) address: u64,
    pub(crate) dims: Vec<u64>,
    pub(crate) strides: Vec<u64>,
    pub(crate) box_dims: Vec<u32>,
    pub(crate) element_strides: Vec<u32>,
    pub(crate) interleave: u32,
    pub(crate) swizzle: u32,
    pub(crate) l2_promotion: u32,
    pub(crate) oob_fill: u32,
}

/// How many elements of each type are in how many bytes, by number of `CUtensorMapDataType`; the
/// last three are four-bit and six-bit elements, sixteen at a time.
const ELEMENTS: [(u64, u64); 16] = [
    (1, 1),
    (1, 2),
    (1, 4),
    (1, 4),
    (1, 8),
    (1, 8),
    (1, 2),
    (1, 4),
    (1, 8),
    (1, 2),
    (1, 4),
    (1, 4),
    (1, 4),
    (16, 8),
    (16, 16),
    (16, 16),
];
const FIRST_PACKED: u32 = 13;
/// Sixteen four-bit elements that take 16 bytes in shared memory, and six-bit ones.
const FIRST_WIDE: u32 = 14;

impl Tiled {
    /// Bytes that a number of elements takes in global memory: the wide packed types take as much
    /// there as they have bits, and more in shared memory.
    fn bytes(&self, elements: u64) -> Option<u64> {
        let (count, bytes) = *ELEMENTS.get(self.data_type as usize)?;
        Some(elements.checked_mul(bytes)?.div_ceil(count))
    }

    fn check(&self) -> Outcome {
        let invalid = Code::ERROR_INVALID_VALUE;
        let all = |condition: bool| ensure(condition, invalid);
        let rank = self.dims.len();
        all(self.data_type < 16 && (1..=5).contains(&rank))?;
        all(self.interleave <= 2 && self.swizzle <= 6)?;
        all(self.l2_promotion <= 3 && self.oob_fill <= 1)?;
        all(self.interleave == 0 || rank >= 3)?;
        let packed = self.data_type >= FIRST_PACKED;
        let wide = self.data_type >= FIRST_WIDE;
        let aligned = if self.interleave == 2 || wide { 32 } else { 16 };
        all(self.address != 0 && self.address.is_multiple_of(aligned))?;
        all(self.dims.iter().all(|dim| (1..=1 << 32).contains(dim)))?;
        let step = if wide { 128 } else { 2 };
        all(!packed || self.dims[0].is_multiple_of(step))?;
        // Only floating types have not-a-numbers to fill with.
        let floating = matches!(self.data_type, 6..=12);
        all(self.oob_fill == 0 || floating)?;
        self.check_strides(aligned)?;
        self.check_box(packed, wide)
    }

    fn check_strides(&self, aligned: u64) -> Outcome {
        let invalid = Code::ERROR_INVALID_VALUE;
        ensure(self.strides.len() + 1 == self.dims.len(), invalid)?;
        let mut least = self.bytes(self.dims[0]).ok_or(invalid)?;
        for (stride, dim) in self.strides.iter().zip(&self.dims[1..]) {
            ensure(stride % aligned == 0 && *stride < 1 << 40, invalid)?;
            // Interleaved layouts do not lie in order of the dimensions.
            ensure(self.interleave != 0 || *stride >= least, invalid)?;
            least = stride.checked_mul(*dim).ok_or(invalid)?;
        }
        Ok(())
    }

    fn check_box(&self, packed: bool, wide: bool) -> Outcome {
        let invalid = Code::ERROR_INVALID_VALUE;
        let rank = self.dims.len();
        ensure(self.box_dims.len() == rank && self.element_strides.len() == rank, invalid)?;
        ensure(self.box_dims.iter().all(|size| (1..=256).contains(size)), invalid)?;
        ensure(self.element_strides.iter().all(|stride| (1..=8).contains(stride)), invalid)?;
        ensure(!packed || self.element_strides[0] == 1, invalid)?;
        ensure(!wide || self.box_dims[0] == 128, invalid)?;
        let inner = self.bytes(u64::from(self.box_dims[0])).ok_or(invalid)?;
        if self.interleave == 0 {
            ensure(inner % 16 == 0, invalid)?;
            let most = match self.swizzle {
                0 => u64::MAX,
                1 => 32,
                2 => 64,
                _ => 128,
            };
            ensure(inner <= most, invalid)?;
        }
        // What is interleaved by 32 bytes is swizzled by 32.
        ensure(self.interleave != 2 || self.swizzle == 1, invalid)
    }

    /// The 128 bytes.
    pub(crate) fn encode(&self) -> Outcome<[u64; 16]> {
        self.check()?;
        let mut bytes = Vec::with_capacity(128);
        bytes.extend(MAGIC);
        bytes.extend(self.address.to_le_bytes());
        let dim = |index| self.dims.get(index).copied().unwrap_or(1);
        let stride = |index| self.strides.get(index).copied().unwrap_or(0);
        let size = |index| self.box_dims.get(index).copied().unwrap_or(1);
        let step = |index| self.element_strides.get(index).copied().unwrap_or(1);
        (0..5).for_each(|i| bytes.extend(dim(i).to_le_bytes()));
        (0..4).for_each(|i| bytes.extend(stride(i).to_le_bytes()));
        (0..5).for_each(|i| bytes.extend(size(i).to_le_bytes()));
        (0..5).for_each(|i| bytes.extend(&step(i).to_le_bytes()[..2]));
        let rank = u32::try_from(self.dims.len()).map_err(|_| Code::ERROR_INVALID_VALUE)?;
        let small = [self.data_type, rank, self.interleave, self.swizzle];
        let small = small.into_iter().chain([self.l2_promotion, self.oob_fill]);
        bytes.extend(small.map(|value| value.to_le_bytes()[0]));
        bytes.resize(128, 0);
        let mut words = [0; 16];
        for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
            let bytes = bytes.iter().rev();
            *word = bytes.fold(0, |word, byte| (word << 8) | u64::from(*byte));
        }
        Ok(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix() -> Tiled {
        Tiled {
            data_type: 9,
            address: 0x7000_0000_0100,
            dims: vec![4096, 300],
            strides: vec![8192],
            box_dims: vec![64, 128],
            element_strides: vec![1, 1],
            interleave: 0,
            swizzle: 3,
            l2_promotion: 2,
            oob_fill: 0,
        }
    }

    #[test]
    fn a_map_lies_as_drawn() {
        let words = matrix().encode().unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(&bytes[..8], b"TESSTMAP");
        assert_eq!(words[1], 0x7000_0000_0100);
        assert_eq!(words[2..7], [4096, 300, 1, 1, 1]);
        assert_eq!(words[7..11], [8192, 0, 0, 0]);
        assert_eq!(bytes[88..92], 64u32.to_le_bytes());
        assert_eq!(bytes[92..96], 128u32.to_le_bytes());
        assert_eq!(bytes[108..118], [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(bytes[118..128], [9, 2, 0, 3, 2, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn what_hardware_refuses_is_refused() {
        let check = |change: fn(&mut Tiled)| {
            let mut map = matrix();
            change(&mut map);
            assert_eq!(map.encode(), Err(Code::ERROR_INVALID_VALUE), "{map:?}");
        };
        check(|map| map.address += 8);
        check(|map| map.address = 0);
        check(|map| map.dims[1] = 0);
        check(|map| map.dims[1] = (1 << 32) + 1);
        check(|map| map.strides[0] = 8200);
        check(|map| map.strides[0] = 4096);
        check(|map| map.strides[0] = 1 << 40);
        check(|map| map.box_dims[0] = 0);
        check(|map| map.box_dims[1] = 257);
        check(|map| map.box_dims[0] = 65);
        check(|map| map.box_dims[0] = 128);
        check(|map| map.element_strides[1] = 9);
        check(|map| map.element_strides[1] = 0);
        check(|map| map.interleave = 1);
        check(|map| map.swizzle = 7);
        check(|map| map.data_type = 16);
        check(|map| (map.data_type, map.oob_fill) = (1, 1));
        check(|map| map.dims = vec![]);
        check(|map| map.strides.clear());
    }
}
