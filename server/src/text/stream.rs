//! Output bytes to text, one token at a time: characters and stop strings cut across tokens.

use std::sync::Arc;

/// Strings that end the output; none of them empty.
#[derive(Debug, Clone, Default)]
pub struct StopStrings(Arc<[String]>);

impl StopStrings {
    /// Takes the strings, without empty ones, which would end every output at once.
    pub fn new(strings: Vec<String>) -> Self {
        Self(strings.into_iter().filter(|string| !string.is_empty()).collect())
    }
}

/// Turns one choice's output bytes into text that is safe to send.
///
/// Text that could still become a stop string, and bytes that could still become a character, are
/// held back. The first stop string to *complete* wins.
#[derive(Debug, Default)]
pub struct TextStream {
    stops: StopStrings,
    /// Start of a character whose rest has not come.
    partial: Vec<u8>,
    /// Characters that may begin a stop string.
    held: String,
    released: usize,
    stopped: bool,
}

impl TextStream {
    /// A stream with no output yet.
    pub fn new(stops: StopStrings) -> Self {
        Self { stops, ..Self::default() }
    }

    /// Adds a token's bytes and returns the text that may now be sent.
    pub fn push(&mut self, bytes: &[u8]) -> String {
        self.partial.extend_from_slice(bytes);
        let decoded = decode(&mut self.partial);
        self.absorb(&decoded)
    }

    /// Ends the output: what was held back is text after all, a cut character one U+FFFD.
    pub fn finish(&mut self) -> String {
        if self.stopped {
            return String::new();
        }
        let mut text = std::mem::take(&mut self.held);
        if !self.partial.is_empty() {
            self.partial.clear();
            text.push(char::REPLACEMENT_CHARACTER);
        }
        self.released += text.len();
        text
    }

    /// Whether a stop string has ended the output.
    pub fn stopped(&self) -> bool {
        self.stopped
    }

    /// Bytes of text returned so far.
    pub fn released(&self) -> usize {
        self.released
    }

    /// Bytes of text decoded so far, returned or held back: where the next token's text begins.
    pub fn decoded(&self) -> usize {
        self.released + self.held.len()
    }

    fn absorb(&mut self, decoded: &str) -> String {
        if self.stopped {
            return String::new();
        }
        for ch in decoded.chars() {
            self.held.push(ch);
            let ended = self.stops.0.iter().filter(|stop| self.held.ends_with(stop.as_str()));
            if let Some(len) = ended.map(String::len).max() {
                self.stopped = true;
                self.held.truncate(self.held.len() - len);
                let text = std::mem::take(&mut self.held);
                self.released += text.len();
                return text;
            }
        }
        let keep = self.stops.0.iter().map(|stop| overlap(&self.held, stop)).max().unwrap_or(0);
        let text = self.held.drain(..self.held.len() - keep).collect::<String>();
        self.released += text.len();
        text
    }
}

/// Bytes of the longest proper prefix of `stop` that `text` ends with.
fn overlap(text: &str, stop: &str) -> usize {
    let prefixes = stop.char_indices().map(|(len, _)| len).rev();
    prefixes.into_iter().find(|&len| text.ends_with(&stop[..len])).unwrap_or(0)
}

/// Takes every whole character off `bytes`, each impossible sequence as one U+FFFD; leaves a
/// character's possible beginning.
fn decode(bytes: &mut Vec<u8>) -> String {
    let mut text = String::new();
    let mut at = 0;
    while at < bytes.len() {
        match std::str::from_utf8(&bytes[at..]) {
            Ok(valid) => {
                text.push_str(valid);
                at = bytes.len();
            }
            Err(error) => {
                let end = at + error.valid_up_to();
                text.push_str(&String::from_utf8_lossy(&bytes[at..end]));
                at = end;
                let Some(bad) = error.error_len() else { break };
                text.push(char::REPLACEMENT_CHARACTER);
                at += bad;
            }
        }
    }
    bytes.drain(..at);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], tokens: &[&[u8]]) -> (Vec<String>, bool) {
        let stops = StopStrings::new(stops.iter().map(|&s| s.to_owned()).collect());
        let mut stream = TextStream::new(stops);
        let mut parts = Vec::new();
        for token in tokens {
            parts.push(stream.push(token));
        }
        parts.push(stream.finish());
        (parts, stream.stopped())
    }

    #[test]
    fn characters_wait_for_their_last_byte() {
        let (parts, _) = run(&[], &[b"hi ", b"\xF0\x9F", b"\x98\x80", b"\xC3", b"\xA9", b"!"]);
        assert_eq!(parts, ["hi ", "", "😀", "", "é", "!", ""]);
        let (parts, _) = run(&[], &[b"hi ", b"\xF0\x9F"]);
        assert_eq!(parts, ["hi ", "", "\u{FFFD}"]);
        let (parts, _) = run(&[], &[b"hi ", b"\xFF", b"\xF0\x9F", b"\x98\x80"]);
        assert_eq!(parts, ["hi ", "\u{FFFD}", "", "😀", ""]);
    }

    #[test]
    fn stop_strings_never_leak() {
        let tokens: [&[u8]; 5] = [b"Alpha ", b"EN", b"D_", b"MAR", b"K tail"];
        assert_eq!(
            run(&["END_MARK"], &tokens),
            (vec!["Alpha ".into(), "".into(), "".into(), "".into(), "".into(), "".into()], true)
        );
        assert_eq!(run(&["D_", "END_MARK"], &tokens).0.concat(), "Alpha EN");
        let (parts, stopped) = run(&["END_MARK"], &[b"Alpha ", b"EN", b"D_", b"OTHER"]);
        assert_eq!(
            (parts, stopped),
            (vec!["Alpha ".into(), "".into(), "".into(), "END_OTHER".into(), "".into()], false)
        );
        assert_eq!(run(&["aab"], &[b"a", b"a", b"a", b"b"]).0.concat(), "a");
        assert_eq!(run(&["END"], &[b"x", b"EN"]).0.concat(), "xEN");
    }
}
