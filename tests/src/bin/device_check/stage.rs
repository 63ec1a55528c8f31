//! Arguments of kernels at the sizes of a served model. Nobody looks at the results, so values are
//! ordinary numbers that repeat; places, tags and lengths are true ones.

use anyhow::{Context, Result};
use tessera_kernel_tool::place::{axes, dense};
use tessera_kernels::formats::{PackedMatrix, format};
use tessera_ptx::launch::{Arg, PackedArg, ViewArg};
use tessera_runtime::device::{DeviceMemory, Launcher};

/// Tokens a page.
const PAGE_SIZE: usize = 64;
/// Cached tokens of one part, as the runtime splits them.
const SPLIT_TOKENS: usize = 512;
/// Elements of a cache entry: latent, rope.
const RANK: usize = 512;
const ROPE: usize = 64;
/// Rows of a weight that are made; the others repeat them.
const MADE_ROWS: usize = 128;

/// A launch, what it must move and what it must compute.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) what: String,
    pub(crate) kernel: &'static str,
    pub(crate) args: Vec<Arg<'static>>,
    pub(crate) bytes: f64,
    pub(crate) flops: f64,
}

/// Sequences of one length, each with one new token.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batch {
    pub(crate) seqs: usize,
    pub(crate) len: usize,
    pub(crate) heads: usize,
}

/// `rows` of `x` times weights of `[n, k]`, of one matrix or of each of `experts`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Product {
    pub(crate) format: &'static str,
    pub(crate) rows: usize,
    pub(crate) n: usize,
    pub(crate) k: usize,
    pub(crate) experts: Option<usize>,
}

