//! Tokens to operands: what stands between a mnemonic and its semicolon.

use crate::ParseError;
use crate::lex::{Lexeme, Token};

/// An operand as it is written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arg<'a> {
    Word(&'a str),
    /// `!p`
    Not(&'a str),
    /// `p|q`
    Both(&'a str, &'a str),
    Int(u64),
    Single(u32),
    Double(u64),
    Vector(Vec<Arg<'a>>),
    /// `[base + offset]`, or `[base, {coordinates}]`
    Address {
        base: Box<Arg<'a>>,
        offset: i64,
        coordinates: Vec<Arg<'a>>,
    },
}

/// A position in a module's tokens.
pub(crate) struct Cursor<'a> {
    lexemes: Vec<Lexeme<'a>>,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(crate) fn new(lexemes: Vec<Lexeme<'a>>) -> Cursor<'a> {
        Cursor { lexemes, at: 0 }
    }

    pub(crate) fn peek(&self) -> Option<Token<'a>> {
        self.lexemes.get(self.at).map(|lexeme| lexeme.token)
    }

    /// Line of the next token, or of the last one.
    pub(crate) fn line(&self) -> u32 {
        let here = self.lexemes.get(self.at).or(self.lexemes.last());
        here.map_or(1, |lexeme| lexeme.line)
    }

    pub(crate) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += 1;
        token
    }

    pub(crate) fn error<T>(&self, message: impl Into<String>) -> Result<T, ParseError> {
        Err(ParseError { line: self.line(), message: message.into() })
    }

    /// Takes a mark if it is next.
    pub(crate) fn accept(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    /// Takes a word if it is next.
    pub(crate) fn accept_word(&mut self, word: &str) -> bool {
        let found = self.peek() == Some(Token::Word(word));
        self.at += usize::from(found);
        found
    }

    pub(crate) fn expect(&mut self, mark: char) -> Result<(), ParseError> {
        if self.accept(mark) {
            return Ok(());
        }
        self.error(format!("expected `{mark}`, found {:?}", self.peek()))
    }

    pub(crate) fn word(&mut self) -> Result<&'a str, ParseError> {
        match self.peek() {
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(word)
            }
            other => self.error(format!("expected a name, found {other:?}")),
        }
    }

    pub(crate) fn int(&mut self) -> Result<u64, ParseError> {
        let negative = self.accept('-');
        match self.peek() {
            Some(Token::Int(value)) => {
                self.at += 1;
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            other => self.error(format!("expected a number, found {other:?}")),
        }
    }

    /// A size, an index or an alignment.
    pub(crate) fn small(&mut self) -> Result<u32, ParseError> {
        let value = self.int()?;
        match u32::try_from(value) {
            Ok(value) => Ok(value),
            Err(_) => self.error(format!("{value} is too large")),
        }
    }

    /// The tokens that remain on a line: directives such as `.loc` end with it.
    pub(crate) fn rest_of_line(&mut self, line: u32) -> Vec<Token<'a>> {
        let mut tokens = Vec::new();
        while let Some(lexeme) = self.lexemes.get(self.at).filter(|lexeme| lexeme.line == line) {
            tokens.push(lexeme.token);
            self.at += 1;
        }
        tokens
    }

    /// The operands of an instruction, its semicolon too.
    pub(crate) fn args(&mut self) -> Result<Vec<Arg<'a>>, ParseError> {
        let mut args = Vec::new();
        if self.accept(';') {
            return Ok(args);
        }
        loop {
            args.push(self.arg()?);
            if self.accept(';') {
                return Ok(args);
            }
            self.expect(',')?;
        }
    }

    fn arg(&mut self) -> Result<Arg<'a>, ParseError> {
        match self.peek() {
            Some(Token::Mark('{')) => {
                self.at += 1;
                Ok(Arg::Vector(self.list('}')?))
            }
            Some(Token::Mark('[')) => {
                self.at += 1;
                self.address()
            }
            Some(Token::Mark('!')) => {
                self.at += 1;
                Ok(Arg::Not(self.word()?))
            }
            Some(Token::Word(word)) => {
                self.at += 1;
                if self.accept('|') {
                    return Ok(Arg::Both(word, self.word()?));
                }
                Ok(Arg::Word(word))
            }
            _ => self.literal(),
        }
    }

    fn list(&mut self, end: char) -> Result<Vec<Arg<'a>>, ParseError> {
        let mut items = Vec::new();
        while !self.accept(end) {
            if !items.is_empty() {
                self.expect(',')?;
            }
            items.push(self.arg()?);
        }
        Ok(items)
    }

    fn literal(&mut self) -> Result<Arg<'a>, ParseError> {
        let negative = self.accept('-');
        let arg = match self.peek() {
            Some(Token::Int(v)) => Arg::Int(if negative { v.wrapping_neg() } else { v }),
            Some(Token::Single(v)) => Arg::Single(if negative { v ^ (1 << 31) } else { v }),
            Some(Token::Double(v)) => Arg::Double(if negative { v ^ (1 << 63) } else { v }),
            other => return self.error(format!("expected an operand, found {other:?}")),
        };
        self.at += 1;
        Ok(arg)
    }

    fn address(&mut self) -> Result<Arg<'a>, ParseError> {
        let base = Box::new(self.arg()?);
        let mut offset = 0i64;
        while matches!(self.peek(), Some(Token::Mark('+' | '-'))) {
            let negative = self.accept('-');
            self.accept('+');
            let value = self.int()? as i64;
            offset = offset.wrapping_add(if negative { value.wrapping_neg() } else { value });
        }
        let mut coordinates = Vec::new();
        if self.accept(',') {
            coordinates.push(self.arg()?);
        }
        self.expect(']')?;
        Ok(Arg::Address { base, offset, coordinates })
    }
}
