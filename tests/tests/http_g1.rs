//! Field cases of the HTTP and OpenAI surface, over real sockets and a scripted engine.
#![expect(clippy::unwrap_used, reason = "helpers of tests, like tests, may panic")]

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tessera_runtime::request::GenerateRequest;
use tessera_tests::script::Step;
use tessera_tests::wire::{
    Answer, Client, FIRST_OWN, Served, ask, chat, chat_body, config, own_tokens, refused, serve,
    survives,
};

const END_MARK: &[&[u8]] = &[b"Alpha ", b"EN", b"D_", b"MAR", b"K tail"];
const CUT: &[&[u8]] = &[b"hi ", b"\xF0\x9F", b"\x98\x80", b"\xC3", b"\xA9", b"!"];

async fn scripted(own: &[&[u8]]) -> Served {
    serve(config(), own, own_tokens(u32::try_from(own.len()).unwrap())).await
}

/// What a chat says streamed and whole, which must be the same: text, finish reason, log
/// probabilities.
async fn said(addr: SocketAddr, extra: Value) -> (String, String, Vec<Value>) {
    let whole = chat(addr, &chat_body(extra.clone())).await;
    assert_eq!(whole.status, 200, "{}", whole.json());
    let whole = whole.json()["choices"][0].clone();
    let mut body = chat_body(extra);
    body["stream"] = json!(true);
    let stream = chat(addr, &body).await;
    let events = stream.events();
    assert_eq!(events.last().unwrap(), "[DONE]");
    let text = whole["message"]["content"].as_str().unwrap().to_owned();
    assert_eq!(stream.streamed_text(0), text);
    let reasons = events.iter().filter_map(|event| event["choices"][0]["finish_reason"].as_str());
    let finish = whole["finish_reason"].as_str().unwrap().to_owned();
    assert_eq!(reasons.collect::<Vec<_>>(), [finish.as_str()]);
    let entries =
        |choice: &Value| choice["logprobs"]["content"].as_array().cloned().unwrap_or_default();
    let streamed =
        events.iter().flat_map(|event| entries(&event["choices"][0])).collect::<Vec<_>>();
    assert_eq!(streamed, entries(&whole));
    (text, finish, streamed)
}

#[tokio::test]
async fn o_101_stop_string_cut_across_tokens() {
    let served = scripted(END_MARK).await;
    let text = |stop: Value| said(served.addr, json!({"stop": stop}));
    let (said, finish, _) = text(json!("END_MARK")).await;
    assert_eq!((&*said, &*finish), ("Alpha ", "stop"));
    assert_eq!(text(json!(["D_", "END_MARK"])).await.0, "Alpha EN");
    for none in [json!(""), json!([]), Value::Null] {
        assert_eq!(text(none).await.0, "Alpha END_MARK tail");
    }
    refused(&chat(served.addr, &chat_body(json!({"stop": [""]}))).await, 400, json!("stop"));
    let near_miss = scripted(&[b"Alpha ", b"EN", b"D_", b"OTHER"]).await;
    let (text, ..) = self::said(near_miss.addr, json!({"stop": ["END_MARK"]})).await;
    assert_eq!(text, "Alpha END_OTHER");
    survives(served.addr).await;
}

#[tokio::test]
async fn o_102_character_cut_across_tokens() {
    let served = scripted(CUT).await;
    assert_eq!(said(served.addr, json!({})).await.0, "hi 😀é!");
    let (text, finish, _) = said(served.addr, json!({"max_tokens": 2})).await;
    assert_eq!((&*text, &*finish), ("hi \u{FFFD}", "length"));
    let broken = scripted(&[b"hi ", b"\xFF", b"\xF0\x9F", b"\x98\x80"]).await;
    let stream = chat(broken.addr, &chat_body(json!({"stream": true}))).await;
    let parts = stream.events();
    let parts = parts.iter().filter_map(|event| event["choices"][0]["delta"]["content"].as_str());
    assert_eq!(parts.collect::<Vec<_>>(), ["", "hi ", "\u{FFFD}", "😀"]);
}

