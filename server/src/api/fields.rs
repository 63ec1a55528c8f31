//! Reads fields of a JSON object, naming the field in every complaint. `null` is absent.

use super::ApiError;
use serde_json::{Map, Value};

/// An object of the request, and the path of its fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    prefix: &'a str,
}

impl<'a> Fields<'a> {
    /// Reads the fields of `value`, which `prefix` names (empty at the top).
    pub(super) fn of(value: &'a Value, prefix: &'a str) -> Result<Self, ApiError> {
        match value {
            Value::Object(map) => Ok(Self { map, prefix }),
            _ if prefix.is_empty() => Err(ApiError::Json { reason: "it is not an object".into() }),
            _ => Err(ApiError::field(prefix, "must be an object")),
        }
    }

    /// The field's full name.
    pub(super) fn path(&self, key: &str) -> String {
        if self.prefix.is_empty() { key.to_owned() } else { format!("{}.{key}", self.prefix) }
    }

    /// The field, unless absent or null.
    pub(super) fn value(&self, key: &str) -> Option<&'a Value> {
        self.map.get(key).filter(|value| !value.is_null())
    }

    /// A complaint about `key`.
    pub(super) fn error(&self, key: &str, reason: impl Into<String>) -> ApiError {
        ApiError::field(self.path(key), reason)
    }

    /// Text.
    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, ApiError> {
        let text =
            |value: &'a Value| value.as_str().ok_or_else(|| self.error(key, "must be a string"));
        self.value(key).map(text).transpose()
    }

    /// `true` or `false`.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, ApiError> {
        let flag =
            |value: &Value| value.as_bool().ok_or_else(|| self.error(key, "must be a boolean"));
        self.value(key).map(flag).transpose()
    }

    /// An integer inside `min..=max`; `2.0` is one, `2.5` and `"2"` are not.
    pub(super) fn integer(
        &self,
        key: &str,
        (min, max): (i128, i128),
    ) -> Result<Option<i128>, ApiError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match integer(value) {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number)),
            Some(_) => Err(self.error(key, format!("must be from {min} to {max}"))),
            None => Err(self.error(key, "must be an integer")),
        }
    }

    /// A finite number inside `min..=max`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "sampling is in f32; the range was checked"
    )]
    pub(super) fn number(
        &self,
        key: &str,
        (min, max): (f64, f64),
    ) -> Result<Option<f32>, ApiError> {
        let Some(value) = self.value(key) else { return Ok(None) };
        match value.as_f64() {
            Some(number) if (min..=max).contains(&number) => Ok(Some(number as f32)),
            Some(_) => Err(self.error(key, format!("must be from {min} to {max}"))),
            None => Err(self.error(key, "must be a number")),
        }
    }

    /// An array.
    pub(super) fn array(&self, key: &str) -> Result<Option<&'a [Value]>, ApiError> {
        let array = |value: &'a Value| {
            value.as_array().map(Vec::as_slice).ok_or_else(|| self.error(key, "must be an array"))
        };
        self.value(key).map(array).transpose()
    }
}

/// The value as an integer, if it is one.
#[expect(clippy::cast_possible_truncation, reason = "whole and below 2^63")]
pub(super) fn integer(value: &Value) -> Option<i128> {
    let number = value.as_number()?;
    let whole = |float: f64| float.fract() == 0.0 && float.abs() < 9.0e18;
    (number.as_i64().map(i128::from))
        .or_else(|| number.as_u64().map(i128::from))
        .or_else(|| number.as_f64().filter(|&float| whole(float)).map(|float| float as i128))
}

/// A token id inside `0..vocab_size`.
pub(super) fn token_id(value: &Value, vocab_size: usize) -> Option<u32> {
    let id = usize::try_from(integer(value)?).ok()?;
    if id < vocab_size { u32::try_from(id).ok() } else { None }
}
