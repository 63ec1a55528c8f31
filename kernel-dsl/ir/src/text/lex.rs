//! Text to tokens.

use super::{ParseError, ParseFault};

/// A token and where it starts.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A name, a keyword or a number.
    Word(String),
    /// `%3`.
    Value(u32),
    Text(String),
    Mark(char),
    End,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Word(word) => write!(f, "`{word}`"),
            Self::Value(value) => write!(f, "`%{value}`"),
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Mark(mark) => write!(f, "`{mark}`"),
            Self::End => f.write_str("the end"),
        }
    }
}

struct Lexer<'a> {
    chars: std::iter::Peekable<std::str::Chars<'a>>,
    line: u32,
    column: u32,
}

/// All tokens, the last of them [`Kind::End`]. `//` starts a comment.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, ParseError> {
    let mut lexer = Lexer { chars: text.chars().peekable(), line: 1, column: 1 };
    let mut tokens = Vec::new();
    loop {
        lexer.space();
        let (line, column) = (lexer.line, lexer.column);
        let kind = lexer.token().map_err(|fault| ParseError { line, column, fault })?;
        let end = kind == Kind::End;
        tokens.push(Token { kind, line, column });
        if end {
            return Ok(tokens);
        }
    }
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let next = self.chars.next()?;
        if next == '\n' {
            self.line += 1;
            self.column = 1;
        } else {
            self.column += 1;
        }
        Some(next)
    }

    fn space(&mut self) {
        while let Some(&next) = self.chars.peek() {
            if next.is_whitespace() {
                self.next();
            } else if next == '/' {
                while self.chars.peek().is_some_and(|&next| next != '\n') {
                    self.next();
                }
            } else {
                return;
            }
        }
    }

    fn token(&mut self) -> Result<Kind, ParseFault> {
        let Some(first) = self.next() else { return Ok(Kind::End) };
        match first {
            '"' => self.text().map(Kind::Text),
            '%' => {
                let digits = self.word(String::new());
                let value = digits.parse().map_err(|_| ParseFault::Value(digits))?;
                Ok(Kind::Value(value))
            }
            _ if is_word(first) => Ok(Kind::Word(self.word(first.to_string()))),
            _ => Ok(Kind::Mark(first)),
        }
    }

    fn word(&mut self, mut word: String) -> String {
        while let Some(&next) = self.chars.peek().filter(|&&next| is_word(next)) {
            word.push(next);
            self.next();
        }
        word
    }

    /// The rest of a text as `{:?}` writes it.
    fn text(&mut self) -> Result<String, ParseFault> {
        let mut text = String::new();
        loop {
            match self.next().ok_or(ParseFault::OpenText)? {
                '"' => return Ok(text),
                '\\' => text.push(self.escape()?),
                other => text.push(other),
            }
        }
    }

    fn escape(&mut self) -> Result<char, ParseFault> {
        Ok(match self.next().ok_or(ParseFault::OpenText)? {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            '0' => '\0',
            'u' => {
                let mut digits = String::new();
                while let Some(next) = self.next().filter(|&next| next != '}') {
                    digits.extend((next != '{').then_some(next));
                }
                let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
                code.ok_or(ParseFault::Escape(digits))?
            }
            other => other,
        })
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '#')
}
