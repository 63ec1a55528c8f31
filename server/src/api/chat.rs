//! `POST /v1/chat/completions`: a conversation, its tools, and what the template is given.

use super::fields::Fields;
use super::options::{Limits, Options, max_tokens};
use super::{ApiError, ApiRequest, PromptSource};
use crate::text::ChatInput;
use serde_json::{Map, Value};
use std::collections::HashSet;
use tessera_runtime::request::MAX_TOP_LOGPROBS;

/// Checks the body of a chat completion.
///
/// # Errors
/// [`ApiError::Field`] naming the first field that will not do, [`ApiError::Model`].
pub fn parse_chat(body: &Value, limits: &Limits) -> Result<ApiRequest, ApiError> {
    let fields = Fields::of(body, "")?;
    let mut options = Options::parse(fields, limits)?;
    let old = max_tokens(fields, "max_tokens")?;
    options.max_tokens = max_tokens(fields, "max_completion_tokens")?.or(old);
    options.sampling.top_logprobs = top_logprobs(fields)?;
    refuse_unserved(fields)?;
    let tools = tools(fields)?;
    if options.skip_special_tokens.is_none() && !tools.is_null() {
        // Tool calls are told from text by control tokens, which the client has to see.
        options.skip_special_tokens = Some(false);
    }
    let input = ChatInput { messages: messages(fields)?, tools, template_kwargs: kwargs(fields)? };
    Ok(ApiRequest { prompt: PromptSource::Chat(Box::new(input)), options })
}

fn top_logprobs(fields: Fields<'_>) -> Result<Option<u32>, ApiError> {
    let wanted = fields.flag("logprobs")?.unwrap_or(false);
    let top = fields.integer("top_logprobs", (0, MAX_TOP_LOGPROBS.into()))?;
    if top.is_some() && !wanted {
        return Err(fields.error("top_logprobs", "needs `logprobs`: true"));
    }
    Ok(wanted.then(|| top.and_then(|top| u32::try_from(top).ok()).unwrap_or(0)))
}

/// Fields that would change the answer and that nothing here honours are refused, not ignored.
fn refuse_unserved(fields: Fields<'_>) -> Result<(), ApiError> {
    if fields.value("response_format").is_some_and(|format| format["type"] != "text") {
        return Err(fields.error("response_format", "is only served with type `text`"));
    }
    match fields.value("tool_choice") {
        None => Ok(()),
        Some(Value::String(choice)) if choice == "auto" || choice == "none" => Ok(()),
        Some(_) => Err(fields.error("tool_choice", "is only served as `auto` or `none`")),
    }
}

fn tools(fields: Fields<'_>) -> Result<Value, ApiError> {
    let items = fields.array("tools")?.unwrap_or_default();
    for (idx, tool) in items.iter().enumerate() {
        let path = format!("tools[{idx}]");
        let tool = Fields::of(tool, &path)?;
        if tool.text("type")? != Some("function") {
            return Err(tool.error("type", "must be `function`"));
        }
        let function =
            tool.value("function").ok_or_else(|| tool.error("function", "is required"))?;
        let path = tool.path("function");
        let function = Fields::of(function, &path)?;
        if function.text("name")?.is_none_or(str::is_empty) {
            return Err(function.error("name", "must be a string that is not empty"));
        }
        if let Some(parameters) = function.value("parameters") {
            Fields::of(parameters, &function.path("parameters"))?;
        }
    }
    let unused = items.is_empty() || fields.text("tool_choice")? == Some("none");
    Ok(if unused { Value::Null } else { Value::Array(items.to_vec()) })
}

fn kwargs(fields: Fields<'_>) -> Result<Map<String, Value>, ApiError> {
    if fields.value("chat_template").is_some() {
        return Err(fields.error("chat_template", "is the operator's to choose"));
    }
    let Some(value) = fields.value("chat_template_kwargs") else { return Ok(Map::new()) };
    let inner = Fields::of(value, "chat_template_kwargs")?;
    for key in ["chat_template", "messages", "tools", "add_generation_prompt"] {
        if inner.value(key).is_some() {
            return Err(inner.error(key, "cannot be given by a request"));
        }
    }
    Ok(value.as_object().cloned().unwrap_or_default())
}

