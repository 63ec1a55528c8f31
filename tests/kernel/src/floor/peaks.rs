//! What GPUs do in a second, and who says so.

use serde::Serialize;
use tessera_ptx::Sm;

/// A GPU by its rates. Those of a multiprocessor are for one cycle.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Gpu {
    /// Its name.
    pub name: &'static str,
    /// What kernels are built for.
    #[serde(skip)]
    pub sm: Sm,
    /// Bytes a second of its memory.
    pub memory_bytes_s: f64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Cycles a second at its highest clock.
    pub clock_hz: f64,
    /// Floating-point operations a second of its matrix units at best, of BF16 without sparsity.
    pub bf16_flop_s: f64,
    /// Warp instructions issued by a multiprocessor.
    pub issue: f64,
    /// The same, of 32-bit integer instructions.
    pub integer: f64,
    /// Bytes of shared memory read or written by a multiprocessor.
    pub shared_bytes: f64,
    /// Bytes that a multiprocessor takes from the second-level cache.
    pub l2_bytes: f64,
    /// Floating-point operations of `mma.sync` on a multiprocessor, BF16 with sums in f32.
    pub mma_flop: f64,
    /// The same of `wgmma`, where there is one.
    pub wgmma_flop: f64,
}

/// Operations of a matrix unit's best instruction on a multiprocessor of Hopper: 989.4 TFLOP/s of
/// 132 at 1.83 GHz, the clock of the data sheet's figure.
const HOPPER_BEST: f64 = 4096.0;
/// Share of it that `mma.sync` reaches.
const OF_MMA_SYNC: f64 = 0.63;

/// The GPUs of the report.
pub const GPUS: [Gpu; 2] = [
    Gpu {
        name: "H200",
        sm: Sm::Sm90a,
        memory_bytes_s: 4.8e12,
        multiprocessors: 132,
        clock_hz: 1.98e9,
        bf16_flop_s: 989.4e12,
        issue: 4.0,
        integer: 2.0,
        shared_bytes: 128.0,
        l2_bytes: 64.0,
        mma_flop: HOPPER_BEST * OF_MMA_SYNC,
        wgmma_flop: HOPPER_BEST,
    },
    Gpu {
        name: "B200",
        sm: Sm::Sm100f,
        memory_bytes_s: 8e12,
        multiprocessors: 148,
        clock_hz: 1.965e9,
        bf16_flop_s: 2250e12,
        issue: 4.0,
        integer: 2.0,
        shared_bytes: 128.0,
        l2_bytes: 64.0,
        mma_flop: HOPPER_BEST * OF_MMA_SYNC,
        wgmma_flop: HOPPER_BEST,
    },
];

/// Where the figures are from, as the report prints it.
pub const SOURCES: &str = "\
- Memory, BF16: NVIDIA's data sheets of the H200 SXM (4.8 TB/s, 989 TFLOP/s) and of the HGX B200
  (8 TB/s, 2.25 PFLOP/s a GPU), without sparsity. Multiprocessors are 132 and 148; clocks are the highest
  that are listed (of 1.965 and 1.98 GHz for the B200 the lower). Under load they are lower, and with
  them everything but memory.
- Issue: four schedulers a multiprocessor, one warp instruction a cycle each. Integers: 64 lanes a
  cycle of 32-bit arithmetic (CUDA C++ Programming Guide, throughput of native arithmetic
  instructions, 9.0; taken for 10.0 as well). Shared memory: 32 banks of 4 bytes.
- Second-level cache: 64 bytes a cycle and multiprocessor, the width of its port. What all of them
  take together is less: this bound is on the lenient side.
- `mma.sync`: taken to reach 63 % of the matrix units' best on Hopper, after arXiv 2402.13499. For the
  B200 no figure is published; the same a multiprocessor and cycle is *assumed*.
- `wgmma`: taken to reach the best, but of fewer than 32 columns to take as long as one of 32.";