#[tokio::test]
async fn o_103_body_that_is_not_the_json_we_expect() {
    let served = scripted(CUT).await;
    for raw in
        [&b"{:"[..], b"", b"[]", b"{\"messages\":[{\"role\":\"user\",\"content\":\"\xC4\xE3\"}]}"]
    {
        let answer = ask(served.addr, "POST", "/v1/chat/completions", raw).await;
        refused(&answer, 400, Value::Null);
    }
    let bad = [
        (json!({"messages": "hi"}), "messages"),
        (json!({"messages": [{"role": "user", "content": 7}]}), "messages[0].content"),
        (json!({"temperature": "hot"}), "temperature"),
        (json!({"messages": []}), "messages"),
        (json!({"messages": null}), "messages"),
        (json!({"messages": [{"role": "wizard", "content": "hi"}]}), "messages[0].role"),
        (json!({"max_tokens": 0}), "max_tokens"),
        (json!({"n": 17}), "n"),
    ];
    for (extra, param) in bad {
        refused(&chat(served.addr, &chat_body(extra)).await, 400, json!(param));
    }
    let good = [
        json!({"max_tokens": null}),
        json!({"x_trace": {"a": 1}}),
        json!({"messages": [{"role": "developer", "content": "hi"}]}),
        json!({"messages": [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]}),
    ];
    for extra in good {
        assert_eq!(chat(served.addr, &chat_body(extra)).await.status, 200);
    }
    refused(&chat(served.addr, &chat_body(json!({"model": "other"}))).await, 404, json!("model"));
    refused(&ask(served.addr, "GET", "/nowhere", b"").await, 404, Value::Null);
    refused(&ask(served.addr, "GET", "/v1/chat/completions", b"").await, 405, Value::Null);
    survives(served.addr).await;
}

#[tokio::test]
async fn o_104_logprobs() {
    let served = scripted(CUT).await;
    let (text, _, entries) = said(served.addr, json!({"logprobs": true})).await;
    assert_eq!(entries.len(), CUT.len());
    assert_eq!(entries[1]["bytes"], json!([240, 159]));
    let bytes = entries.iter().flat_map(|entry| entry["bytes"].as_array().unwrap());
    let bytes = bytes.map(|byte| u8::try_from(byte.as_u64().unwrap()).unwrap());
    assert_eq!(bytes.collect::<Vec<_>>(), text.as_bytes());
    assert!(entries.iter().all(|entry| entry["top_logprobs"] == json!([])));
    let (.., entries) = said(served.addr, json!({"logprobs": true, "top_logprobs": 2})).await;
    assert_eq!(entries[0]["logprob"], json!(-0.5));
    let top = entries[0]["top_logprobs"].as_array().unwrap();
    assert_eq!(
        top.iter().map(|top| (&top["token"], &top["logprob"])).collect::<Vec<_>>(),
        [(&json!("a"), &json!(-0.5)), (&json!("b"), &json!(-1.5))]
    );
    let stopped = scripted(END_MARK).await;
    let (.., entries) = said(stopped.addr, json!({"logprobs": true, "stop": "END_MARK"})).await;
    assert_eq!(entries.iter().map(|entry| &entry["token"]).collect::<Vec<_>>(), [&json!("Alpha ")]);
    let alone = chat(served.addr, &chat_body(json!({"top_logprobs": 2}))).await;
    refused(&alone, 400, json!("top_logprobs"));
}

