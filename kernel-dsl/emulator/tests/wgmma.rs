//! Tensor-core operations of four warps: layouts as the manual draws them, numbers of MMA-Sim.

#![allow(
    clippy::cast_possible_truncation,
    reason = "codes are narrower than the words that carry them"
)]

mod harness;

use harness::{Bench, SCHEDULES, module, words};
use tessera_emulator::{Fault, FaultKind, Module, Schedule};

/// How a factor lies in shared memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    /// Bytes of a swizzled row, 16 for none.
    pitch: usize,
    transposed: bool,
    /// Bytes in front of the part that is used.
    skip: usize,
}

/// A matrix of `lines` rows of `depth` codes.
struct Matrix {
    codes: Vec<u64>,
    lines: usize,
    depth: usize,
    /// Bytes of a code.
    size: usize,
}

impl Layout {
    const fn plain(pitch: usize) -> Layout {
        Layout { pitch, transposed: false, skip: 0 }
    }

    /// Bytes between core matrices along the depth, and between groups of eight lines.
    fn strides(self, matrix: &Matrix) -> (usize, usize) {
        match (self.pitch, self.transposed) {
            (16, false) => (128, 256),
            (16, true) => (128 * matrix.lines / 8, 128),
            // Groups of 64 lines (for 128 bytes), and of eight steps of the depth.
            (pitch, true) => (pitch * matrix.depth, pitch * 8),
            (pitch, false) => (0, pitch * 8),
        }
    }

    /// Where the code of a line at a depth lies.
    fn at(self, matrix: &Matrix, line: usize, k: usize) -> usize {
        let (leading, stride) = self.strides(matrix);
        let per_chunk = 16 / matrix.size;
        // Rows of the pattern run along the depth, or along the lines if transposed.
        let (row, along) = if self.transposed { (k, line) } else { (line, k) };
        let (chunk, inside) = (along / per_chunk, along % per_chunk * matrix.size);
        let in_row = self.pitch / 16;
        if self.pitch == 16 {
            let (row_step, chunk_step) =
                if self.transposed { (leading, stride) } else { (stride, leading) };
            return row / 8 * row_step + chunk * chunk_step + row % 8 * 16 + inside;
        }
        let chunk = chunk + self.skip / 16;
        // A row of 128 bytes has its chunks exchanged by the row's number, two of 64 by half of it.
        let turned = (chunk % in_row) ^ (row % 8 / (8 / in_row));
        let outer = if self.transposed { chunk / in_row * leading } else { 0 };
        outer + row / 8 * stride + row % 8 * self.pitch + turned * 16 + inside
    }

    fn descriptor(self, matrix: &Matrix, start: usize) -> u64 {
        let (leading, stride) = self.strides(matrix);
        let mode = match self.pitch {
            16 => 0u64,
            128 => 1,
            64 => 2,
            _ => 3,
        };
        let field = |bytes: usize| (bytes / 16) as u64;
        field(start + self.skip) | field(leading) << 16 | field(stride) << 32 | mode << 62
    }

    fn place(self, matrix: &Matrix, bytes: &mut [u8]) {
        for line in 0..matrix.lines {
            for k in 0..matrix.depth {
                let code = matrix.codes[line * matrix.depth + k].to_le_bytes();
                let at = self.at(matrix, line, k);
                bytes[at..at + matrix.size].copy_from_slice(&code[..matrix.size]);
            }
        }
    }
}

