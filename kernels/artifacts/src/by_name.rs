//! Launches by the name of a kernel, for tools and cases: what serves fills in the typed structs.

use tessera_lanes::exec::{Cpu, LaunchError, PackedView, StoredView, StoredViewMut};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::{View, ViewMut};
use tessera_tile_ir::format::Element;

/// An argument without a type. Arrays come with their extents and have no gaps.
#[derive(Debug)]
#[expect(missing_docs, reason = "named after what they hold")]
pub enum Argument<'a> {
    F32(&'a mut [f32], &'a [usize]),
    I32(&'a mut [i32], &'a [usize]),
    I64(&'a mut [i64], &'a [usize]),
    U32(&'a mut [u32], &'a [usize]),
    U64(&'a mut [u64], &'a [usize]),
    Stored(&'a mut [u8], Element, &'a [usize]),
    /// One weight, or one an expert.
    Packed(&'a [PackedWeights]),
    Float(f32),
    Int(i64),
}

/// Why a kernel could not be launched by name.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum ByNameError {
    #[error("there is no kernel `{0}`")]
    Unknown(String),
    #[error("{kernel}: {got} arguments for {want} parameters")]
    Count { kernel: &'static str, got: usize, want: usize },
    #[error("an argument is {got}, expected {want}")]
    Kind { got: String, want: &'static str },
    #[error(transparent)]
    Launch(#[from] LaunchError),
}

type Taken<T> = Result<T, ByNameError>;

impl<'a> Argument<'a> {
    fn misfit<T>(&self, want: &'static str) -> Taken<T> {
        let mut got = format!("{self:?}");
        got.truncate(60);
        Err(ByNameError::Kind { got, want })
    }

    fn packed<const R: usize>(&mut self) -> Taken<PackedView<'a, R>>
    where
        PackedView<'a, R>: Weights<'a>,
    {
        match self {
            Self::Packed(weights) => Ok(<PackedView<'a, R> as Weights<'a>>::of(weights)),
            _ => self.misfit("a weight"),
        }
    }

    fn stored<const R: usize>(&mut self) -> Taken<StoredView<'_, R>> {
        match self {
            Self::Stored(bytes, element, dims) => Ok(StoredView::new(bytes, *element, rank(dims)?)),
            _ => self.misfit("codes"),
        }
    }

    fn stored_mut<const R: usize>(&mut self) -> Taken<StoredViewMut<'_, R>> {
        match self {
            Self::Stored(bytes, element, dims) => {
                Ok(StoredViewMut::new(bytes, *element, rank(dims)?))
            }
            _ => self.misfit("codes"),
        }
    }

    fn float(&mut self) -> Taken<f32> {
        match self {
            Self::Float(value) => Ok(*value),
            _ => self.misfit("a number"),
        }
    }

    fn int(&mut self) -> Taken<i64> {
        match self {
            Self::Int(value) => Ok(*value),
            _ => self.misfit("an integer"),
        }
    }
}

macro_rules! arrays {
    ($($kind:ident $read:ident $write:ident $elem:ty;)*) => {
        #[allow(dead_code, reason = "kernels read and write some types only")]
        impl Argument<'_> {$(
            fn $read<const R: usize>(&mut self) -> Taken<View<'_, $elem, R>> {
                match self {
                    Self::$kind(data, dims) => Ok(View::new(data, rank(dims)?)),
                    _ => self.misfit(stringify!($kind)),
                }
            }

            fn $write<const R: usize>(&mut self) -> Taken<ViewMut<'_, $elem, R>> {
                match self {
                    Self::$kind(data, dims) => Ok(ViewMut::new(data, rank(dims)?)),
                    _ => self.misfit(stringify!($kind)),
                }
            }
        )*}
    };
}

arrays! {
    F32 f32 f32_mut f32;
    I32 i32 i32_mut i32;
    I64 i64 i64_mut i64;
    U32 u32 u32_mut u32;
    U64 u64 u64_mut u64;
}

fn rank<const R: usize>(dims: &[usize]) -> Taken<[usize; R]> {
    let got = format!("an array of {} axes", dims.len());
    dims.try_into().map_err(|_| ByNameError::Kind { got, want: "as many axes as declared" })
}

/// One weight for a view of two axes, one an expert for a view of three.
trait Weights<'a> {
    fn of(weights: &'a [PackedWeights]) -> Self;
}

impl<'a> Weights<'a> for PackedView<'a, 2> {
    fn of(weights: &'a [PackedWeights]) -> Self {
        Self::new(&weights[0])
    }
}

impl<'a> Weights<'a> for PackedView<'a, 3> {
    fn of(weights: &'a [PackedWeights]) -> Self {
        Self::new(weights)
    }
}

include!(concat!(env!("OUT_DIR"), "/by_name.rs"));