#[tokio::test]
async fn o_105_usage_only_when_asked() {
    let served = scripted(CUT).await;
    for options in [
        json!({}),
        json!({"stream_options": null}),
        json!({"stream_options": {"include_usage": false}}),
    ] {
        let mut body = chat_body(options);
        body["stream"] = json!(true);
        let events = chat(served.addr, &body).await.events();
        assert!(events.iter().all(|event| event.get("usage").is_none()), "{events:?}");
    }
    let options = json!({"stream": true, "stream_options": {"include_usage": true}, "n": 2});
    let events = chat(served.addr, &chat_body(options)).await.events();
    let (usage, normal) = events[..events.len() - 1].split_last().unwrap();
    assert_eq!(events.last().unwrap(), "[DONE]");
    assert!(normal.iter().all(|event| event["usage"].is_null() && event.get("usage").is_some()));
    assert_eq!(usage["choices"], json!([]));
    // The prompt: 3 control tokens, `user`, `hi`, then 2 control tokens and `assistant`.
    let prompt = 3 + 4 + 2 + 2 + 9;
    let usage = &usage["usage"];
    assert_eq!(
        (&usage["prompt_tokens"], &usage["completion_tokens"]),
        (&json!(prompt), &json!(12))
    );
    let whole = json!({"stream": false, "stream_options": {"include_usage": true}});
    refused(&chat(served.addr, &chat_body(whole)).await, 400, json!("stream_options"));
}

#[tokio::test]
async fn o_106_history_that_clients_really_send() {
    let mut served = scripted(CUT).await;
    let call = |arguments: &str| json!({"id": "functions.f:0", "type": "function", "function": {"name": "f", "arguments": arguments}});
    let history = |assistant: Value, id: &str| {
        chat_body(json!({"messages": [
            {"role": "user", "content": "hi"}, assistant,
            {"role": "tool", "tool_call_id": id, "content": "4"},
        ]}))
    };
    let null = json!({"role": "assistant", "content": null, "tool_calls": [call("{\"x\":1}")]});
    let missing = json!({"role": "assistant", "tool_calls": [call("{\"x\":1}")]});
    for assistant in [null, missing] {
        assert_eq!(chat(served.addr, &history(assistant, "functions.f:0")).await.status, 200);
        let (_, request) = served.engine.requests.recv().await.unwrap();
        let prompt =
            request.prompt.iter().filter_map(|&id| u8::try_from(id).ok()).collect::<Vec<_>>();
        let prompt = String::from_utf8(prompt).unwrap();
        assert!(prompt.contains("CALL functions.f:0 {\"x\":1}"), "{prompt}");
    }
    let only = chat_body(json!({"messages": [{"role": "assistant", "content": "hi"}]}));
    assert_eq!(chat(served.addr, &only).await.status, 200);
    let broken = json!({"role": "assistant", "content": null, "tool_calls": [call("{")]});
    let answer = chat(served.addr, &history(broken, "functions.f:0")).await;
    refused(&answer, 400, json!("messages[1].tool_calls[0]"));
    let empty = json!({"role": "assistant", "content": null, "tool_calls": [call("")]});
    assert_eq!(chat(served.addr, &history(empty.clone(), "functions.f:0")).await.status, 200);
    let answer = chat(served.addr, &history(empty, "functions.g:9")).await;
    refused(&answer, 400, json!("messages[2].tool_call_id"));
}

/// One token, then nothing until the client goes away; requests of `max_tokens` 7 are ordinary.
fn endless(request: &GenerateRequest) -> Vec<Step> {
    if request.max_tokens == 7 {
        return vec![Step::Token(FIRST_OWN); 7];
    }
    vec![Step::Token(FIRST_OWN), Step::Hold]
}

#[tokio::test]
async fn o_107_client_goes_away() {
    let mut served = serve(config(), CUT, Arc::new(endless)).await;
    for round in 0..100 {
        let stream = round % 2 == 0;
        let mut client = Client::connect(served.addr).await;
        let body = chat_body(json!({"stream": stream})).to_string();
        let length = body.len();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n"
        );
        client.send(format!("{head}{body}").as_bytes()).await;
        served.engine.running.wait_for(|&running| running == 1).await.unwrap();
        if stream {
            assert_eq!(client.head().await.status, 200);
            client.chunk().await.unwrap();
        }
        let socket = client.into_stream();
        if round % 4 >= 2 {
            socket.set_zero_linger().unwrap();
        }
        drop(socket);
        served.engine.running.wait_for(|&running| running == 0).await.unwrap();
        if round % 20 == 0 {
            assert_eq!(chat(served.addr, &chat_body(json!({"max_tokens": 7}))).await.status, 200);
        }
    }
}

