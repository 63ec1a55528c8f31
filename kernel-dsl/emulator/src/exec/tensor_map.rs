//! Boxes of tensors: which pieces of global and shared memory a tensor copy moves.
//!
//! Hardware's 128 bytes are not documented, so a stand-in driver writes its own:
//!
//! ```text
//! offset  size  what
//!      0     8  b"TESSTMAP"
//!      8     8  global address
//!     16    40  sizes of the dimensions, elements, innermost first, 5 x u64
//!     56    32  strides of the dimensions 1 to 4, bytes, 4 x u64
//!     88    20  box sizes, elements, 5 x u32
//!    108    10  element strides, 5 x u16
//!    118     6  data type, rank, interleave, swizzle, L2 promotion, fill: numbers of CUDA
//!    124     4  zero
//! ```

use super::Trouble;
use crate::body::SHARED_BASE;
use crate::fault::FaultKind;

/// Bytes of a tensor map.
pub(super) const MAP_BYTES: usize = 128;
const CHUNK: usize = 16;

/// Bytes that lie together on both sides of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) shared: usize,
    /// `None` for what lies outside the tensor: zeros when loading, nothing when storing.
    pub(super) global: Option<u64>,
    pub(super) bytes: usize,
}

/// A tensor map, taken apart.
#[derive(Clone, Copy, Debug)]
pub(super) struct TensorMap {
    address: u64,
    dims: [u64; 5],
    strides: [u64; 5],
    sizes: [u32; 5],
    rank: usize,
    element: usize,
    /// Chunks of a row of the swizzled pattern, one if there is none.
    in_row: u64,
}

