//! Cases on the emulator: the PTX that a GPU would run, launched as a GPU's host would launch it.

use crate::cases::{Built, Weight};
use anyhow::{Context, Result, anyhow, bail};
use std::sync::Arc;
use tessera_emulator::{Launch, Machine, Module, Profile};
use tessera_ptx::Compiled;
use tessera_ptx::launch::{Arg as PlanArg, Axes, PackedArg, Plan, ViewArg};
use tessera_tile_ir::eval::{Arg, Array, Data};
use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Access, Elem, Kernel, ParamKind};

/// Alignment of every array, that of a driver's allocations.
const ALIGN: u64 = 256;

/// Runs a case's kernel on the emulator; written arrays are changed in place.
///
/// # Errors
/// As the launch; the message of an assert that failed.
pub fn run(
    kernel: &Kernel,
    compiled: &Compiled,
    built: &mut Built,
    machine: &mut Machine,
) -> Result<Profile> {
    let module = Module::parse(&compiled.ptx).context("the PTX does not parse")?;
    let mut uploaded = Vec::new();
    let mut args = Vec::new();
    for ((param, arg), weight) in kernel.params.iter().zip(&built.args.0).zip(&built.weights) {
        let (arg, address) = argument(machine, &param.kind, arg, weight.as_ref())?;
        args.push(arg);
        uploaded.push(address);
    }
    let faults = upload(machine, &[0; 4])?;
    let mut plan = Plan::default();
    plan.make(std::slice::from_ref(&compiled.entry), &args)?;
    let profile = if plan.is_empty() {
        Profile::default()
    } else {
        let grid = plan.grid();
        let params: Vec<u8> = plan.words(faults).iter().flat_map(|w| w.to_le_bytes()).collect();
        let block = [compiled.entry.threads, 1, 1];
        let shared_bytes = compiled.entry.shared_bytes;
        let launch = Launch { grid, block, shared_bytes, params: &params };
        machine.launch(&module, &compiled.entry.entry, &launch)?
    };
    let mut fault = [0; 4];
    machine.read(faults, &mut fault)?;
    if let Some(index) = u32::from_le_bytes(fault).checked_sub(1) {
        let assert = compiled.entry.asserts.get(index as usize);
        bail!("{}", assert.map_or("an assert that does not exist", |assert| &assert.message));
    }
    for ((param, arg), address) in kernel.params.iter().zip(&mut built.args.0).zip(uploaded) {
        if let (ParamKind::View { access, .. }, Arg::Array(array)) = (&param.kind, arg)
            && *access != Access::Read
        {
            download(machine, address, &mut array.data)?;
        }
    }
    Ok(profile)
}

/// An argument in the machine's memory, and where it lies.
fn argument(
    machine: &mut Machine,
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
            let codes = upload(machine, &parts(|matrix| &matrix.codes))?;
            let scales = upload(machine, &parts(|matrix| &matrix.scales))?;
            let zero_points = upload(machine, &parts(|matrix| &matrix.zero_points))?;
            let tensor: Vec<u8> =
                weight.parts.iter().flat_map(|m| m.tensor_scale.to_le_bytes()).collect();
            let tensor_scales = upload(machine, &tensor)?;
            let format = format.name;
            let packed = PackedArg { format, codes, scales, zero_points, tensor_scales, dims };
            (PlanArg::Packed(packed), codes)
        }
        (ParamKind::View { elem, .. }, Arg::Array(Array { data, dims, strides })) => {
            let address = upload(machine, &bytes(data))?;
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

fn axes(values: &[usize]) -> Result<Axes> {
    Ok(match *values {
        [a] => Axes::new([a]),
        [a, b] => Axes::new([a, b]),
        [a, b, c] => Axes::new([a, b, c]),
        [a, b, c, d] => Axes::new([a, b, c, d]),
        _ => bail!("a view of {} axes", values.len()),
    })
}

fn upload(machine: &mut Machine, bytes: &[u8]) -> Result<u64> {
    if bytes.is_empty() {
        return Ok(0);
    }
    let address = machine.alloc(bytes.len() as u64, ALIGN)?;
    machine.write(address, bytes)?;
    Ok(address)
}

fn bytes(data: &Data) -> Vec<u8> {
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

fn download(machine: &mut Machine, address: u64, data: &mut Data) -> Result<()> {
    let mut raw = bytes(data);
    if raw.is_empty() {
        return Ok(());
    }
    machine.read(address, &mut raw)?;
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
