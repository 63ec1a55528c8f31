//! Decode through the split: the golden tokens, formats, capacities, and what is refused.

use tessera_runtime::engine::{EngineConfig, EngineModel, KvScales, StartError, named_kv_format};
use tessera_tests::engine::{Engine, Sizes, config, golden, greedy, model};
use tessera_tests::golden::{Recorded, Subject};

const AS_STORED: [&str; 2] = ["checkpoint", "checkpoint"];

fn refused(change: impl FnOnce(&mut EngineConfig)) -> String {
    let model = model(&golden("deepseek_v3"), AS_STORED);
    let mut config = config(&model.spec, &Sizes::default());
    change(&mut config);
    match Engine::start(config, model) {
        Ok(_) => panic!("the engine started"),
        Err(error) => error.to_string(),
    }
}

fn started(model: EngineModel, sizes: &Sizes, scales: KvScales) -> Engine {
    let mut config = config(&model.spec, sizes);
    config.kv_scales = scales;
    Engine::start(config, model).expect("settings that work")
}

/// The golden continuation of `name` through the split with caches of format `kv`.
fn through_the_split(name: &str, kv: &'static str) -> (Vec<u32>, Recorded) {
    let recorded = Recorded::read(&golden(name)).expect("a golden folder");
    let model = model(&golden(name), AS_STORED);
    // Small enough that the prompt takes several chunks and the cache several pages.
    let sizes = Sizes { kv: [kv, kv], step_tokens: 7, ..Sizes::default() };
    let engine = started(model, &sizes, KvScales::Unset);
    let said = engine.ask(greedy(&recorded.input_ids, recorded.greedy_ids.len()));
    engine.finish(0);
    (said.whole(), recorded)
}

#[test]
fn an_f32_cache_gives_the_golden_tokens() {
    for name in ["deepseek_v3", "kimi_k2-int4"] {
        let (ids, recorded) = through_the_split(name, "f32");
        assert_eq!(ids, recorded.greedy_ids, "{name}");
    }
}

#[test]
fn a_bf16_cache_gives_the_same_tokens_with_and_without_the_split() {
    for name in ["deepseek_v3", "kimi_k2-int4"] {
        let (ids, recorded) = through_the_split(name, "bf16");
        let subject = Subject::load(&golden(name), "bf16").unwrap();
        let alone = subject.greedy(&recorded.input_ids, recorded.greedy_ids.len(), 7).unwrap();
        assert_eq!(ids, alone, "{name}: split against single pool");
        assert_eq!(ids, recorded.greedy_ids, "{name}: against transformers");
    }
}

#[test]
fn the_default_split_runs_and_measures_its_scales() {
    let recorded = Recorded::read(&golden("deepseek_v3")).unwrap();
    let model = model(&golden("deepseek_v3"), ["fp8", "int4"]);
    let sizes = Sizes { kv: ["bf16", "fp8_e4m3"], ..Sizes::default() };
    let engine = started(model, &sizes, KvScales::Auto);
    let info = engine.handle.info();
    assert_eq!((info.kv_scale.source.as_str(), info.kv_scale.per_layer.len()), ("auto", 0));
    let first = engine.ask(greedy(&recorded.input_ids, 32));
    let again = engine.ask(greedy(&recorded.input_ids, 32));
    assert_eq!(first.whole().len(), 32);
    assert_eq!(first, again, "the same request says the same, to the last bit of its logprobs");
    let handle = engine.finish(0);
    let saturated = &handle.metrics().kv_saturated_elements_total;
    assert_eq!(tessera_tests::engine::count(saturated), 0);
}

/// Tokens of the golden model with stored weights, a BF16 prefill cache and an FP8 decode cache.
fn with_scales(scales: KvScales) -> (Vec<u32>, u64) {
    let recorded = Recorded::read(&golden("deepseek_v3")).expect("a golden folder");
    let sizes = Sizes { kv: ["bf16", "fp8_e4m3"], ..Sizes::default() };
    let engine = started(model(&golden("deepseek_v3"), AS_STORED), &sizes, scales);
    let ids = engine.ask(greedy(&recorded.input_ids, 32)).whole();
    let handle = engine.finish(0);
    (ids, tessera_tests::engine::count(&handle.metrics().kv_saturated_elements_total))
}

