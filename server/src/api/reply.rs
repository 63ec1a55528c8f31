//! Answers: the same deltas become stream events or one body.

use serde_json::{Map, Value, json};

/// Which endpoint's shape an answer takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surface {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Raw,
}

/// What one choice has to say next.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Delta {
    /// Text that may be sent.
    pub text: String,
    /// Ids of the tokens taken since the last delta.
    pub token_ids: Vec<u32>,
    /// Log probabilities of the tokens whose text has been sent, if asked for.
    pub logprobs: Vec<TokenEntry>,
    /// Set on the last delta.
    pub finish: Option<&'static str>,
}

/// Log probabilities at one position.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenEntry {
    /// Bytes of the sampled token.
    pub bytes: Vec<u8>,
    /// Its natural log probability.
    pub logprob: f32,
    /// The likeliest tokens, best first.
    pub top: Vec<(Vec<u8>, f32)>,
    /// Byte of the output text at which its text begins.
    pub start: usize,
}

/// Token counts of a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the prompts, each counted once.
    pub prompt_tokens: usize,
    /// Tokens generated, over all choices.
    pub completion_tokens: usize,
    /// Prompt tokens that came from the prefix cache.
    pub cached_tokens: usize,
}

impl Usage {
    fn json(self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": {"cached_tokens": self.cached_tokens},
        })
    }
}

/// What all parts of an answer have in common.
#[derive(Debug, Clone)]
pub struct Reply {
    /// The endpoint.
    pub surface: Surface,
    /// Id of the answer, made by the server.
    pub id: String,
    /// Unix seconds.
    pub created: u64,
    /// Name the model is served under.
    pub model: String,
    /// Whether log probabilities were asked for.
    pub logprobs: bool,
    /// Whether token ids were asked for.
    pub token_ids: bool,
    /// Whether every event carries `usage` (null but in the last).
    pub include_usage: bool,
}

impl Reply {
    /// The event that opens choice `index`; raw completions have none.
    pub fn opening(&self, index: usize, prompt_ids: &[u32]) -> Option<Value> {
        let delta = json!({"role": "assistant", "content": ""});
        let choice =
            json!({"index": index, "delta": delta, "logprobs": null, "finish_reason": null});
        let mut event = self.envelope(true, vec![choice]);
        if self.token_ids {
            event.insert("prompt_token_ids".to_owned(), json!(prompt_ids));
        }
        (self.surface == Surface::Chat).then_some(Value::Object(event))
    }

    /// The event for one delta of choice `index`.
    pub fn event(&self, index: usize, delta: &Delta) -> Value {
        let mut choice = Map::new();
        choice.insert("index".to_owned(), json!(index));
        match self.surface {
            Surface::Chat if delta.text.is_empty() => choice.insert("delta".to_owned(), json!({})),
            Surface::Chat => choice.insert("delta".to_owned(), json!({"content": delta.text})),
            Surface::Raw => choice.insert("text".to_owned(), json!(delta.text)),
        };
        choice.insert(
            "logprobs".to_owned(),
            self.logprobs(&delta.logprobs, delta.logprobs.is_empty()),
        );
        choice.insert("finish_reason".to_owned(), json!(delta.finish));
        if self.token_ids {
            choice.insert("token_ids".to_owned(), json!(delta.token_ids));
        }
        Value::Object(self.envelope(true, vec![Value::Object(choice)]))
    }

    /// The event with the token counts.
    pub fn usage_event(&self, usage: Usage) -> Value {
        let mut event = self.envelope(true, Vec::new());
        event.insert("usage".to_owned(), usage.json());
        Value::Object(event)
    }

    /// The whole answer: `choices[i]` holds all that choice i said, and its prompt's ids.
    pub fn whole(&self, choices: &[(Delta, &[u32])], usage: Usage) -> Value {
        let choice = |(index, (said, prompt_ids)): (usize, &(Delta, &[u32]))| {
            let mut choice = Map::new();
            choice.insert("index".to_owned(), json!(index));
            match self.surface {
                Surface::Chat => choice.insert(
                    "message".to_owned(),
                    json!({"role": "assistant", "content": said.text, "refusal": null}),
                ),
                Surface::Raw => choice.insert("text".to_owned(), json!(said.text)),
            };
            choice.insert("logprobs".to_owned(), self.logprobs(&said.logprobs, false));
            choice.insert("finish_reason".to_owned(), json!(said.finish));
            if self.token_ids {
                choice.insert("token_ids".to_owned(), json!(said.token_ids));
                if self.surface == Surface::Raw {
                    choice.insert("prompt_token_ids".to_owned(), json!(prompt_ids));
                }
            }
            Value::Object(choice)
        };
        let mut body = self.envelope(false, choices.iter().enumerate().map(choice).collect());
        if self.token_ids && self.surface == Surface::Chat {
            let prompt_ids = choices.first().map_or(&[][..], |(_, ids)| ids);
            body.insert("prompt_token_ids".to_owned(), json!(prompt_ids));
        }
        body.insert("usage".to_owned(), usage.json());
        Value::Object(body)
    }

    fn envelope(&self, event: bool, choices: Vec<Value>) -> Map<String, Value> {
        let object = match (self.surface, event) {
            (Surface::Chat, true) => "chat.completion.chunk",
            (Surface::Chat, false) => "chat.completion",
            (Surface::Raw, _) => "text_completion",
        };
        let mut map = Map::new();
        map.insert("id".to_owned(), json!(self.id));
        map.insert("object".to_owned(), json!(object));
        map.insert("created".to_owned(), json!(self.created));
        map.insert("model".to_owned(), json!(self.model));
        map.insert("choices".to_owned(), Value::Array(choices));
        if event && self.include_usage {
            map.insert("usage".to_owned(), Value::Null);
        }
        map
    }

    fn logprobs(&self, entries: &[TokenEntry], none: bool) -> Value {
        if !self.logprobs || none {
            return Value::Null;
        }
        match self.surface {
            Surface::Chat => json!({"content": entries.iter().map(chat_entry).collect::<Vec<_>>()}),
            Surface::Raw => raw_logprobs(entries),
        }
    }
}

fn chat_entry(entry: &TokenEntry) -> Value {
    let mut value = token(&entry.bytes, entry.logprob);
    let top = entry.top.iter().map(|(bytes, logprob)| token(bytes, *logprob));
    value["top_logprobs"] = top.collect();
    value
}

fn token(bytes: &[u8], logprob: f32) -> Value {
    json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes})
}

/// JSON has no infinity; -9999 is what OpenAI's API says for "practically never".
fn finite(logprob: f32) -> f32 {
    if logprob.is_finite() { logprob } else { -9999.0 }
}

fn raw_logprobs(entries: &[TokenEntry]) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let top = |entry: &TokenEntry| {
        let pairs = entry.top.iter().map(|(bytes, logprob)| (text(bytes), json!(finite(*logprob))));
        Value::Object(pairs.collect())
    };
    json!({
        "tokens": entries.iter().map(|entry| text(&entry.bytes)).collect::<Vec<_>>(),
        "token_logprobs": entries.iter().map(|entry| finite(entry.logprob)).collect::<Vec<_>>(),
        "top_logprobs": entries.iter().map(top).collect::<Vec<_>>(),
        "text_offset": entries.iter().map(|entry| entry.start).collect::<Vec<_>>(),
    })
}
