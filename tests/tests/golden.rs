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
        let logits = subject.logits(attention, &tokens).expect(name);
        let error =
            max_relative_error(&logits, &recorded.logits, subject.vocab_size()).expect(name);
        assert!(error <= 2e-3, "{name}, {attention:?}: relative error {error}");
    }
    for chunk in [1, 7, 64, usize::MAX] {
        let greedy =
            subject.greedy(&recorded.input_ids, recorded.greedy_ids.len(), chunk).expect(name);
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

/// The bits of every logit of a pass over `tokens`, on a pool of so many threads.
fn logit_bits(threads: usize, subject: &Subject, attention: Attention, tokens: &[u32]) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
    let logits = pool.install(|| subject.logits(attention, tokens)).expect("logits");
    logits.iter().map(|logit| logit.to_bits()).collect()
}

#[test]
fn logits_have_the_same_bits_whatever_the_threads_and_the_batch() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/deepseek_v3");
    let recorded = Recorded::read(&dir).unwrap();
    let subject = Subject::load(&dir, "bf16").unwrap();
    let tokens = [recorded.input_ids.as_slice(), &recorded.greedy_ids].concat();
    for attention in [Attention::Expanded, Attention::Absorbed] {
        let want = logit_bits(1, &subject, attention, &tokens);
        assert_eq!(want.len(), tokens.len() * subject.vocab_size());
        assert!(logit_bits(3, &subject, attention, &tokens) == want, "{attention:?}, threads");
        // A causal model's first tokens do not know how many follow them in the batch.
        for count in [1, 2, 5, tokens.len() - 1] {
            let got = logit_bits(3, &subject, attention, &tokens[..count]);
            assert!(got == want[..got.len()], "{attention:?}, a batch of {count}");
        }
    }
}
