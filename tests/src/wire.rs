//! A small HTTP/1.1 client over a raw socket, and a served scripted engine with its own tiny
//! vocabulary.

use crate::script::{self, Script, ScriptEngine, Step};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tessera::clock::Clock;
use tessera::http::{Server, ServerConfig, ServerParts, ShutdownHandle};
use tessera::text::{TextModel, TextParts};
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// Ids of the tiny vocabulary below it are single bytes, whose ids are their values.
pub const FIRST_SPECIAL: u32 = 256;
/// `<|im_end|>`, which ends an output.
pub const EOS: u32 = 256;
/// The control tokens of the tiny vocabulary, from [`FIRST_SPECIAL`] on.
pub const SPECIALS: [&str; 8] = [
    "<|im_end|>",
    "[BOS]",
    "<|im_user|>",
    "<|im_assistant|>",
    "<|im_system|>",
    "<|im_middle|>",
    "<|user|>",
    "<|assistant|>",
];
/// First id of the caller's own tokens.
pub const FIRST_OWN: u32 = 264;

/// A template in Kimi's manner.
pub const TEMPLATE: &str = "{%- for m in messages -%}<|im_{{ 'system' if m.role == 'tool' else m.role }}|>{{ m.role }}\
    <|im_middle|>{{ m.content }}{%- for c in m.tool_calls or [] -%}CALL {{ c.id }} {{ c.function.arguments }}\
    {%- endfor -%}<|im_end|>{%- endfor -%}<|im_assistant|>assistant<|im_middle|>";

/// A tokenizer whose tokens are the 256 bytes, [`SPECIALS`], then `own`; it merges nothing, so
/// text always becomes bytes and only a script emits the others.
pub fn text_parts(own: &[&[u8]], template: Option<&str>) -> TextParts {
    let alphabet = byte_alphabet();
    let written = |bytes: &[u8]| bytes.iter().map(|&b| alphabet[b as usize]).collect::<String>();
    let mut vocab = Map::new();
    for byte in 0..=255_u8 {
        vocab.insert(written(&[byte]), json!(byte));
    }
    let mut added = Vec::new();
    for (id, text) in (FIRST_SPECIAL..).zip(SPECIALS) {
        added.push(json!({
            "id": id, "content": text, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        }));
    }
    for (id, bytes) in (FIRST_OWN..).zip(own) {
        vocab.insert(written(bytes), json!(id));
    }
    // Added tokens keep their ids only if the model's vocabulary has them.
    for (id, text) in (FIRST_SPECIAL..).zip(SPECIALS) {
        vocab.insert(text.to_owned(), json!(id));
    }
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let tokenizer = json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
        "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
        "decoder": byte_level,
        "model": {"type": "BPE", "dropout": null, "unk_token": null,
            "continuing_subword_prefix": null, "end_of_word_suffix": null, "fuse_unk": false,
            "byte_fallback": false, "vocab": vocab, "merges": []},
    });
    TextParts {
        tokenizer: tokenizer.to_string().into_bytes(),
        config: Map::new(),
        chat_template: template.map(str::to_owned),
    }
}

/// Bytes that print stand for themselves, the others for U+0100 and on.
fn byte_alphabet() -> Vec<char> {
    let mut next = 0x100_u32;
    let stand_in = |byte: u8| {
        if matches!(byte, b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF) {
            return char::from(byte);
        }
        next += 1;
        char::from_u32(next - 1).expect("a character")
    };
    (0..=255).map(stand_in).collect()
}

/// A server over a scripted engine.
#[derive(Debug)]
pub struct Served {
    /// Where it listens.
    pub addr: SocketAddr,
    /// The engine behind it.
    pub engine: ScriptEngine,
    /// Ends it.
    pub shutdown: ShutdownHandle,
    /// Its run, until it has ended.
    pub run: JoinHandle<()>,
}

/// The configuration tests start from: any free port.
pub fn config() -> ServerConfig {
    ServerConfig { port: 0, served_names: vec!["tiny".to_owned()], ..ServerConfig::default() }
}

/// Serves `script` over the tokens of `text_parts(own, TEMPLATE)`, with a context of 4096.
pub async fn serve(config: ServerConfig, own: &[&[u8]], script: Arc<Script>) -> Served {
    serve_text(config, text_parts(own, Some(TEMPLATE)), script).await
}

/// Serves `script` over a text model.
pub async fn serve_text(config: ServerConfig, parts: TextParts, script: Arc<Script>) -> Served {
    let text = TextModel::from_parts(parts).expect("the tiny text model is valid");
    let engine = script::start(script::info(512, 4096, vec![EOS]), script);
    let parts = ServerParts { engine: engine.handle.clone(), text, clock: Clock::system() };
    let server = Server::bind(config, parts).await.expect("a free port");
    let addr = server.local_addr().expect("a bound address");
    let shutdown = server.shutdown_handle();
    Served { addr, engine, shutdown, run: tokio::spawn(server.run()) }
}

/// A script that emits the caller's own tokens, in order, to every request.
pub fn own_tokens(count: u32) -> Arc<Script> {
    Arc::new(move |_| (FIRST_OWN..FIRST_OWN + count).map(Step::Token).collect())
}

/// An answer.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Header block, lower case.
    pub head: String,
    /// Body, unchunked.
    pub body: Vec<u8>,
}

