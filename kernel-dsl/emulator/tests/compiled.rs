//! Kernels that NVIDIA's compiler made of CUDA C, against the same computed on the host.

#![allow(clippy::cast_possible_truncation, reason = "parts of random words are meant")]

mod harness;

use harness::{Bench, SCHEDULES, module, words};
use tessera_emulator::{Launch, Schedule};

/// Launches with parameters of four or eight bytes.
fn launch(bench: &mut Bench, entry: &str, (grid, block): (u32, u32), params: &[(u64, usize)]) {
    let file = if ["bulk", "staged"].contains(&entry) { "pipelined.ptx" } else { "compiled.ptx" };
    let module = module(file);
    let mut bytes: Vec<u8> = Vec::new();
    for &(value, size) in params {
        bytes.resize(bytes.len().next_multiple_of(size), 0);
        bytes.extend_from_slice(&value.to_le_bytes()[..size]);
    }
    let launch =
        Launch { grid: [grid, 1, 1], block: [block, 1, 1], shared_bytes: 0, params: &bytes };
    let outcome = bench.machine.launch(&module, entry, &launch);
    outcome.unwrap_or_else(|fault| panic!("{fault}"));
}

fn floats(seed: u64, count: usize, scale: f32) -> Vec<f32> {
    let mut random = words(seed);
    (0..count).map(|_| ((random() % 20001) as f32 / 10000.0 - 1.0) * scale).collect()
}

#[test]
fn softmax() {
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let x = floats(1, 3 * 300, 8.0);
        let (px, py) = (bench.buffer(&x), bench.empty(3600));
        launch(&mut bench, "softmax", (3, 128), &[(px, 8), (py, 8), (300, 4)]);
        let y = bench.read::<f32>(py, 900);
        for (x, y) in x.chunks(300).zip(y.chunks(300)) {
            let most = x.iter().copied().fold(f32::MIN, f32::max);
            let sum: f64 = x.iter().map(|x| f64::from(x - most).exp()).sum();
            for (x, y) in x.iter().zip(y) {
                let want = f64::from(x - most).exp() / sum;
                assert!((f64::from(*y) - want).abs() <= want * 1e-5, "{y} {want}");
            }
        }
    }
}

#[test]
fn bitonic_sort() {
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let mut random = words(2);
        let mut keys: Vec<u32> = (0..512).map(|_| (random() >> 32) as u32).collect();
        let ptr = bench.buffer(&keys);
        launch(&mut bench, "bitonic", (1, 256), &[(ptr, 8)]);
        keys.sort_unstable();
        assert_eq!(bench.read::<u32>(ptr, 512), keys);
    }
}

#[test]
fn histogram() {
    let mut bench = Bench::new(Schedule::Random(5));
    let mut random = words(3);
    let data: Vec<u8> = (0..5000).map(|_| (random() >> 40) as u8).collect();
    let (pdata, pbins) = (bench.buffer(&data), bench.buffer(&[0u32; 256]));
    launch(&mut bench, "histogram", (3, 256), &[(pdata, 8), (5000, 4), (pbins, 8)]);
    let mut want = vec![0u32; 256];
    data.iter().for_each(|&byte| want[usize::from(byte)] += 1);
    assert_eq!(bench.read::<u32>(pbins, 256), want);
}

#[test]
fn narrow_numbers_and_functions() {
    let mut bench = Bench::new(Schedule::Earliest);
    let x = floats(4, 200, 20.0);
    let (px, py) = (bench.buffer(&x), bench.empty(200 * 24));
    launch(&mut bench, "narrow", (2, 128), &[(px, 8), (py, 8), (200, 4)]);
    let y = bench.read::<f32>(py, 1200);
    for (&x, y) in x.iter().zip(y.chunks(6)) {
        let wide = f64::from(x);
        // A half keeps eleven bits, a bf16 eight, e4m3 four, e5m2 three.
        let near = |got: f32, want: f64, bits: i32| {
            let error = (f64::from(got) - want).abs();
            assert!(error <= want.abs() * 2f64.powi(-bits) + 1e-2, "{x}: {got} {want}");
        };
        near(y[0], wide * wide + wide, 9);
        near(y[1], wide * wide, 6);
        near(y[2], wide, 4);
        near(y[3], wide, 3);
        let integers = (x * 3.7) as i32 as f32 / 7.0 + ((x * 1000.0) as i64 % 17) as f32;
        assert_eq!(y[4], integers);
        let sum =
            wide.sin() + wide.abs().powf(f64::from(0.3f32)) + wide.abs().ln_1p() + wide.cbrt();
        assert!((f64::from(y[5]) - sum).abs() < 1e-5, "{x}: {} {sum}", y[5]);
    }
}

#[test]
fn the_last_block_sums_what_all_left() {
    for schedule in SCHEDULES {
        let mut bench = Bench::new(schedule);
        let x: Vec<f32> = (0..3000u16).map(|i| f32::from(i % 50)).collect();
        let px = bench.buffer(&x);
        let (parts, ticket, out) = (bench.empty(16), bench.buffer(&[0u32]), bench.empty(4));
        let params = [(px, 8), (3000, 4), (parts, 8), (ticket, 8), (out, 8)];
        launch(&mut bench, "sum_once", (4, 128), &params);
        assert_eq!(bench.read::<f32>(out, 1), [x.iter().sum::<f32>()]);
    }
}

fn schedules() -> impl Iterator<Item = Schedule> {
    SCHEDULES.into_iter().chain((10..30).map(Schedule::Random))
}

#[test]
fn bulk_copies_of_libcu() {
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let x: Vec<u32> = (0..768).collect();
        let (px, py) = (bench.buffer(&x), bench.empty(3072));
        launch(&mut bench, "bulk", (3, 128), &[(px, 8), (py, 8)]);
        let want: Vec<u32> = x.iter().map(|x| x * 2).collect();
        assert_eq!(bench.read::<u32>(py, 768), want, "{schedule:?}");
    }
}

#[test]
fn a_pipeline_of_libcu() {
    for schedule in schedules() {
        let mut bench = Bench::new(schedule);
        let x: Vec<u32> = (0..7 * 512).map(|i| i * 5 % 1001).collect();
        let (px, py) = (bench.buffer(&x), bench.empty(2048));
        launch(&mut bench, "staged", (1, 128), &[(px, 8), (py, 8), (7, 4)]);
        let sum = |i: usize| {
            let (t, part) = (127 - i / 4, i % 4);
            (0..7).map(|tile| x[tile * 512 + t * 4 + part]).sum::<u32>()
        };
        let want: Vec<u32> = (0..512).map(sum).collect();
        assert_eq!(bench.read::<u32>(py, 512), want, "{schedule:?}");
    }
}
