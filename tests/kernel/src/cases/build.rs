//! Arguments of a case.

use super::{Case, Fill, Seeded};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::sync::Arc;
use tessera_kernels::formats::{Format, PackedMatrix};
use tessera_tile_ir::eval::{Arg, Args, Data, PackedSource};
use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::op::Literal;
use tessera_tile_ir::{Access, Elem, Kernel, ParamKind};

/// What outputs hold before a launch: nothing that a kernel writes by itself.
const UNWRITTEN: f64 = -77.25;

/// The arguments of one launch.
#[derive(Debug)]
pub struct Built {
    /// Name of each parameter.
    pub names: Vec<String>,
    /// As the evaluator takes them.
    pub args: Args,
    /// The weight of each packed parameter.
    pub weights: Vec<Option<Arc<Weight>>>,
}

/// A packed argument: one matrix, or one an expert.
#[derive(Debug)]
pub struct Weight {
    /// The matrices in order.
    pub parts: Vec<PackedMatrix>,
    decoded: Vec<Vec<f32>>,
}

/// Hands the values of a weight to the evaluator.
#[derive(Debug)]
struct Source(Arc<Weight>);

impl PackedSource for Source {
    fn format(&self) -> &'static Format {
        self.0.parts[0].format
    }

    fn value(&self, idx: &[usize]) -> f64 {
        let (part, row, col) = match *idx {
            [row, col] => (0, row, col),
            [part, row, col] => (part, row, col),
            _ => unreachable!("a weight has two or three axes"),
        };
        f64::from(self.0.decoded[part][row * self.0.parts[part].cols + col])
    }
}

impl Built {
    /// The arguments that a case gives a kernel.
    ///
    /// # Errors
    /// What the case leaves out or gets wrong.
    pub fn new(kernel: &Kernel, case: &Case) -> Result<Self> {
        let names = kernel.params.iter().map(|param| param.name.clone()).collect();
        let mut built = Self { names, args: Args::default(), weights: Vec::new() };
        for (i, param) in kernel.params.iter().enumerate() {
            let mut random = Random::new(case, i);
            let context = || format!("{} `{}`: `{}`", case.kernel, case.name, param.name);
            let mut weight = None;
            let arg = match &param.kind {
                ParamKind::Scalar(elem) => {
                    let value = case.scalars.get(&param.name);
                    let value = value.ok_or_else(|| anyhow!("no value")).with_context(context)?;
                    scalar(*elem, value).with_context(context)?
                }
                ParamKind::View { elem, access, dims } => {
                    let shape = shape(kernel, case, dims).with_context(context)?;
                    let fill = case.arrays.get(&param.name);
                    match *elem {
                        Elem::Packed(format) => {
                            let made = Arc::new(Weight::new(format, &shape, &mut random)?);
                            weight = Some(made.clone());
                            Arg::array(Data::Packed(Box::new(Source(made))), &shape)
                        }
                        elem => {
                            let len = shape.iter().product();
                            let values = values(elem, *access, fill, len, &mut random);
                            Arg::array(data(elem, &values.with_context(context)?)?, &shape)
                        }
                    }
                }
            };
            built.args.0.push(arg);
            built.weights.push(weight);
        }
        Ok(built)
    }

    /// The argument of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn arg(&self, name: &str) -> &Arg {
        &self.args.0[self.index(name)]
    }

    /// Index of the parameter of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn index(&self, name: &str) -> usize {
        let index = self.names.iter().position(|known| known == name);
        index.unwrap_or_else(|| panic!("no parameter `{name}` among {:?}", self.names))
    }
}

impl Weight {
    fn new(format: &'static Format, shape: &[usize], random: &mut Random) -> Result<Self> {
        let (parts, rows, cols) = match *shape {
            [rows, cols] => (1, rows, cols),
            [parts, rows, cols] => (parts, rows, cols),
            _ => bail!("a weight of {} axes", shape.len()),
        };
        let make = |_| {
            let values: Vec<f32> = (0..rows * cols).map(|_| narrow(random.normal())).collect();
            Ok(PackedMatrix::encode(format, rows, cols, &values)?)
        };
        let parts = (0..parts).map(make).collect::<Result<Vec<_>>>()?;
        let decoded = parts.iter().map(PackedMatrix::decode).collect();
        Ok(Self { parts, decoded })
    }
}

fn shape(kernel: &Kernel, case: &Case, axes: &[Extent]) -> Result<Vec<usize>> {
    axes.iter()
        .map(|axis| {
            axis.dims.iter().try_fold(axis.constant, |sum, &dim| {
                let name = &kernel.dims[dim];
                let extent = case.dims.get(name).ok_or_else(|| anyhow!("no extent {name}"))?;
                Ok(sum + extent)
            })
        })
        .collect()
}

