//! What a multiprocessor has, and how many programs of a kernel fit it at a time.

use serde::Serialize;
use std::fmt;
use tessera_ptx::Sm;

/// Threads of a warp.
const WARP: u32 = 32;

/// What a multiprocessor has.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Compute capability, its major number.
    pub major: u32,
    /// Warps at a time.
    pub warps: u32,
    /// Programs at a time.
    pub ctas: u32,
    /// Registers of 32 bits.
    pub registers: u32,
    /// Registers that one thread can have.
    pub registers_per_thread: u32,
    /// Registers are given to a warp in runs of this many.
    pub register_unit: u32,
    /// Quarters that each have a share of the registers.
    pub partitions: u32,
    /// Bytes of shared memory.
    pub shared_bytes: u32,
    /// Bytes of shared memory that one program can have.
    pub shared_bytes_per_cta: u32,
    /// Bytes that the system takes of each program's.
    pub shared_bytes_reserved: u32,
    /// Shared memory is given in runs of this many bytes.
    pub shared_unit: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// Hopper: H100, H200. Numbers: CUDA C++ Programming Guide 13.0, "Technical Specifications per
/// Compute Capability", column 9.0; the units: `cuda_occupancy.h` of nvidia-cuda-runtime 13.0.96.
pub const SM_90: Limits = Limits {
    major: 9,
    warps: 64,
    ctas: 32,
    registers: 64 * 1024,
    registers_per_thread: 255,
    register_unit: 256,
    partitions: 4,
    shared_bytes: 228 * 1024,
    shared_bytes_per_cta: 227 * 1024,
    shared_bytes_reserved: 1024,
    shared_unit: 128,
    barriers: 64,
};

/// Data-centre Blackwell: B200, B300. The same sources, column 10.x; the same numbers.
pub const SM_100: Limits = Limits { major: 10, ..SM_90 };

impl Limits {
    /// Those of a target.
    pub fn of(target: Sm) -> Self {
        match target {
            Sm::Sm90a => SM_90,
            Sm::Sm100a | Sm::Sm100f => SM_100,
        }
    }
}

/// What one program of a kernel takes.
#[derive(Debug, Clone, Copy)]
pub struct Needs {
    /// Threads of a program.
    pub threads: u32,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of shared memory, static and dynamic.
    pub shared_bytes: u32,
    /// Named barriers.
    pub barriers: u32,
}

/// What lets no further program in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "named after what runs out")]
pub enum Limiter {
    Warps,
    Ctas,
    #[serde(rename = "regs")]
    Registers,
    #[serde(rename = "smem")]
    Shared,
    Barriers,
}

impl fmt::Display for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Warps => "warps",
            Self::Ctas => "ctas",
            Self::Registers => "regs",
            Self::Shared => "smem",
            Self::Barriers => "barriers",
        })
    }
}

/// How many programs fit a multiprocessor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Occupancy {
    /// Programs at a time; 0 if one alone does not fit.
    pub ctas: u32,
    /// Of the warps that it could hold, in percent.
    pub percent: f64,
    /// What runs out first.
    pub limiter: Limiter,
}

/// How many programs of these needs fit at a time, all shared memory being theirs.
pub fn occupancy(limits: &Limits, needs: &Needs) -> Occupancy {
    let warps = needs.threads.div_ceil(WARP).max(1);
    let bounds = [
        (limits.warps / warps, Limiter::Warps),
        (by_registers(limits, needs, warps), Limiter::Registers),
        (by_shared(limits, needs), Limiter::Shared),
        (limits.barriers.checked_div(needs.barriers).unwrap_or(u32::MAX), Limiter::Barriers),
        (limits.ctas, Limiter::Ctas),
    ];
    let least = bounds.into_iter().min_by_key(|(ctas, _)| *ctas);
    let (ctas, limiter) = least.unwrap_or((0, Limiter::Ctas));
    let percent = f64::from(ctas * warps) * 100.0 / f64::from(limits.warps);
    Occupancy { ctas, percent, limiter }
}

fn by_registers(limits: &Limits, needs: &Needs, warps: u32) -> u32 {
    let per_warp = (needs.registers * WARP).next_multiple_of(limits.register_unit);
    if per_warp == 0 {
        return u32::MAX;
    }
    // A launch is let in only if all partitions could hold the warps of the fullest one.
    let assumed = per_warp * warps.next_multiple_of(limits.partitions);
    if assumed > limits.registers || needs.registers > limits.registers_per_thread {
        return 0;
    }
    let per_partition = limits.registers / limits.partitions / per_warp;
    per_partition * limits.partitions / warps
}

fn by_shared(limits: &Limits, needs: &Needs) -> u32 {
    if needs.shared_bytes > limits.shared_bytes_per_cta {
        return 0;
    }
    let taken = needs.shared_bytes + limits.shared_bytes_reserved;
    limits.shared_bytes / taken.next_multiple_of(limits.shared_unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every answer of NVIDIA's own calculator, which `fixtures/occupancy.c` asked.
    #[test]
    fn occupancy_is_that_of_the_vendors_calculator() {
        let text = include_str!("fixtures/occupancy.csv");
        let mut rows = 0;
        for row in text.lines().filter(|line| !line.starts_with('#')) {
            let n: Vec<u32> = row.split(',').map(|cell| cell.parse().unwrap()).collect();
            let limits = if n[0] == 9 { SM_90 } else { SM_100 };
            assert_eq!(limits.major, n[0]);
            let needs =
                Needs { registers: n[1], threads: n[2], shared_bytes: n[3], barriers: n[4] };
            let got = occupancy(&limits, &needs);
            let each =
                [limits.warps / n[2].div_ceil(WARP), by_registers(&limits, &needs, n[2] / 32)];
            assert_eq!(each, [n[6], n[7]], "{row}");
            assert_eq!(by_shared(&limits, &needs), n[8], "{row}");
            assert_eq!(got.ctas, n[5], "{row}");
            rows += 1;
        }
        assert!(rows > 150);
    }

    #[test]
    fn what_runs_out_is_named() {
        let check = |registers, shared_bytes, threads, want| {
            let needs = Needs { threads, registers, shared_bytes, barriers: 1 };
            assert_eq!(occupancy(&SM_90, &needs).limiter, want);
        };
        check(168, 0, 128, Limiter::Registers);
        check(32, 110 * 1024, 128, Limiter::Shared);
        check(16, 0, 32, Limiter::Ctas);
        check(16, 0, 1024, Limiter::Warps);
        check(32, 300 * 1024, 128, Limiter::Shared);
    }
}
