//! Generated code, compiled and run on every instruction set, against the f64 evaluator.

mod ends;
mod kernels;
mod weights;

#[allow(
    missing_docs,
    unreachable_pub,
    unused,
    clippy::all,
    clippy::too_many_lines,
    clippy::cast_possible_truncation,
    reason = "generated"
)]
#[rustfmt::skip]
mod generated {
    pub mod attend;
    pub mod bits;
    pub mod checked;
    pub mod control;
    pub mod elementary;
    pub mod lookup;
    pub mod multiply;
    pub mod order;
    pub mod ragged;
    pub mod ragged_codes;
    pub mod ragged_product;
    pub mod recode;
    pub mod rms_norm;
    pub mod softmax;
    pub mod table;
}

use tessera_kernel_dsl::ir::Kernel;
use tessera_kernel_dsl::ir::eval::{Arg, Args, Array, Data, evaluate};
use tessera_kernel_dsl::ir::format::Element;
use tessera_kernel_dsl::ir::op::Literal;
use tessera_lanes::exec::{Cpu, LaunchError, StoredView, StoredViewMut};
use tessera_lanes::isa::AnyIsa;
use tessera_lanes::{Pool, View, ViewMut};

type Run = fn(&mut [Arg], &Cpu) -> Result<(), LaunchError>;

/// The committed text is what the generator makes of the kernels today, each time it runs.
#[test]
fn the_committed_text_is_current() {
    for (variants, again) in kernels::built().iter().zip(kernels::built()) {
        let name = &variants[0].name;
        let text = kernels::file(variants);
        assert!(text == kernels::file(&again), "{name}: the same kernel gives the same text");
        let path = format!("{}/tests/generated/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        let differs = |(_, (now, then)): &(usize, (&str, &str))| now != then;
        let pairs = text.lines().zip(committed.lines()).enumerate();
        if let Some((line, (now, then))) = pairs.into_iter().find(differs) {
            panic!(
                "{name}.rs:{} is now\n{now}\nand was\n{then}\nif that is right: cargo run -p \
                 tessera-kernel-cpu --example test_kernels kernel-dsl/cpu/tests/generated",
                line + 1
            );
        }
        assert_eq!(text.lines().count(), committed.lines().count(), "lines of {name}.rs");
    }
}

/// The compiler keeps what it made of a file that did not change.
#[test]
fn the_file_of_a_kernel_does_not_depend_on_the_others() {
    let built = kernels::built();
    let files = tessera_kernel_cpu::modules(&built, "cpu").expect("code");
    assert_eq!(files.len(), built.len() + 1);
    for (file, variants) in files[1..].iter().zip(built) {
        let alone = tessera_kernel_cpu::modules(&[variants], "cpu").expect("code");
        assert!(*file == alone[1], "{}", file.name);
    }
}

struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn u32(&mut self) -> u32 {
        (self.next() >> 32) as u32
    }

    fn byte(&mut self) -> u8 {
        self.u32().to_le_bytes()[3]
    }

    fn f32s(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0).collect()
    }
}

fn copy(args: &[Arg]) -> Vec<Arg> {
    let data = |data: &Data| match data {
        Data::F32(v) => Data::F32(v.clone()),
        Data::I32(v) => Data::I32(v.clone()),
        Data::I64(v) => Data::I64(v.clone()),
        Data::U32(v) => Data::U32(v.clone()),
        Data::U64(v) => Data::U64(v.clone()),
        Data::Stored(v) => Data::Stored(v.clone()),
        Data::Packed(_) => panic!("no packed arguments here"),
    };
    let one = |arg: &Arg| match arg {
        Arg::Scalar(value) => Arg::Scalar(*value),
        Arg::Array(a) => Arg::strided(data(&a.data), &a.dims, &a.strides),
    };
    args.iter().map(one).collect()
}

/// Runs the kernel by the evaluator and by generated code: on every instruction set and one or two
/// threads, with equal bits.
fn check(kernel: &Kernel, tolerance: f32, args: Vec<Arg>, run: Run) {
    let mut truth = Args(copy(&args));
    evaluate(kernel, &mut truth).unwrap_or_else(|e| panic!("{}: {e}", kernel.label()));
    let mut first: Option<Vec<Arg>> = None;
    for isa in AnyIsa::available() {
        for threads in [1, 2] {
            let cpu = Cpu::new(isa, Pool::new(threads).expect("a pool starts"));
            let mut got = copy(&args);
            run(&mut got, &cpu).unwrap_or_else(|e| panic!("{}: {e}", kernel.label()));
            for (i, (got, want)) in got.iter().zip(&truth.0).enumerate() {
                let name = &kernel.params[i].name;
                close((got, want), tolerance, &format!("{} `{name}` on {isa:?}", kernel.label()));
            }
            match &first {
                None => first = Some(got),
                Some(first) => {
                    let same = format!("{first:?}") == format!("{got:?}");
                    assert!(same, "{} differs in bits on {isa:?}", kernel.label());
                }
            }
        }
    }
}

