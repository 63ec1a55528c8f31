//! The CUDA device under the stand-in driver, held to the ops' references.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tessera_kernels::formats::{Format, KvFormat, format, kv_format};
use tessera_runtime::device::{CpuDevice, CudaDevice, Device, KernelBundle};
use tessera_tests::kernels::write_bundle;
use tessera_tests::launches::{Launches, Outputs};
use tessera_tests::stand_in::Program;

const PROGRAM: Program = Program { tmp: env!("CARGO_TARGET_TMPDIR") };

/// Formats that kernels of these tests are for.
const FORMATS: [&str; 5] = ["f32", "bf16", "e4m3", "int4-g32", "fp8-128x128"];

/// A device with kernels of this source.
fn cuda(ordinal: u32) -> CudaDevice {
    static BUNDLE: OnceLock<Arc<KernelBundle>> = OnceLock::new();
    let bundle = BUNDLE.get_or_init(|| {
        let folder: PathBuf = PROGRAM.folder(&format!("kernels-{}", std::process::id()));
        write_bundle(&folder, &FORMATS);
        KernelBundle::open(&folder).unwrap()
    });
    CudaDevice::new(ordinal, bundle).unwrap()
}

/// Launches that multiply with no weight, and no cache.
fn row_launches<D: Device>(device: D, weights: &'static Format) -> Outputs {
    let mut launches = Launches::new(device, weights);
    launches.rows_ops().unwrap();
    launches.sample_ops().unwrap();
    launches.into_outputs()
}

/// Launches that multiply with weights.
fn weight_launches<D: Device>(device: D, weights: &'static Format) -> Outputs {
    let mut launches = Launches::new(device, weights);
    launches.linear_ops().unwrap();
    launches.moe_ops().unwrap();
    launches.into_outputs()
}

/// Attention over a cache of sequences of these lengths, each with that many new tokens.
fn attention_launches<D: Device>(
    device: D,
    (weights, kv): (&'static Format, &'static KvFormat),
    lens: &[usize],
    new: &[usize],
) -> Outputs {
    let mut launches = Launches::new(device, weights);
    let cached = launches.cache(kv, lens).unwrap();
    launches.attention_ops(&cached, new).unwrap();
    launches.into_outputs()
}

/// Launches that check and convert pages.
fn page_launches<D: Device>(device: D, kv: &'static KvFormat) -> Outputs {
    let mut launches = Launches::new(device, format("bf16").unwrap());
    let cached = launches.cache(kv, &[5, 40, 600]).unwrap();
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

fn weights(name: &str) -> &'static Format {
    format(name).unwrap()
}

fn kv(name: &str) -> &'static KvFormat {
    kv_format(name).unwrap()
}

/// The comparison itself, between two devices that other tests compare too.
#[test]
fn generated_kernels_agree_with_references() {
    let (cpu, reference) = (CpuDevice::new, CpuDevice::reference);
    for weights in ["f32", "bf16"].map(weights) {
        check_same(&row_launches(cpu(), weights), &row_launches(reference(), weights), 2e-5);
        check_same(&weight_launches(cpu(), weights), &weight_launches(reference(), weights), 2e-5);
    }
    for kv in ["f32", "bf16", "fp8_e4m3"].map(kv) {
        check_same(&page_launches(cpu(), kv), &page_launches(reference(), kv), 2e-4);
        let attend =
            |device| attention_launches(device, (weights("bf16"), kv), &[5, 40, 600], &[1, 3, 2]);
        check_same(&attend(cpu()), &attend(reference()), 2e-4);
    }
}

#[test]
fn launches_over_rows() {
    PROGRAM.stand_in("launches_over_rows", &[], || {
        for weights in ["f32", "bf16", "int4-g32", "fp8-128x128"].map(weights) {
            let want = row_launches(CpuDevice::reference(), weights);
            check_same(&row_launches(cuda(0), weights), &want, 1e-4);
        }
    });
}

#[test]
fn launches_with_weights() {
    PROGRAM.stand_in("launches_with_weights", &[], || {
        for weights in ["f32", "bf16", "int4-g32", "fp8-128x128"].map(weights) {
            let want = weight_launches(CpuDevice::reference(), weights);
            check_same(&weight_launches(cuda(0), weights), &want, 1e-3);
        }
    });
}

#[test]
fn launches_over_pages() {
    PROGRAM.stand_in("launches_over_pages", &[], || {
        for kv in ["f32", "bf16", "fp8_e4m3"].map(kv) {
            let want = page_launches(CpuDevice::reference(), kv);
            check_same(&page_launches(cuda(0), kv), &want, 1e-4);
        }
    });
}

#[test]
fn launches_of_attention() {
    PROGRAM.stand_in("launches_of_attention", &[], || {
        for kv in ["f32", "bf16", "fp8_e4m3"].map(kv) {
            let (formats, lens, new) = ((weights("bf16"), kv), [5, 40, 600], [1, 3, 2]);
            let want = attention_launches(CpuDevice::reference(), formats, &lens, &new);
            check_same(&attention_launches(cuda(0), formats, &lens, &new), &want, 1e-3);
        }
    });
}