fn scalar(elem: Elem, value: &toml::Value) -> Result<Arg> {
    Ok(Arg::Scalar(match elem {
        Elem::F32 => Literal::Float(number(value)?),
        Elem::Bool => Literal::Bool(value.as_bool().context("not a truth")?),
        _ => Literal::Int(value.as_integer().context("not an integer")?),
    }))
}

fn number(value: &toml::Value) -> Result<f64> {
    match value {
        toml::Value::Float(value) => Ok(*value),
        #[expect(clippy::cast_precision_loss, reason = "cases hold small numbers")]
        toml::Value::Integer(value) => Ok(*value as f64),
        other => bail!("{other:?} is no number"),
    }
}

/// An element of an array before it takes its type.
#[derive(Debug, Clone, Copy)]
enum Number {
    Float(f64),
    Int(i64),
}

fn values(
    elem: Elem,
    access: Access,
    fill: Option<&Fill>,
    len: usize,
    random: &mut Random,
) -> Result<Vec<Number>> {
    let float = matches!(elem, Elem::F32 | Elem::Stored(_));
    let given = |value: &toml::Value| match value {
        toml::Value::Integer(int) if !float => Ok(Number::Int(*int)),
        other => number(other).map(Number::Float),
    };
    let seeded = match fill {
        Some(Fill::List(list)) => {
            ensure!(list.len() == len, "{} values for {len} elements", list.len());
            return list.iter().map(given).collect();
        }
        Some(Fill::Seeded(seeded)) => seeded.clone(),
        None => Seeded { scale: 1.0, offset: 0.0, at: Vec::new(), count_to: None },
    };
    let mut next = |i: usize| match (seeded.count_to, access) {
        (Some(count), _) if float => Number::Float((i % count) as f64 * seeded.scale),
        (Some(count), _) => Number::Int(wrap((i % count) as u64)),
        (None, Access::Write) if float => Number::Float(UNWRITTEN),
        (None, Access::Write) => Number::Int(77),
        _ if float => Number::Float(random.normal() * seeded.scale + seeded.offset),
        (None, Access::ReadWrite) => Number::Int(0),
        _ => Number::Int(wrap(random.next())),
    };
    let mut values: Vec<Number> = (0..len).map(&mut next).collect();
    for (index, value) in &seeded.at {
        let slot = values.get_mut(*index).with_context(|| format!("no element {index}"))?;
        *slot = given(value)?;
    }
    Ok(values)
}

fn data(elem: Elem, values: &[Number]) -> Result<Data> {
    let ints = || {
        values.iter().map(|value| match value {
            Number::Int(int) => Ok(*int),
            Number::Float(float) => bail!("{float} among integers"),
        })
    };
    let floats = || {
        values.iter().map(|value| match value {
            Number::Float(float) => narrow(*float),
            Number::Int(int) => narrow(*int as f64),
        })
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "bits are kept")]
    Ok(match elem {
        Elem::F32 => Data::F32(floats().collect()),
        Elem::I32 => Data::I32(ints().map(|v| Ok(v? as i32)).collect::<Result<_>>()?),
        Elem::I64 => Data::I64(ints().collect::<Result<_>>()?),
        Elem::U32 => Data::U32(ints().map(|v| Ok(v? as u32)).collect::<Result<_>>()?),
        Elem::U64 => Data::U64(ints().map(|v| Ok(v? as u64)).collect::<Result<_>>()?),
        Elem::Stored(element) => {
            let bytes = element.bits() / 8;
            ensure!(bytes * 8 == element.bits(), "{} does not fill bytes", element.name());
            let codes = floats().map(|v| element.encode(v).to_le_bytes());
            Data::Stored(codes.flat_map(|code| code[..bytes].to_vec()).collect())
        }
        Elem::Bool | Elem::Packed(_) => bail!("no array of {elem} is filled"),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "rounds")]
fn narrow(value: f64) -> f32 {
    value as f32
}

fn wrap(value: u64) -> i64 {
    i64::from_ne_bytes(value.to_ne_bytes())
}

/// Deterministic values.
struct Random(u64);

impl Random {
    fn new(case: &Case, param: usize) -> Self {
        let text = format!("{} {} {} {param}", case.kernel, case.name, case.seed);
        let seed = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// About normal: the sum of twelve uniform numbers, less six.
    fn normal(&mut self) -> f64 {
        let uniform = |bits: u64| (bits >> 11) as f64 / (1u64 << 53) as f64;
        (0..12).map(|_| uniform(self.next())).sum::<f64>() - 6.0
    }
}
