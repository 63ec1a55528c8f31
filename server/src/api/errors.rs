//! Every error a client can see: its HTTP status, type, code and `param`. The only file that
//! picks a status.

use crate::text::TextError;
use serde_json::{Value, json};
use tessera_runtime::request::RequestError;

/// Why a request is refused or has ended badly. No variant repeats what the client sent, but for
/// names of fields, models and paths, cut short.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum ApiError {
    #[error("the body is not valid JSON: {reason}")]
    Json { reason: String },
    #[error("`{param}` {reason}")]
    Field { param: String, reason: String },
    #[error("the model `{model}` does not exist; this server has `{served}`")]
    Model { model: String, served: String },
    #[error("there is no `{path}` here")]
    Path { path: String },
    #[error("`{path}` takes {allow}, not {method}")]
    Method { path: String, method: String, allow: &'static str },
    #[error(
        "this model's maximum context length is {limit} tokens, but the prompt has {prompt_tokens}\
         {} tokens", asked(*max_tokens)
    )]
    ContextLength {
        param: &'static str,
        limit: usize,
        prompt_tokens: usize,
        max_tokens: Option<usize>,
    },
    #[error("the body is longer than the limit of {limit} bytes")]
    BodyTooLarge { limit: usize },
    #[error("the body did not arrive within {seconds} s")]
    BodyTimeout { seconds: u64 },
    #[error("the body ended early or is badly framed")]
    BodyBroken,
    #[error("a request has Content-Length or Transfer-Encoding, not both")]
    Framing,
    #[error("the server is shutting down")]
    ShuttingDown,
    #[error("the client reads too slowly: nothing was taken for {seconds} s")]
    Stalled { seconds: u64 },
    #[error(transparent)]
    Text(#[from] TextError),
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("a worker of the server has ended: {reason}")]
    Worker { reason: String },
}

fn asked(max_tokens: Option<usize>) -> String {
    max_tokens.map_or_else(String::new, |max| format!(" and the output may take {max} more"))
}

/// Status, type, code.
type Class = (u16, &'static str, Option<&'static str>);

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

impl ApiError {
    /// A complaint about one field.
    pub(crate) fn field(param: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Field { param: param.into(), reason: reason.into() }
    }

    /// The HTTP status.
    pub fn status(&self) -> u16 {
        self.class().0
    }

    /// The body, in OpenAI's shape.
    pub fn body(&self) -> Value {
        let (_, kind, code) = self.class();
        json!({"error": {
            "message": self.to_string(),
            "type": kind,
            "param": self.param(),
            "code": code,
        }})
    }

    fn param(&self) -> Option<&str> {
        match self {
            Self::Field { param, .. } => Some(param),
            Self::Model { .. } => Some("model"),
            Self::Text(
                TextError::NoTemplate | TextError::Refused { .. } | TextError::Budget { .. },
            ) => Some("messages"),
            Self::ContextLength { param, .. } => Some(param),
            _ => None,
        }
    }

    fn class(&self) -> Class {
        match self {
            Self::Json { .. } | Self::BodyBroken | Self::Framing => (400, INVALID, None),
            Self::Field { .. } => (400, INVALID, Some("invalid_value")),
            Self::Model { .. } => (404, INVALID, Some("model_not_found")),
            Self::Path { .. } => (404, INVALID, Some("not_found")),
            Self::Method { .. } => (405, INVALID, Some("method_not_allowed")),
            Self::ContextLength { .. } => (400, INVALID, Some("context_length_exceeded")),
            Self::BodyTooLarge { .. } => (413, INVALID, Some("body_too_large")),
            Self::BodyTimeout { .. } => (408, INVALID, Some("body_timeout")),
            Self::ShuttingDown => (503, SERVER, Some("shutting_down")),
            Self::Stalled { .. } => (408, INVALID, Some("client_stalled")),
            Self::Text(error) => text_class(error),
            Self::Request(error) => request_class(error),
            Self::Worker { .. } => (500, SERVER, None),
        }
    }
}

fn text_class(error: &TextError) -> Class {
    match error {
        TextError::NoTemplate => (400, INVALID, Some("no_chat_template")),
        TextError::Refused { .. } => (400, INVALID, Some("chat_template_refused")),
        TextError::Budget { .. } => (400, INVALID, Some("chat_template_budget")),
        _ => (500, SERVER, None),
    }
}

fn request_class(error: &RequestError) -> Class {
    match error {
        RequestError::NeverFits { .. } => (400, INVALID, Some("never_fits")),
        RequestError::Overloaded { .. } => (503, SERVER, Some("overloaded")),
        RequestError::ShuttingDown => (503, SERVER, Some("shutting_down")),
        RequestError::Aborted => (500, SERVER, Some("aborted")),
        RequestError::KvIntegrity { .. } => (500, SERVER, Some("kv_integrity")),
        RequestError::NonFiniteLogits { .. } => (500, SERVER, Some("non_finite_logits")),
        RequestError::Handoff { .. } => (500, SERVER, Some("handoff")),
        RequestError::EngineDied { .. } => (503, SERVER, Some("engine_died")),
        _ => (500, SERVER, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_context_error_states_both_numbers() {
        let error = ApiError::ContextLength {
            param: "messages",
            limit: 4096,
            prompt_tokens: 5000,
            max_tokens: None,
        };
        assert_eq!(
            error.to_string(),
            "this model's maximum context length is 4096 tokens, but the prompt has 5000 tokens"
        );
        assert_eq!(
            (error.status(), &error.body()["error"]["code"]),
            (400, &json!("context_length_exceeded"))
        );
    }
}
