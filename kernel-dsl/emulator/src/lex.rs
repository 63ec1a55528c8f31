//! PTX text to tokens. Knows nothing of instructions.

use crate::ParseError;

/// A piece of PTX text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Token<'a> {
    /// A name, a directive or an instruction with its modifiers, all of which may hold dots.
    Word(&'a str),
    /// An integer literal.
    Int(u64),
    /// A float literal, as the bits of an f64.
    Double(u64),
    /// A float literal of the form `0f`, as the bits of an f32.
    Single(u32),
    /// What stands between quotes.
    Text(&'a str),
    /// Anything else.
    Mark(char),
}

/// A token and the line it stands on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lexeme<'a> {
    pub(crate) token: Token<'a>,
    pub(crate) line: u32,
}

/// Splits a module into tokens.
pub(crate) fn lex(text: &str) -> Result<Vec<Lexeme<'_>>, ParseError> {
    let mut lexer = Lexer { text, at: 0, line: 1 };
    let mut out = Vec::new();
    while let Some(lexeme) = lexer.next()? {
        out.push(lexeme);
    }
    Ok(out)
}

struct Lexer<'a> {
    text: &'a str,
    at: usize,
    line: u32,
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'%' | b'.')
}

impl<'a> Lexer<'a> {
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    fn error(&self, message: impl Into<String>) -> ParseError {
        ParseError { line: self.line, message: message.into() }
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (b'\n', _) => {
                    self.line += 1;
                    self.at += 1;
                }
                (b' ' | b'\t' | b'\r', _) => self.at += 1,
                (b'/', b'/') => {
                    while !matches!(self.byte(0), 0 | b'\n') {
                        self.at += 1;
                    }
                }
                (b'/', b'*') => {
                    let Some(length) = self.text[self.at..].find("*/") else {
                        return Err(self.error("a comment without an end"));
                    };
                    let comment = &self.text[self.at..self.at + length];
                    self.line += newlines(comment);
                    self.at += length + 2;
                }
                _ => return Ok(()),
            }
        }
    }

    fn next(&mut self) -> Result<Option<Lexeme<'a>>, ParseError> {
        self.skip_blank()?;
        let line = self.line;
        if self.at >= self.text.len() {
            return Ok(None);
        }
        let token = match self.byte(0) {
            b'0'..=b'9' => self.number()?,
            b'"' => self.quoted()?,
            byte if is_word(byte) => self.word(),
            _ => {
                let mark = self.text[self.at..].chars().next().unwrap_or(' ');
                self.at += mark.len_utf8();
                Token::Mark(mark)
            }
        };
        Ok(Some(Lexeme { token, line }))
    }

    fn word(&mut self) -> Token<'a> {
        let start = self.at;
        loop {
            if is_word(self.byte(0)) {
                self.at += 1;
            } else if self.byte(0) == b':' && self.byte(1) == b':' {
                self.at += 2;
            } else {
                return Token::Word(&self.text[start..self.at]);
            }
        }
    }

    fn quoted(&mut self) -> Result<Token<'a>, ParseError> {
        let rest = &self.text[self.at + 1..];
        let Some(length) = rest.find('"') else {
            return Err(self.error("a string without an end"));
        };
        self.at += length + 2;
        self.line += newlines(&rest[..length]);
        Ok(Token::Text(&rest[..length]))
    }

    fn number(&mut self) -> Result<Token<'a>, ParseError> {
        let start = self.at;
        while is_word(self.byte(0))
            || (matches!(self.byte(0), b'+' | b'-') && exponent(&self.text[start..self.at]))
        {
            self.at += 1;
        }
        let text = &self.text[start..self.at];
        let bad = || self.error(format!("`{text}` is no number"));
        if let Some(bits) = text.strip_prefix("0f").or(text.strip_prefix("0F")) {
            return match u32::from_str_radix(bits, 16) {
                Ok(bits_value) if bits.len() == 8 => Ok(Token::Single(bits_value)),
                _ => Err(bad()),
            };
        }
        if let Some(bits) = text.strip_prefix("0d").or(text.strip_prefix("0D")) {
            return match u64::from_str_radix(bits, 16) {
                Ok(bits_value) if bits.len() == 16 => Ok(Token::Double(bits_value)),
                _ => Err(bad()),
            };
        }
        let digits = text.trim_end_matches('U');
        let value = match digits.get(..2) {
            Some("0x" | "0X") => u64::from_str_radix(&digits[2..], 16).ok(),
            Some("0b" | "0B") => u64::from_str_radix(&digits[2..], 2).ok(),
            _ if digits.len() > 1 && digits.starts_with('0') && !digits.contains('.') => {
                u64::from_str_radix(&digits[1..], 8).ok()
            }
            _ => digits.parse().ok(),
        };
        match value {
            Some(value) => Ok(Token::Int(value)),
            None => digits.parse::<f64>().map(|v| Token::Double(v.to_bits())).map_err(|_| bad()),
        }
    }
}

/// Whether a sign may follow, because what was read ends in an exponent's letter.
fn exponent(text: &str) -> bool {
    !text.starts_with("0x")
        && !text.starts_with("0f")
        && text.ends_with(['e', 'E'])
        && text.contains('.')
}

fn newlines(text: &str) -> u32 {
    text.bytes().map(|byte| u32::from(byte == b'\n')).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        lex(text).unwrap().into_iter().map(|lexeme| lexeme.token).collect()
    }

    #[test]
    fn words_keep_dots_and_double_colons() {
        let got = tokens("ld.global.L2::128B.b32 %r1, [%rd2+-8];");
        use Token::{Int, Mark, Word};
        let want = [
            Word("ld.global.L2::128B.b32"),
            Word("%r1"),
            Mark(','),
            Mark('['),
            Word("%rd2"),
            Mark('+'),
            Mark('-'),
            Int(8),
            Mark(']'),
            Mark(';'),
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn numbers_of_every_form() {
        assert_eq!(tokens("12"), [Token::Int(12)]);
        assert_eq!(tokens("0x1F"), [Token::Int(31)]);
        assert_eq!(tokens("017"), [Token::Int(15)]);
        assert_eq!(tokens("0b101U"), [Token::Int(5)]);
        assert_eq!(tokens("0f3F800000"), [Token::Single(0x3f80_0000)]);
        assert_eq!(tokens("0d3FF0000000000000"), [Token::Double(1f64.to_bits())]);
        assert_eq!(tokens("1.5e-3"), [Token::Double(1.5e-3f64.to_bits())]);
        assert!(lex("0f12").is_err());
    }

    #[test]
    fn lines_are_counted_through_comments() {
        let lexemes = lex("a // b\n/* c\n d */ e").unwrap();
        assert_eq!((lexemes[1].token, lexemes[1].line), (Token::Word("e"), 3));
        assert!(lex("/* no end").is_err());
    }
}