fn fixed(scale: f32, num_layers: usize) -> KvScales {
    KvScales::PerLayer { source: "fixed".to_owned(), scales: vec![scale; num_layers] }
}

#[test]
fn o_305_a_scale_is_used_on_every_path() {
    let num_layers = model(&golden("deepseek_v3"), AS_STORED).spec.num_layers;
    let (one, saturated_one) = with_scales(fixed(1.0, num_layers));
    // A power of two changes the exponents and not the mantissas, so as long as nothing leaves
    // the range, every element is the same number: a path that forgot the scale would not agree.
    let (two, saturated_two) = with_scales(fixed(0.5, num_layers));
    assert_eq!((saturated_one, saturated_two), (0, 0));
    let same = |other: &[u32]| one.iter().zip(other).take_while(|(a, b)| a == b).count();
    assert!(same(&two) >= 8, "{one:?} and {two:?}");
    let (auto, _) = with_scales(KvScales::Auto);
    assert!(same(&auto) >= 8, "{one:?} and {auto:?}");
    // A scale far too small clamps, and that is counted.
    assert!(with_scales(fixed(1e-4, num_layers)).1 > 0);
}

#[test]
fn o_305_a_bad_scale_stops_the_start() {
    let fp8 = named_kv_format("fp8_e4m3").unwrap();
    let unset = refused(|config| config.decode.kv = fp8);
    assert_eq!(
        unset,
        "the decode pool's cache format fp8_e4m3 needs scales, and there are none: give \
         --kv-scale auto, a number or a file, or a checkpoint with a k_scale for every layer"
    );
    let auto = refused(|config| {
        (config.prefill.kv, config.kv_scales) = (fp8, KvScales::Auto);
    });
    assert!(auto.contains("the prefill pool's cache format fp8_e4m3 is written before"), "{auto}");
    let given = |scales: Vec<f32>| {
        refused(|config| {
            config.decode.kv = fp8;
            config.kv_scales = KvScales::PerLayer { source: "file s.json".to_owned(), scales };
        })
    };
    for bad in [0.0, -1.0, f32::NAN, f32::INFINITY] {
        let error = given(vec![1.0, bad, 1.0]);
        assert!(error.starts_with("KV scale of layer 1 is"), "{error}");
        assert!(error.contains("file s.json"), "{error}");
    }
    assert_eq!(given(vec![1.0; 2]), "2 KV scales for 3 layers (source: file s.json)");
}

#[test]
fn fp8_holds_exactly_twice_the_tokens_of_bf16() {
    let model = model(&golden("deepseek_v3"), AS_STORED);
    let sizes = Sizes { kv: ["bf16", "fp8_e4m3"], ..Sizes::default() };
    let mut config = config(&model.spec, &sizes);
    config.kv_scales = KvScales::Auto;
    config.decode.kv_memory = config.prefill.kv_memory;
    let engine = Engine::start(config, model).unwrap();
    let [prefill, decode] = &engine.handle.info().pools[..] else { panic!("two pools") };
    assert_eq!((prefill.kv_tokens, decode.kv_tokens), (512, 1024));
    // The same bytes, at 2 bytes an element against 1.
    assert_eq!(prefill.kv_bytes_per_token, 2 * decode.kv_bytes_per_token);
    assert_eq!(prefill.kv_bytes, decode.kv_bytes);
    engine.finish(0);
}

#[test]
fn settings_that_cannot_work_stop_the_start() {
    let page_size = refused(|config| config.decode.page_size = 16);
    assert!(page_size.starts_with("the pools do not fit together: "), "{page_size}");
    assert!(page_size.contains("`page_size` is 16") && page_size.contains('8'), "{page_size}");
    assert!(refused(|config| config.prefill.page_size = 0).contains("`page_size` is 0"));
    assert!(refused(|config| config.decode.max_seqs = 0).contains("`max_seqs` is 0"));
    assert!(refused(|config| config.decode.kv_memory = 100).contains("100 bytes of cache hold no"));
    let unknown = named_kv_format("fp7").unwrap_err();
    assert!(matches!(&unknown, StartError::KvFormat { supported, .. } if supported.len() > 2));
}
