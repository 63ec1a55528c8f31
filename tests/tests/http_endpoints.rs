//! What is no field case: error names, the small endpoints, fault injection, shutdown.

use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tessera_runtime::request::{GenerateRequest, IntegrityKind, RequestError};
use tessera_tests::script::Step;
use tessera_tests::wire::{
    EOS, FIRST_OWN, ask, chat, chat_body, config, own_tokens, refused, serve, survives,
};

const CUT: &[&[u8]] = &[b"hi ", b"\xF0\x9F", b"\x98\x80", b"\xC3", b"\xA9", b"!"];

#[tokio::test]
async fn engine_errors_keep_their_names() {
    let integrity = RequestError::KvIntegrity { kind: IntegrityKind::PageTag };
    let fail = move |request: &GenerateRequest| match request.max_tokens {
        1 => vec![Step::Fail(RequestError::Overloaded { limit: 3 })],
        2 => vec![Step::Token(FIRST_OWN), Step::Fail(integrity.clone())],
        _ => vec![Step::Token(FIRST_OWN), Step::Token(EOS)],
    };
    let served = serve(config(), CUT, Arc::new(fail)).await;
    for stream in [false, true] {
        let busy = chat(served.addr, &chat_body(json!({"max_tokens": 1, "stream": stream}))).await;
        assert_eq!((busy.status, &busy.json()["error"]["code"]), (503, &json!("overloaded")));
    }
    let whole = chat(served.addr, &chat_body(json!({"max_tokens": 2}))).await;
    assert_eq!((whole.status, &whole.json()["error"]["code"]), (500, &json!("kv_integrity")));
    let stream = chat(served.addr, &chat_body(json!({"max_tokens": 2, "stream": true}))).await;
    assert_eq!(stream.events().last().unwrap()["error"]["code"], "kv_integrity");
    let ids = chat(served.addr, &chat_body(json!({"return_token_ids": true}))).await.json();
    assert_eq!(ids["choices"][0]["token_ids"], json!([FIRST_OWN, EOS]));
    assert_eq!(ids["choices"][0]["message"]["content"], "hi ");
    assert_eq!(ids["prompt_token_ids"].as_array().unwrap().len(), 20);
    survives(served.addr).await;
}

#[tokio::test]
async fn the_other_endpoints_answer() {
    let mut served = serve(config(), CUT, own_tokens(6)).await;
    let addr = served.addr;
    assert_eq!(ask(addr, "GET", "/v1/models", b"").await.json()["data"][0]["id"], "tiny");
    assert_eq!(ask(addr, "GET", "/v1/models/tiny", b"").await.status, 200);
    assert_eq!(ask(addr, "GET", "/health/live", b"").await.status, 200);
    assert_eq!(ask(addr, "GET", "/health/ready", b"").await.status, 200);
    served.engine.handle.metrics().ready.store(false, Ordering::Relaxed);
    assert_eq!(ask(addr, "GET", "/health/ready", b"").await.status, 503);
    assert_eq!(ask(addr, "GET", "/server_info", b"").await.json()["max_model_len"], 4096);
    assert_eq!(ask(addr, "POST", "/debug/fault", b"{\"kind\":\"page_tag\"}").await.status, 404);
    let raw = json!({"prompt": [104, 105], "max_tokens": 3, "logprobs": 1}).to_string();
    let answer = ask(addr, "POST", "/v1/completions", raw.as_bytes()).await.json();
    assert_eq!(answer["choices"][0]["text"], "hi 😀");
    assert_eq!(answer["choices"][0]["logprobs"]["text_offset"], json!([0, 3, 3]));
    assert_eq!(&*served.engine.requests.recv().await.unwrap().1.prompt, [104, 105]);
    let metrics = ask(addr, "GET", "/metrics", b"").await;
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("tessera:time_to_first_token_seconds_count{model_name=\"tiny\"} 1"));
}

#[tokio::test]
async fn faults_are_injected_only_where_allowed() {
    let settings = tessera::http::ServerConfig { fault_injection: true, ..config() };
    let mut served = serve(settings, CUT, own_tokens(6)).await;
    for (kind, fault) in [
        ("page_tag", tessera_runtime::engine::Fault::PageTag),
        ("page_table_entry", tessera_runtime::engine::Fault::PageTableEntry),
        ("page_in_flight", tessera_runtime::engine::Fault::PageInFlight),
    ] {
        let body = json!({"kind": kind}).to_string();
        assert_eq!(ask(served.addr, "POST", "/debug/fault", body.as_bytes()).await.status, 202);
        assert_eq!(served.engine.faults.recv().await, Some(fault));
    }
    refused(&ask(served.addr, "POST", "/debug/fault", b"{}").await, 400, json!("kind"));
}

#[tokio::test]
async fn a_shutdown_finishes_what_runs_and_then_cuts() {
    let gated = |request: &GenerateRequest| {
        let wait = if request.max_tokens == 7 { Step::Gate } else { Step::Hold };
        vec![Step::Token(FIRST_OWN), wait, Step::Token(FIRST_OWN)]
    };
    let settings =
        tessera::http::ServerConfig { shutdown_grace: Duration::from_millis(300), ..config() };
    let mut served = serve(settings, CUT, Arc::new(gated)).await;
    let addr = served.addr;
    let ends = tokio::spawn(async move {
        chat(addr, &chat_body(json!({"max_tokens": 7, "stream": true}))).await
    });
    let never = tokio::spawn(async move { chat(addr, &chat_body(json!({"stream": true}))).await });
    served.engine.running.wait_for(|&running| running == 2).await.unwrap();
    served.shutdown.shut_down();
    served.engine.gate.add_permits(1);
    assert_eq!(ends.await.unwrap().streamed_text(0), "hi hi ");
    served.run.await.unwrap();
    served.engine.running.wait_for(|&running| running == 0).await.unwrap();
    served.engine.drained.wait_for(|&drained| drained).await.unwrap();
    let cut = never.await.unwrap();
    assert!(cut.body.is_empty() || !cut.events().iter().any(|event| event == "[DONE]"));
}