/// Device memory of one launch.
#[derive(Debug)]
pub(crate) struct Stage<'a> {
    launcher: &'a Launcher,
    held: Vec<DeviceMemory>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(launcher: &'a Launcher) -> Self {
        Self { launcher, held: Vec::new() }
    }

    /// Absorbed attention over an E4M3 cache.
    pub(crate) fn mla_decode(&mut self, batch: Batch) -> Result<Scene> {
        let Batch { seqs, len, heads } = batch;
        let (pages, parts) = (len.div_ceil(PAGE_SIZE), len.div_ceil(SPLIT_TOKENS));
        let entry = RANK + ROPE;
        let slots = seqs * pages * PAGE_SIZE;
        // E4M3 of 0.5 to 0.9375, either sign.
        let cache: Vec<u8> = (0..slots * entry).map(|i| 0x30 | pattern(i) & 0x87).collect();
        let cache = self.hold(&cache)?;
        let layer = |first: usize, cols: usize| {
            let (dims, strides) = (axes(&[slots, cols])?, axes(&[entry, 1])?);
            let address = cache + first as u64;
            anyhow::Ok(Arg::View(ViewArg { address, elem: "e4m3", dims, strides }))
        };
        let softmax_scale = 1.0 / (entry as f32).sqrt();
        let args = vec![
            self.floats(&[seqs, heads, RANK])?,
            self.floats(&[seqs, heads, ROPE])?,
            layer(0, RANK)?,
            layer(RANK, ROPE)?,
            self.ones(seqs * pages)?,
            Arg::Int(PAGE_SIZE as i64),
            self.ints(&[seqs, pages], |i| i)?,
            self.ints(&[seqs], |_| len)?,
            self.ints(&[seqs + 1], |i| i)?,
            Arg::Int(SPLIT_TOKENS as i64),
            Arg::F32(softmax_scale),
            self.empty(&[parts, seqs, heads, RANK])?,
            self.empty(&[parts, seqs, heads])?,
        ];
        let rows = seqs * heads;
        let numbers = rows * entry + parts * rows * (RANK + 1);
        Ok(Scene {
            what: format!("{seqs} sequences of {len}, {heads} heads, e4m3"),
            kernel: "mla_decode",
            args,
            bytes: (slots * entry + 4 * numbers) as f64,
            flops: 2.0 * (rows * len) as f64 * (entry + RANK) as f64,
        })
    }

    /// The parts of such attention, merged.
    pub(crate) fn mla_merge(&mut self, batch: Batch) -> Result<Scene> {
        let Batch { seqs, len, heads } = batch;
        let (parts, rows) = (len.div_ceil(SPLIT_TOKENS), seqs * heads);
        let args = vec![
            self.floats(&[parts, seqs, heads, RANK])?,
            self.floats(&[parts, seqs, heads])?,
            self.empty(&[seqs, heads, RANK])?,
            self.empty(&[seqs, heads])?,
        ];
        Ok(Scene {
            what: format!("{parts} parts of {seqs} sequences, {heads} heads"),
            kernel: "mla_merge",
            args,
            bytes: 4.0 * ((parts + 1) * rows * (RANK + 1)) as f64,
            flops: 2.0 * (parts * rows * RANK) as f64,
        })
    }

    /// A linear layer, or one an expert with the rows dealt out evenly.
    pub(crate) fn product(&mut self, product: Product) -> Result<Scene> {
        let Product { format, rows, n, k, experts } = product;
        let matrices = experts.unwrap_or(1);
        let (weight, weight_bytes) = self.weight(format, (matrices, n, k), experts.is_some())?;
        let x = self.floats(&[rows, k])?;
        let y = self.empty(&[rows, n])?;
        let (kernel, args, what) = match experts {
            None => ("w_gemm", vec![x, weight, y], format!("{format}, {rows} x {k} x {n}")),
            Some(experts) => {
                let offsets = self.ints(&[experts + 1], |e| e * rows / experts)?;
                let what = format!("{format}, {experts} experts, {rows} x {k} x {n}");
                ("w_gemm_grouped", vec![x, weight, offsets, y], what)
            }
        };
        Ok(Scene {
            what,
            kernel,
            args,
            bytes: (weight_bytes + 4 * rows * (k + n)) as f64,
            flops: 2.0 * rows as f64 * (n * k) as f64,
        })
    }

    /// The tags of every page of a batch, all of them right.
    pub(crate) fn tag_check(&mut self, batch: Batch) -> Result<Scene> {
        let (seqs, pages) = (batch.seqs, batch.len.div_ceil(PAGE_SIZE));
        let tags = |dims: &[usize], stage: &mut Self| {
            let count = dims.iter().product::<usize>() as u64;
            let bytes: Vec<u8> = (1..=count).flat_map(u64::to_le_bytes).collect();
            dense(stage.hold(&bytes)?, "u64", dims)
        };
        let args = vec![
            tags(&[seqs * pages], self)?,
            self.ints(&[seqs, pages], |i| i)?,
            tags(&[seqs, pages], self)?,
            self.ints(&[seqs], |_| pages)?,
            self.ints(&[seqs + 1], |i| i)?,
            self.ints(&[seqs], |_| 0)?,
            dense(self.hold(&vec![0; 8 * seqs])?, "i64", &[seqs])?,
        ];
        Ok(Scene {
            what: format!("{seqs} sequences of {pages} pages"),
            kernel: "page_tag_check",
            args,
            bytes: (seqs * pages * 20 + seqs * 12) as f64,
            flops: 0.0,
        })
    }

    /// A weight, and how many bytes of it are read.
    fn weight(
        &mut self,
        name: &str,
        (matrices, n, k): (usize, usize, usize),
        has_experts: bool,
    ) -> Result<(Arg<'static>, usize)> {
        let format = format(name).with_context(|| format!("no weight format is called {name}"))?;
        let values: Vec<f32> = (0..MADE_ROWS * k).map(number).collect();
        let made = PackedMatrix::encode(format, MADE_ROWS, k, &values)?;
        let times = matrices * n.div_ceil(MADE_ROWS);
        let mut bytes = 0;
        let mut part = |part: &[u8]| {
            bytes += part.len() * times;
            match part {
                [] => Ok(0),
                part => self.hold(&part.repeat(times)),
            }
        };
        let codes = part(&made.codes)?;
        let scales = part(&made.scales)?;
        let zero_points = part(&made.zero_points)?;
        let tensor_scales = self.hold(&made.tensor_scale.to_le_bytes().repeat(matrices))?;
        let dims = if has_experts { axes(&[matrices, n, k])? } else { axes(&[n, k])? };
        let format = format.name;
        let packed = PackedArg { format, codes, scales, zero_points, tensor_scales, dims };
        Ok((Arg::Packed(packed), bytes))
    }

    fn floats(&mut self, dims: &[usize]) -> Result<Arg<'static>> {
        let count: usize = dims.iter().product();
        let bytes: Vec<u8> = (0..count).flat_map(|i| number(i).to_le_bytes()).collect();
        dense(self.hold(&bytes)?, "f32", dims)
    }

    fn ones(&mut self, count: usize) -> Result<Arg<'static>> {
        dense(self.hold(&1.0f32.to_le_bytes().repeat(count))?, "f32", &[count])
    }

    fn ints(&mut self, dims: &[usize], value: impl Fn(usize) -> usize) -> Result<Arg<'static>> {
        let count: usize = dims.iter().product();
        let mut bytes = Vec::with_capacity(4 * count);
        for i in 0..count {
            bytes.extend(i32::try_from(value(i))?.to_le_bytes());
        }
        dense(self.hold(&bytes)?, "i32", dims)
    }

    /// An f32 output.
    fn empty(&mut self, dims: &[usize]) -> Result<Arg<'static>> {
        let memory = self.launcher.zeroed(4 * dims.iter().product::<usize>())?;
        let address = memory.address();
        self.held.push(memory);
        dense(address, "f32", dims)
    }

    fn hold(&mut self, bytes: &[u8]) -> Result<u64> {
        let memory = self.launcher.holding(bytes)?;
        let address = memory.address();
        self.held.push(memory);
        Ok(address)
    }
}

/// Bits without an order that the eye sees.
fn pattern(i: usize) -> u8 {
    let [.., byte] = (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    byte
}

/// From -1 to 1.
fn number(i: usize) -> f32 {
    f32::from(pattern(i)) / 127.5 - 1.0
}
