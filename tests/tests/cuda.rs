//! The CUDA device under the stand-in driver, held to the ops' references.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use tessera_kernels::formats::{FORMATS, Format, KvFormat, format, kv_format};
use tessera_kernels::launch::{BufferId, Launch, RowView};
use tessera_kernels::ops::gather::GatherRows;
use tessera_kernels::ops::mla_prefill::MlaDims;
use tessera_runtime::device::{
    CpuDevice, CudaDevice, CudaError, Device, DeviceError, KernelBundle, PlanKey,
};
use tessera_tests::kernels::write_bundle;
use tessera_tests::launches::{LARGE, Launches, Outputs, SMALL};
use tessera_tests::stand_in::Program;

const PROGRAM: Program = Program { tmp: env!("CARGO_TARGET_TMPDIR") };

/// Kernels of this source.
fn bundle() -> Arc<KernelBundle> {
    static BUNDLE: OnceLock<Arc<KernelBundle>> = OnceLock::new();
    let bundle = BUNDLE.get_or_init(|| {
        let folder: PathBuf = PROGRAM.folder(&format!("kernels-{}", std::process::id()));
        let formats: Vec<&str> = FORMATS.iter().map(|format| format.name).chain(["e4m3"]).collect();
        write_bundle(&folder, &formats);
        KernelBundle::open(&folder).unwrap()
    });
    bundle.clone()
}

/// A device with those kernels.
fn cuda(ordinal: u32) -> CudaDevice {
    CudaDevice::new(ordinal, &bundle()).unwrap()
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
#[derive(Debug, Clone, Copy)]
struct Attend<'a> {
    dims: MlaDims,
    kv: &'static KvFormat,
    lens: &'a [usize],
    new: &'a [usize],
}

impl Attend<'_> {
    fn on<D: Device>(self, device: D) -> Outputs {
        let mut launches = Launches::new(device, weights("bf16")).with_dims(self.dims);
        let cached = launches.cache(self.kv, self.lens).unwrap();
        launches.attention_ops(&cached, self.new).unwrap();
        launches.into_outputs()
    }
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
        let attend = Attend { dims: SMALL, kv, lens: &[5, 40, 600], new: &[1, 3, 2] };
        check_same(&attend.on(cpu()), &attend.on(reference()), 2e-4);
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
        for weights in FORMATS.iter().copied() {
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
            let attend = Attend { dims: SMALL, kv, lens: &[5, 40, 600], new: &[1, 3, 2] };
            check_same(&attend.on(cuda(0)), &attend.on(CpuDevice::reference()), 1e-3);
        }
    });
}

#[test]
fn attention_of_large_heads() {
    PROGRAM.stand_in("attention_of_large_heads", &[], || {
        let kv = kv("fp8_e4m3");
        let attend = Attend { dims: LARGE, kv, lens: &[70, 3], new: &[1, 2] };
        check_same(&attend.on(cuda(0)), &attend.on(CpuDevice::reference()), 2e-3);
    });
}

/// Sequences long enough that prefill takes its keys in several runs and decode in several parts.
#[test]
fn attention_over_long_contexts() {
    PROGRAM.stand_in("attention_over_long_contexts", &[], || {
        let attend = Attend { dims: SMALL, kv: kv("bf16"), lens: &[4200, 30], new: &[2, 1] };
        check_same(&attend.on(cuda(0)), &attend.on(CpuDevice::reference()), 1e-3);
    });
}

/// `out = x[rows]` of four rows of eight numbers.
struct Gather {
    device: CudaDevice,
    rows: BufferId,
    launch: Launch,
    out: BufferId,
}

impl Gather {
    fn new() -> Self {
        let mut device = cuda(0);
        let x = device.alloc_f32(32).unwrap();
        let numbers: Vec<f32> = (0..32u8).map(f32::from).collect();
        device.write_f32(x, &numbers).unwrap();
        let (rows, out) = (device.alloc_i32(4).unwrap(), device.alloc_f32(32).unwrap());
        let launch = Launch::GatherRows(GatherRows {
            x: RowView::contiguous(x, 4, 8),
            rows,
            out: RowView::contiguous(out, 4, 8),
        });
        Self { device, rows, launch, out }
    }

    fn run(&mut self, rows: [i32; 4]) -> Result<Vec<f32>, DeviceError> {
        self.device.write_i32(self.rows, &rows)?;
        self.device.perform(&self.launch)?;
        self.read()
    }

    fn read(&self) -> Result<Vec<f32>, DeviceError> {
        let mut firsts = vec![0.0; 32];
        self.device.read_f32(self.out, &mut firsts)?;
        Ok(firsts.into_iter().step_by(8).collect())
    }
}

