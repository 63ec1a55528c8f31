//! From what was counted to what it takes: one time for each resource, the largest of which no run
//! can be shorter than.

use super::peaks::Gpu;
use super::workload::Workload;
use serde::Serialize;
use tessera_emulator::{Class, Counts, Line, Profile};
use tessera_ptx::Sm;

/// Floating-point operations of one `mma.sync.m16n8k16`, or of a warp's part of eight columns of a
/// `wgmma.m64nNk16`: kernels use no other.
pub const MMA_FLOP: u64 = 2 * 16 * 8 * 16;
/// Columns of a `wgmma` below which it gets no faster: its left side comes from registers.
const LEAST_COLUMNS: u64 = 32;

/// What the programs of a workload's case did.
#[derive(Debug, Clone)]
pub struct Counted {
    /// What was run.
    pub workload: Workload,
    /// What it was built for.
    pub sm: Sm,
    /// Its variant.
    pub label: String,
    /// The emulator's counts.
    pub profile: Profile,
    /// Warp instructions of each form of PTX, the most frequent first.
    pub forms: Vec<(String, u64)>,
    /// Bytes of the case's weights.
    pub weight_bytes: u64,
    /// Machine instructions for one of PTX, in the text of the kernel.
    pub expansion: f64,
}

/// What may be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Resource {
    /// Bandwidth of the memory.
    Memory,
    /// Bandwidth of the second-level cache to the multiprocessors.
    L2,
    /// Instructions issued.
    Issue,
    /// Integer arithmetic.
    Integer,
    /// The matrix units.
    Tensor,
    /// Passes over shared memory.
    Shared,
}

impl Resource {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Memory, Self::L2, Self::Issue, Self::Integer, Self::Tensor, Self::Shared];

    /// Its name in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::L2 => "L2",
            Self::Issue => "issue",
            Self::Integer => "integer",
            Self::Tensor => "tensor",
            Self::Shared => "shared",
        }
    }

    /// How much of it a line of the source takes.
    fn of(self, counts: &Counts) -> u64 {
        match self {
            Self::Memory | Self::L2 => counts.global_sectors,
            Self::Issue | Self::Integer => counts.warp_instructions,
            Self::Tensor => counts.mma,
            Self::Shared => wavefronts(counts),
        }
    }
}

/// Passes over shared memory.
pub fn wavefronts(counts: &Counts) -> u64 {
    counts.shared_bytes.div_ceil(128) + counts.shared_conflicts
}

/// What a workload takes on a GPU, in microseconds.
#[derive(Debug, Clone, Serialize)]
pub struct Modelled {
    /// The GPU.
    pub gpu: &'static str,
    /// Moving what must be moved.
    pub memory_floor_us: f64,
    /// Multiplying what must be multiplied, by the best instruction there is.
    pub flop_floor_us: f64,
    /// For each resource, in the order of [`Resource::ALL`].
    pub resources_us: [f64; 6],
    /// The one that takes longest.
    pub limit: Resource,
}

impl Modelled {
    /// The longest time of a resource.
    pub fn model_us(&self) -> f64 {
        self.resources_us.iter().copied().fold(0.0, f64::max)
    }

    /// What nothing can be faster than.
    pub fn floor_us(&self) -> f64 {
        self.memory_floor_us.max(self.flop_floor_us)
    }

    /// How far the model is from the floor.
    pub fn ratio(&self) -> f64 {
        self.model_us() / self.floor_us()
    }
}

impl Counted {
    /// A count of the case as one of the launch.
    pub fn of_launch(&self, count: u64) -> f64 {
        count as f64 * self.workload.programs as f64 / self.profile.ctas as f64
    }

    /// Bytes that must be moved.
    pub fn least_bytes(&self) -> f64 {
        self.workload.least_bytes as f64 + self.weights_of_launch()
    }

    /// Bytes of all weights, each once.
    fn weights_of_launch(&self) -> f64 {
        (self.weight_bytes * self.workload.weights) as f64
    }

    /// The times on a GPU. A multiprocessor that has one program more than others has all to wait.
    pub fn on(&self, gpu: &Gpu) -> Modelled {
        let programs = self.workload.programs;
        let most = programs.div_ceil(u64::from(gpu.multiprocessors));
        let total = &self.profile.total;
        let launch_bytes = self.workload.launch_bytes as f64 + self.weights_of_launch();
        // Of the busiest multiprocessor.
        let cycles = |count: f64, rate: f64| {
            count / self.profile.ctas as f64 * most as f64 / rate / gpu.clock_hz * 1e6
        };
        let integer = self.profile.classes.get(&Class::Integer).copied().unwrap_or_default();
        let resources_us = [
            launch_bytes / gpu.memory_bytes_s * 1e6,
            cycles((total.global_sectors * 32) as f64, gpu.l2_bytes),
            cycles(total.warp_instructions as f64 * self.expansion, gpu.issue),
            cycles(integer as f64, gpu.integer),
            self.tensor_us(gpu, cycles),
            cycles((wavefronts(total) * 128) as f64, gpu.shared_bytes),
        ];
        let longest = Resource::ALL.into_iter().zip(resources_us);
        let limit = longest.max_by(|a, b| a.1.total_cmp(&b.1)).map_or(Resource::Memory, |r| r.0);
        Modelled {
            gpu: gpu.name,
            memory_floor_us: self.least_bytes() / gpu.memory_bytes_s * 1e6,
            flop_floor_us: self.workload.flop as f64 / gpu.bf16_flop_s * 1e6,
            resources_us,
            limit,
        }
    }

