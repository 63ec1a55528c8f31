//! Tensor cores: floats against MMA-Sim's results, integers against plain sums, fragments against
//! the manual's pictures of them.

#![allow(
    clippy::cast_possible_truncation,
    reason = "slots hold 64 bits of which a form's width is meant"
)]

mod harness;

use harness::{Bench, module, words};
use tessera_emulator::Schedule;

/// One case of the golden file.
struct Case {
    entry: String,
    bits: u32,
    depth: usize,
    half: bool,
    a: Vec<u64>,
    b: Vec<u64>,
    c: Vec<u64>,
    d: Vec<u64>,
}

fn cases() -> Vec<Case> {
    let text = include_str!("golden/mma.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let codes = |line: &str| -> Vec<u64> {
        line.split(' ')
            .map(|word| u64::from_str_radix(word, 16).expect("a clean run of a sound file"))
            .collect()
    };
    let case = |lines: &[&str]| {
        let head: Vec<&str> = lines[0].split(' ').collect();
        Case {
            entry: head.join("_"),
            bits: if head[0] == "tf32" { 32 } else { 16 },
            depth: head[1].parse().expect("a clean run of a sound file"),
            half: head[2] == "f16",
            a: codes(lines[1]),
            b: codes(lines[2]),
            c: codes(lines[3]),
            d: codes(lines[4]),
        }
    };
    lines.chunks(5).map(case).collect()
}

/// Registers of A (rows of it) or B (its columns): the manual's formulas for a lane's element `i`.
fn factor(codes: &[u64], bits: u32, depth: usize, rows: usize) -> Vec<u32> {
    let per = (32 / bits) as usize;
    let registers = rows * depth / 32 / per;
    let mut out = vec![0u32; registers * 32];
    for lane in 0..32 {
        let (group, thread) = (lane / 4, lane % 4);
        for register in 0..registers {
            for part in 0..per {
                // Of sixteen rows, registers 0 and 2 hold the upper half, 1 and 3 the lower one.
                let (row, block) = match rows {
                    16 => (group + 8 * (register % 2), register / 2),
                    _ => (group, register),
                };
                let k = block * 4 * per + thread * per + part;
                out[register * 32 + lane] |=
                    (codes[row * depth + k] as u32) << (part as u32 * bits);
            }
        }
    }
    out
}

/// Registers of C or D.
fn result(codes: &[u64], half: bool) -> Vec<u32> {
    let registers = if half { 2 } else { 4 };
    let mut out = vec![0u32; registers * 32];
    for lane in 0..32 {
        for i in 0..4 {
            let (row, column) = (lane / 4 + if i < 2 { 0 } else { 8 }, lane % 4 * 2 + (i & 1));
            let code = codes[row * 8 + column] as u32;
            match half {
                true => out[i / 2 * 32 + lane] |= code << (16 * (i & 1)),
                false => out[i * 32 + lane] = code,
            }
        }
    }
    out
}

fn run(entry: &str, registers: &[Vec<u32>], results: usize) -> Vec<u32> {
    let module = module("mma.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    let input = bench.buffer(&registers.concat());
    let out = bench.empty(results as u64 * 128);
    let profile = bench
        .launch(&module, entry, (1, 32, 0), &[input, out])
        .expect("a clean run of a sound file");
    assert_eq!(profile.total.mma, 1);
    bench.read::<u32>(out, results * 32)
}

#[test]
fn floats_are_those_of_mma_sim() {
    let cases = cases();
    assert_eq!(cases.len(), 40);
    for case in cases {
        let a = factor(&case.a, case.bits, case.depth, 16);
        let b = factor(&case.b, case.bits, case.depth, 8);
        let c = result(&case.c, case.half);
        let want = result(&case.d, case.half);
        let got = run(&case.entry, &[a, b, c], want.len() / 32);
        let wrong: Vec<String> = (0..want.len())
            .filter(|&i| got[i] != want[i])
            .map(|i| format!("{i}: {:x} {:x}", got[i], want[i]))
            .collect();
        assert!(wrong.is_empty(), "{}: {wrong:?}", case.entry);
    }
}

fn bytes(seed: u64, count: usize) -> Vec<u64> {
    let mut random = words(seed);
    (0..count).map(|_| random() & 0xff).collect()
}

#[test]
fn integers_are_plain_sums() {
    let signed = |code: u64| i64::from(code as u8 as i8);
    let unsigned = |code: u64| code as i64;
    let check = |entry: &str, depth: usize, a_number: fn(u64) -> i64, saturate: bool| {
        let (a, b) = (bytes(1, 16 * depth), bytes(2, 8 * depth));
        let mut random = words(3);
        let near = if saturate { i32::MAX as u64 - 1000 } else { 0x8000_0000 };
        let c: Vec<u64> = (0..128).map(|_| (near + random() % 2000) & 0xffff_ffff).collect();
        let want: Vec<u64> = (0..128)
            .map(|at| {
                let (row, column) = (at / 8, at % 8);
                let products = (0..depth)
                    .map(|k| a_number(a[row * depth + k]) * signed(b[column * depth + k]));
                let sum = i64::from(c[at] as i32) + products.sum::<i64>();
                let clamped = sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX));
                u64::from(if saturate { clamped as i32 as u32 } else { sum as u32 })
            })
            .collect();
        let registers = [factor(&a, 8, depth, 16), factor(&b, 8, depth, 8), result(&c, false)];
        assert_eq!(run(entry, &registers, 4), result(&want, false), "{entry}");
    };
    check("s8_32", 32, signed, false);
    check("u8s8_16", 16, unsigned, false);
    check("s8_32_sat", 32, signed, true);
}