impl Answer {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", String::from_utf8_lossy(&self.body)))
    }

    /// The events of a stream, `[DONE]` as a string.
    pub fn events(&self) -> Vec<Value> {
        let text = std::str::from_utf8(&self.body).expect("a stream is UTF-8");
        text.split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").expect("every event is data"))
            .map(|data| serde_json::from_str(data).unwrap_or_else(|_| Value::from(data)))
            .collect()
    }

    /// All text that a streamed chat said in choice `index`.
    pub fn streamed_text(&self, index: u64) -> String {
        let events = self.events();
        let choices =
            events.iter().flat_map(|event| event["choices"].as_array().into_iter().flatten());
        let said = choices.filter(|choice| choice["index"] == index);
        said.filter_map(|choice| choice["delta"]["content"].as_str()).collect()
    }
}

/// A connection that speaks HTTP/1.1.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<TcpStream>,
}

impl Client {
    /// Connects.
    pub async fn connect(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("the server listens");
        Self { stream: BufReader::new(stream) }
    }

    /// Sends bytes as they are.
    pub async fn send(&mut self, bytes: &[u8]) {
        // A server may have refused and closed while a long body is still being sent.
        let _ = self.stream.get_mut().write_all(bytes).await;
    }

    /// Sends a request with a body and reads the answer.
    pub async fn request(&mut self, method: &str, path: &str, body: &[u8]) -> Answer {
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: t\r\nContent-Length: {length}\r\n\r\n");
        self.send(&[head.as_bytes(), body].concat()).await;
        self.answer().await
    }

    /// Reads one byte line, without its end.
    pub async fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\n") {
            line.push(self.stream.read_u8().await.ok()?);
        }
        Some(String::from_utf8(line).expect("a line is UTF-8").trim_end().to_owned())
    }

    /// Reads an answer's head: status and header block.
    pub async fn head(&mut self) -> Answer {
        let first = self.line().await.unwrap_or_default();
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut answer = Answer { status, ..Answer::default() };
        while let Some(line) = self.line().await.filter(|line| !line.is_empty()) {
            answer.head.push_str(&line.to_ascii_lowercase());
            answer.head.push('\n');
        }
        answer
    }

    /// Reads one answer; status 0 if the connection ended instead.
    pub async fn answer(&mut self) -> Answer {
        let mut answer = self.head().await;
        if answer.head.contains("transfer-encoding: chunked") {
            while let Some(chunk) = self.chunk().await {
                answer.body.extend(chunk);
            }
        } else {
            let length = answer.head.lines().find_map(|line| line.strip_prefix("content-length: "));
            answer.body = vec![0; length.and_then(|length| length.parse().ok()).unwrap_or(0)];
            self.stream.read_exact(&mut answer.body).await.expect("the body that was promised");
        }
        answer
    }

    /// Reads one chunk; `None` at the end.
    pub async fn chunk(&mut self) -> Option<Vec<u8>> {
        let length = usize::from_str_radix(&self.line().await?, 16).ok()?;
        let mut chunk = vec![0; length + 2];
        self.stream.read_exact(&mut chunk).await.ok()?;
        chunk.truncate(length);
        (length > 0).then_some(chunk)
    }

    /// Whether the server closes without another byte.
    pub async fn is_closed(&mut self) -> bool {
        self.stream.read_u8().await.is_err()
    }

    /// The socket.
    pub fn into_stream(self) -> TcpStream {
        self.stream.into_inner()
    }
}

/// Asks on a connection of its own.
pub async fn ask(addr: SocketAddr, method: &str, path: &str, body: &[u8]) -> Answer {
    Client::connect(addr).await.request(method, path, body).await
}

/// Posts a chat completion.
pub async fn chat(addr: SocketAddr, body: &Value) -> Answer {
    ask(addr, "POST", "/v1/chat/completions", body.to_string().as_bytes()).await
}

/// A chat body with one user message, and `extra` fields.
pub fn chat_body(extra: Value) -> Value {
    with(json!({"model": "tiny", "messages": [{"role": "user", "content": "hi"}]}), extra)
}

/// A body with fields added or replaced.
fn with(mut body: Value, extra: Value) -> Value {
    if let (Value::Object(body), Value::Object(extra)) = (&mut body, extra) {
        body.extend(extra);
    }
    body
}

/// A request that asks the bundled model for the capital of France, with fields of one's own.
#[must_use]
pub fn france(extra: Value) -> Value {
    let body = json!({
        "model": "tiny-kimi", "messages": [{"role": "user", "content": "What is the capital of France?"}],
    });
    with(body, extra)
}

/// The text of an answer that must be one.
///
/// # Panics
/// If it is none.
#[must_use]
pub fn text(answer: &Answer) -> String {
    let body = answer.json();
    assert_eq!(answer.status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().expect("an answer has a text").to_owned()
}

/// The survival probe: whatever went before, an ordinary request is served.
pub async fn survives(addr: SocketAddr) {
    let answer = chat(addr, &chat_body(json!({}))).await;
    assert_eq!(answer.status, 200, "{:?}", String::from_utf8_lossy(&answer.body));
}

/// Checks that an answer is an error in OpenAI's shape.
pub fn refused(answer: &Answer, status: u16, param: Value) {
    let body = answer.json();
    assert_eq!((answer.status, &body["error"]["param"]), (status, &param), "{body}");
    for key in ["message", "type", "param", "code"] {
        assert!(body["error"].get(key).is_some(), "{key} is missing in {body}");
    }
}
