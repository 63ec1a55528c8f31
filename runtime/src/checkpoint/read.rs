//! Stored tensors to matrices and vectors, without a copy where the layouts agree.

use super::CheckpointError;
use super::plan::MatrixSource;
use super::quant::Scheme;
use super::store::{Store, Tensor};
use bytes::Bytes;
use safetensors::Dtype;
use tessera_kernels::formats::{Element, Format, PackedMatrix, Parts, format};

/// The format that holds a matrix just as it is stored.
pub(crate) fn stored_format(store: &Store, source: &MatrixSource) -> &'static Format {
    let name = match &source.scheme {
        Scheme::Plain => match planned(store, &source.weight).dtype() {
            Dtype::F32 => "f32",
            Dtype::F16 => "f16",
            _ => "bf16",
        },
        Scheme::Fp8Block => "fp8-128x128",
        Scheme::Fp8Channel => "fp8-channel",
        Scheme::Int4 { group_size: 128, symmetric: true } => "int4-g128",
        Scheme::Int4 { group_size: 128, symmetric: false } => "int4-g128-zp",
        // One scale a channel is the same scale for each of its groups.
        Scheme::Int4 { symmetric: true, .. } => "int4-g32",
        Scheme::Int4 { symmetric: false, .. } => "int4-g32-zp",
        Scheme::Nvfp4Modelopt | Scheme::Nvfp4Compressed => "nvfp4",
        Scheme::Own(format) => return format,
    };
    format(name).expect("every stored format has a row in FORMATS")
}

/// A tensor that the plan has checked.
pub(crate) fn planned<'a>(store: &'a Store, name: &str) -> Tensor<'a> {
    store.get(name).expect("the plan names only tensors of the store")
}

/// Tensors that hold a matrix.
pub(crate) fn tensors<'a>(
    store: &'a Store,
    source: &MatrixSource,
) -> impl Iterator<Item = Tensor<'a>> {
    let names = [Some(&source.weight), source.scale.as_ref(), source.zero_point.as_ref()];
    names.into_iter().flatten().map(|name| planned(store, name)).collect::<Vec<_>>().into_iter()
}

/// A matrix in its stored format; its codes borrow the mapped file.
pub(crate) fn read_matrix(
    store: &Store,
    source: &MatrixSource,
    [rows, cols]: [usize; 2],
) -> Result<PackedMatrix, CheckpointError> {
    let format = stored_format(store, source);
    let weight = planned(store, &source.weight);
    let scales = source.scale.as_ref().map(|name| planned(store, name));
    let scales = match (&source.scheme, scales) {
        (Scheme::Int4 { group_size: -1, .. }, Some(t)) => repeat(t.slice(), 2, cols / 32),
        (Scheme::Fp8Channel, Some(t)) if t.dtype() == Dtype::BF16 => widen(t.slice()),
        (_, Some(t)) => t.bytes(),
        (_, None) => Bytes::new(),
    };
    let zero_points = match (&source.zero_point, &source.scheme) {
        (Some(name), Scheme::Int4 { group_size, .. }) => {
            let tensor = planned(store, name);
            let unpacked = unpack_zero_points(tensor.slice(), rows, tensor.shape()[1]);
            let channel = *group_size == -1;
            if channel { repeat(&unpacked, 1, cols / 32) } else { unpacked.into() }
        }
        (Some(name), Scheme::Own(_)) => planned(store, name).bytes(),
        _ => Bytes::new(),
    };
    let tensor_scale = format.tensor_scale.then_some(source.tensor_scale);
    let parts = Parts { codes: weight.bytes(), scales, zero_points, tensor_scale };
    PackedMatrix::new(format, rows, cols, parts).map_err(|matrix| CheckpointError::Matrix {
        parameter: source.weight.clone(),
        source: matrix,
    })
}

/// Each `width`-byte entry, `times` times in a row.
fn repeat(entries: &[u8], width: usize, times: usize) -> Bytes {
    entries.chunks(width).flat_map(|entry| entry.repeat(times)).collect()
}

/// bf16 to f32: the same value, twice the bytes.
fn widen(halves: &[u8]) -> Bytes {
    halves.chunks(2).flat_map(|h| [0, 0, h[0], h[1]]).collect()
}

/// Zero points packed down the rows: row `n` is nibble `n % 8` of word `n / 8`.
fn unpack_zero_points(words: &[u8], rows: usize, groups: usize) -> Vec<u8> {
    let nibble = |row: usize, group: usize| {
        let byte = words[(row / 8 * groups + group) * 4 + row % 8 / 2];
        if row.is_multiple_of(2) { byte & 15 } else { byte >> 4 }
    };
    (0..rows)
        .flat_map(|row| (0..groups).map(move |group| (row, group)))
        .map(|(r, g)| nibble(r, g))
        .collect()
}

/// A vector in f32, whatever float it is stored in.
pub(crate) fn read_vector(tensor: Tensor<'_>) -> Vec<f32> {
    let half = |element: Element| {
        let decode = move |h: &[u8]| element.decode(u32::from(u16::from_le_bytes([h[0], h[1]])));
        tensor.slice().chunks_exact(2).map(decode).collect()
    };
    match tensor.dtype() {
        Dtype::F32 => {
            let word = |w: &[u8]| f32::from_le_bytes([w[0], w[1], w[2], w[3]]);
            tensor.slice().chunks_exact(4).map(word).collect()
        }
        Dtype::F16 => half(Element::F16),
        _ => half(Element::Bf16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_points_are_packed_down_the_rows() {
        // Two words: rows 0..8 of groups 0 and 1, row 0 in the low nibble.
        let words = [0x7654_3210u32, 0xfedc_ba98].map(u32::to_le_bytes).concat();
        let got = unpack_zero_points(&words, 3, 2);
        assert_eq!(got, [0, 8, 1, 9, 2, 10]);
    }

    #[test]
    fn scales_repeat_and_widen() {
        assert_eq!(repeat(&[1, 2, 3, 4], 2, 2).as_ref(), [1, 2, 1, 2, 3, 4, 3, 4]);
        assert_eq!(widen(&[0x80, 0x3f]).as_ref(), 1.0f32.to_le_bytes());
    }
}
