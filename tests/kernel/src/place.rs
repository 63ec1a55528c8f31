//! A case's arguments in some device's memory, as a launch takes them, and back.

use crate::cases::{Built, Weight};
use anyhow::{Result, anyhow, bail};
use std::sync::Arc;
use tessera_ptx::launch::{Arg as PlanArg, Axes, PackedArg, ViewArg};
use tessera_tile_ir::eval::{Arg, Array, Data};
use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Access, Elem, Kernel, ParamKind};

/// Memory that kernels see.
pub trait Room {
    /// Puts bytes somewhere; their address, 0 if there are none.
    ///
    /// # Errors
    /// If there is no room.
    fn upload(&mut self, bytes: &[u8]) -> Result<u64>;

    /// Gets bytes back.
    ///
    /// # Errors
    /// If something went wrong on the way there.
    fn download(&mut self, address: u64, bytes: &mut [u8]) -> Result<()>;
}

/// Where a case's arguments are.
#[derive(Debug)]
pub struct Place {
    args: Vec<PlanArg<'static>>,
    addresses: Vec<u64>,
}

impl Place {
    /// Puts the arguments there.
    ///
    /// # Errors
    /// If there is no room.
    pub fn of(kernel: &Kernel, built: &Built, room: &mut impl Room) -> Result<Self> {
        let (mut args, mut addresses) = (Vec::new(), Vec::new());
        for ((param, arg), weight) in kernel.params.iter().zip(&built.args.0).zip(&built.weights) {
            let (arg, address) = argument(room, &param.kind, arg, weight.as_ref())?;
            args.push(arg);
            addresses.push(address);
        }
        Ok(Self { args, addresses })
    }

    /// The arguments of the launch.
    pub fn args(&self) -> &[PlanArg<'static>] {
        &self.args
    }

    /// Gets what the kernel wrote.
    ///
    /// # Errors
    /// If something went wrong on the way there.
    pub fn fetch(&self, kernel: &Kernel, built: &mut Built, room: &mut impl Room) -> Result<()> {
        let args = built.args.0.iter_mut().zip(&self.addresses);
        for (param, (arg, &address)) in kernel.params.iter().zip(args) {
            if let (ParamKind::View { access, .. }, Arg::Array(array)) = (&param.kind, arg)
                && *access != Access::Read
            {
                download(room, address, &mut array.data)?;
            }
        }
        Ok(())
    }
}

/// An argument in memory, and where it lies.
fn argument(
    room: &mut impl Room,
    kind: &ParamKind,
    arg: &Arg,
    weight: Option<&Arc<Weight>>,
) -> Result<(PlanArg<'static>, u64)> {
    Ok(match (kind, arg) {
        #[expect(clippy::cast_possible_truncation, reason = "cases hold what fits")]
        (_, Arg::Scalar(Literal::Float(value))) => (PlanArg::F32(*value as f32), 0),
        (_, Arg::Scalar(Literal::Int(value))) => (PlanArg::Int(*value), 0),
        (_, Arg::Scalar(Literal::Bool(value))) => (PlanArg::Int(i64::from(*value)), 0),
        (ParamKind::View { elem: Elem::Packed(format), .. }, Arg::Array(array)) => {
            let weight = weight.ok_or_else(|| anyhow!("a packed view without a weight"))?;
            let dims = axes(&array.dims)?;
            let parts = |part: fn(&tessera_kernels::formats::PackedMatrix) -> &[u8]| {
                weight.parts.iter().flat_map(|matrix| part(matrix).to_vec()).collect::<Vec<u8>>()
            };
            let codes = room.upload(&parts(|matrix| &matrix.codes))?;
            let scales = room.upload(&parts(|matrix| &matrix.scales))?;
            let zero_points = room.upload(&parts(|matrix| &matrix.zero_points))?;
            let tensor: Vec<u8> =
                weight.parts.iter().flat_map(|m| m.tensor_scale.to_le_bytes()).collect();
            let tensor_scales = room.upload(&tensor)?;
            let format = format.name;
            let packed = PackedArg { format, codes, scales, zero_points, tensor_scales, dims };
            (PlanArg::Packed(packed), codes)
        }
        (ParamKind::View { elem, .. }, Arg::Array(Array { data, dims, strides })) => {
            let address = room.upload(&bytes(data))?;
            let elem = match elem {
                Elem::Stored(element) => element.name(),
                Elem::F32 => "f32",
                Elem::I32 => "i32",
                Elem::I64 => "i64",
                Elem::U32 => "u32",
                Elem::U64 => "u64",
                other => bail!("no array of {other}"),
            };
            let (dims, strides) = (axes(dims)?, axes(strides)?);
            (PlanArg::View(ViewArg { address, elem, dims, strides }), address)
        }
        (ParamKind::Scalar(elem), Arg::Array(_)) => bail!("an array for a number of {elem}"),
    })
}

/// An array without gaps.
///
/// # Errors
/// If it has more axes than a view can have.
pub fn dense(address: u64, elem: &'static str, dims: &[usize]) -> Result<PlanArg<'static>> {
    let mut strides = vec![1; dims.len()];
    for axis in (1..dims.len()).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    let (dims, strides) = (axes(dims)?, axes(&strides)?);
    Ok(PlanArg::View(ViewArg { address, elem, dims, strides }))
}

/// One number an axis.
///
/// # Errors
/// If there are more than a view can have.
pub fn axes(values: &[usize]) -> Result<Axes> {
    Ok(match *values {
        [a] => Axes::new([a]),
        [a, b] => Axes::new([a, b]),
        [a, b, c] => Axes::new([a, b, c]),
        [a, b, c, d] => Axes::new([a, b, c, d]),
        _ => bail!("a view of {} axes", values.len()),
    })
}

/// The elements of an array as they lie in memory.
pub fn bytes(data: &Data) -> Vec<u8> {
    match data {
        Data::F32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::I32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::I64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::U32(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::U64(values) => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
        Data::Stored(codes) => codes.clone(),
        Data::Packed(_) => Vec::new(),
    }
}

fn download(room: &mut impl Room, address: u64, data: &mut Data) -> Result<()> {
    let mut raw = bytes(data);
    if raw.is_empty() {
        return Ok(());
    }
    room.download(address, &mut raw)?;
    macro_rules! fill {
        ($values:ident, $ty:ty) => {
            for (value, bytes) in $values.iter_mut().zip(raw.chunks_exact(size_of::<$ty>())) {
                *value = <$ty>::from_le_bytes(bytes.try_into().expect("chunks are exact"));
            }
        };
    }
    match data {
        Data::F32(values) => fill!(values, f32),
        Data::I32(values) => fill!(values, i32),
        Data::I64(values) => fill!(values, i64),
        Data::U32(values) => fill!(values, u32),
        Data::U64(values) => fill!(values, u64),
        Data::Stored(codes) => codes.copy_from_slice(&raw),
        Data::Packed(_) => {}
    }
    Ok(())
}
