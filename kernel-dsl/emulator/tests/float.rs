//! Every form of `float.ptx`: roundings against MPFR, the rest against the host's own arithmetic.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, module, words};
use tessera_emulator::Schedule;

const FORMS: usize = 121;
/// The first forms are seven operations in four roundings.
const ROUNDED: usize = 28;

fn run(a: &[u64], b: &[u64], c: &[u64]) -> Vec<u64> {
    let module = module("float.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let out = bench.buffer(&vec![0u64; FORMS * 64]);
    let params = [bench.buffer(a), bench.buffer(b), bench.buffer(c), out];
    bench.launch(&module, "forms", (1, 64, 0), &params).expect("a clean run of a sound file");
    bench.read::<u64>(out, FORMS * 64)
}

#[test]
fn roundings_are_those_of_mpfr() {
    let text = include_str!("golden/float_rounding.txt");
    let number = |word: &str| u64::from_str_radix(word, 16).unwrap();
    let rows: Vec<Vec<u64>> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(' ').map(number).collect())
        .collect();
    assert_eq!(rows.len(), 640);
    for rows in rows.chunks(64) {
        let [a, b, c] = [0, 1, 2].map(|column| rows.iter().map(|row| row[column]).collect());
        let (a, b, c): (Vec<u64>, Vec<u64>, Vec<u64>) = (a, b, c);
        let got = run(&a, &b, &c);
        for (thread, row) in rows.iter().enumerate() {
            for form in 0..ROUNDED {
                let (got, want) = (got[form * 64 + thread], row[3 + form]);
                assert_eq!(got, want, "form {form} of {:x?}: {got:x} {want:x}", &row[..3]);
            }
        }
    }
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}

fn d(x: u64) -> f64 {
    f64::from_bits(x)
}

fn b(x: f32) -> u64 {
    if x.is_nan() { 0x7fff_ffff } else { u64::from(x.to_bits()) }
}

fn z(x: u64) -> f32 {
    let x = f(x);
    if x.is_subnormal() { 0.0f32.copysign(x) } else { x }
}

fn fz(x: f32) -> u64 {
    b(z(u64::from(x.to_bits())))
}

fn sat(x: f32) -> u64 {
    if x.is_nan() { 0 } else { b(x.clamp(0.0, 1.0).abs()) }
}

fn pair(p: bool, q: bool) -> u64 {
    u64::from(p) | u64::from(q) << 1
}

/// Both results of a comparison that holds or not.
fn both(holds: bool) -> u64 {
    pair(holds, !holds)
}

/// Both results of one that holds where another does not.
fn neither(other: bool) -> u64 {
    both(!other)
}

fn total(x: f32) -> i64 {
    let bits = i64::from(x.to_bits() as i32);
    if bits < 0 { i64::from(i32::MIN) - bits } else { bits }
}

fn min(x: f32, y: f32) -> f32 {
    match (x.is_nan(), y.is_nan()) {
        (true, _) => y,
        (_, true) => x,
        _ if x == y => {
            if x.is_sign_negative() {
                x
            } else {
                y
            }
        }
        _ => {
            if total(x) < total(y) {
                x
            } else {
                y
            }
        }
    }
}

fn max(x: f32, y: f32) -> f32 {
    -min(-x, -y)
}

fn nan_or(x: f32, y: f32, value: f32) -> u64 {
    if x.is_nan() || y.is_nan() { 0x7fff_ffff } else { b(value) }
}

/// What a form gives for three operands; `None` where the manual leaves it open.
type Form = fn(u64, u64, u64) -> Option<u64>;

fn exact() -> Vec<Form> {
    vec![
        |a, c, _| Some(fz(z(a) + z(c))),
        |a, c, _| Some(fz(z(a) * z(c))),
        |a, c, e| Some(fz(z(a).mul_add(z(c), z(e)))),
        |a, c, _| Some(sat(f(a) + f(c))),
        |a, c, e| Some(sat(f(a).mul_add(f(c), f(e)))),
        |a, c, _| Some(b(min(f(a), f(c)))),
        |a, c, _| Some(b(max(f(a), f(c)))),
        |a, c, _| Some(nan_or(f(a), f(c), min(f(a), f(c)))),
        |a, c, _| Some(nan_or(f(a), f(c), max(f(a), f(c)))),
        |a, c, _| Some(fz(max(z(a), z(c)))),
        |a, c, _| {
            let least = min(f(a).abs(), f(c).abs());
            let sign = (a ^ c) & 0x8000_0000;
            (!least.is_nan()).then(|| u64::from(least.to_bits()) | sign)
        },
        |a, _, _| Some(a & 0x7fff_ffff),
        |a, _, _| Some(a & 0xffff_ffff ^ 0x8000_0000),
        |a, _, _| (!f(a).is_nan()).then(|| b(-z(a))),
        // The sign is the first operand's, the number the second's.
        |a, c, _| Some(a & 0x8000_0000 | c & 0x7fff_ffff),
        |a, c, _| Some((d(a) + d(c)).to_bits()),
        |a, c, _| Some((d(a) - d(c)).to_bits()),
        |a, c, _| Some((d(a) * d(c)).to_bits()),
        |a, c, e| Some(d(a).mul_add(d(c), d(e)).to_bits()),
        |a, c, _| Some((d(a) / d(c)).to_bits()),
        |a, _, _| Some(d(a).sqrt().to_bits()),
        |a, _, _| Some((1.0 / d(a)).to_bits()),
        |a, c, _| {
            let plain = d(a) != d(c) && !d(a).is_nan() && !d(c).is_nan();
            plain.then(|| d(a).min(d(c)).to_bits())
        },
        |a, _, _| Some(d(a).abs().to_bits()),
    ]
}

