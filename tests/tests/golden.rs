//! Golden parity: logits and greedy tokens of small checkpoints against transformers in float32.

use std::path::{Path, PathBuf};
use tessera_runtime::model::Attention;
use tessera_tests::golden::{Recorded, Subject, max_relative_error};

fn check(name: &str) {
    let dir: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden").join(name);
    let recorded = Recorded::read(&dir).expect(name);
    let subject = Subject::load(&dir, "f32").expect(name);
    let tokens = [recorded.input_ids.as_slice(), &recorded.greedy_ids].concat();
    for attention in [Attention::Expanded, Attention::Absorbed] {
        let logits = subject.logits(attention, &tokens).unwrap();
        let error = max_relative_error(&logits, &recorded.logits, subject.vocab_size()).unwrap();
        assert!(error <= 2e-3, "{name}, {attention:?}: relative error {error}");
    }
    for chunk in [1, 7, 64, usize::MAX] {
        let greedy = subject.greedy(&recorded.input_ids, recorded.greedy_ids.len(), chunk).unwrap();
        assert_eq!(greedy, recorded.greedy_ids, "{name}, prefill in chunks of {chunk}");
    }
}

#[test]
fn deepseek_v3() {
    check("deepseek_v3");
}

#[test]
fn deepseek_v3_fp8_block() {
    check("deepseek_v3-fp8block");
}

#[test]
fn deepseek_v3_nvfp4() {
    check("deepseek_v3-nvfp4");
}

#[test]
fn kimi_k2() {
    check("kimi_k2");
}

#[test]
fn kimi_k2_int4() {
    check("kimi_k2-int4");
}
