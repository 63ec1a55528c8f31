//! Golden parity of the CUDA device: logits and greedy tokens of small checkpoints against transformers
//! in float32, with kernels run by the stand-in driver.

#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use tessera_runtime::device::{CudaDevice, KernelBundle};
use tessera_runtime::model::Attention;
use tessera_tests::engine::golden;
use tessera_tests::golden::{Recorded, Subject, max_relative_error};
use tessera_tests::kernels::write_bundle;
use tessera_tests::stand_in::Program;

const PROGRAM: Program = Program { tmp: env!("CARGO_TARGET_TMPDIR") };

/// Tokens whose logits are compared: two pages and a bit. Those after them change none of these.
const TOKENS: usize = 20;

/// Greedy tokens that are compared: the first by expanded attention, the others in latent space, of
/// which the second is a recorded plan and the third that plan repeated.
const GREEDY: usize = 4;

/// Checks a checkpoint whose weights are in these formats; the test that does is called `test`.
fn check(test: &str, name: &str, formats: &[&str]) {
    PROGRAM.stand_in(test, &[], || {
        let folder = PROGRAM.folder(&format!("kernels-{test}"));
        write_bundle(&folder, formats);
        let bundle = KernelBundle::open(&folder).unwrap();
        let cuda = || CudaDevice::new(0, &bundle).unwrap();
        let dir = golden(name);
        let (recorded, subject) =
            (Recorded::read(&dir).unwrap(), Subject::load(&dir, "f32").unwrap());
        let tokens = &recorded.input_ids[..TOKENS];
        let want = &recorded.logits[..TOKENS * subject.vocab_size()];
        for attention in [Attention::Expanded, Attention::Absorbed] {
            let logits = subject.logits_on(cuda(), attention, tokens).unwrap();
            let error = max_relative_error(&logits, want, subject.vocab_size());
            let error = error.unwrap();
            println!("{name}, {attention:?}: relative error {error:.1e}");
            assert!(error <= 2e-3, "{name}, {attention:?}: relative error {error}");
        }
        let greedy = subject.greedy_on(cuda(), &recorded.input_ids, (GREEDY, 7)).unwrap();
        assert_eq!(greedy, recorded.greedy_ids[..GREEDY], "{name}");
    });
}

#[test]
fn deepseek_v3() {
    check("deepseek_v3", "deepseek_v3", &["f32", "bf16"]);
}

#[test]
fn deepseek_v3_fp8_block() {
    check("deepseek_v3_fp8_block", "deepseek_v3-fp8block", &["f32", "bf16", "fp8-128x128"]);
}

#[test]
fn deepseek_v3_nvfp4() {
    check("deepseek_v3_nvfp4", "deepseek_v3-nvfp4", &["f32", "bf16", "nvfp4"]);
}

#[test]
fn kimi_k2() {
    check("kimi_k2", "kimi_k2", &["f32", "bf16"]);
}

#[test]
fn kimi_k2_int4() {
    check("kimi_k2_int4", "kimi_k2-int4", &["f32", "bf16", "int4-g32"]);
}
