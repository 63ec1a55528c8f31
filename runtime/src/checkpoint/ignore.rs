//! Which modules a quantization config names: exact leaf names, `re:` patterns, globs.

use super::quant::QuantError;
use regex::Regex;

/// How a list of module patterns is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatternStyle {
    /// compressed-tensors: a whole name, or `re:` and a pattern anchored at the name's start.
    Exact,
    /// modelopt: `*` and `?` as in file names, on the whole name.
    Glob,
    /// fp8: a whole name, or the module that contains it.
    Prefix,
}

/// One entry of such a list.
#[derive(Debug, Clone)]
pub struct Pattern {
    /// As the config has it.
    pub text: String,
    rule: Rule,
}

#[derive(Debug, Clone)]
enum Rule {
    Exact,
    Prefix,
    Regex(Regex),
}

impl Pattern {
    /// Reads one entry.
    ///
    /// # Errors
    /// [`QuantError::Regex`] if it is a `re:` entry that is not a regular expression.
    pub fn new(text: &str, style: PatternStyle) -> Result<Self, QuantError> {
        let compile = |pattern: &str| {
            Regex::new(pattern)
                .map(Rule::Regex)
                .map_err(|why| QuantError::Regex { entry: text.to_owned(), why: why.to_string() })
        };
        let rule = match (style, text.strip_prefix("re:")) {
            (_, Some(pattern)) => compile(&format!("^(?:{pattern})"))?,
            (PatternStyle::Glob, None) => {
                let escaped = regex::escape(text).replace(r"\*", ".*").replace(r"\?", ".");
                compile(&format!("^{escaped}$"))?
            }
            (PatternStyle::Exact, None) => Rule::Exact,
            (PatternStyle::Prefix, None) => Rule::Prefix,
        };
        Ok(Self { text: text.to_owned(), rule })
    }

    /// Whether it names the module, given by its full name in the checkpoint or by the name
    /// without a wrapper's prefix. Never a substring match: `mlp.gate` is not `mlp.gate_proj`.
    pub fn matches(&self, full: &str, short: &str) -> bool {
        [full, short].iter().any(|name| match &self.rule {
            Rule::Exact => *name == self.text,
            Rule::Prefix => name
                .strip_prefix(self.text.as_str())
                .is_some_and(|r| r.is_empty() || r.starts_with('.')),
            Rule::Regex(regex) => regex.is_match(name),
        })
    }
}

/// The names closest to `entry`, nearest first.
pub(crate) fn nearest<'a>(entry: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut ranked: Vec<(usize, &str)> = names.map(|name| (distance(entry, name), name)).collect();
    ranked.sort_unstable();
    ranked.into_iter().take(3).map(|(_, name)| name).collect()
}

/// Levenshtein distance.
fn distance(a: &str, b: &str) -> usize {
    let b = b.as_bytes();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(style: PatternStyle, entry: &str, name: &str, expect: bool) {
        let pattern = Pattern::new(entry, style).unwrap();
        assert_eq!(pattern.matches(name, name), expect, "{entry} on {name}");
    }

    #[test]
    fn names_match_whole() {
        use PatternStyle::{Exact, Glob, Prefix};
        check(Exact, "model.layers.0.mlp.gate", "model.layers.0.mlp.gate", true);
        check(Exact, "model.layers.0.mlp.gate", "model.layers.0.mlp.gate_proj", false);
        check(Exact, "mlp.gate", "model.layers.0.mlp.gate", false);
        check(Exact, "re:.*self_attn.*", "model.layers.3.self_attn.o_proj", true);
        check(Exact, "re:self_attn", "model.layers.3.self_attn.o_proj", false);
        check(
            Exact,
            r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            "model.layers.0.mlp.up_proj",
            true,
        );
        let expert = "model.layers.1.mlp.experts.0.up_proj";
        check(Exact, r"re:.*mlp\.(gate|up|gate_up|down)_proj.*", expert, false);
        check(Glob, "*mlp.gate", "model.layers.1.mlp.gate", true);
        check(Glob, "*mlp.gate", "model.layers.1.mlp.gate_proj", false);
        check(Glob, "lm_head", "model.lm_head", false);
        check(Prefix, "model.layers.0", "model.layers.0.mlp.up_proj", true);
        check(Prefix, "model.layers.1", "model.layers.10.mlp.up_proj", false);
    }

    #[test]
    fn distance_of_the_textbook() {
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
