//! Cases on the CPU, by the code that serves.

use super::{Built, Weight};
use anyhow::{Result, bail};
use tessera_kernel_artifacts::by_name::{Argument, launch};
use tessera_lanes::Cpu;
use tessera_lanes::memory::Arena;
use tessera_lanes::packed::{PackedWeights, WeightParts};
use tessera_tile_ir::eval::{Arg, Array, Data};
use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Elem, Kernel, ParamKind};

/// Runs a case's kernel on the CPU; written arrays are changed in place.
///
/// # Errors
/// As the launch.
pub fn run(kernel: &Kernel, built: &mut Built, cpu: &Cpu) -> Result<()> {
    let arena = Arena::new();
    let pack = |weight: &Option<std::sync::Arc<Weight>>| match weight {
        Some(weight) => packed(weight, &arena),
        None => Ok(Vec::new()),
    };
    let weights = built.weights.iter().map(pack).collect::<Result<Vec<_>>>()?;
    let mut args = Vec::new();
    for ((param, arg), weight) in kernel.params.iter().zip(&mut built.args.0).zip(&weights) {
        let element = match &param.kind {
            ParamKind::View { elem: Elem::Stored(element), .. } => Some(*element),
            _ => None,
        };
        args.push(match arg {
            #[expect(clippy::cast_possible_truncation, reason = "cases hold what fits")]
            Arg::Scalar(Literal::Float(value)) => Argument::Float(*value as f32),
            Arg::Scalar(Literal::Int(value)) => Argument::Int(*value),
            Arg::Scalar(other) => bail!("no kernel takes {other:?}"),
            Arg::Array(Array { data, dims, .. }) => match (data, element) {
                (Data::F32(data), _) => Argument::F32(data, dims),
                (Data::I32(data), _) => Argument::I32(data, dims),
                (Data::I64(data), _) => Argument::I64(data, dims),
                (Data::U32(data), _) => Argument::U32(data, dims),
                (Data::U64(data), _) => Argument::U64(data, dims),
                (Data::Stored(data), Some(element)) => Argument::Stored(data, element, dims),
                (Data::Packed(_), _) => Argument::Packed(weight),
                (Data::Stored(_), None) => bail!("`{}` holds no codes", param.name),
            },
        });
    }
    Ok(launch(&kernel.name, &mut args, cpu)?)
}

fn packed(weight: &Weight, arena: &Arena) -> Result<Vec<PackedWeights>> {
    let pack = |part: &tessera_kernels::formats::PackedMatrix| {
        let parts = WeightParts {
            format: part.format,
            rows: part.rows,
            cols: part.cols,
            codes: &part.codes,
            scales: &part.scales,
            zero_points: &part.zero_points,
            tensor_scale: part.tensor_scale,
        };
        Ok(PackedWeights::pack(&parts, arena)?)
    };
    weight.parts.iter().map(pack).collect()
}