fn comparisons() -> Vec<Form> {
    vec![
        |a, c, _| Some(both(f(a) == f(c))),
        |a, c, _| {
            let holds = f(a) < f(c) || f(a) > f(c);
            Some(pair(holds, !holds))
        },
        |a, c, _| Some(both(f(a) < f(c))),
        |a, c, _| Some(both(f(a) <= f(c))),
        |a, c, _| Some(both(f(a) > f(c))),
        |a, c, _| Some(both(f(a) >= f(c))),
        |a, c, _| {
            let holds = !(f(a) < f(c) || f(a) > f(c));
            Some(pair(holds, !holds))
        },
        |a, c, _| Some(pair(f(a) != f(c), f(a) == f(c))),
        |a, c, _| Some(neither(f(a) >= f(c))),
        |a, c, _| Some(neither(f(a) > f(c))),
        |a, c, _| Some(neither(f(a) <= f(c))),
        |a, c, _| Some(neither(f(a) < f(c))),
        |a, c, _| {
            let holds = !f(a).is_nan() && !f(c).is_nan();
            Some(pair(holds, !holds))
        },
        |a, c, _| {
            let holds = f(a).is_nan() || f(c).is_nan();
            Some(pair(holds, !holds))
        },
        |a, c, _| Some(both(z(a) < z(c))),
        |a, c, _| Some(neither(d(a) < d(c))),
        |a, _, _| Some(pair(f(a).is_finite(), !f(a).is_finite())),
        |a, _, _| Some(pair(f(a).is_infinite(), !f(a).is_infinite())),
        |a, _, _| Some(pair(!f(a).is_nan(), f(a).is_nan())),
        |a, _, _| Some(pair(f(a).is_nan(), !f(a).is_nan())),
        |a, _, _| Some(pair(f(a).is_normal(), !f(a).is_normal())),
        |a, _, _| Some(pair(f(a).is_subnormal(), !f(a).is_subnormal())),
    ]
}

fn to_integers() -> Vec<Form> {
    fn nearest(x: f32) -> f32 {
        x.round_ties_even()
    }
    vec![
        |a, _, _| Some(u64::from(nearest(f(a)) as i32 as u32)),
        |a, _, _| Some(u64::from(nearest(f(a)) as u32)),
        |a, _, _| Some(b(nearest(f(a)))),
        |a, _, _| Some(d(a).round_ties_even() as i64 as u64),
        |a, _, _| Some(u64::from(f(a) as i32 as u32)),
        |a, _, _| Some(u64::from(f(a) as u32)),
        |a, _, _| Some(b(f(a).trunc())),
        |a, _, _| Some(d(a) as i64 as u64),
        |a, _, _| Some(u64::from(f(a).floor() as i32 as u32)),
        |a, _, _| Some(u64::from(f(a).floor() as u32)),
        |a, _, _| Some(b(f(a).floor())),
        |a, _, _| Some(d(a).floor() as i64 as u64),
        |a, _, _| Some(u64::from(f(a).ceil() as i32 as u32)),
        |a, _, _| Some(u64::from(f(a).ceil() as u32)),
        |a, _, _| Some(b(f(a).ceil())),
        |a, _, _| Some(d(a).ceil() as i64 as u64),
        |a, _, _| Some(u64::from(i32::from(nearest(f(a)) as i8) as u32)),
        |a, _, _| Some(u64::from(f(a) as u16)),
        |a, _, _| Some(f(a) as u64),
    ]
}

