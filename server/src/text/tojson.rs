//! The `tojson` filter as Hugging Face templates expect it: Python's `json.dumps` with
//! `ensure_ascii=False`, byte for byte, because its output becomes prompt tokens.

use serde_json::Value;
use std::fmt::Write;

/// How to lay the text out; the defaults are Python's.
#[derive(Debug, Clone)]
pub(super) struct Layout {
    pub(super) item_separator: String,
    pub(super) key_separator: String,
    /// Spaces a level; `None` keeps all on one line.
    pub(super) indent: Option<usize>,
    pub(super) sort_keys: bool,
}

impl Layout {
    /// Python's defaults: `", "` and `": "` on one line, `","` at line ends when indented.
    pub(super) fn python(indent: Option<usize>) -> Self {
        let item_separator = if indent.is_some() { "," } else { ", " };
        Self {
            item_separator: item_separator.to_owned(),
            key_separator: ": ".to_owned(),
            indent,
            sort_keys: false,
        }
    }
}

/// Writes `value` the way Python does.
pub(super) fn dumps(value: &Value, layout: &Layout) -> String {
    let mut out = String::new();
    write_value(&mut out, value, layout, 0);
    out
}

fn write_value(out: &mut String, value: &Value, layout: &Layout, depth: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => write_number(out, number),
        Value::String(text) => write_string(out, text),
        Value::Array(items) => {
            let items = items.iter().map(|item| (None, item)).collect::<Vec<_>>();
            write_items(out, ('[', ']'), &items, (layout, depth));
        }
        Value::Object(map) => {
            let mut items = map.iter().map(|(k, v)| (Some(k.as_str()), v)).collect::<Vec<_>>();
            if layout.sort_keys {
                items.sort_by_key(|(key, _)| *key);
            }
            write_items(out, ('{', '}'), &items, (layout, depth));
        }
    }
}

fn write_items(
    out: &mut String,
    (open, close): (char, char),
    items: &[(Option<&str>, &Value)],
    (layout, depth): (&Layout, usize),
) {
    out.push(open);
    for (idx, (key, item)) in items.iter().enumerate() {
        if idx > 0 {
            out.push_str(&layout.item_separator);
        }
        new_line(out, layout, depth + 1);
        if let Some(key) = key {
            write_string(out, key);
            out.push_str(&layout.key_separator);
        }
        write_value(out, item, layout, depth + 1);
    }
    if !items.is_empty() {
        new_line(out, layout, depth);
    }
    out.push(close);
}

fn new_line(out: &mut String, layout: &Layout, depth: usize) {
    if let Some(indent) = layout.indent {
        out.push('\n');
        out.extend(std::iter::repeat_n(' ', indent * depth));
    }
}

fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for ch in text.chars() {
        match ch {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{8}' => out.push_str("\\b"),
            '\u{C}' => out.push_str("\\f"),
            ch if ch < ' ' => {
                write!(out, "\\u{:04x}", u32::from(ch)).expect("a String takes every write");
            }
            ch => out.push(ch),
        }
    }
    out.push('"');
}

/// Integers as they are; floats as Python's `repr` has them (`1e+20`, `1e-05`, `0.0001`, `2.0`).
fn write_number(out: &mut String, number: &serde_json::Number) {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        out.push_str(&number.to_string());
        return;
    };
    let scientific = format!("{float:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if float != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        write!(out, "{mantissa}e{sign}{:02}", exponent.abs()).expect("a String takes every write");
    } else {
        write!(out, "{float:?}").expect("a String takes every write");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(json: &str, layout: &Layout, expect: &str) {
        assert_eq!(dumps(&serde_json::from_str(json).unwrap(), layout), expect);
    }

    // Expected texts are those of CPython 3.12's json.dumps(..., ensure_ascii=False).
    #[test]
    fn matches_python() {
        let plain = Layout::python(None);
        check(
            r#"{"b":[1,2.0,null],"a":"é\"\\\n\u0001/"}"#,
            &plain,
            "{\"b\": [1, 2.0, null], \"a\": \"é\\\"\\\\\\n\\u0001/\"}",
        );
        check(
            "[1e20,1e-5,0.0001,1e16,123456789012345.0,-0.5,1e15]",
            &plain,
            "[1e+20, 1e-05, 0.0001, 1e+16, 123456789012345.0, -0.5, 1000000000000000.0]",
        );
        check("{}", &plain, "{}");
        check(
            r#"{"a":[],"b":[1]}"#,
            &Layout::python(Some(2)),
            "{\n  \"a\": [],\n  \"b\": [\n    1\n  ]\n}",
        );
        let tight = Layout {
            item_separator: ",".into(),
            key_separator: ":".into(),
            indent: None,
            sort_keys: true,
        };
        check(r#"{"b":1,"a":[1,2]}"#, &tight, r#"{"a":[1,2],"b":1}"#);
    }
}
