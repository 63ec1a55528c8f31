//! How fast the micro-kernels are on one core, next to how fast it reads memory and multiplies.
//!
//! Best of many passes each, short enough to fit between two switches to other work, all in one
//! run, so that the shares hold on a busy machine:
//! `cargo run --release -p tessera-lanes --example micro`

use std::time::{Duration, Instant};
use tessera_lanes::Isa;
use tessera_lanes::isa::{AnyIsa, LANES, WithIsa};
use tessera_lanes::memory::{Arena, HugeBuffer};
use tessera_lanes::micro::{
    A16Rows, A16Shape, Acc, Decode, IntCodes, NoScale, Rows, a16_words, dot_scaled_float,
    dot_scaled_int, quantize_row,
};
use tessera_lanes::packed::{PackedWeights, WeightParts};
use tessera_tile_ir::format::{Element, Format, ScaleTile, ScaleType, Tol};

const COLS: usize = 4096;
const PASSES: usize = 200;
/// What is streamed is larger than the caches of a core, and each pass reads another part of it.
const STREAM_BYTES: usize = 256 << 20;
/// What one pass reads.
const PASS_BYTES: usize = 2 << 20;

const fn format(name: &'static str, element: Element, scale_tile: Option<ScaleTile>) -> Format {
    let tol = Tol { element: 0.0, tensor: 0.0 };
    Format {
        name,
        element,
        scale_tile,
        zero_point: false,
        tensor_scale: false,
        tol,
        activation: None,
    }
}

const fn tile(scale: ScaleType, rows: usize, cols: usize) -> Option<ScaleTile> {
    Some(ScaleTile { scale, rows, cols, ragged: false, divisor: 1.0, precision: scale })
}

const INT4: &Format = &format("int4-g32", Element::I4, tile(ScaleType::Bf16, 1, 32));
const FP8: &Format = &format("fp8-128x128", Element::F8E4M3, tile(ScaleType::F32, 128, 128));
const BF16: &Format = &format("bf16", Element::Bf16, None);

struct I4Codes;
impl IntCodes for I4Codes {
    const TABLE: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];
    const UNIT: f32 = 1.0;
    const OFFSET: u8 = 8;
}

struct AsF32;
impl Decode for AsF32 {
    const BITS: usize = 32;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(codes)
    }
}

struct AsBf16;
impl Decode for AsBf16 {
    const BITS: usize = 16;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(isa.shl::<16>(codes))
    }
}

struct AsE4m3;
impl Decode for AsE4m3 {
    const BITS: usize = 8;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let placed = isa.sra::<4>(isa.shl::<24>(codes));
        let bits = isa.and(placed, isa.splat_i32(0x87f0_0000_u32.cast_signed()));
        let value = isa.mul(isa.from_bits(bits), isa.splat(f32::from_bits(247 << 23)));
        let magnitude = isa.and(codes, isa.splat_i32(0x7f));
        let nan = isa.eq_i32(magnitude, isa.splat_i32(0x7f));
        isa.select(nan, isa.splat(f32::NAN), value)
    }
}

/// How far ahead reading asks for memory: where it is fastest.
const PREFETCH: usize = 4096;

/// Adds up all bytes as words, in as many sums as hide the latency.
struct Read<'a>(&'a [u8]);

impl WithIsa for &Read<'_> {
    type Output = u16;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> u16 {
        let mut sums = [isa.splat_i32(0); 8];
        for chunk in self.0.as_chunks::<{ 4 * LANES }>().0.as_chunks::<8>().0 {
            for (sum, bytes) in sums.iter_mut().zip(chunk) {
                isa.prefetch(bytes, PREFETCH);
                *sum = isa.xor(*sum, isa.load_bytes(bytes));
            }
        }
        sums.iter().fold(0, |bits, sum| bits ^ isa.mask_bits(isa.eq_i32(*sum, sums[0])))
    }
}

