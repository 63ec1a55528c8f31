//! What two runs of a launch disagree about.

use tessera_tile_ir::eval::{Arg, Args, Array, Data};
use tessera_tile_ir::{Elem, Kernel, ParamKind};

/// An element of an output that is not what it should be.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "the parts of the message")]
pub struct Difference {
    pub param: String,
    pub index: usize,
    pub got: f64,
    pub want: f64,
    pub limit: f64,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { param, index, got, want, limit } = self;
        write!(f, "`{param}`[{index}] is {got:e}, expected {want:e} within {limit:e}")
    }
}

/// Elements of `got` that are further from those of `want` than `tolerance` times the largest
/// magnitude of that argument. NaN agrees with NaN, infinities with themselves.
pub fn differences(kernel: &Kernel, got: &Args, want: &Args, tolerance: f64) -> Vec<Difference> {
    let mut found = Vec::new();
    for (param, (got, want)) in kernel.params.iter().zip(got.0.iter().zip(&want.0)) {
        let ParamKind::View { elem, .. } = &param.kind else { continue };
        let (Some(got), Some(want)) = (numbers(*elem, got), numbers(*elem, want)) else {
            continue;
        };
        let finite = want.iter().filter(|v| v.is_finite());
        let largest = finite.fold(0.0f64, |largest, v| largest.max(v.abs()));
        let float = matches!(elem, Elem::F32 | Elem::Stored(_));
        let limit = if float { tolerance * largest } else { 0.0 };
        for (index, (&got, &want)) in got.iter().zip(&want).enumerate() {
            let agree = got.total_cmp(&want).is_eq()
                || (got.is_nan() && want.is_nan())
                || (got - want).abs() <= limit;
            if !agree {
                let param = param.name.clone();
                found.push(Difference { param, index, got, want, limit });
            }
        }
    }
    found
}

/// The elements of an array as numbers; codes as the values they stand for.
fn numbers(elem: Elem, arg: &Arg) -> Option<Vec<f64>> {
    let Arg::Array(Array { data, .. }) = arg else { return None };
    Some(match data {
        Data::F32(values) => values.iter().map(|&v| f64::from(v)).collect(),
        Data::I32(values) => values.iter().map(|&v| f64::from(v)).collect(),
        // Halves, so that no two integers become the same number.
        Data::I64(values) => values.iter().flat_map(|&v| halves(v.cast_unsigned())).collect(),
        Data::U32(values) => values.iter().map(|&v| f64::from(v)).collect(),
        Data::U64(values) => values.iter().flat_map(|&v| halves(v)).collect(),
        Data::Stored(bytes) => {
            let Elem::Stored(element) = elem else { return None };
            let decode = |code: &[u8]| {
                let code = code.iter().rev().fold(0, |code, &byte| code << 8 | u32::from(byte));
                f64::from(element.decode(code))
            };
            bytes.chunks_exact(element.bits() / 8).map(decode).collect()
        }
        Data::Packed(_) => return None,
    })
}

fn halves(value: u64) -> [f64; 2] {
    [(value >> 32) as f64, (value & 0xffff_ffff) as f64]
}