fn refuse<T>(message: String) -> Result<T, Trouble> {
    Err(Trouble::new(FaultKind::Operand, message))
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

impl TensorMap {
    pub(super) fn parse(bytes: &[u8; MAP_BYTES], rank: usize) -> Result<TensorMap, Trouble> {
        if &bytes[..8] != b"TESSTMAP" {
            return refuse("these bytes are no tensor map".to_owned());
        }
        let [data_type, own_rank, interleave, swizzle, _, fill] =
            std::array::from_fn(|index| bytes[118 + index]);
        if usize::from(own_rank) != rank {
            return refuse(format!("the tensor map has {own_rank} dimensions, the copy {rank}"));
        }
        let element = match data_type {
            0 => 1,
            1 | 6 | 9 => 2,
            2 | 3 | 7 | 10..=12 => 4,
            4 | 5 | 8 => 8,
            _ => return refuse(format!("elements of type {data_type} are not known")),
        };
        let steps: [u64; 5] = std::array::from_fn(|index| number(bytes, 108 + 2 * index, 2));
        if interleave != 0 || swizzle > 3 || fill != 0 || steps != [1; 5] {
            return refuse("this kind of tensor map is not known".to_owned());
        }
        let stride = |index: usize| number(bytes, 56 + 8 * (index - 1), 8);
        Ok(TensorMap {
            address: number(bytes, 8, 8),
            dims: std::array::from_fn(|index| number(bytes, 16 + 8 * index, 8)),
            strides: std::array::from_fn(|i| if i == 0 { element as u64 } else { stride(i) }),
            sizes: std::array::from_fn(|index| number(bytes, 88 + 4 * index, 4) as u32),
            rank,
            element,
            in_row: 1 << swizzle,
        })
    }

    /// Bytes of a box.
    pub(super) fn bytes(&self) -> usize {
        self.sizes[..self.rank].iter().product::<u32>() as usize * self.element
    }

    /// The address of an element, if it lies in the tensor.
    fn global(&self, at: [i64; 5]) -> Option<u64> {
        let inside = |(at, dim): (&i64, &u64)| (0..*dim as i64).contains(at);
        if !at.iter().zip(&self.dims).all(inside) {
            return None;
        }
        let steps = at.iter().zip(&self.strides).map(|(&at, stride)| at as u64 * stride);
        Some(self.address + steps.sum::<u64>())
    }

    /// The pieces of the box at some coordinates, to or from an offset in shared memory.
    pub(super) fn pieces(&self, coordinates: [i32; 5], shared: usize) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let row = self.sizes[0] as usize;
        let rows = self.bytes() / (row * self.element);
        for index in 0..rows {
            let mut at = coordinates.map(i64::from);
            let mut rest = index as u32;
            for (at, size) in at.iter_mut().zip(self.sizes).take(self.rank).skip(1) {
                *at += i64::from(rest % size);
                rest /= size;
            }
            let start = index * row * self.element;
            for first in (0..row * self.element).step_by(CHUNK) {
                let mut here = at;
                here[0] += (first / self.element) as i64;
                let len = CHUNK.min(row * self.element - first);
                let target = self.swizzle(shared + start + first);
                self.chunk(here, (target, len), &mut pieces);
            }
        }
        pieces
    }

    /// One chunk, whole if all of it lies in the tensor, else element by element.
    fn chunk(&self, at: [i64; 5], (shared, len): (usize, usize), pieces: &mut Vec<Piece>) {
        let count = len / self.element;
        let mut last = at;
        last[0] += count as i64 - 1;
        if let (Some(global), Some(_)) = (self.global(at), self.global(last)) {
            pieces.push(Piece { shared, global: Some(global), bytes: len });
            return;
        }
        for index in 0..count {
            let mut here = at;
            here[0] += index as i64;
            let shared = shared + index * self.element;
            pieces.push(Piece { shared, global: self.global(here), bytes: self.element });
        }
    }

    /// Where a chunk of a box goes: its number in a row of 128 bytes is exchanged by that row's.
    fn swizzle(&self, offset: usize) -> usize {
        let address = SHARED_BASE + offset as u64;
        let turned = address ^ (address >> 7 & (self.in_row - 1)) << 4;
        (turned - SHARED_BASE) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(dims: [u64; 2], sizes: [u32; 2], swizzle: u8) -> TensorMap {
        let mut bytes = [0; MAP_BYTES];
        bytes[..8].copy_from_slice(b"TESSTMAP");
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(8, &0x7000_0000_0000u64.to_le_bytes());
        for index in 0..5 {
            put(16 + 8 * index, &dims.get(index).copied().unwrap_or(1).to_le_bytes());
            put(88 + 4 * index, &sizes.get(index).copied().unwrap_or(1).to_le_bytes());
            put(108 + 2 * index, &1u16.to_le_bytes());
        }
        put(56, &256u64.to_le_bytes());
        put(118, &[9, 2, 0, swizzle]);
        TensorMap::parse(&bytes, 2).unwrap()
    }

    #[test]
    fn a_box_inside_is_moved_by_chunks() {
        let pieces = map([128, 4], [16, 2], 0).pieces([8, 1, 0, 0, 0], 1024);
        let piece =
            |shared, at: u64| Piece { shared, global: Some(0x7000_0000_0000 + at), bytes: 16 };
        let want = [piece(1024, 272), piece(1040, 288), piece(1056, 528), piece(1072, 544)];
        assert_eq!(pieces, want);
    }

    #[test]
    fn what_lies_outside_has_no_address() {
        let pieces = map([10, 4], [8, 1], 0).pieces([4, 0, 0, 0, 0], 0);
        assert_eq!(pieces.len(), 8);
        assert_eq!(pieces[5].global, Some(0x7000_0000_0000 + 18));
        assert!(pieces[6..].iter().all(|piece| piece.global.is_none()));
        let pieces = map([128, 4], [8, 2], 0).pieces([0, -1, 0, 0, 0], 0);
        assert!(pieces[..8].iter().all(|piece| piece.global.is_none()));
        assert_eq!(pieces[8].global, Some(0x7000_0000_0000));
    }

    #[test]
    fn swizzles_exchange_chunks_by_row() {
        let places = |swizzle: u8, row: u32| -> Vec<usize> {
            let pieces = map([128, 8], [row, 8], swizzle).pieces([0; 5], 0);
            pieces.iter().map(|piece| piece.shared / 16).collect()
        };
        let wide = places(3, 64);
        assert_eq!(wide[8..16], [9, 8, 11, 10, 13, 12, 15, 14]);
        assert_eq!(wide[56..64], [63, 62, 61, 60, 59, 58, 57, 56]);
        assert_eq!(places(2, 32)[8..16], [9, 8, 11, 10, 13, 12, 15, 14]);
        assert_eq!(places(1, 16)[..10], [0, 1, 2, 3, 4, 5, 6, 7, 9, 8]);
    }
}
