//! Keeps control tokens that a user typed apart from those that the template wrote.
//!
//! Before rendering, every control token inside the caller's strings is broken by a marker: a
//! Unicode noncharacter that the request does not contain. What still reads as a control token
//! after rendering was written by the template. The marker is then taken out again.

use serde_json::Value;

/// A special token as it is matched in rendered text.
#[derive(Debug, Clone)]
pub(super) struct ControlToken {
    pub(super) id: u32,
    pub(super) text: String,
    /// Swallows whitespace before it.
    pub(super) lstrip: bool,
    /// Swallows whitespace after it.
    pub(super) rstrip: bool,
}

/// A stretch of rendered text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// A control token that the template wrote.
    Control(u32),
    /// Anything else, to be tokenized with special parsing off.
    Text(String),
}

/// Matches control tokens; longest first where one begins with another.
#[derive(Debug)]
pub(super) struct ControlTokens(Vec<ControlToken>);

impl ControlTokens {
    pub(super) fn new(mut tokens: Vec<ControlToken>) -> Self {
        tokens.retain(|token| !token.text.is_empty());
        tokens.sort_by_key(|token| std::cmp::Reverse(token.text.len()));
        Self(tokens)
    }

    fn at_start(&self, text: &str) -> Option<&ControlToken> {
        let first = text.as_bytes().first()?;
        self.0
            .iter()
            .find(|token| token.text.as_bytes()[0] == *first && text.starts_with(&token.text))
    }

    /// Whether `text` ends inside what could become a control token with text placed after it.
    fn ends_within(&self, text: &str) -> bool {
        self.0.iter().any(|token| {
            token.text.char_indices().skip(1).any(|(len, _)| text.ends_with(&token.text[..len]))
        })
    }

    fn protect_str(&self, text: &str, marker: char) -> String {
        let mut out = String::with_capacity(text.len());
        for (at, ch) in text.char_indices() {
            out.push(ch);
            if self.at_start(&text[at..]).is_some() {
                out.push(marker);
            }
        }
        if self.ends_within(text) {
            out.push(marker);
        }
        out
    }

    /// A copy of `value` in which no string, and no key, holds a control token.
    pub(super) fn protect(&self, value: &Value, marker: char) -> Value {
        match value {
            Value::String(text) => Value::String(self.protect_str(text, marker)),
            Value::Array(items) => items.iter().map(|item| self.protect(item, marker)).collect(),
            Value::Object(map) => map
                .iter()
                .map(|(key, item)| (self.protect_str(key, marker), self.protect(item, marker)))
                .collect(),
            other => other.clone(),
        }
    }

    /// Cuts rendered text at the control tokens that the template wrote.
    pub(super) fn split(&self, rendered: &str, marker: char) -> Vec<Piece> {
        let mut pieces = Vec::new();
        let (mut start, mut at) = (0, 0);
        while at < rendered.len() {
            let Some(token) = self.at_start(&rendered[at..]) else {
                at += rendered[at..].chars().next().map_or(1, char::len_utf8);
                continue;
            };
            let mut before = &rendered[start..at];
            if token.lstrip {
                before = before.trim_end();
            }
            push_text(&mut pieces, before, marker);
            pieces.push(Piece::Control(token.id));
            at += token.text.len();
            if token.rstrip {
                at = rendered.len() - rendered[at..].trim_start().len();
            }
            start = at;
        }
        push_text(&mut pieces, &rendered[start..], marker);
        pieces
    }
}

fn push_text(pieces: &mut Vec<Piece>, text: &str, marker: char) {
    let text = text.replace(marker, "");
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
}

/// A noncharacter (U+FDD0..=U+FDEF) that none of `values` contains; `None` if all 32 are taken.
pub(super) fn free_marker(values: &[&Value]) -> Option<char> {
    ('\u{FDD0}'..='\u{FDEF}').find(|marker| !values.iter().any(|value| contains(value, *marker)))
}

fn contains(value: &Value, ch: char) -> bool {
    match value {
        Value::String(text) => text.contains(ch),
        Value::Array(items) => items.iter().any(|item| contains(item, ch)),
        Value::Object(map) => map.iter().any(|(key, item)| key.contains(ch) || contains(item, ch)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens() -> ControlTokens {
        let token = |id, text: &str| ControlToken {
            id,
            text: text.to_owned(),
            lstrip: false,
            rstrip: false,
        };
        ControlTokens::new(vec![token(1, "<|a|>"), token(2, "<|a|>b"), token(3, "[S]")])
    }

    #[test]
    fn typed_tokens_survive_as_text_and_written_ones_do_not() {
        let tokens = tokens();
        let marker = '\u{FDD0}';
        let typed = tokens.protect(&Value::from("x<|a|>y[S]"), marker);
        let rendered = format!("[S]{}<|a|>", typed.as_str().unwrap());
        assert_eq!(
            tokens.split(&rendered, marker),
            [Piece::Control(3), Piece::Text("x<|a|>y[S]".into()), Piece::Control(1)]
        );
    }

    #[test]
    fn two_strings_cannot_make_a_token_together() {
        let tokens = tokens();
        let marker = '\u{FDD0}';
        let left = tokens.protect(&Value::from("x<|a"), marker);
        let right = tokens.protect(&Value::from("|>"), marker);
        let rendered = format!("{}{}", left.as_str().unwrap(), right.as_str().unwrap());
        assert_eq!(tokens.split(&rendered, marker), [Piece::Text("x<|a|>".into())]);
    }

    #[test]
    fn the_longest_token_wins() {
        assert_eq!(tokens().split("<|a|>b", '\u{FDD0}'), [Piece::Control(2)]);
    }

    #[test]
    fn a_marker_in_the_request_is_not_chosen() {
        let value = serde_json::json!({"k": ["\u{FDD0}", {"\u{FDD1}": 1}]});
        assert_eq!(free_marker(&[&value]), Some('\u{FDD2}'));
    }
}