fn close((got, want): (&Arg, &Arg), tolerance: f32, what: &str) {
    match (got, want) {
        (
            Arg::Array(Array { data: Data::F32(got), .. }),
            Arg::Array(Array { data: Data::F32(want), .. }),
        ) => {
            for (i, (a, b)) in got.iter().zip(want).enumerate() {
                let near = (a - b).abs() <= tolerance * (1.0 + b.abs());
                assert!(near || a == b || a.is_nan() && b.is_nan(), "{what}[{i}]: {a}, not {b}");
            }
        }
        (got, want) => assert_eq!(format!("{got:?}"), format!("{want:?}"), "{what}"),
    }
}

fn dims<const R: usize>(array: &Array) -> [usize; R] {
    array.dims.as_slice().try_into().expect("the rank of the view")
}

macro_rules! views {
    ($($read:ident $write:ident $kind:ident $elem:ty;)*) => {$(
        #[allow(dead_code, reason = "one macro for all elements")]
        fn $read<const R: usize>(arg: &Arg) -> View<'_, $elem, R> {
            match arg {
                Arg::Array(array) => match &array.data {
                    Data::$kind(data) => View::new(data, dims(array)),
                    other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        }
        #[allow(dead_code, reason = "one macro for all elements")]
        fn $write<const R: usize>(arg: &mut Arg) -> ViewMut<'_, $elem, R> {
            match arg {
                Arg::Array(array) => {
                    let dims = dims(array);
                    match &mut array.data {
                        Data::$kind(data) => ViewMut::new(data, dims),
                        other => panic!("{other:?}"),
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    )*};
}

views! {
    f32s f32s_mut F32 f32;
    i32s i32s_mut I32 i32;
    u32s u32s_mut U32 u32;
    i64s i64s_mut I64 i64;
    u64s u64s_mut U64 u64;
}

#[expect(clippy::cast_possible_truncation, reason = "the tests' scalars are f32")]
fn float(arg: &Arg) -> f32 {
    match arg {
        Arg::Scalar(Literal::Float(value)) => *value as f32,
        other => panic!("{other:?}"),
    }
}

fn zeros(dims: &[usize]) -> Arg {
    Arg::f32(vec![0.0; dims.iter().product()], dims)
}

/// The variants of the kernel of that name.
fn built(name: &str) -> Vec<Kernel> {
    let all = kernels::built();
    all.into_iter().find(|v| v[0].name == name).expect("a kernel of that name")
}

#[test]
fn rms_norm() {
    let run: Run = |args, cpu| {
        let [x, weight, eps, out] = args else { panic!("four arguments") };
        let launch = generated::rms_norm::RmsNorm {
            x: f32s(x),
            weight: f32s(weight),
            eps: float(eps),
            out: f32s_mut(out),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(1);
    for (t, n) in [(1, 1), (3, 48), (2, 100), (5, 17), (0, 8), (2, 0)] {
        let args = vec![
            Arg::f32(noise.f32s(t * n), &[t, n]),
            Arg::f32(noise.f32s(n), &[n]),
            Arg::Scalar(Literal::Float(1e-5)),
            zeros(&[t, n]),
        ];
        check(&built("rms_norm")[0], 1e-6, args, run);
    }
}

#[test]
fn softmax() {
    let run: Run = |args, cpu| {
        let [x, largest] = args else { panic!("two arguments") };
        generated::softmax::Softmax { x: f32s_mut(x), largest: f32s_mut(largest) }.launch(cpu)
    };
    let mut noise = Noise(2);
    for (m, n) in [(1, 1), (8, 40), (11, 16), (3, 33), (17, 5)] {
        let args = vec![Arg::f32(noise.f32s(m * n), &[m, n]), zeros(&[1, n])];
        check(&built("softmax")[0], 1e-6, args, run);
    }
}

#[test]
fn attend() {
    let run: Run = |args, cpu| {
        let [q, k, out, lse] = args else { panic!("four arguments") };
        let launch = generated::attend::Attend {
            q: f32s(q),
            k: f32s(k),
            out: f32s_mut(out),
            lse: f32s_mut(lse),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(3);
    for (m, s) in [(1, 1), (4, 10), (7, 23), (9, 40)] {
        let args = vec![
            Arg::f32(noise.f32s(m * 24), &[m, 24]),
            Arg::f32(noise.f32s(s * 24), &[s, 24]),
            zeros(&[m, 16]),
            zeros(&[m]),
        ];
        check(&built("attend")[0], 1e-5, args, run);
    }
}

#[test]
fn bits() {
    let run: Run = |args, cpu| {
        let [a, b, c, mixed, signed, wide, digest, count] = args else { panic!("eight") };
        let launch = generated::bits::Bits {
            a: u32s(a),
            b: i32s(b),
            c: u64s(c),
            mixed: u32s_mut(mixed),
            signed: i32s_mut(signed),
            wide: u64s_mut(wide),
            digest: u64s_mut(digest),
            count: u32s_mut(count),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(4);
    for n in [1usize, 20, 21, 77] {
        let p = n.div_ceil(20);
        let args = vec![
            Arg::array(Data::U32((0..n).map(|_| noise.u32()).collect()), &[n]),
            Arg::array(Data::I32((0..n).map(|_| noise.u32().cast_signed() >> 4).collect()), &[n]),
            Arg::array(Data::U64((0..n).map(|_| noise.next()).collect()), &[n]),
            Arg::array(Data::U32(vec![0; n]), &[n]),
            Arg::array(Data::I32(vec![0; n]), &[n]),
            Arg::array(Data::U64(vec![0; n]), &[n]),
            Arg::array(Data::U64(vec![0; p]), &[p]),
            Arg::array(Data::U32(vec![5]), &[1]),
        ];
        check(&built("bits")[0], 0.0, args, run);
    }
}

#[test]
fn table() {
    let run: Run = |args, cpu| {
        let [from, ids, rows, spots, inverse] = args else { panic!("five arguments") };
        let launch = generated::table::Table {
            from: f32s(from),
            ids: i32s(ids),
            rows: f32s_mut(rows),
            spots: f32s_mut(spots),
            inverse: i64s_mut(inverse),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(5);
    for (p, n, ids) in
        [(9, 20, vec![3, 0, 8, 1, 2, 7, 5]), (4, 5, vec![2, -1, 3, 40]), (3, 32, vec![])]
    {
        let r = ids.len();
        let args = vec![
            Arg::f32(noise.f32s(p * n), &[p, n]),
            Arg::array(Data::I32(ids), &[r]),
            zeros(&[r, n]),
            zeros(&[r]),
            Arg::i64(vec![-7; p], &[p]),
        ];
        check(&built("table")[0], 0.0, args, run);
    }
}

#[test]
fn control() {
    let run: Run = |args, cpu| {
        let [x, limit, out] = args else { panic!("three arguments") };
        let launch =
            generated::control::Control { x: f32s(x), limit: float(limit), out: f32s_mut(out) };
        launch.launch(cpu)
    };
    let mut noise = Noise(6);
    for n in [0usize, 1, 5, 12] {
        let x = noise.f32s(n).into_iter().map(|x| x + 0.5).collect();
        let args = vec![Arg::f32(x, &[n]), Arg::Scalar(Literal::Float(2.0)), zeros(&[3, 8])];
        check(&built("control")[0], 1e-5, args, run);
    }
}

#[test]
fn recode() {
    let mut noise = Noise(7);
    for kernel in built("recode") {
        let element = [Element::F8E4M3, Element::F8E5M2, Element::Bf16, Element::F16]
            .into_iter()
            .find(|element| kernel.formats[0] == element.name())
            .expect("one of the four");
        for (m, n) in [(3, 50), (4, 17), (1, 1)] {
            let mut x = noise.f32s(m * n);
            for (i, x) in x.iter_mut().enumerate() {
                let powers = [1.0, 600.0, 1e-3, 1e-9, 1e30, 1e-40, 70_000.0];
                *x *= powers[i % 7];
            }
            let awkward = [f32::NAN, f32::INFINITY, -f32::INFINITY, 0.0, -0.0, 448.0, 464.0];
            x.iter_mut().skip(1).zip(awkward).for_each(|(x, awkward)| *x = awkward);
            let bytes = m * n * element.bits() / 8;
            let codes = (0..bytes).map(|_| noise.byte()).collect();
            let args = vec![
                Arg::f32(x, &[m, n]),
                Arg::array(Data::Stored(codes), &[m, n]),
                zeros(&[m, n]),
            ];
            check_recode(&kernel, element, args);
        }
    }
}

fn check_recode(kernel: &Kernel, element: Element, args: Vec<Arg>) {
    let mut truth = Args(copy(&args));
    evaluate(kernel, &mut truth).expect("the kernel runs");
    for isa in AnyIsa::available() {
        let cpu = Cpu::new(isa, Pool::of_caller());
        let mut got = copy(&args);
        let [x, codes, values] = got.as_mut_slice() else { panic!("three arguments") };
        let Arg::Array(Array { data: Data::Stored(bytes), dims: shape, .. }) = codes else {
            panic!("codes are stored")
        };
        let shape = [shape[0], shape[1]];
        let launch = generated::recode::Recode {
            x: f32s(x),
            codes: StoredViewMut::new(bytes, element, shape),
            values: f32s_mut(values),
        };
        launch.launch(&cpu).expect("the launch runs");
        for (got, want) in got.iter().zip(&truth.0) {
            close((got, want), 0.0, &format!("{} on {isa:?}", kernel.label()));
        }
    }
}

#[test]
fn order() {
    let run: Run = |args, cpu| {
        let [x, prefix, down, best, tallest, joined, flat, flags] = args else { panic!("eight") };
        let launch = generated::order::Order {
            x: f32s(x),
            prefix: f32s_mut(prefix),
            down: f32s_mut(down),
            best: i64s_mut(best),
            tallest: i64s_mut(tallest),
            joined: f32s_mut(joined),
            flat: f32s_mut(flat),
            flags: i64s_mut(flags),
        };
        launch.launch(cpu)
    };
    let mut noise = Noise(8);
    for (n, nan) in [(21, false), (21, true), (9, false), (30, false)] {
        let mut x = noise.f32s(5 * n);
        if nan {
            x[n + 4] = f32::NAN;
        }
        let args = vec![
            Arg::f32(x, &[5, n]),
            zeros(&[5, 21]),
            zeros(&[5, 21]),
            Arg::i64(vec![0; 5], &[5]),
            Arg::i64(vec![0; 21], &[1, 21]),
            zeros(&[5, 32]),
            zeros(&[6, 7]),
            Arg::i64(vec![0; 42], &[2, 21]),
        ];
        check(&built("order")[0], 1e-6, args, run);
    }
}

#[test]
fn elementary() {
    let run: Run = |args, cpu| {
        let [x, out] = args else { panic!("two arguments") };
        generated::elementary::Elementary { x: f32s(x), out: f32s_mut(out) }.launch(cpu)
    };
    let x = Noise(9).f32s(3 * 18).into_iter().map(|x| x * 6.0).collect();
    check(&built("elementary")[0], 1e-6, vec![Arg::f32(x, &[3, 18]), zeros(&[3, 12, 18])], run);
}

#[test]
fn a_launch_picks_the_variant_that_fits_or_says_why_none_does() {
    let cpu = Cpu::of_caller();
    let launch = |x: &[i32], n: usize, out: &mut [i32]| {
        let out = ViewMut::new(out, [2, n]);
        generated::checked::Checked { x: View::new(x, [2, n]), out }.launch(&cpu)
    };
    for n in [3, 8, 9, 24] {
        let x: Vec<i32> = (0..2 * n).collect();
        let n = n as usize;
        let mut out = vec![0; 2 * n];
        launch(&x, n, &mut out).expect("a variant fits");
        assert!(out.iter().zip(&x).all(|(y, x)| *y == 2 * x), "{out:?}");
    }
    let wide = launch(&[0; 50], 25, &mut [0; 50]).expect_err("too wide");
    let want = "checked: rows are as wide as a variant (program [0, 0, 0])";
    assert_eq!(wide.to_string(), want);
    let bad = launch(&[1, 2, -3, 4], 2, &mut [0; 4]).expect_err("negative");
    assert_eq!(bad.to_string(), "checked: `x` counts (program [1, 0, 0])");
    let out = ViewMut::new(&mut [], [2, 0]);
    let shape = generated::checked::Checked { x: View::new(&[0; 6], [2, 3]), out }.launch(&cpu);
    let want = "checked: `out` has shape [2, 0], expected [M = 2, N = 3]";
    assert_eq!(shape.expect_err("shapes differ").to_string(), want);
    let _ = StoredView::new(&[], Element::F16, [0]);
}