fn check(forms: &[Form], first: usize, operands: [&[u64]; 3]) {
    let [a, c, e] = operands;
    let got = run(a, c, e);
    for (index, form) in forms.iter().enumerate() {
        for thread in 0..64 {
            let Some(want) = form(a[thread], c[thread], e[thread]) else { continue };
            let got = got[(first + index) * 64 + thread];
            // Only f32 has one NaN; those of f64 differ in bits that nobody reads.
            let nans = d(got).is_nan() && d(want).is_nan() && want > u64::from(u32::MAX);
            let at = first + index;
            let (a, c, e) = (a[thread], c[thread], e[thread]);
            assert!(got == want || nans, "form {at} of {a:x}, {c:x}, {e:x}: {got:x}, {want:x}");
        }
    }
}

#[test]
fn what_the_host_computes_is_computed_alike() {
    let mut random = words(5);
    let corners = [
        0u64,
        0x8000_0000,
        1,
        0x8000_0001,
        0x7f_ffff,
        0x3f80_0000,
        0xbf80_0000,
        0x7f80_0000,
        0xff80_0000,
        0x7fc0_0000,
        0x7f7f_ffff,
        0x3f00_0000,
        0x4b00_0001,
        0xc0200000,
        0x4f00_0000,
    ];
    for round in 0..60 {
        let mut operand = |which: usize| -> Vec<u64> {
            let value = |i: usize| match (i + which) % 4 {
                0 => {
                    let bits = corners[(i * 3 + round * 7 + which * 5) % corners.len()];
                    bits | bits << 32
                }
                1 => random(),
                2 => {
                    let x = ((random() % 2_000_000) as f32 - 1e6) / 1024.0;
                    u64::from(x.to_bits()) | f64::from(x).to_bits() & 0xffff_ffff_0000_0000
                }
                _ => (random() & 0x83ff_ffff_83ff_ffff) | 0x3c00_0000_3c00_0000,
            };
            (0..64).map(value).collect()
        };
        let [a, c, e] = [0, 1, 2].map(&mut operand);
        check(&exact(), ROUNDED, [&a, &c, &e]);
        check(&comparisons(), 52, [&a, &c, &e]);
        check(&to_integers(), 86, [&a, &c, &e]);
    }
}

#[test]
fn approximations_are_close() {
    let values: Vec<f32> = (0..64).map(|i| 0.05 + i as f32 * 0.11).collect();
    let bits: Vec<u64> = values.iter().map(|x| u64::from(x.to_bits())).collect();
    let other: Vec<u64> = values.iter().map(|x| u64::from((x * 1.7).to_bits())).collect();
    let got = run(&bits, &other, &bits);
    let functions: [fn(f64) -> f64; 10] = [
        f64::exp2,
        f64::log2,
        |x| 1.0 / x.sqrt(),
        |x| 1.0 / x,
        f64::sin,
        f64::cos,
        f64::tanh,
        f64::sqrt,
        |x| x / f64::from(x as f32 * 1.7),
        |x| x / f64::from(x as f32 * 1.7),
    ];
    for (index, function) in functions.iter().enumerate() {
        for (thread, &x) in values.iter().enumerate() {
            let (got, want) = (f(got[(74 + index) * 64 + thread]), function(f64::from(x)));
            let close = (f64::from(got) - want).abs() <= want.abs() * 2f64.powi(-24) + 1e-9;
            assert!(close, "function {index} of {x}: {got} {want}");
        }
    }
}

#[test]
fn integers_become_floats_in_every_rounding() {
    let mut random = words(9);
    let a: Vec<u64> = (0..64).map(|i| random() >> (i % 50)).collect();
    let got = run(&a, &a, &a);
    let next = |x: f32, up: bool| if up { x.next_up() } else { x.next_down() };
    for (thread, &a) in a.iter().enumerate() {
        // Round, then step back if that is on the wrong side of the exact value.
        let directed = |mode: usize, x: f32, exact: i128| {
            let is = |x: f32| if x == f32::INFINITY { i128::MAX } else { x as i128 };
            let (above, below) = (is(x) > exact, is(x) < exact);
            match mode {
                1 if exact >= 0 && above || exact < 0 && below => next(x, exact < 0),
                2 if above => next(x, false),
                3 if below => next(x, true),
                _ => x,
            }
        };
        for mode in 0..4 {
            let at = |form: usize| got[(105 + 3 * mode + form) * 64 + thread];
            let small = a as i32;
            assert_eq!(at(0), b(directed(mode, small as f32, i128::from(small))));
            assert_eq!(at(1), b(directed(mode, a as f32, i128::from(a))));
        }
        assert_eq!(got[117 * 64 + thread], (a as i64 as f64).to_bits());
        let wide = got[118 * 64 + thread];
        assert!(wide == f64::from(f(a)).to_bits() || f(a).is_nan());
        assert_eq!(got[119 * 64 + thread], sat(f(a)));
        assert_eq!(got[120 * 64 + thread], fz(f(a)));
    }
}