/// Eight-bit floats whose products and sums are exact, so that the order does not matter.
#[test]
fn eight_bit_floats_multiply_exactly_when_they_can() {
    let mut random = words(21);
    for (entry, a_bias, a_mantissa) in [("e4m3_32", 7, 3), ("e5m2e4m3_32", 15, 2)] {
        let mut code = |bias: u64, mantissa: u32| {
            let exponent = bias - 1 + random() % 3;
            (random() & 0x80) | (exponent << mantissa) | (random() % (1 << mantissa))
        };
        let a: Vec<u64> = (0..512).map(|_| code(a_bias, a_mantissa)).collect();
        let b: Vec<u64> = (0..256).map(|_| code(7, 3)).collect();
        let value = |code: u64, bias: i32, mantissa: u32| {
            let fraction = (code & ((1 << mantissa) - 1)) as f64 / f64::from(1 << mantissa);
            let exponent = (code >> mantissa & (0x7f >> mantissa)) as i32 - bias;
            let sign = if code & 0x80 == 0 { 1.0 } else { -1.0 };
            sign * (1.0 + fraction) * 2f64.powi(exponent)
        };
        let c: Vec<u64> = (0..128u32).map(|i| u64::from((i as f32 * 0.25).to_bits())).collect();
        let want: Vec<u64> = (0..128)
            .map(|at| {
                let (row, column) = (at / 8, at % 8);
                let products = (0..32).map(|k| {
                    value(a[row * 32 + k], a_bias as i32, a_mantissa)
                        * value(b[column * 32 + k], 7, 3)
                });
                let sum = products.sum::<f64>() + at as f64 * 0.25;
                u64::from((sum as f32).to_bits())
            })
            .collect();
        let registers = [factor(&a, 8, 32, 16), factor(&b, 8, 32, 8), result(&c, false)];
        assert_eq!(run(entry, &registers, 4), result(&want, false), "{entry}");
    }
}

/// Where an assembler splits the depth is visible in what is cut off beside large products.
#[test]
fn eight_bit_floats_are_split_by_register_halves() {
    // 256 * 256 - 256 * 256 at two places, and 2^-6 * 2^-6 at a third.
    let check = |small: usize, kept: bool| {
        let (mut a, mut b) = (vec![0u64; 512], vec![0u64; 256]);
        for (k, code_a, code_b) in [(0, 0x78, 0x78), (1, 0x78, 0xf8), (small, 8, 8)] {
            (0..16).for_each(|row| a[row * 32 + k] = code_a);
            (0..8).for_each(|column| b[column * 32 + k] = code_b);
        }
        let c = vec![0u64; 128];
        let want = if kept { 2f32.powi(-12) } else { 0.0 };
        let registers = [factor(&a, 8, 32, 16), factor(&b, 8, 32, 8), result(&c, false)];
        let got = run("e4m3_32", &registers, 4);
        assert!(got.iter().all(|&bits| f32::from_bits(bits) == want), "{small}");
    };
    for (small, kept) in [(2, true), (3, true), (4, false), (18, true), (29, false), (31, true)] {
        check(small, kept);
    }
}

#[test]
fn fragments_stand_where_the_manual_draws_them() {
    let module = module("mma.ptx");
    let mut bench = Bench::new(Schedule::Earliest);
    // Matrix m, row r, column c holds 1000 m + 10 r + c.
    let value = |m: usize, r: usize, c: usize| (1000 * m + 10 * r + c) as u16;
    let input: Vec<u16> = (0..256).map(|i| value(i / 64, i / 8 % 8, i % 8)).collect();
    let (input, out) = (bench.buffer(&input), bench.empty(1664));
    bench.launch(&module, "fragments", (1, 32, 0), &[input, out]).unwrap();
    let got = bench.read::<u16>(out, 832);
    for lane in 0..32 {
        let (row, column) = (lane / 4, lane % 4 * 2);
        for part in 0..2 {
            for m in 0..4 {
                let plain = got[lane * 8 + m * 2 + part];
                assert_eq!(plain, value(m, row, column + part), "lane {lane} matrix {m}");
            }
            // The moved matrix, transposed.
            assert_eq!(got[768 + lane * 2 + part], value(0, column + part, row));
            // Matrix 3 lay where matrix 0 was when both were loaded transposed.
            assert_eq!(got[256 + lane * 2 + part], value(3, column + part, row));
            assert_eq!(got[320 + lane * 2 + part], value(1, column + part, row));
        }
    }
    // Rows of matrices that were stored transposed.
    for m in 0..4 {
        for r in 0..8 {
            for c in 0..8 {
                assert_eq!(got[512 + m * 64 + r * 8 + c], value(m, c, r));
            }
        }
    }
}
