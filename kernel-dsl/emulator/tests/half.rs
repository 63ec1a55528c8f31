//! f16, bf16 and the narrow formats, against tables that MPFR, numpy and ml_dtypes made.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, module, words};
use tessera_emulator::Schedule;

fn run(name: &str, forms: usize, [a, b, c]: [&[u64]; 3]) -> Vec<u64> {
    let module = module(name);
    let mut bench = Bench::new(Schedule::Earliest);
    let out = bench.buffer(&vec![0u64; forms * 64]);
    let params = [bench.buffer(a), bench.buffer(b), bench.buffer(c), out];
    bench.launch(&module, "forms", (1, 64, 0), &params).expect("a clean run of a sound file");
    bench.read::<u64>(out, forms * 64)
}

fn half(operands: [&[u64]; 3]) -> Vec<u64> {
    run("half.ptx", 48, operands)
}

fn narrow(operands: [&[u64]; 3]) -> Vec<u64> {
    run("narrow.ptx", 13, operands)
}

fn rows(text: &str) -> Vec<Vec<u64>> {
    let number = |word: &str| u64::from_str_radix(word, 16).expect("a clean run of a sound file");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| line.split(' ').map(number).collect()).collect()
}

#[test]
fn arithmetic_is_that_of_mpfr() {
    let all = rows(include_str!("golden/half_arithmetic.txt"));
    assert_eq!(all.len(), 640);
    for rows in all.chunks(64) {
        for (first, pairs, column) in [(0, 8, 0), (4, 12, 7)] {
            // The next row's operands are the upper halves.
            let operand = |which: usize| -> Vec<u64> {
                let at = |i: usize| rows[i % 64][column + which];
                (0..64).map(|i| at(i) | at(i + 1) << 16).collect()
            };
            let [a, b, c] = [0, 1, 2].map(operand);
            let got = half([&a, &b, &c]);
            for thread in 0..64 {
                for form in 0..4 {
                    let want = |i: usize| rows[i % 64][column + 3 + form];
                    let row = &rows[thread][column..column + 3];
                    let single = got[(first + form) * 64 + thread];
                    assert_eq!(single, want(thread), "form {form} of {row:x?}");
                    let pair = got[(pairs + form) * 64 + thread];
                    assert_eq!(pair, want(thread) | want(thread + 1) << 16, "form {form}");
                }
            }
        }
    }
}

#[test]
fn f32_is_rounded_as_numpy_does() {
    let all = rows(include_str!("golden/half_rounding.txt"));
    assert_eq!(all.len(), 1280);
    for rows in all.chunks(64) {
        let a: Vec<u64> = rows.iter().map(|row| row[0]).collect();
        let b: Vec<u64> = (0..64).map(|i| rows[(i + 1) % 64][0]).collect();
        let got = half([&a, &b, &a]);
        for (thread, row) in rows.iter().enumerate() {
            let at = |form: usize| got[form * 64 + thread];
            let next = &rows[(thread + 1) % 64];
            assert_eq!([at(16), at(17)], [row[1], row[2]], "{:x}", row[0]);
            // The first operand of a pair is its upper half.
            assert_eq!(at(22), row[1] << 16 | next[1]);
            assert_eq!(at(23), row[2] << 16 | next[2]);
            let value = f32::from_bits(row[0] as u32);
            if value.is_finite() {
                // Towards zero is what is left when bits are cut off.
                assert_eq!(at(19), row[0] >> 16);
                let nearest = at(24);
                let away = (row[0] & 0x7fff_ffff) + 0x1000;
                assert_eq!(nearest & 0x7fff_ffff, away & !0x1fff, "tf32 of {value}");
            }
        }
    }
}

/// One line of the table of narrow formats.
fn table(kind: &str, format: &str) -> Vec<(u64, u64)> {
    let text = include_str!("golden/narrow_formats.txt");
    let head = format!("{kind} {format} ");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(&head))
        .expect("a clean run of a sound file");
    let number = |word: &str| u64::from_str_radix(word, 16).expect("a clean run of a sound file");
    let entry = |(index, word): (usize, &str)| match word.split_once(':') {
        Some((code, result)) => (number(code), number(result)),
        None => (index as u64, number(word)),
    };
    line.split(' ').enumerate().map(entry).collect()
}

