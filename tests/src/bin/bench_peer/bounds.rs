//! What this machine's memory allows: the tokens a second at which reading the weights alone takes
//! all of the time.

use anyhow::Result;
use serde::{Deserialize, Serialize};
use std::hint::black_box;
use std::time::Instant;
use tessera_lanes::Isa;
use tessera_lanes::isa::{AnyIsa, LANES, WithIsa};
use tessera_lanes::memory::HugeBuffer;
use tessera_runtime::model::{Mlp, ModelSpec, ModelWeights};

/// Larger than any cache, as weights are.
const STREAM_BYTES: usize = 1 << 30;
const PASSES: usize = 3;
/// How far ahead memory is asked for: where reading is fastest.
const AHEAD: usize = 2048;

/// Bytes of the weights, and how fast they can be read.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Bounds {
    /// Of memory in large pages, all threads reading, mean of a few passes.
    pub(super) gb_per_second: f64,
    /// What every step reads.
    dense_bytes: usize,
    /// All routed experts.
    expert_bytes: usize,
    /// Part of the experts that one token reads.
    share: f64,
}

impl Bounds {
    /// Reads memory on `threads` threads.
    pub(super) fn measure(
        spec: &ModelSpec,
        weights: &ModelWeights,
        threads: usize,
    ) -> Result<Self> {
        let expert_bytes = weights.layers.iter().map(|layer| match &layer.mlp {
            Mlp::Dense(_) => 0,
            Mlp::Moe { experts, .. } => experts
                .iter()
                .flat_map(|expert| [&expert.gate_proj, &expert.up_proj, &expert.down_proj])
                .map(|matrix| matrix.num_bytes())
                .sum(),
        });
        let expert_bytes = expert_bytes.sum::<usize>();
        let dense_bytes = weights.num_bytes() - expert_bytes - weights.embed_tokens.num_bytes();
        let moe = &spec.moe;
        let share = moe.num_experts_per_tok as f64 / moe.n_routed_experts.max(1) as f64;
        let gb_per_second = read_bandwidth(threads)?;
        Ok(Self { gb_per_second, dense_bytes, expert_bytes, share })
    }

    /// Tokens a second of `batch` sequences that choose experts evenly, if only weights are read.
    pub(super) fn decode_rate(&self, batch: usize) -> f64 {
        let read = 1.0 - (1.0 - self.share).powf(batch as f64);
        let bytes = self.dense_bytes as f64 + read * self.expert_bytes as f64;
        batch as f64 * self.gb_per_second * 1e9 / bytes
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn read_bandwidth(threads: usize) -> Result<f64> {
    let mut buffer = HugeBuffer::zeroed(STREAM_BYTES)?;
    buffer.fill(1);
    let isa = AnyIsa::best();
    let start = Instant::now();
    for _ in 0..PASSES {
        std::thread::scope(|scope| {
            for part in buffer.chunks(STREAM_BYTES / threads) {
                scope.spawn(move || black_box(isa.run(Read(part))));
            }
        });
    }
    Ok((PASSES * STREAM_BYTES) as f64 / start.elapsed().as_secs_f64() / 1e9)
}

/// Reads all bytes.
struct Read<'a>(&'a [u8]);

impl WithIsa for Read<'_> {
    type Output = u16;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> u16 {
        let mut sums = [isa.splat_i32(0); 8];
        for lines in self.0.as_chunks::<{ 4 * LANES }>().0.as_chunks::<8>().0 {
            for (sum, line) in sums.iter_mut().zip(lines) {
                isa.prefetch(line, AHEAD);
                *sum = isa.xor(*sum, isa.load_bytes(line));
            }
        }
        sums.iter().fold(0, |bits, sum| bits ^ isa.mask_bits(isa.eq_i32(*sum, sums[0])))
    }
}