fn cuda_error<T: std::fmt::Debug>(result: Result<T, DeviceError>) -> CudaError {
    match result {
        Err(DeviceError::Cuda(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_failed_assert_names_the_kernel_and_breaks_nothing() {
    PROGRAM.stand_in("a_failed_assert_names_the_kernel_and_breaks_nothing", &[], || {
        let mut gather = Gather::new();
        assert_eq!(gather.run([3, 0, 2, 2]), Ok(vec![24.0, 0.0, 16.0, 16.0]));
        let error = cuda_error(gather.run([3, 0, 4, 2]));
        let CudaError::Assert { kernel, message, place } = error else { panic!("{error:?}") };
        assert_eq!((&*kernel, &*message), ("gather_rows", "`rows` are rows of `x`"));
        assert!(place.contains("tiles/gather.rs:"), "{place}");
        assert_eq!(gather.run([1, 1, 1, 0]), Ok(vec![8.0, 8.0, 8.0, 0.0]));
    });
}

/// The error that a failure gives, the same from every later call.
fn check_broken(gather: &mut Gather, error: &CudaError) {
    let Gather { device, rows, launch, .. } = gather;
    assert_eq!(cuda_error(device.write_i32(*rows, &[0])), *error);
    assert_eq!(cuda_error(device.perform(launch)), *error);
    assert_eq!(cuda_error(device.perform_plan(PlanKey([1, 1, 1, 0]), &[])), *error);
    assert_eq!(cuda_error(device.alloc_f32(1)), *error);
    assert_eq!(cuda_error(gather.read()), *error);
}

#[test]
fn an_illegal_address_is_the_last_that_a_device_says() {
    let name = "an_illegal_address_is_the_last_that_a_device_says";
    PROGRAM.stand_in(name, &[("FAULTS", "launch:2:illegal_address")], || {
        let mut gather = Gather::new();
        gather.run([0, 1, 2, 3]).unwrap();
        let error = cuda_error(gather.run([0, 1, 2, 3]));
        let CudaError::Driver { code: 700, name, .. } = &error else { panic!("{error:?}") };
        assert_eq!(name, "CUDA_ERROR_ILLEGAL_ADDRESS");
        check_broken(&mut gather, &error);
    });
}

#[test]
fn memory_that_is_not_there_breaks_the_device() {
    let name = "memory_that_is_not_there_breaks_the_device";
    PROGRAM.stand_in(name, &[("MEMORY", "64MiB")], || {
        let mut gather = Gather::new();
        gather.run([0, 1, 2, 3]).unwrap();
        let error = cuda_error(gather.device.alloc_f32(32 << 20));
        let CudaError::OutOfMemory { what, bytes, free, total } = error else {
            panic!("{error:?}");
        };
        assert_eq!((what, bytes, total), ("a buffer", 128 << 20, 64 << 20));
        assert!(free < total, "{free} of {total}");
        check_broken(&mut gather, &CudaError::OutOfMemory { what, bytes, free, total });
    });
}

#[test]
fn a_device_number_past_the_last_is_refused() {
    let name = "a_device_number_past_the_last_is_refused";
    PROGRAM.stand_in(name, &[("DEVICES", "2"), ("ARCH", "sm_100")], || {
        let bundle = bundle();
        let error = CudaDevice::new(2, &bundle).map(|_| ());
        assert_eq!(cuda_error(error), CudaError::NoDevice { ordinal: 2, count: 2 });
        let error = cuda_error(CudaDevice::new(1, &bundle).map(|_| ()));
        assert!(matches!(error, CudaError::Target { major: 10, minor: 0, .. }), "{error:?}");
    });
}

/// More than the pinned memory holds, with copies that the driver does as late as it may.
#[test]
fn large_buffers_come_back_as_they_went() {
    let name = "large_buffers_come_back_as_they_went";
    PROGRAM.stand_in(name, &[("LATENCY", "60"), ("SCHEDULE", "latest")], || {
        let mut device = cuda(0);
        let lens = [(1 << 20) + 3, 1, 6 << 20, 17];
        let ids = lens.map(|len| device.alloc_u32(len).unwrap());
        let numbers = |seed: u32, len: usize| -> Vec<u32> {
            (0u32..).take(len).map(|i| i.wrapping_mul(seed)).collect()
        };
        for (seed, (&id, len)) in (1..).zip(ids.iter().zip(lens)) {
            let mut values = numbers(seed, len);
            device.write_u32(id, &values).unwrap();
            // What was given away may change at once.
            values.fill(0);
        }
        for (seed, (&id, len)) in (1..).zip(ids.iter().zip(lens)) {
            let mut values = vec![0; len];
            device.read_u32(id, &mut values).unwrap();
            assert!(values == numbers(seed, len), "buffer {seed}");
        }
    });
}

/// A plan is run, then recorded, then repeated; inputs are those of the time it is repeated.
#[test]
fn plans_are_repeated_with_the_inputs_of_the_time() {
    let name = "plans_are_repeated_with_the_inputs_of_the_time";
    PROGRAM.stand_in(name, &[("LATENCY", "20"), ("SCHEDULE", "latest")], || {
        let mut launches = Launches::new(cuda(0), weights("bf16"));
        let cached = launches.cache(kv("bf16"), &[5, 40, 600]).unwrap();
        launches.decode_plan(&cached, 6).unwrap();
        // The first step grew the scratch memory of the parts.
        assert_eq!(launches.device.num_graphs(), 1);
        let got = launches.into_outputs();
        let mut launches = Launches::new(CpuDevice::reference(), weights("bf16"));
        let cached = launches.cache(kv("bf16"), &[5, 40, 600]).unwrap();
        launches.decode_plan(&cached, 6).unwrap();
        check_same(&got, &launches.into_outputs(), 1e-3);
    });
}

#[test]
fn without_a_driver_there_is_an_error() {
    let folder = PROGRAM.folder("no driver");
    write_bundle(&folder, &["f32"]);
    let bundle = KernelBundle::open(&folder).unwrap();
    // Only where this machine has no driver of its own.
    if let Err(error) = CudaDevice::new(0, &bundle) {
        let text = error.to_string();
        let DeviceError::Cuda(error) = error else { panic!("{error:?}") };
        assert!(matches!(error, CudaError::NoDriver | CudaError::NoDevice { .. }), "{text}");
    }
}
