//! Kernels that Triton compiled: pipelines of copies in front of tensor cores, swizzled shared
//! memory, and softmax between two products.

#![allow(
    clippy::cast_possible_truncation,
    reason = "halves of words are meant, and sizes are small"
)]

mod harness;

use harness::{Bench, SCHEDULES, module, words};
use tessera_emulator::{Fault, Launch, Module, Profile, Schedule};

/// A half of a number that it can hold, or the next one towards zero.
fn half(value: f32) -> u16 {
    let bits = value.to_bits();
    let exponent = (bits >> 23 & 0xff) as i32 - 112;
    match exponent {
        ..=0 => 0,
        _ => ((bits >> 16 & 0x8000) | (exponent as u32) << 10 | (bits >> 13 & 0x3ff)) as u16,
    }
}

fn value(half: u16) -> f64 {
    let sign = if half & 0x8000 == 0 { 1.0 } else { -1.0 };
    match (half >> 10 & 31, half & 0x3ff) {
        (0, _) => 0.0,
        (exponent, fraction) => {
            let significand = 1.0 + f64::from(fraction) / 1024.0;
            sign * significand * 2f64.powi(i32::from(exponent) - 15)
        }
    }
}

/// Launches an entry with pointers, 32-bit words and Triton's scratch pointer, which is not used.
fn launch(
    bench: &mut Bench,
    module: &Module,
    dims: ([u32; 3], u32),
    params: (&[u64], &[u32]),
) -> Profile {
    attempt(bench, module, dims, params).unwrap_or_else(|fault| panic!("{fault}"))
}

fn attempt(
    bench: &mut Bench,
    module: &Module,
    (grid, shared): ([u32; 3], u32),
    (pointers, sizes): (&[u64], &[u32]),
) -> Result<Profile, Fault> {
    let mut params: Vec<u8> = pointers.iter().flat_map(|pointer| pointer.to_le_bytes()).collect();
    sizes.iter().for_each(|size| params.extend(size.to_le_bytes()));
    params.resize(params.len().next_multiple_of(8), 0);
    params.extend(0u64.to_le_bytes());
    let launch = Launch { grid, block: [128, 1, 1], shared_bytes: shared, params: &params };
    bench.machine.launch(module, module.entries()[0].name(), &launch)
}

fn schedules() -> impl Iterator<Item = Schedule> {
    SCHEDULES.into_iter().chain((10..15).map(Schedule::Random))
}

#[test]
fn matmul() {
    let module = module("triton_matmul.ptx");
    let (m, n, k) = (100, 128, 80);
    let mut random = words(5);
    let mut integers =
        |count: usize| -> Vec<i32> { (0..count).map(|_| (random() % 9) as i32 - 4).collect() };
    let (a, b) = (integers(128 * k), integers(k * n));
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let halves = |values: &[i32]| -> Vec<u16> {
            values.iter().map(|&value| half(value as f32)).collect()
        };
        let (pa, pb) = (bench.buffer(&halves(&a)), bench.buffer(&halves(&b)));
        let pc = bench.buffer(&vec![-1.0f32; m * n]);
        let sizes = [m, n, k, k, n, n].map(|size| size as u32);
        let profile = launch(&mut bench, &module, ([2, 2, 1], 24576), (&[pa, pb, pc], &sizes));
        // Two steps of the depth a tile, three tiles, four warps, four CTAs, eight times eight columns.
        assert_eq!(profile.total.mma, 2 * 3 * 4 * 4 * (64 / 8));
        let got = bench.read::<f32>(pc, m * n);
        for (at, got) in got.into_iter().enumerate() {
            let (row, column) = (at / n, at % n);
            let sum: i32 = (0..k).map(|k_at| a[row * k + k_at] * b[k_at * n + column]).sum();
            assert_eq!(got, sum as f32, "{row} {column} {schedule:?}");
        }
    }
}

#[test]
fn attention() {
    const D: usize = 64;
    let module = module("triton_attention.ptx");
    let (n, scale) = (150, 0.18f32);
    let mut random = words(6);
    let mut halves = || -> Vec<u16> {
        (0..n * D).map(|_| half((random() % 2001) as f32 / 500.0 - 2.0)).collect()
    };
    let (q, k, v) = (halves(), halves(), halves());
    let dot = |i: usize, j: usize| -> f64 {
        let products = (0..D).map(|d| value(q[i * D + d]) * value(k[j * D + d]));
        products.sum::<f64>() * f64::from(scale)
    };
    let mut want = vec![0.0; n * D];
    for i in 0..n {
        let scores: Vec<f64> = (0..n).map(|j| dot(i, j)).collect();
        let most = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp2()).collect();
        let sum: f64 = weights.iter().sum();
        for d in 0..D {
            let mixed = (0..n).map(|j| weights[j] * value(v[j * D + d]));
            want[i * D + d] = mixed.sum::<f64>() / sum;
        }
    }
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let pointers = [bench.buffer(&q), bench.buffer(&k), bench.buffer(&v)];
        let out = bench.empty((n * D * 4) as u64);
        let pointers = [pointers.as_slice(), &[out]].concat();
        let sizes = [n as u32, scale.to_bits()];
        launch(&mut bench, &module, ([3, 1, 1], 40960), (&pointers, &sizes));
        let got = bench.read::<f32>(out, n * D);
        // Weights are rounded to halves before the second product.
        let worst = got.iter().zip(&want).map(|(got, want)| (f64::from(*got) - want).abs());
        let worst = worst.fold(0.0, f64::max);
        assert!(worst < 1e-3, "{worst} {schedule:?}");
    }
}

/// Every barrier and every wait of the pipeline that orders anything: without it, some schedule
/// finds a fault.
#[test]
fn nothing_of_the_pipeline_can_be_left_out() {
    let text = include_str!("ptx/triton_matmul.ptx");
    let synchronises = |line: &str| {
        ["bar.sync", "cp.async.wait_group", "wgmma.wait_group"]
            .iter()
            .any(|what| line.contains(what))
    };
    let lines: Vec<usize> =
        text.lines().enumerate().filter(|(_, line)| synchronises(line)).map(|(at, _)| at).collect();
    assert_eq!(lines.len(), 9);
    let mut missed = Vec::new();
    for &left_out in &lines {
        let kept = text.lines().enumerate().filter(|(at, _)| *at != left_out).map(|(_, line)| line);
        let module = Module::parse(&kept.collect::<Vec<_>>().join("\n")).unwrap();
        let found = schedules().any(|schedule| {
            let mut bench = Bench::new(schedule);
            let (a, b) = (bench.buffer(&[0u16; 64 * 192]), bench.buffer(&[0u16; 64 * 192]));
            let c = bench.empty(64 * 64 * 4);
            let sizes = [64, 64, 192, 192, 64, 64];
            let dims = ([1, 1, 1], 24576);
            attempt(&mut bench, &module, dims, (&[a, b, c], &sizes)).is_err()
        });
        if !found {
            missed.push(left_out);
        }
    }
    // The first one stands where nobody has touched a stage twice: it orders nothing.
    assert_eq!(missed, lines[..1], "of {lines:?}");
}