fn messages(fields: Fields<'_>) -> Result<Value, ApiError> {
    let items = fields.array("messages")?.ok_or_else(|| fields.error("messages", "is required"))?;
    if items.is_empty() {
        return Err(fields.error("messages", "must not be empty"));
    }
    let mut call_ids = HashSet::new();
    let mut messages = Vec::with_capacity(items.len());
    for (idx, item) in items.iter().enumerate() {
        let path = format!("messages[{idx}]");
        messages.push(message(Fields::of(item, &path)?, &mut call_ids)?);
    }
    Ok(Value::Array(messages))
}

/// One message as the template gets it: known fields only, content as text.
fn message(fields: Fields<'_>, call_ids: &mut HashSet<String>) -> Result<Value, ApiError> {
    let role = match fields.text("role")? {
        Some("developer") => "system",
        Some(role @ ("system" | "user" | "assistant" | "tool")) => role,
        _ => {
            let roles = "must be one of system, developer, user, assistant, tool";
            return Err(fields.error("role", roles));
        }
    };
    let mut out = Map::new();
    out.insert("role".to_owned(), Value::from(role));
    if let Some(name) = fields.text("name")? {
        out.insert("name".to_owned(), Value::from(name));
    }
    let content = content(fields)?;
    match (role, content) {
        (_, Some(text)) => out.insert("content".to_owned(), Value::from(text)),
        // A turn that only calls tools has no text; templates may look at `content` all the same.
        ("assistant", None) => out.insert("content".to_owned(), Value::from("")),
        (_, None) => return Err(fields.error("content", "is required")),
    };
    if role == "assistant" {
        if let Some(text) = fields.text("reasoning_content")? {
            out.insert("reasoning_content".to_owned(), Value::from(text));
        }
        let calls = tool_calls(fields, call_ids)?;
        if !calls.is_empty() {
            out.insert("tool_calls".to_owned(), Value::Array(calls));
        }
    }
    if role == "tool" {
        let id = fields.text("tool_call_id")?;
        let id = id.filter(|id| call_ids.contains(*id)).ok_or_else(|| {
            fields
                .error("tool_call_id", "must be the id of a call made earlier in the conversation")
        })?;
        out.insert("tool_call_id".to_owned(), Value::from(id));
    }
    Ok(Value::Object(out))
}

fn content(fields: Fields<'_>) -> Result<Option<String>, ApiError> {
    match fields.value("content") {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(Value::Array(parts)) => {
            let mut text = String::new();
            for (idx, part) in parts.iter().enumerate() {
                let path = fields.path(&format!("content[{idx}]"));
                let part = Fields::of(part, &path)?;
                if part.text("type")? != Some("text") {
                    return Err(
                        part.error("type", "must be `text`; this model takes no other part")
                    );
                }
                let piece = part.text("text")?.ok_or_else(|| part.error("text", "is required"))?;
                text.push_str(piece);
            }
            Ok(Some(text))
        }
        Some(_) => Err(fields.error("content", "must be a string or an array of text parts")),
    }
}

fn tool_calls(fields: Fields<'_>, ids: &mut HashSet<String>) -> Result<Vec<Value>, ApiError> {
    let mut calls = Vec::new();
    for (idx, call) in fields.array("tool_calls")?.unwrap_or_default().iter().enumerate() {
        let path = fields.path(&format!("tool_calls[{idx}]"));
        let fields = Fields::of(call, &path)?;
        let id = fields.text("id")?.ok_or_else(|| fields.error("id", "is required"))?;
        let function = fields.value("function");
        let function = function.ok_or_else(|| fields.error("function", "is required"))?;
        let function_path = fields.path("function");
        let function = Fields::of(function, &function_path)?;
        let name = function.text("name")?.filter(|name| !name.is_empty());
        let name =
            name.ok_or_else(|| function.error("name", "must be a string that is not empty"))?;
        let arguments = match function.text("arguments")?.map(str::trim) {
            None | Some("") => "{}",
            Some(text) => text,
        };
        if !matches!(serde_json::from_str(arguments), Ok(Value::Object(_))) {
            return Err(ApiError::field(path, "has arguments that are not a JSON object"));
        }
        ids.insert(id.to_owned());
        calls.push(serde_json::json!({
            "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
        }));
    }
    Ok(calls)
}
