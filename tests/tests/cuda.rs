//! The CUDA device under the stand-in driver, held to the ops' references.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use tessera_kernels::formats::{Format, KvFormat, format, kv_format};
use tessera_runtime::device::{CpuDevice, Device};
use tessera_tests::launches::{Launches, Outputs};

/// All launches but those over a cache.
fn plain_launches<D: Device>(device: D, weights: &'static Format) -> Outputs {
    let mut launches = Launches::new(device, weights);
    launches.rows_ops().unwrap();
    launches.moe_ops().unwrap();
    launches.sample_ops().unwrap();
    launches.into_outputs()
}

/// All launches over a cache of sequences of these lengths.
fn cache_launches<D: Device>(
    device: D,
    kv: &'static KvFormat,
    lens: &[usize],
    new: &[usize],
) -> Outputs {
    let mut launches = Launches::new(device, format("bf16").unwrap());
    let cached = launches.cache(kv, lens).unwrap();
    launches.attention_ops(&cached, new).unwrap();
    launches.tag_check(&cached).unwrap();
    let targets = ["f32", "bf16", "fp8_e4m3"].map(|name| kv_format(name).unwrap());
    launches.page_ops(&cached, &targets).unwrap();
    launches.into_outputs()
}

/// That two devices wrote the same, but for rounding relative to the largest number of an output.
fn check_same(got: &Outputs, want: &Outputs, tolerance: f32) {
    assert_eq!(got.len(), want.len());
    for ((name, got), (other, want)) in got.iter().zip(want) {
        assert_eq!((name, got.len()), (other, want.len()));
        let largest = want.iter().filter(|x| x.is_finite()).fold(0.0f32, |a, x| a.max(x.abs()));
        for (at, (got, want)) in got.iter().zip(want).enumerate() {
            let near = (got - want).abs() <= tolerance * largest.max(1e-3);
            let same = got == want || (got.is_nan() && want.is_nan());
            assert!(near || same, "{name} at {at}: {got} for {want}");
        }
    }
}

#[test]
fn generated_kernels_agree_with_references() {
    for weights in ["f32", "bf16"] {
        let weights = format(weights).unwrap();
        let want = plain_launches(CpuDevice::reference(), weights);
        check_same(&plain_launches(CpuDevice::new(), weights), &want, 2e-5);
    }
    for kv in ["f32", "bf16", "fp8_e4m3"] {
        let kv = kv_format(kv).unwrap();
        let (lens, new) = ([5, 40, 600], [1, 3, 2]);
        let want = cache_launches(CpuDevice::reference(), kv, &lens, &new);
        check_same(&cache_launches(CpuDevice::new(), kv, &lens, &new), &want, 2e-4);
    }
}
