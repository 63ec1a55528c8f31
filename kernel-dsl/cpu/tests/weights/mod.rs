//! Kernels over packed weights, against the f64 evaluator.

use crate::{Noise, f32s, f32s_mut, generated, i32s, kernels};
use tessera_kernel_dsl::ir::Kernel;
use tessera_kernel_dsl::ir::eval::{Arg, Args, Data, PackedSource, evaluate};
use tessera_kernel_dsl::ir::format::Format;
use tessera_kernel_dsl::ir::{Elem, ParamKind};
use tessera_lanes::exec::{Cpu, PackedView};
use tessera_lanes::isa::{AnyIsa, Scalar};
use tessera_lanes::memory::Arena;
use tessera_lanes::packed::{PackedWeights, WeightParts};
use tessera_lanes::{Isa, Pool};

/// The values of packed weights.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) format: &'static Format,
    /// `[expert][row][col]`, or `[row][col]` of a matrix.
    pub(crate) values: Vec<f64>,
    pub(crate) dims: Vec<usize>,
}

impl PackedSource for Source {
    fn format(&self) -> &'static Format {
        self.format
    }

    fn value(&self, idx: &[usize]) -> f64 {
        self.values[idx.iter().zip(&self.dims).fold(0, |at, (i, extent)| at * extent + i)]
    }
}

/// Weights of random codes and scales near 1.
pub(crate) fn weights(
    format: &'static Format,
    [rows, cols]: [usize; 2],
    noise: &mut Noise,
) -> PackedWeights {
    let codes: Vec<u8> = match format.name {
        "f32" => noise.f32s(rows * cols).iter().flat_map(|x| x.to_le_bytes()).collect(),
        // Codes of NaN are left out.
        _ => (0..format.row_bytes(cols) * rows).map(|_| noise.byte() & 0xbb).collect(),
    };
    let (mut scales, mut zero_points) = (Vec::new(), Vec::new());
    let tiles = format.tiles(rows, cols);
    if let Some(tile) = format.scale_tile {
        for scale in noise.f32s(tiles) {
            tile.scale.push(scale.abs() + 0.25, &mut scales);
        }
    }
    if format.zero_point {
        zero_points = (0..tiles).map(|_| noise.byte() % 16).collect();
    }
    let parts = WeightParts {
        format,
        rows,
        cols,
        codes: &codes,
        scales: &scales,
        zero_points: &zero_points,
        tensor_scale: 1.0,
    };
    PackedWeights::pack(&parts, &Arena::new()).expect("the parts fit")
}

/// All values of weights.
pub(crate) fn values(w: &PackedWeights) -> Vec<f64> {
    let mut out = vec![0.0; w.rows() * w.cols()];
    let scalar = Scalar::detect().expect("always there");
    w.decode_block(scalar, [0..w.rows(), 0..w.cols()], &mut out, w.cols());
    out.into_iter().map(f64::from).collect()
}

/// The format that a kernel's weights have.
pub(crate) fn format_of(kernel: &Kernel) -> &'static Format {
    let format = |kind: &ParamKind| match kind {
        ParamKind::View { elem: Elem::Packed(format), .. } => Some(*format),
        _ => None,
    };
    kernel.params.iter().find_map(|param| format(&param.kind)).expect("one is packed")
}

fn built(name: &str) -> Vec<Kernel> {
    let all = kernels::built();
    all.into_iter().find(|v| v[0].name == name).expect("a kernel of that name")
}

#[test]
fn multiply() {
    let mut noise = Noise(10);
    for kernel in built("multiply") {
        let format = format_of(&kernel);
        for (m, n, k, e) in [(1, 32, 128, 1), (3, 40, 96, 2), (8, 16, 160, 1), (11, 70, 288, 2)] {
            let experts: Vec<PackedWeights> =
                (0..e).map(|_| weights(format, [n, k], &mut noise)).collect();
            let source = Source {
                format,
                values: experts.iter().flat_map(values).collect(),
                dims: vec![e, n, k],
            };
            let x = noise.f32s(m * k);
            let mut truth = Args(vec![
                Arg::f32(x.clone(), &[m, k]),
                Arg::array(Data::Packed(Box::new(source)), &[e, n, k]),
                Arg::f32(vec![0.0; e * m * n], &[e, m, n]),
            ]);
            evaluate(&kernel, &mut truth).unwrap_or_else(|e| panic!("{}: {e}", kernel.label()));
            let want = truth.0[2].as_f32();
            let mut first: Option<Vec<u32>> = None;
            for isa in AnyIsa::available() {
                let cpu = Cpu::new(isa, Pool::new(2).expect("a pool starts"));
                let mut args =
                    [Arg::f32(x.clone(), &[m, k]), Arg::f32(vec![7.0; e * m * n], &[e, m, n])];
                let [x, y] = &mut args;
                let w = PackedView::<3>::new(&experts);
                let launch = generated::multiply::Multiply { x: f32s(x), w, y: f32s_mut(y) };
                launch.launch(&cpu).expect("the launch runs");
                let got = args[1].as_f32();
                let largest = want.iter().fold(0.0f32, |a, b| a.max(b.abs()));
                for (i, (a, b)) in got.iter().zip(want).enumerate() {
                    let near = (a - b).abs() <= 2e-5 * largest;
                    assert!(near, "{} on {isa:?} {m}x{n}x{k} [{i}]: {a}, not {b}", kernel.label());
                }
                let bits: Vec<u32> = got.iter().map(|x| x.to_bits()).collect();
                assert!(first.get_or_insert(bits.clone()) == &bits, "bits differ on {isa:?}");
            }
        }
    }
}

#[test]
fn lookup() {
    let mut noise = Noise(11);
    for kernel in built("lookup") {
        let format = format_of(&kernel);
        let (v, n, ids) = (21, 96, vec![3, 20, 0, 7, 21, -1, 5]);
        let t = ids.len();
        let w = weights(format, [v, n], &mut noise);
        let source = Source { format, values: values(&w), dims: vec![v, n] };
        let ids = Arg::array(Data::I32(ids), &[t]);
        let zeros = |rows| Arg::f32(vec![0.0; rows * n], &[rows, n]);
        let mut truth = Args(vec![
            ids,
            Arg::array(Data::Packed(Box::new(source)), &[v, n]),
            zeros(t),
            zeros(4),
        ]);
        evaluate(&kernel, &mut truth).unwrap_or_else(|e| panic!("{}: {e}", kernel.label()));
        for isa in AnyIsa::available() {
            let cpu = Cpu::new(isa, Pool::of_caller());
            let (mut out, mut first) = (zeros(t), zeros(4));
            let launch = generated::lookup::Lookup {
                ids: i32s(&truth.0[0]),
                w: PackedView::<2>::new(&w),
                out: f32s_mut(&mut out),
                first: f32s_mut(&mut first),
            };
            launch.launch(&cpu).expect("the launch runs");
            assert_eq!(out.as_f32(), truth.0[2].as_f32(), "{}", kernel.label());
            assert_eq!(first.as_f32(), truth.0[3].as_f32(), "{}", kernel.label());
        }
    }
}