/// What a step table gives for a positive f16 code.
fn step(table: &[(u64, u64)], code: u64) -> u64 {
    table[table.partition_point(|&(first, _)| first <= code) - 1].1
}

#[test]
fn every_narrow_code_decodes_as_ml_dtypes_says() {
    let check = |format: &str, bits: u32, is_half: bool, form: usize| {
        let codes = table("decode", format);
        for chunk in 0..codes.len().div_ceil(64) {
            let code = |i: usize| ((chunk * 64 + i) % codes.len()) as u64;
            let upper = |i: usize| (code(i) + 1) % codes.len() as u64;
            let a: Vec<u64> = (0..64).map(|i| code(i) | upper(i) << bits).collect();
            let got = match is_half {
                true => half([&a, &a, &a]),
                false => narrow([&a, &a, &a]),
            };
            for i in 0..64 {
                let want = codes[code(i) as usize].1 | codes[upper(i) as usize].1 << 16;
                assert_eq!(got[form * 64 + i], want, "{format} {:x}", a[i]);
            }
        }
    };
    check("e4m3", 8, true, 29);
    check("e5m2", 8, true, 30);
    check("e2m1", 4, false, 1);
    check("ue8m0", 8, false, 4);
    check("e2m3", 8, false, 8);
    check("e3m2", 8, false, 9);
}

/// An f16 code as f32 bits.
fn widen(code: u64) -> u64 {
    let (exponent, fraction) = (code >> 10 & 31, code & 0x3ff);
    let value = match exponent {
        31 => f32::INFINITY,
        0 => fraction as f32 * 2f32.powi(-24),
        _ => (1.0 + fraction as f32 / 1024.0) * 2f32.powi(exponent as i32 - 15),
    };
    u64::from(value.to_bits()) | (code & 0x8000) << 16
}

#[test]
fn every_f16_encodes_as_ml_dtypes_says() {
    let e4m3 = table("encode", "e4m3");
    let e5m2 = table("encode", "e5m2");
    let small = ["e2m1", "e2m3", "e3m2"].map(|format| table("encode", format));
    for first in (0..=0x7c00u64).step_by(64) {
        let code = |i: usize| (first + i as u64).min(0x7c00);
        // The upper half is the negative of the lower one.
        let halves: Vec<u64> = (0..64).map(|i| code(i) | (code(i) | 0x8000) << 16).collect();
        let positive: Vec<u64> = (0..64).map(|i| widen(code(i))).collect();
        let negative: Vec<u64> = positive.iter().map(|bits| bits | 1 << 31).collect();
        let from_half = half([&halves, &halves, &halves]);
        let from_single = half([&negative, &positive, &positive]);
        let from_small = narrow([&negative, &positive, &positive]);
        for i in 0..64 {
            let eight = |table: &[(u64, u64)]| {
                let code = step(table, code(i));
                code | (code | 0x80) << 8
            };
            let at = |got: &[u64], form: usize| got[form * 64 + i];
            assert_eq!(at(&from_half, 27), eight(&e4m3), "e4m3 of {:x}", code(i));
            assert_eq!(at(&from_half, 28), eight(&e5m2), "e5m2 of {:x}", code(i));
            assert_eq!(at(&from_single, 25), eight(&e4m3));
            assert_eq!(at(&from_single, 26), eight(&e5m2));
            let codes: Vec<u64> = small.iter().map(|table| step(table, code(i))).collect();
            assert_eq!(at(&from_small, 0), codes[0] | (codes[0] | 8) << 4, "e2m1");
            assert_eq!(at(&from_small, 6), codes[1] | (codes[1] | 0x20) << 8, "e2m3");
            assert_eq!(at(&from_small, 7), codes[2] | (codes[2] | 0x20) << 8, "e3m2");
        }
    }
}