    /// The time of the matrix units.
    fn tensor_us(&self, gpu: &Gpu, cycles: impl Fn(f64, f64) -> f64) -> f64 {
        let mut alone = self.profile.total.mma;
        let mut time = 0.0;
        for (form, count) in &self.forms {
            let Some(columns) = warpgroup_columns(form) else { continue };
            alone -= count * columns / 8;
            let taken = count * columns.max(LEAST_COLUMNS) / 8;
            time += cycles((taken * MMA_FLOP) as f64, gpu.wgmma_flop);
        }
        time + cycles((alone * MMA_FLOP) as f64, gpu.mma_flop)
    }

    /// The lines that take most of a resource, with the share of each.
    pub fn costly(&self, resource: Resource) -> Vec<(&Line, f64)> {
        let sum: u64 = self.profile.lines.iter().map(|line| resource.of(&line.counts)).sum();
        let mut lines: Vec<&Line> = self.profile.lines.iter().collect();
        lines.sort_by_key(|line| std::cmp::Reverse(resource.of(&line.counts)));
        let share = |line: &Line| resource.of(&line.counts) as f64 / sum.max(1) as f64;
        lines.into_iter().take(3).map(|line| (line, share(line))).filter(|l| l.1 > 0.0).collect()
    }
}

/// Columns of a `wgmma`: `wgmma.mma_async.sync.aligned.m64nNk16.f32.bf16.bf16`.
fn warpgroup_columns(form: &str) -> Option<u64> {
    let shape = form.strip_prefix("wgmma.mma_async.sync.aligned.m64n")?;
    shape.split_once('k')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::peaks::GPUS;
    use crate::floor::workload::workloads;

    fn counted(total: Counts, programs: u64, ctas: u64) -> Counted {
        let mut workload = workloads().swap_remove(0);
        workload.programs = programs;
        workload.weights = programs;
        (workload.least_bytes, workload.launch_bytes, workload.flop) = (4_800_000, 4_800_000, 0);
        let profile = Profile { ctas, total, ..Profile::default() };
        let (label, forms) = (String::new(), Vec::new());
        Counted { workload, sm: Sm::Sm90a, label, profile, forms, weight_bytes: 0, expansion: 1.0 }
    }

    #[test]
    fn memory_limits_what_does_nothing_else() {
        let modelled = counted(Counts::default(), 132, 1).on(&GPUS[0]);
        assert_eq!(modelled.limit, Resource::Memory);
        assert!((modelled.memory_floor_us - 1.0).abs() < 1e-9);
        assert!((modelled.ratio() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn the_busiest_multiprocessor_counts() {
        // 4 instructions a cycle at 1.98 GHz: a microsecond for 7920.
        let total = Counts { warp_instructions: 7920 * 3, ..Counts::default() };
        let whole = counted(total.clone(), 132, 1).on(&GPUS[0]);
        assert!((whole.model_us() - 3.0).abs() < 1e-9, "{whole:?}");
        assert_eq!(whole.limit, Resource::Issue);
        let ragged = counted(total.clone(), 133, 1).on(&GPUS[0]);
        assert!((ragged.model_us() - 6.0).abs() < 1e-9, "{ragged:?}");
        let of_three = counted(total, 132, 3).on(&GPUS[0]);
        assert!((of_three.resources_us[2] - 1.0).abs() < 1e-9, "{of_three:?}");
    }

    #[test]
    fn matrix_instructions_of_four_warps_run_at_the_best_rate() {
        let form = |n: u64| format!("wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16");
        let cycles = |columns: u64, counted_columns: u64| {
            let total = Counts { mma: 4 * columns / 8, ..Counts::default() };
            let mut one = counted(total, 132, 1);
            one.forms = vec![(form(columns), 4)];
            let flop = (2 * 64 * counted_columns * 16) as f64;
            let want = flop / GPUS[0].wgmma_flop / GPUS[0].clock_hz * 1e6;
            let got = one.on(&GPUS[0]).resources_us[4];
            assert!((got - want).abs() < 1e-12, "{columns}: {got} {want}");
        };
        cycles(64, 64);
        cycles(8, LEAST_COLUMNS);
    }

    #[test]
    fn conflicts_are_passes_too() {
        let total = Counts { shared_bytes: 1280, shared_conflicts: 5, ..Counts::default() };
        assert_eq!(wavefronts(&total), 15);
    }
}
