//! The bundled model's text side against what transformers made of the same conversations.
#![expect(clippy::unwrap_used, reason = "helpers of tests, like tests, may panic")]

use serde_json::Value;
use std::path::{Path, PathBuf};
use tessera::text::{ChatInput, TextModel};

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tiny-kimi")
}

/// Every evaluation item of the bundled model.
fn items() -> Vec<Value> {
    let mut items = Vec::new();
    for entry in std::fs::read_dir(bundled().join("eval")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|ext| ext == "jsonl") {
            let text = std::fs::read_to_string(path).unwrap();
            items.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }
    items
}

fn ids(value: &Value) -> Vec<u32> {
    serde_json::from_value(value.clone()).unwrap()
}

#[test]
fn rendering_and_tokenizing_reproduces_every_recorded_prompt() {
    let model = TextModel::load(&bundled()).unwrap();
    let items = items();
    assert!(items.len() > 200, "only {} items", items.len());
    for item in items {
        let input = ChatInput {
            messages: item["messages"].clone(),
            tools: item["tools"].clone(),
            ..ChatInput::default()
        };
        assert_eq!(model.encode_chat(&input).unwrap(), ids(&item["prompt_ids"]), "{}", item["id"]);
    }
}

#[test]
fn decoding_reproduces_every_recorded_answer() {
    let model = TextModel::load(&bundled()).unwrap();
    for item in items() {
        let ids = ids(&item["transformers_ids"]);
        let text = item["transformers_text"].as_str().unwrap();
        let ours = [true, false].map(|skip| {
            let body = ids.strip_suffix(&[1012]).unwrap_or(&ids);
            model.decode(body, skip)
        });
        assert!(ours.iter().any(|ours| ours == text), "{}: {ours:?} != {text:?}", item["id"]);
    }
}