/// Multiplies in registers alone: the most that any kernel could.
struct Peak(usize);

impl WithIsa for &Peak {
    type Output = (u16, f32);

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> (u16, f32) {
        let mut sums = [isa.splat_i32(1); 16];
        let (u, s) = (isa.splat_i32(0x0102_0304), isa.splat_i32(std::hint::black_box(-3)));
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = isa.dot4(*sum, u, s);
            }
        }
        let bits = sums.iter().fold(0, |b, sum| b ^ isa.mask_bits(isa.eq_i32(*sum, u)));
        (bits, 0.0)
    }
}

/// The same of fused multiply-adds.
struct FmaPeak(usize);

impl WithIsa for &FmaPeak {
    type Output = f32;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> f32 {
        let mut sums = [isa.splat(1.0); 16];
        let (a, b) = (isa.splat(std::hint::black_box(0.5)), isa.splat(1.0));
        for _ in 0..self.0 {
            for sum in &mut sums {
                *sum = isa.fma(*sum, a, b);
            }
        }
        sums.iter().fold(0.0, |total, sum| total + isa.sum(*sum))
    }
}

struct Quantize<'a> {
    x: &'a [f32],
    shape: A16Shape,
    words: &'a mut [i32],
}

impl WithIsa for Quantize<'_> {
    type Output = ();

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) {
        let words = self.shape.row_words();
        for (x, words) in self.x.chunks(COLS).zip(self.words.chunks_mut(words)) {
            quantize_row(isa, x, self.shape, words);
        }
    }
}

struct Product<'a> {
    x: &'a [f32],
    quantized: A16Rows<'a>,
    m: usize,
    w: &'a PackedWeights,
    /// First row of the weight, and how many.
    rows: [usize; 2],
    out: &'a mut [f32],
}

impl WithIsa for &mut Product<'_> {
    type Output = ();

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) {
        let [first, rows] = self.rows;
        let slab = self.w.slab(first..first + rows, 0..COLS);
        let acc = &mut Acc { data: self.out, stride: rows };
        let x = Rows { data: self.x, stride: COLS, rows: self.m };
        if self.w.format() == INT4 {
            dot_scaled_int::<I, I4Codes, AsBf16>(isa, self.quantized, &slab, acc);
        } else if self.w.format() == FP8 {
            dot_scaled_float::<I, AsE4m3, AsF32>(isa, x, &slab, acc);
        } else {
            dot_scaled_float::<I, AsBf16, NoScale>(isa, x, &slab, acc);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "an example that measures owns its time")]
fn best(mut work: impl FnMut(usize)) -> Duration {
    let mut best = Duration::MAX;
    for pass in 0..PASSES {
        let start = Instant::now();
        work(pass);
        best = best.min(start.elapsed());
    }
    best
}

