//! Views that end early: in the middle of a tile, before its start, past the view.

use crate::weights::{Source, format_of, values, weights};
use crate::{
    Noise, Run, built, check, close, copy, f32s, f32s_mut, generated, i64s, i64s_mut, zeros,
};
use tessera_kernel_dsl::ir::eval::{Arg, Args, Array, Data, evaluate};
use tessera_kernel_dsl::ir::format::Element;
use tessera_kernel_dsl::ir::op::Literal;
use tessera_lanes::Pool;
use tessera_lanes::exec::{Cpu, PackedView, StoredView, StoredViewMut};
use tessera_lanes::isa::AnyIsa;

/// Segments of 19 rows: `[start, end]` of each. Some rows are in none.
const SEGMENTS: [[i64; 2]; 6] = [[0, 3], [3, 12], [12, 12], [14, 13], [13, 15], [17, 99]];
const ROWS: usize = 19;

fn bounds() -> Arg {
    Arg::i64(SEGMENTS.concat(), &[SEGMENTS.len(), 2])
}

#[test]
fn ragged() {
    let run: Run = |args, cpu| {
        let [x, bounds, changed, product, gram, last, first] = args else { panic!("seven") };
        let launch = generated::ragged::Ragged {
            x: f32s(x),
            bounds: i64s(bounds),
            changed: f32s_mut(changed),
            product: f32s_mut(product),
            gram: f32s_mut(gram),
            last: i64s_mut(last),
            first: f32s_mut(first),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(20);
    for n in [21, 5, 33] {
        let args = vec![
            Arg::f32(noise.f32s(ROWS * n), &[ROWS, n]),
            bounds(),
            Arg::f32(noise.f32s(ROWS * n), &[ROWS, n]),
            zeros(&[SEGMENTS.len(), 4, 4]),
            zeros(&[ROWS, 4]),
            Arg::i64(vec![-3; SEGMENTS.len()], &[SEGMENTS.len()]),
            zeros(&[ROWS]),
        ];
        check(&built("ragged")[0], 1e-5, args, run);
    }
}

#[test]
fn ragged_codes() {
    let mut noise = Noise(21);
    for kernel in built("ragged_codes") {
        let element = [Element::F8E4M3, Element::F8E5M2, Element::Bf16, Element::F16]
            .into_iter()
            .find(|element| kernel.formats[0] == element.name())
            .expect("one of the four");
        for end in [-2, 0, 1, 4, 5, 7, i64::MAX] {
            let bytes = 5 * 20 * element.bits() / 8;
            // Codes of NaN are left out.
            let mut codes = || (0..bytes).map(|_| noise.byte() & 0x3b).collect();
            let args = vec![
                Arg::Scalar(Literal::Int(end)),
                Arg::array(Data::Stored(codes()), &[5, 20]),
                Arg::array(Data::Stored(codes()), &[5, 20]),
                zeros(&[5, 20]),
            ];
            let mut truth = Args(copy(&args));
            evaluate(&kernel, &mut truth).expect("the kernel runs");
            for isa in AnyIsa::available() {
                let mut got = copy(&args);
                let [_, from, codes, values] = got.as_mut_slice() else { panic!("four") };
                let launch = generated::ragged_codes::RaggedCodes {
                    end,
                    from: StoredView::new(stored(from), element, [5, 20]),
                    codes: StoredViewMut::new(stored(codes), element, [5, 20]),
                    values: f32s_mut(values),
                };
                launch.launch(&Cpu::new(isa, Pool::of_caller())).expect("the launch runs");
                for (got, want) in got.iter().zip(&truth.0) {
                    close((got, want), 0.0, &format!("{} until {end} on {isa:?}", kernel.label()));
                }
            }
        }
    }
}

fn stored(arg: &mut Arg) -> &mut [u8] {
    match arg {
        Arg::Array(Array { data: Data::Stored(bytes), .. }) => bytes,
        other => panic!("{other:?}"),
    }
}

#[test]
fn ragged_product() {
    let mut noise = Noise(22);
    for kernel in built("ragged_product") {
        for (n, k) in [(40, 160), (16, 96), (33, 128)] {
            let format = format_of(&kernel);
            let w = weights(format, [n, k], &mut noise);
            let source = Source { format, values: values(&w), dims: vec![n, k] };
            let x = noise.f32s(ROWS * k);
            // Rows in no segment keep what they hold.
            let y = || Arg::f32(vec![7.0; ROWS * n], &[ROWS, n]);
            let mut truth = Args(vec![
                Arg::f32(x.clone(), &[ROWS, k]),
                Arg::array(Data::Packed(Box::new(source)), &[n, k]),
                bounds(),
                y(),
                y(),
            ]);
            evaluate(&kernel, &mut truth).unwrap_or_else(|e| panic!("{}: {e}", kernel.label()));
            let mut first: Option<String> = None;
            for isa in AnyIsa::available() {
                let (mut product, mut head) = (y(), y());
                let launch = generated::ragged_product::RaggedProduct {
                    x: f32s(&truth.0[0]),
                    w: PackedView::<2>::new(&w),
                    bounds: i64s(&truth.0[2]),
                    y: f32s_mut(&mut product),
                    head: f32s_mut(&mut head),
                };
                launch.launch(&Cpu::new(isa, Pool::of_caller())).expect("the launch runs");
                let what = format!("{} {n}x{k} on {isa:?}", kernel.label());
                close((&product, &truth.0[3]), 2e-4, &what);
                close((&head, &truth.0[4]), 2e-4, &what);
                let bits = format!("{product:?} {head:?}");
                assert!(first.get_or_insert(bits.clone()) == &bits, "bits differ: {what}");
            }
        }
    }
}