async fn raw(addr: SocketAddr, bytes: &[u8]) -> (Answer, Client) {
    let mut client = Client::connect(addr).await;
    client.send(bytes).await;
    (client.answer().await, client)
}

#[tokio::test]
async fn o_108_request_framing_and_size() {
    let limit = 8 << 20;
    let settings = tessera::http::ServerConfig {
        body_limit: Some(limit),
        body_timeout: Duration::from_millis(200),
        ..config()
    };
    let served = serve(settings, CUT, own_tokens(6)).await;
    let body = chat_body(json!({})).to_string();
    let post = "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\n";
    let (a, rest) = body.split_at(10);
    let (b, c) = rest.split_at(10);
    let chunks = [a, b, c, ""].map(|part| format!("{:x}\r\n{part}\r\n", part.len())).concat();
    let chunked = format!("{post}Transfer-Encoding: chunked\r\n\r\n{chunks}");
    assert_eq!(raw(served.addr, chunked.as_bytes()).await.0.status, 200);

    let mut client = Client::connect(served.addr).await;
    let length = format!("Content-Length: {}\r\n", body.len());
    client.send(format!("{post}{length}Expect: 100-continue\r\n\r\n").as_bytes()).await;
    assert_eq!(client.head().await.status, 100);
    client.send(body.as_bytes()).await;
    assert_eq!(client.answer().await.status, 200);

    for both in [
        format!("{length}Transfer-Encoding: chunked\r\n"),
        format!("Transfer-Encoding: chunked\r\n{length}"),
    ] {
        let (answer, mut client) =
            raw(served.addr, format!("{post}{both}\r\n{chunks}").as_bytes()).await;
        refused(&answer, 400, Value::Null);
        assert!(client.is_closed().await);
    }
    let long = chat_body(json!({"messages": [{"role": "user", "content": "a".repeat(3 << 20)}]}));
    let answer = chat(served.addr, &long).await;
    assert_eq!(answer.json()["error"]["code"], "context_length_exceeded");
    let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.contains("4096") && message.contains("3145746"), "{message}");

    let huge = vec![b' '; limit + 1];
    let answer = ask(served.addr, "POST", "/v1/chat/completions", &huge).await;
    refused(&answer, 413, Value::Null);
    let (answer, mut client) =
        raw(served.addr, format!("{post}Content-Length: 1000\r\n\r\n0123456789").as_bytes()).await;
    refused(&answer, 408, Value::Null);
    assert!(client.is_closed().await);
    let id = "x".repeat(1 << 20);
    let (answer, _) =
        raw(served.addr, format!("{post}X-Request-Id: {id}\r\n\r\n").as_bytes()).await;
    assert_eq!(answer.status, 431);
    let typed =
        format!("{post}Content-Type: application/json; charset=utf-8\r\n{length}\r\n{body}");
    assert_eq!(raw(served.addr, typed.as_bytes()).await.0.status, 200);
    survives(served.addr).await;
}

#[tokio::test]
async fn o_109_slow_reader_is_cut_off_and_idle_connections_stay() {
    let settings = tessera::http::ServerConfig {
        stall_limit: Duration::from_millis(300),
        event_buffer: 4,
        ..config()
    };
    assert!(settings.keep_alive > Duration::from_secs(90));
    let token = "x".repeat(64 * 1024);
    let many = |request: &GenerateRequest| {
        let count = if request.max_tokens == 7 { 7 } else { 1000 };
        let mut steps = vec![Step::Token(FIRST_OWN); count];
        if request.max_tokens != 7 {
            steps.push(Step::Hold);
        }
        steps
    };
    let mut served = serve(settings, &[token.as_bytes()], Arc::new(many)).await;
    let mut client = Client::connect(served.addr).await;
    let body = chat_body(json!({"stream": true})).to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    client.send(format!("{head}{body}").as_bytes()).await;
    served.engine.running.wait_for(|&running| running == 1).await.unwrap();
    assert_eq!(chat(served.addr, &chat_body(json!({"max_tokens": 7}))).await.status, 200);
    served.engine.running.wait_for(|&running| running == 0).await.unwrap();
    // The connection is not kept for a client that never reads.
    let answer = client.answer().await;
    assert!(!answer.events().iter().any(|event| event == "[DONE]"));
    let metrics = ask(served.addr, "GET", "/metrics", b"").await;
    let metrics = String::from_utf8(metrics.body).unwrap();
    assert!(metrics.contains("tessera:client_stalls_total{model_name=\"tiny\"} 1"), "{metrics}");
}

