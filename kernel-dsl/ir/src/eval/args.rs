//! Arguments of a launch.

use super::error::Fault;
use crate::format::{Element, Format};
use crate::kernel::{Kernel, Param, ParamKind};
use crate::op::Literal;
use crate::types::Elem;
use std::fmt;

/// Arguments, one per parameter.
#[derive(Debug, Default)]
pub struct Args(pub Vec<Arg>);

/// An argument.
#[derive(Debug)]
pub enum Arg {
    /// An array.
    Array(Array),
    /// A number.
    Scalar(Literal),
}

/// An array with its shape.
#[derive(Debug)]
pub struct Array {
    /// Its elements.
    pub data: Data,
    /// Its shape.
    pub dims: Vec<usize>,
    /// Elements between neighbours along each axis; the last is 1. A packed source has none.
    pub strides: Vec<usize>,
}

/// Elements of an array.
#[derive(Debug)]
pub enum Data {
    /// Of `f32` views.
    F32(Vec<f32>),
    /// Of `i32` views.
    I32(Vec<i32>),
    /// Of `i64` views.
    I64(Vec<i64>),
    /// Of `u32` views.
    U32(Vec<u32>),
    /// Of `u64` views.
    U64(Vec<u64>),
    /// Codes of stored views: a little-endian stream of bits, the first code in the low ones.
    Stored(Vec<u8>),
    /// A weight that says its values.
    Packed(Box<dyn PackedSource>),
}

/// A weight of a block format, `[n, k]` or `[experts, n, k]`.
pub trait PackedSource: fmt::Debug + Send + Sync {
    /// Its format.
    fn format(&self) -> &'static Format;
    /// The value at an index inside its shape, scales applied.
    fn value(&self, idx: &[usize]) -> f64;
}

impl Arg {
    /// A contiguous array.
    pub fn array(data: Data, dims: &[usize]) -> Self {
        let mut strides = vec![1; dims.len()];
        for axis in (1..dims.len()).rev() {
            strides[axis - 1] = strides[axis] * dims[axis];
        }
        Self::strided(data, dims, &strides)
    }

    /// An array with gaps.
    pub fn strided(data: Data, dims: &[usize], strides: &[usize]) -> Self {
        Self::Array(Array { data, dims: dims.to_vec(), strides: strides.to_vec() })
    }

    /// A contiguous array of f32.
    pub fn f32(values: Vec<f32>, dims: &[usize]) -> Self {
        Self::array(Data::F32(values), dims)
    }

    /// A contiguous array of i64.
    pub fn i64(values: Vec<i64>, dims: &[usize]) -> Self {
        Self::array(Data::I64(values), dims)
    }

    /// The elements of an array of f32.
    ///
    /// # Panics
    /// If it is something else.
    pub fn as_f32(&self) -> &[f32] {
        match self {
            Self::Array(Array { data: Data::F32(values), .. }) => values,
            other => panic!("not an array of f32: {other:?}"),
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Array(array) => &array.dims,
            Self::Scalar(_) => &[],
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Array(array) => format!("an array of {}", array.data.describe()),
            Self::Scalar(literal) => format!("the number {literal:?}"),
        }
    }
}

impl Data {
    fn describe(&self) -> String {
        match self {
            Self::F32(_) => "f32".to_owned(),
            Self::I32(_) => "i32".to_owned(),
            Self::I64(_) => "i64".to_owned(),
            Self::U32(_) => "u32".to_owned(),
            Self::U64(_) => "u64".to_owned(),
            Self::Stored(_) => "codes".to_owned(),
            Self::Packed(source) => format!("packed<{}>", source.format().name),
        }
    }

    fn holds(&self, elem: Elem) -> bool {
        match (self, elem) {
            (Self::F32(_), Elem::F32)
            | (Self::I32(_), Elem::I32)
            | (Self::I64(_), Elem::I64)
            | (Self::U32(_), Elem::U32)
            | (Self::U64(_), Elem::U64)
            | (Self::Stored(_), Elem::Stored(_)) => true,
            (Self::Packed(source), Elem::Packed(format)) => source.format() == format,
            _ => false,
        }
    }

    /// Number of elements; `None` for a source that is asked for values.
    pub(super) fn len(&self, elem: Elem) -> Option<usize> {
        Some(match self {
            Self::F32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::Stored(bytes) => match elem {
                Elem::Stored(element) => bytes.len() * 8 / element.bits(),
                _ => 0,
            },
            Self::Packed(_) => return None,
        })
    }
}

/// Replaces code `at` of a stream of bits, of whose place nothing is known.
pub(super) fn write_code(bytes: &mut [u8], element: Element, at: usize, code: i64) {
    let bits = element.bits();
    for i in 0..bits {
        let place = at * bits + i;
        let mask = 1 << (place % 8);
        if code >> i & 1 == 0 {
            bytes[place / 8] &= !mask;
        } else {
            bytes[place / 8] |= mask;
        }
    }
}

impl Args {
    /// Checks kinds and strides; shapes are for [`crate::launch::solve_dims`].
    pub(super) fn check(&self, kernel: &Kernel) -> Result<(), Fault> {
        let (got, want) = (self.0.len(), kernel.params.len());
        if got != want {
            return Err(Fault::NumArgs { got, want });
        }
        kernel.params.iter().zip(&self.0).try_for_each(|(param, arg)| check_arg(param, arg))
    }

    pub(super) fn shapes(&self) -> Vec<&[usize]> {
        self.0.iter().map(Arg::shape).collect()
    }
}

fn check_arg(param: &Param, arg: &Arg) -> Result<(), Fault> {
    let fault =
        |want: String| Err(Fault::Kind { arg: param.name.clone(), got: arg.describe(), want });
    match (&param.kind, arg) {
        (ParamKind::View { elem, .. }, Arg::Array(array)) if array.data.holds(*elem) => {
            check_strides(&param.name, *elem, array)
        }
        (ParamKind::View { elem, .. }, _) => fault(format!("an array of {elem}")),
        (ParamKind::Scalar(Elem::F32), Arg::Scalar(Literal::Float(_))) => Ok(()),
        (ParamKind::Scalar(elem), Arg::Scalar(Literal::Int(_))) if elem.is_int() => Ok(()),
        (ParamKind::Scalar(Elem::Bool), Arg::Scalar(Literal::Bool(_))) => Ok(()),
        (ParamKind::Scalar(elem), _) => fault(format!("a number of {elem}")),
    }
}

fn check_strides(name: &str, elem: Elem, array: &Array) -> Result<(), Fault> {
    let Some(len) = array.data.len(elem) else { return Ok(()) };
    let fault = |why| {
        let (shape, strides) = (array.dims.clone(), array.strides.clone());
        Err(Fault::Strides { arg: name.to_owned(), shape, strides, why })
    };
    if array.strides.len() != array.dims.len() {
        return fault("one per axis");
    }
    if array.dims.last().is_some_and(|&extent| extent > 1) && array.strides.last() != Some(&1) {
        return fault("the last axis is contiguous");
    }
    let axes = || array.dims.iter().zip(&array.strides);
    let needed = axes().try_fold(1_usize, |needed, (&extent, &stride)| {
        needed.checked_add(extent.saturating_sub(1).checked_mul(stride)?)
    });
    let empty = array.dims.contains(&0);
    if !empty && needed.is_none_or(|needed| needed > len) {
        return fault("it holds fewer elements");
    }
    Ok(())
}