/// Packed weights of made-up codes, about `bytes` of them.
fn weights(format: &'static Format, bytes: usize, arena: &Arena) -> PackedWeights {
    let rows = (bytes / format.row_bytes(COLS)).next_multiple_of(128);
    // Values of ordinary size: random codes would hold far more subnormals than weights do.
    let largest = format.element.max().min(448.0);
    let mut codes = Vec::with_capacity(rows * format.row_bytes(COLS));
    for i in 0..rows * COLS {
        let value = i.wrapping_mul(0x9e37_79b1).to_le_bytes()[2].cast_signed();
        let code = format.element.encode(largest * f32::from(value) / 128.0).to_le_bytes();
        match (format.element.bits(), i % 2) {
            (4, 0) => codes.push(code[0]),
            (4, _) => *codes.last_mut().expect("after the even one") |= code[0] << 4,
            (bits, _) => codes.extend_from_slice(&code[..bits / 8]),
        }
    }
    let mut scales = Vec::new();
    for _ in 0..format.tiles(rows, COLS) {
        format.scale_tile.expect("tiles have scales").scale.push(0.01, &mut scales);
    }
    let parts = WeightParts {
        format,
        rows,
        cols: COLS,
        codes: &codes,
        scales: &scales,
        zero_points: &[],
        tensor_scale: 1.0,
    };
    PackedWeights::pack(&parts, arena).expect("the parts fit the format")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arena = Arena::new();
    let mut buffer = HugeBuffer::zeroed(STREAM_BYTES)?;
    buffer.fill(1);
    let weights = [INT4, FP8, BF16].map(|format| weights(format, STREAM_BYTES / 2, &arena));
    for isa in AnyIsa::available() {
        let read = best(|pass| {
            let at = pass * PASS_BYTES % STREAM_BYTES;
            std::hint::black_box(isa.run(&Read(&buffer[at..at + PASS_BYTES])));
        });
        let read = PASS_BYTES as f64 / read.as_secs_f64() / 1e9;
        let rounds = 1u16 << 14;
        let lanes = 16.0 * f64::from(rounds) * LANES as f64 * 2.0 / 1e9;
        let peak = best(|_| {
            std::hint::black_box(isa.run(&Peak(rounds.into())));
        });
        let dot4 = lanes * 4.0 / peak.as_secs_f64();
        let peak = best(|_| {
            std::hint::black_box(isa.run(&FmaPeak(rounds.into())));
        });
        let fma = lanes / peak.as_secs_f64();
        println!("{isa:?}: reads {read:.1} GB/s, dot4 {dot4:.0} GOP/s, fma {fma:.0} GFLOP/s");
        let shape = shape(isa, 64);
        let (x, mut words) = (vec![0.5; COLS], vec![0; shape.row_words()]);
        let time = best(|_| isa.run(Quantize { x: &x, shape, words: &mut words }));
        println!("  quantizes {:.2} G values/s", COLS as f64 / time.as_secs_f64() / 1e9);
        for w in weights.iter().filter(|_| isa.name() != "scalar") {
            for m in [1, 4, 8, 16, 64] {
                measure(isa, w, m, [read, dot4 / 2.0, fma]);
            }
        }
    }
    Ok(())
}

/// How `rows` rows of activations lie in memory.
fn shape(isa: AnyIsa, rows: usize) -> A16Shape {
    A16Shape::new(COLS, 32).for_rows(rows, isa.has_tiles())
}

/// `bounds`: GB/s read, GOP/s of 16-bit by 8-bit products, GFLOP/s.
fn measure(isa: AnyIsa, w: &PackedWeights, m: usize, bounds: [f64; 3]) {
    let x: Vec<f32> = (0..m * COLS).map(|i| (i as f32 * 0.37).sin()).collect();
    let mut words = Vec::new();
    let shape = shape(isa, m);
    let range = a16_words(&mut words, m * shape.row_words());
    let words = &mut words[range];
    // Once for all rows of a weight, so not part of the product.
    isa.run(Quantize { x: &x, shape, words });
    let quantized = A16Rows { words, shape };
    // Many rows reuse what they read, and take longer.
    let rows = PASS_BYTES / m.min(8) / w.format().row_bytes(COLS) / LANES * LANES;
    let mut out = vec![0.0; m * rows];
    let time = best(|pass| {
        let rows = [pass * rows % w.rows(), rows];
        isa.run(&mut Product { x: &x, quantized, m, w, rows, out: &mut out });
    });
    let time = time.as_secs_f64();
    let bytes = w.num_bytes() as f64 * rows as f64 / w.rows() as f64;
    let (gb, ops) = (bytes / time / 1e9, (2 * m * rows * COLS) as f64 / time / 1e9);
    let peak = if w.format() == INT4 { bounds[1] } else { bounds[2] };
    println!(
        "  {:12} m = {m:2}: {gb:5.1} GB/s ({:3.0}% of reading), {ops:6.1} GOP/s ({:3.0}% of peak)",
        w.format().name,
        100.0 * gb / bounds[0],
        100.0 * ops / peak
    );
}