#[tokio::test]
async fn o_110_same_request_id_twice() {
    let echo = |request: &GenerateRequest| {
        let said =
            request.prompt.iter().copied().filter(|&id| (b'0'.into()..=b'9'.into()).contains(&id));
        std::iter::once(Step::Gate).chain(said.map(Step::Token)).collect()
    };
    let mut served = serve(config(), CUT, Arc::new(echo)).await;
    let mut clients = Vec::new();
    for number in ["11", "22"] {
        let mut client = Client::connect(served.addr).await;
        let body =
            chat_body(json!({"messages": [{"role": "user", "content": number}]})).to_string();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: t\r\nX-Request-Id: same\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        client.send(format!("{head}{body}").as_bytes()).await;
        clients.push((client, number));
    }
    served.engine.running.wait_for(|&running| running == 2).await.unwrap();
    served.engine.gate.add_permits(2);
    let mut ids = Vec::new();
    for (mut client, number) in clients {
        let answer = client.answer().await;
        assert_eq!(answer.json()["choices"][0]["message"]["content"], number);
        assert!(answer.head.contains("x-request-id: same"), "{}", answer.head);
        ids.push(answer.json()["id"].as_str().unwrap().to_owned());
    }
    assert_ne!(ids[0], ids[1]);
}

#[tokio::test]
async fn o_606_sampler_extremes_are_checked_at_the_door() {
    let mut served = scripted(CUT).await;
    let bad = [
        (json!({"temperature": -1}), "temperature"),
        (json!({"temperature": 1e9}), "temperature"),
        (json!({"top_p": 1.1}), "top_p"),
        (json!({"min_p": 1.5}), "min_p"),
        (json!({"repetition_penalty": 0}), "repetition_penalty"),
        (json!({"repetition_penalty": -1}), "repetition_penalty"),
        (json!({"repetition_penalty": 1e30}), "repetition_penalty"),
        (json!({"logit_bias": {"999999": 1}}), "logit_bias"),
        (json!({"logit_bias": {"-1": 1}}), "logit_bias"),
        (json!({"logit_bias": {"abc": 1}}), "logit_bias"),
        (json!({"logit_bias": {"5": 1e9}}), "logit_bias.5"),
        (json!({"stop_token_ids": [null]}), "stop_token_ids"),
        (json!({"stop_token_ids": [512]}), "stop_token_ids"),
        (json!({"stop_token_ids": [-1]}), "stop_token_ids"),
        (json!({"top_k": 1.5}), "top_k"),
        (json!({"seed": "x"}), "seed"),
    ];
    for (extra, param) in bad {
        refused(&chat(served.addr, &chat_body(extra)).await, 400, json!(param));
    }
    let addr = served.addr;
    let sampled = |extra: Value| async move { chat(addr, &chat_body(extra)).await };
    for (extra, top_k) in
        [(-1, 0), (0, 0), (1, 1), (517, 0)].map(|(k, want)| (json!({"top_k": k}), want))
    {
        assert_eq!(sampled(extra).await.status, 200);
        assert_eq!(served.engine.requests.recv().await.unwrap().1.sampling.top_k, top_k);
    }
    for extra in [json!({"temperature": 1e-9}), json!({"top_p": 0}), json!({"seed": -1, "n": 3})] {
        assert_eq!(sampled(extra).await.status, 200);
    }
    survives(served.addr).await;
}