/// One launch: factors with their layouts, addends by rows.
struct Case<'a> {
    entry: &'a str,
    a: (&'a Matrix, Layout),
    b: (&'a Matrix, Layout),
    c: &'a [u64],
    /// Registers of A, if it comes from them.
    registers: &'a [u32],
    half: bool,
    add: bool,
}

const B_AT: usize = 16 * 1024;

fn registers(codes: &[u64], columns: usize, half: bool) -> Vec<u32> {
    let count = columns / if half { 4 } else { 2 };
    let mut out = vec![0u32; count * 128];
    for thread in 0..128 {
        let (warp, lane) = (thread / 32, thread % 32);
        for element in 0..columns / 2 {
            let row = warp * 16 + lane / 4 + element / 2 % 2 * 8;
            let column = element / 4 * 8 + lane % 4 * 2 + element % 2;
            let code = codes[row * columns + column] as u32;
            match half {
                true => out[element / 2 * 128 + thread] |= code << (element % 2 * 16),
                false => out[element * 128 + thread] = code,
            }
        }
    }
    out
}

fn launch(case: &Case<'_>, schedule: Schedule) -> Result<Vec<u32>, Fault> {
    launch_in(&module("wgmma.ptx"), case, schedule)
}

fn launch_in(module: &Module, case: &Case<'_>, schedule: Schedule) -> Result<Vec<u32>, Fault> {
    let mut bench = Bench::new(schedule);
    let mut shared = vec![0u8; 2 * B_AT];
    case.a.1.place(case.a.0, &mut shared);
    case.b.1.place(case.b.0, &mut shared[B_AT..]);
    let mut c = registers(case.c, case.b.0.lines, case.half);
    let count = c.len();
    c.extend_from_slice(case.registers);
    let (input, c) = (bench.buffer(&shared), bench.buffer(&c));
    let out = bench.empty(count as u64 * 4);
    let descriptors = (case.a.1.descriptor(case.a.0, 0), case.b.1.descriptor(case.b.0, B_AT));
    let (da, db) = descriptors;
    let bytes = shared.len() as u64;
    let params = [input, bytes, c, out, da, db, u64::from(case.add)];
    bench.launch(module, case.entry, (1, 128, 2 * B_AT as u32), &params)?;
    Ok(bench.read::<u32>(out, count))
}

/// Small integers in a format, and their values.
fn integers(
    seed: u64,
    lines: usize,
    depth: usize,
    encode: fn(i64) -> u64,
    size: usize,
) -> (Matrix, Vec<i64>) {
    let mut random = words(seed);
    let values: Vec<i64> = (0..lines * depth).map(|_| (random() % 9) as i64 - 4).collect();
    let codes = values.iter().map(|&value| encode(value)).collect();
    (Matrix { codes, lines, depth, size }, values)
}

fn bf16(value: i64) -> u64 {
    u64::from((value as f32).to_bits() >> 16)
}

fn f16(value: i64) -> u64 {
    let bits = u64::from((value as f32).to_bits());
    match value {
        0 => 0,
        _ => bits >> 16 & 0x8000 | ((bits >> 23 & 0xff) - 112) << 10 | bits >> 13 & 0x3ff,
    }
}

fn tf32(value: i64) -> u64 {
    u64::from((value as f32).to_bits())
}

fn e4m3(value: i64) -> u64 {
    let bits = u64::from((value as f32).to_bits());
    match value {
        0 => 0,
        _ => bits >> 24 & 0x80 | ((bits >> 23 & 0xff) - 120) << 3 | bits >> 20 & 7,
    }
}

fn e5m2(value: i64) -> u64 {
    f16(value) >> 8
}

fn byte(value: i64) -> u64 {
    value as u64 & 0xff
}

fn products(a: &[i64], b: &[i64], columns: usize, depth: usize, sign: i64) -> Vec<i64> {
    let cell = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        (0..depth).map(|k| a[row * depth + k] * b[column * depth + k] * sign).sum()
    };
    (0..64 * columns).map(cell).collect()
}

type Encode = fn(i64) -> u64;

/// Checks an entry with integers, which every order of summation adds exactly.
fn check(
    entry: &str,
    (encode_a, encode_b, size): (Encode, Encode, usize),
    (columns, depth): (usize, usize),
    (la, lb): (Layout, Layout),
    (encode_c, sign): (Encode, i64),
) {
    let (a, a_values) = integers(1, 64, depth, encode_a, size);
    let (b, b_values) = integers(2, columns, depth, encode_b, size);
    let half = entry == "f16_16_f16";
    let sums = products(&a_values, &b_values, columns, depth, sign);
    for add in [false, true] {
        let addend = |at: usize| (at % 64) as i64 - 20;
        let c: Vec<u64> = (0..sums.len()).map(|at| encode_c(addend(at))).collect();
        let total = |at: usize| sums[at] + if add { addend(at) } else { 0 };
        let want: Vec<u64> = (0..sums.len()).map(|at| encode_c(total(at))).collect();
        let rows = if entry.ends_with("registers") { rows(&a) } else { Vec::new() };
        let case = Case { entry, a: (&a, la), b: (&b, lb), c: &c, registers: &rows, half, add };
        for schedule in SCHEDULES {
            let got = launch(&case, schedule).unwrap_or_else(|fault| panic!("{fault}"));
            assert_eq!(got, registers(&want, columns, half), "{entry} {la:?} {lb:?} {schedule:?}");
        }
    }
}

/// The registers that hold A, as for `mma.m16n8k16`, for each warp its sixteen rows.
fn rows(a: &Matrix) -> Vec<u32> {
    let mut out = vec![0u32; 4 * 128];
    for thread in 0..128 {
        let (warp, lane) = (thread / 32, thread % 32);
        for register in 0..4 {
            let row = warp * 16 + lane / 4 + register % 2 * 8;
            let k = register / 2 * 8 + lane % 4 * 2;
            let at = row * a.depth + k;
            out[register * 128 + thread] = (a.codes[at] | a.codes[at + 1] << 16) as u32;
        }
    }
    out
}

fn int32(value: i64) -> u64 {
    value as u64 & 0xffff_ffff
}

