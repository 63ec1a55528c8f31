//! What `inspect` says of real configs agrees with the arithmetic of the model cards.

#![expect(clippy::unwrap_used, reason = "a test panics where it fails")]

use std::path::{Path, PathBuf};
use tessera_runtime::checkpoint::{Inspection, inspect};

fn config(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("configs").join(name)
}

fn kv(inspection: &Inspection, format: &str) -> u64 {
    inspection.kv.iter().find(|kv| kv.format == format).unwrap().bytes_per_token
}

#[test]
fn kimi_k2_6_from_its_config_alone() {
    let kimi = inspect(&config("kimi-k2.6"), None).unwrap();
    assert!(kimi.served);
    assert_eq!((kv(&kimi, "bf16"), kv(&kimi, "fp8_e4m3")), (70_272, 35_136));
    let experts = kimi.parts.iter().find(|p| p.name == "routed experts").unwrap();
    // 60 layers x 384 experts x 3 x 2048 x 7168
    assert_eq!((experts.format.as_str(), experts.parameters), ("int4-g32", 1_014_686_023_680));
    assert_eq!(experts.code_bytes, 507_343_011_840);
    assert_eq!(experts.scale_bytes, 63_417_876_480);
    let others = kimi.weight_bytes() - experts.code_bytes - experts.scale_bytes;
    assert_eq!(others / 1_000_000_000, 23);
    assert_eq!(kimi.weight_bytes() / 1_000_000_000, 594);
    // The budget of one accelerator: 48.2 GB.
    let (bf16, fp8) =
        (kimi.kv_tokens("bf16", 48_200_000_000), kimi.kv_tokens("fp8_e4m3", 48_200_000_000));
    assert_eq!((bf16, fp8), (Some(685_906), Some(1_371_812)));
    assert_eq!(kimi.kv_tokens("fp3", 1), None);
}

#[test]
fn glm_5_2_from_its_config_alone() {
    let glm = inspect(&config("glm-5.2").join("config.json"), Some(64_000_000_000)).unwrap();
    assert!(!glm.served);
    assert_eq!(kv(&glm, "dsa_fp8"), 53_940);
    assert_eq!(glm.kv_tokens("dsa_fp8", 63_650_000_000), Some(1_180_014));
    // 744 to 753 billion parameters, the multi-token-prediction layer's 10 billion not counted.
    assert_eq!(glm.parameters() / 1_000_000_000, 743);
    let text = glm.to_string();
    assert!(text.contains("not served yet") && text.contains("1 multi-token-prediction"), "{text}");
    assert!(text.contains("does not hold the weights"), "{text}");
}

#[test]
fn a_checkpoint_is_described_by_what_it_stores() {
    let bundled = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi");
    let tiny = inspect(&bundled, Some(1 << 30)).unwrap();
    // 4 layers x (64 + 32) x 2 bytes.
    assert_eq!(kv(&tiny, "bf16"), 768);
    assert!(tiny.parts.iter().all(|p| p.format == "bf16" || p.name == "norms and biases"));
    let text = tiny.to_string();
    assert!(text.contains("1,398,101 tokens in 1.1 GB"), "{text}");
    let int4 = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/kimi_k2-int4");
    let int4 = inspect(&int4, None).unwrap();
    assert!(int4.parts.iter().any(|p| p.name == "routed experts" && p.format == "int4-g32"));
}

#[test]
fn an_unknown_geometry_is_refused() {
    let dir = tessera_tests::tiny::Scratch::new("unknown");
    std::fs::write(dir.path().join("config.json"), r#"{"model_type":"llama"}"#).unwrap();
    let error = inspect(dir.path(), None).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert!(cause.contains("llama") && cause.contains("glm_moe_dsa"), "{cause}");
}