#[test]
fn nan_is_kept_where_a_format_has_one() {
    let nan = [0x7fc0_0000u64; 64];
    let one = [0x3f80_0000u64; 64];
    let got = half([&nan, &one, &one]);
    assert_eq!(got[25 * 64], 0x7f38);
    assert_eq!(got[26 * 64], 0x7f3c);
    let got = narrow([&nan, &one, &one]);
    assert_eq!([got[0], got[2 * 64]], [0x72, 0xff7f]);
}

#[test]
fn scales_are_powers_of_two_around_a_value() {
    let value = |x: f32| u64::from(x.to_bits());
    let a = [value(1.5), value(-0.75), value(4.0), value(0.0)];
    let b = [value(1e-40), value(3e38), value(f32::INFINITY), value(1.0)];
    let fill = |x: [u64; 4]| -> Vec<u64> { (0..64).map(|i| x[i % 4]).collect() };
    let got = narrow([&fill(a), &fill(b), &fill(a)]);
    let at = |form: usize| [0, 1, 2, 3].map(|i| got[form * 64 + i]);
    // Down: the code of 1e-40 is 0; infinity is the largest.
    assert_eq!(at(2), [0x7f00, 0x7efe, 0x81fe, 0x007f]);
    assert_eq!(at(3)[0] >> 8, 0x80);
    assert_eq!(at(3)[1], 0x7ffe);
}

#[test]
fn flags_and_comparisons_of_halves() {
    let mut random = words(3);
    let a: Vec<u64> = (0..64).map(|_| random() & 0x7bff_7bff | random() & 0x8000_8000).collect();
    let b: Vec<u64> = (0..64).map(|_| random() & 0x7bff_7bff | random() & 0x8000_8000).collect();
    let got = half([&a, &b, &a]);
    let f = |bits: u64| f32::from_bits(widen(bits & 0xffff) as u32);
    for i in 0..64 {
        let at = |form: usize| got[form * 64 + i];
        let (x, y) = (f(a[i]), f(b[i]));
        let exact = f64::from(x) * f64::from(y) + f64::from(x);
        assert_eq!(at(31) == 0, exact <= 0.0 || at(3) == 0, "relu of {exact}");
        let sum = f64::from(x) + f64::from(y);
        assert_eq!(at(32) == 0x3c00, sum >= 1.0 - 1.0 / 4096.0, "sat of {sum}");
        assert_eq!(f(at(34)), x.min(y));
        let (x1, y1) = (f(a[i] >> 16), f(b[i] >> 16));
        assert_eq!([f(at(35)), f(at(35) >> 16)], [x.max(y), x1.max(y1)]);
        assert_eq!(at(37), a[i] & 0xffff_ffff ^ 0x8000_8000);
        assert_eq!(at(38), a[i] & 0x7fff_7fff);
        assert_eq!(at(39), if x < y { 1 } else { 2 });
        assert_eq!(at(40), u64::from(x >= y) | u64::from(x1 >= y1) << 1);
        assert_eq!(at(46), u64::from(x.round_ties_even() as i32 as u32));
        let small = (a[i] as u32 as i32) as f32;
        let encoded = f(at(45));
        assert!(encoded == small || encoded.is_infinite() || (encoded - small).abs() <= 16.0);
    }
}

#[test]
fn pairs_of_f32_are_two_f32() {
    let mut random = words(8);
    let mut value = || {
        let mut one = || u64::from((((random() % 4001) as f32 - 2000.0) / 64.0).to_bits());
        one() | one() << 32
    };
    let [a, b, c] = [0, 1, 2].map(|_| -> Vec<u64> { (0..64).map(|_| value()).collect() });
    let got = narrow([&a, &b, &c]);
    let split = |x: u64| [f32::from_bits(x as u32), f32::from_bits((x >> 32) as u32)];
    for i in 0..64 {
        let (x, y, z) = (split(a[i]), split(b[i]), split(c[i]));
        assert_eq!(split(got[10 * 64 + i]), [x[0] + y[0], x[1] + y[1]]);
        let fused = [x[0].mul_add(y[0], z[0]), x[1].mul_add(y[1], z[1])];
        assert_eq!(split(got[11 * 64 + i]), fused);
        assert_eq!(split(got[12 * 64 + i])[0], x[0].max(y[0]).max(z[0]));
    }
}