#[test]
fn every_layout_gives_the_same_products() {
    let single = (tf32 as Encode, 1);
    for pitch in [16, 32, 64, 128] {
        let layouts = (Layout::plain(pitch), Layout::plain(pitch));
        check("bf16_16", (bf16, bf16, 2), (16, 16), layouts, single);
        check("s8_16", (byte, byte, 1), (16, 32), layouts, (int32, 1));
        check("tf32_8", (tf32, tf32, 4), (8, 8), layouts, single);
        check("e5m2e4m3_16", (e5m2, e4m3, 1), (16, 32), layouts, single);
        check("f16_16_f16", (f16, f16, 2), (16, 16), layouts, (f16, 1));
        let turned = Layout { pitch, transposed: true, skip: 0 };
        check("f16_64_turned", (f16, f16, 2), (64, 16), (turned, turned), (tf32, -1));
    }
    // The second step of the depth inside rows of 128 bytes.
    let second = Layout { pitch: 128, transposed: false, skip: 32 };
    check("bf16_16", (bf16, bf16, 2), (16, 16), (second, second), single);
    let layouts = (Layout::plain(128), Layout::plain(128));
    check("bf16_16_registers", (bf16, bf16, 2), (16, 16), layouts, single);
}

#[test]
fn eight_bit_floats_are_those_of_mma_sim() {
    let text = include_str!("golden/wgmma.txt");
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let codes = |line: &str| -> Vec<u64> {
        line.split(' ').map(|word| u64::from_str_radix(word, 16).unwrap()).collect()
    };
    assert_eq!(lines.len(), 12);
    for case in lines.chunks(4) {
        let a = Matrix { codes: codes(case[0]), lines: 64, depth: 32, size: 1 };
        let b = Matrix { codes: codes(case[1]), lines: 8, depth: 32, size: 1 };
        let (c, want) = (codes(case[2]), codes(case[3]));
        let layout = Layout::plain(32);
        let case = Case {
            entry: "e4m3_8",
            a: (&a, layout),
            b: (&b, layout),
            c: &c,
            registers: &[],
            half: false,
            add: true,
        };
        let got = launch(&case, Schedule::Latest).unwrap();
        assert_eq!(got, registers(&want, 8, false));
    }
}

#[test]
fn results_and_factors_must_be_waited_for() {
    let (a, _) = integers(1, 64, 16, bf16, 2);
    let (b, _) = integers(2, 16, 16, bf16, 2);
    let c = vec![0; 64 * 16];
    let layout = Layout::plain(128);
    let run = |entry: &'static str, schedule: Schedule| {
        let parts = ((&a, layout), (&b, layout));
        let case =
            Case { entry, a: parts.0, b: parts.1, c: &c, registers: &[], half: false, add: true };
        launch(&case, schedule).map(|_| ()).map_err(|fault| fault.kind)
    };
    for schedule in [Schedule::Earliest, Schedule::Latest] {
        assert_eq!(run("bf16_16", schedule), Ok(()));
        assert_eq!(run("not_waited", schedule), Err(FaultKind::MissingWait));
        assert_eq!(run("no_fence", schedule), Err(FaultKind::MissingProxyFence));
        assert!(run("no_barrier", schedule).is_err());
    }
}

#[test]
fn registers_are_fenced_and_left_alone() {
    let text = include_str!("ptx/wgmma.ptx");
    let (before, entry) = text.split_at(text.find(".visible .entry bf16_16_registers").unwrap());
    let (a, _) = integers(1, 64, 16, bf16, 2);
    let (b, _) = integers(2, 16, 16, bf16, 2);
    let (c, registers) = (vec![0; 64 * 16], rows(&a));
    let layout = Layout::plain(128);
    let run = |old: &str, new: &str| {
        let changed = format!("{before}{}", entry.replacen(old, new, 1));
        assert!(entry.contains(old));
        let module = Module::parse(&changed).unwrap();
        let (a, b) = ((&a, layout), (&b, layout));
        let case = Case {
            entry: "bf16_16_registers",
            a,
            b,
            c: &c,
            registers: &registers,
            half: false,
            add: true,
        };
        launch_in(&module, &case, Schedule::Earliest).map(|_| ()).map_err(|fault| fault.kind)
    };
    let (fence, wait) = ("wgmma.fence.sync.aligned;", "wgmma.wait_group.sync.aligned 0;");
    assert_eq!(run(fence, fence), Ok(()));
    assert_eq!(run(fence, ""), Err(FaultKind::MissingFence));
    // Written after the fence: a sum, a factor.
    for register in ["%f7", "%x3"] {
        let write = format!("mov.b32 {register}, 0f00000000;");
        let late = format!("{fence} {write}");
        assert_eq!(run(fence, &late), Err(FaultKind::MissingFence), "{register}");
        assert_eq!(run(fence, &format!("{write} {fence}")), Ok(()), "{register}");
        // Written while the operation may still use it.
        let early = format!("{write} {wait}");
        assert_eq!(run(wait, &early), Err(FaultKind::MissingWait), "{register}");
        assert_eq!(run(wait, &format!("{wait} {write}")), Ok(()), "{register}");
    }
    assert_eq!(run(wait, "wgmma.wait_group.sync.aligned 1;"), Err(FaultKind::MissingWait));
    assert_eq!(run("wgmma.commit_group.sync.aligned;", ""), Err(FaultKind::MissingWait));
}
