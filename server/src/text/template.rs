//! The model's chat template, with a budget on its work and on its output.

use super::TextError;
use super::tojson::{self, Layout};
use minijinja::value::{Kwargs, Value as JinjaValue};
use minijinja::{Environment, Error, ErrorKind};
use serde_json::Value;

/// Steps and 64-byte units of data that rendering may use beyond what its input's size explains.
const BASE_FUEL: u64 = 2_000_000;
/// Fuel for every byte of input: copying, `tojson` (a quarter a byte) and the loops over messages.
const FUEL_PER_BYTE: u64 = 8;
/// Bytes of output beyond four times the input.
const BASE_OUTPUT: usize = 1 << 20;

/// A parsed chat template.
#[derive(Debug)]
pub(super) struct ChatTemplate {
    env: Environment<'static>,
}

impl ChatTemplate {
    /// Parses the template text.
    pub(super) fn new(source: String) -> Result<Self, TextError> {
        let mut env = Environment::new();
        let syntax = minijinja::syntax::SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .map_err(|error| TextError::BadTemplate { reason: describe(&error) })?;
        env.set_syntax(syntax);
        env.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        env.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
        env.add_filter("tojson", tojson_filter);
        env.add_function("raise_exception", |message: String| -> Result<JinjaValue, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, message))
        });
        env.set_debug(false);
        env.add_template_owned("chat", source)
            .map_err(|error| TextError::BadTemplate { reason: describe(&error) })?;
        Ok(Self { env })
    }

    /// Renders `context`, whose caller-given part is `input_bytes` long.
    pub(super) fn render(&self, context: &Value, input_bytes: usize) -> Result<String, TextError> {
        let fuel = BASE_FUEL + FUEL_PER_BYTE * input_bytes as u64;
        let limit = BASE_OUTPUT + 4 * input_bytes;
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let mut out = Limited { bytes: Vec::new(), limit, hit: false };
        let context = JinjaValue::from(minijinja::value::Serde(context));
        let result = env
            .get_template("chat")
            .and_then(|template| template.render_captured_to(context, &mut out).map(drop));
        if let Err(error) = result {
            if out.hit || is_out_of_fuel(&error) {
                return Err(TextError::Budget { fuel, bytes: limit });
            }
            return Err(TextError::Refused { reason: describe(&error) });
        }
        String::from_utf8(out.bytes)
            .map_err(|_| TextError::Refused { reason: "its output is not UTF-8".to_owned() })
    }
}

fn is_out_of_fuel(error: &Error) -> bool {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = source {
        if current.downcast_ref::<Error>().is_some_and(|e| e.kind() == ErrorKind::OutOfFuel) {
            return true;
        }
        source = current.source();
    }
    false
}

fn describe(error: &Error) -> String {
    let reason = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    match error.line() {
        Some(line) => format!("{reason} (template line {line})"),
        None => reason,
    }
}

/// Takes at most `limit` bytes.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    hit: bool,
}

impl std::io::Write for Limited {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        if self.bytes.len() + buf.len() > self.limit {
            self.hit = true;
            return Err(std::io::Error::other("output limit"));
        }
        self.bytes.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn tojson_filter(value: JinjaValue, kwargs: Kwargs) -> Result<JinjaValue, Error> {
    let invalid = |reason: String| Error::new(ErrorKind::InvalidOperation, reason);
    if value.is_undefined() {
        return Err(invalid("tojson of an undefined value".to_owned()));
    }
    let mut layout = Layout::python(kwargs.get::<Option<usize>>("indent")?.map(|n| n.min(16)));
    if let Some(separators) = kwargs.get::<Option<Vec<String>>>("separators")? {
        let [item, key] = <[String; 2]>::try_from(separators)
            .map_err(|_| invalid("tojson: separators are two strings".to_owned()))?;
        (layout.item_separator, layout.key_separator) = (item, key);
    }
    layout.sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    if kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false) {
        return Err(invalid("tojson(ensure_ascii=true) is not supported".to_owned()));
    }
    kwargs.assert_all_used()?;
    let json = serde_json::to_value(&value).map_err(|error| invalid(format!("tojson: {error}")))?;
    Ok(JinjaValue::from(tojson::dumps(&json, &layout)))
}
