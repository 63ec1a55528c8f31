//! Tokens to kernel.

use super::lex::{Kind, Token, tokens};
use super::names::{ATOMIC, BINARY, CMP, COMBINE, UNARY, by_name};
use super::{Names, ParseError, ParseFault};
use crate::error::Loc;
use crate::format::{Element, Format};
use crate::kernel::{Access, Extent, Kernel, Op, OpId, Param, ParamKind, Region, Value, ValueInfo};
use crate::op::{Literal, OpKind};
use crate::types::{Elem, Type};
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Mutex;

/// Regions inside regions; authors nest a few.
const MAX_DEPTH: usize = 64;

/// The kernel that a text stands for; it is not verified.
///
/// `name` is the file that places are given in where the text states none. Values may have any
/// numbers, each defined once, none left out.
///
/// # Errors
/// The first thing that is not of the text form.
pub fn parse(name: &str, text: &str, names: &Names<'_>) -> Result<Kernel, ParseError> {
    let mut parser = Parser {
        tokens: tokens(text)?,
        at: 0,
        depth: 0,
        file: interned(name),
        names,
        values: Vec::new(),
        kernel: Kernel {
            name: String::new(),
            formats: Vec::new(),
            consts: Vec::new(),
            dims: Vec::new(),
            params: Vec::new(),
            grid: Region::default(),
            body: Region::default(),
            ops: Vec::new(),
            values: Vec::new(),
            loc: Loc { file: "", line: 0, column: 0 },
        },
    };
    parser.kernel()?;
    Ok(parser.kernel)
}

/// A value as a text defines it.
struct Defined {
    value: Value,
    ty: Type,
    /// Its own place, if it has one.
    loc: Option<Loc>,
    /// Its token.
    at: usize,
}

/// A file name that lives on, as those of real places do. Each is kept once.
fn interned(name: &str) -> &'static str {
    static FILES: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());
    let mut files = FILES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if let Some(known) = files.get(name) {
        return known;
    }
    let kept: &'static str = Box::leak(name.to_owned().into_boxed_str());
    files.insert(kept);
    kept
}

struct Parser<'a> {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    file: &'static str,
    names: &'a Names<'a>,
    values: Vec<Option<ValueInfo>>,
    kernel: Kernel,
}

type Parsed<T> = Result<T, ParseError>;

impl Parser<'_> {
    fn kernel(&mut self) -> Parsed<()> {
        let here = self.here();
        self.keyword("kernel")?;
        self.kernel.name = self.word()?;
        while let Kind::Word(what) = &self.peek().kind {
            match what.as_str() {
                "formats" => self.formats()?,
                "consts" => self.consts()?,
                "dims" => {
                    self.at += 1;
                    self.kernel.dims = self.list('(', ')', Self::word)?;
                }
                _ => break,
            }
        }
        self.kernel.loc = self.loc(here)?;
        self.mark('{')?;
        while self.is_word("param") {
            let param = self.param()?;
            self.kernel.params.push(param);
        }
        self.keyword("grid")?;
        self.kernel.grid = self.region(here)?;
        self.keyword("body")?;
        self.kernel.body = self.region(here)?;
        self.mark('}')?;
        if self.peek().kind != Kind::End {
            return self.wrong("the end");
        }
        let missing = self.values.iter().position(Option::is_none);
        if let Some(missing) = missing {
            return self.fault(ParseFault::Undefined(missing));
        }
        self.kernel.values = std::mem::take(&mut self.values).into_iter().flatten().collect();
        let known = self.kernel.values.len();
        let mut used = self.tokens.iter().enumerate().filter_map(|(at, token)| match token.kind {
            Kind::Value(value) => Some((at, value as usize)),
            _ => None,
        });
        match used.find(|&(_, value)| value >= known) {
            Some((at, value)) => self.fault_at(at, ParseFault::Undefined(value)),
            None => Ok(()),
        }
    }

    fn formats(&mut self) -> Parsed<()> {
        self.at += 1;
        self.kernel.formats = self.list('(', ')', Self::text)?;
        Ok(())
    }

    fn consts(&mut self) -> Parsed<()> {
        self.at += 1;
        self.kernel.consts = self.list('(', ')', |parser| {
            let name = parser.word()?;
            parser.mark('=')?;
            Ok((name, parser.number()?))
        })?;
        Ok(())
    }

    fn param(&mut self) -> Parsed<Param> {
        let here = self.here();
        self.keyword("param")?;
        let name = self.word()?;
        self.mark(':')?;
        let access = match &self.peek().kind {
            Kind::Word(word) => match word.as_str() {
                "in" => Some(Access::Read),
                "out" => Some(Access::Write),
                "inout" => Some(Access::ReadWrite),
                _ => None,
            },
            _ => None,
        };
        let kind = match access {
            None => ParamKind::Scalar(self.elem()?),
            Some(access) => {
                self.at += 1;
                let elem = self.elem()?;
                let dims = self.list('[', ']', Self::extent)?;
                ParamKind::View { elem, access, dims }
            }
        };
        Ok(Param { name, kind, loc: self.loc(here)? })
    }

    fn extent(&mut self) -> Parsed<Extent> {
        let mut extent = Extent::default();
        loop {
            let word = self.peek_word()?;
            match word.parse() {
                Ok(constant) => {
                    self.at += 1;
                    extent.constant = constant;
                }
                Err(_) => extent.dims.push(self.dim()?),
            }
            if self.peek().kind != Kind::Mark('+') {
                return Ok(extent);
            }
            self.at += 1;
        }
    }

    fn region(&mut self, around: Loc) -> Parsed<Region> {
        self.mark('{')?;
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return self.fault(ParseFault::Depth(MAX_DEPTH));
        }
        let args = if self.peek().kind == Kind::Mark('|') {
            self.at += 1;
            let args = self.typed()?;
            self.mark('|')?;
            self.define(&args, around)?
        } else {
            Vec::new()
        };
        let mut ops = Vec::new();
        while self.peek().kind != Kind::Mark('}') {
            ops.push(self.op()?);
        }
        self.at += 1;
        self.depth -= 1;
        Ok(Region { args, ops })
    }

    fn op(&mut self) -> Parsed<OpId> {
        let here = self.here();
        let results = if matches!(self.peek().kind, Kind::Value(_)) {
            let results = self.typed()?;
            self.mark('=')?;
            results
        } else {
            Vec::new()
        };
        let kind = self.op_kind(results.first().map(|defined| defined.ty.elem))?;
        let operands = if self.peek().kind == Kind::Mark('(') {
            self.list('(', ')', Self::value)?
        } else {
            Vec::new()
        };
        let loc = self.loc(here)?;
        let mut regions = Vec::new();
        while self.peek().kind == Kind::Mark('{') {
            regions.push(self.region(loc)?);
        }
        let results = self.define(&results, loc)?;
        self.kernel.ops.push(Op { kind, operands, results, regions, loc });
        Ok(OpId(self.small(self.kernel.ops.len() - 1)?))
    }

    fn op_kind(&mut self, result: Option<Elem>) -> Parsed<OpKind> {
        let name = self.peek_word()?.to_owned();
        if let Some(op) = by_name(UNARY, &name) {
            return self.plain(OpKind::Unary(op));
        }
        if let Some(op) = by_name(BINARY, &name) {
            return self.plain(OpKind::Binary(op));
        }
        if let Some(op) = by_name(CMP, &name) {
            return self.plain(OpKind::Cmp(op));
        }
        let plain = match name.as_str() {
            "broadcast" => OpKind::Broadcast,
            "reshape" => OpKind::Reshape,
            "transpose" => OpKind::Transpose,
            "select" => OpKind::Select,
            "fma" => OpKind::Fma,
            "decode" => OpKind::Decode,
            "dot" => OpKind::Dot,
            "dot_scaled" => OpKind::DotScaled,
            "if" => OpKind::If,
            "yield" => OpKind::Yield,
            _ => return self.op_with_attributes(&name, result),
        };
        self.plain(plain)
    }

    fn plain(&mut self, kind: OpKind) -> Parsed<OpKind> {
        self.at += 1;
        Ok(kind)
    }

    fn op_with_attributes(&mut self, name: &str, result: Option<Elem>) -> Parsed<OpKind> {
        self.at += 1;
        Ok(match name {
            "program_id" => OpKind::ProgramId(self.number()?),
            "dim" => OpKind::Dim(self.dim()?),
            "scalar" => OpKind::Scalar(self.param_name()?),
            "const" => OpKind::Const(self.literal(result)?),
            "iota" => OpKind::Iota(self.number()?),
            "slice" => OpKind::Slice { axis: self.number()?, start: self.number()? },
            "concat" => OpKind::Concat(self.number()?),
            "load" => OpKind::Load(self.param_name()?),
            "store" => OpKind::Store(self.param_name()?),
            "load_until" => OpKind::LoadUntil(self.param_name()?),
            "store_until" => OpKind::StoreUntil(self.param_name()?),
            "load_rows" => OpKind::LoadRows(self.param_name()?),
            "store_rows" => OpKind::StoreRows(self.param_name()?),
            "gather" => OpKind::Gather(self.param_name()?),
            "scatter" => OpKind::Scatter(self.param_name()?),
            "atomic" => {
                let op = self.named(ATOMIC, "an atomic")?;
                OpKind::Atomic(self.param_name()?, op)
            }
            "cast" => OpKind::Cast(self.elem()?),
            "bitcast" => OpKind::Bitcast(self.elem()?),
            "reduce" => {
                let combine = self.named(COMBINE, "a reduction")?;
                OpKind::Reduce { axis: self.number()?, combine }
            }
            "scan" => {
                let combine = self.named(COMBINE, "a scan")?;
                OpKind::Scan { axis: self.number()?, combine }
            }
            "argmax" => OpKind::ArgMax(self.number()?),
            "encode" => OpKind::Encode(self.element()?),
            "quantize" => OpKind::Quantize(self.format()?),
            "for" => OpKind::For { step: self.number()? },
            "assert" => OpKind::Assert(self.text()?),
            "print" => OpKind::Print(self.text()?),
            _ => {
                self.at -= 1;
                return self.wrong("an op");
            }
        })
    }

    fn literal(&mut self, result: Option<Elem>) -> Parsed<Literal> {
        match result {
            Some(Elem::F32) => self.number().map(Literal::Float),
            Some(Elem::Bool) => self.number().map(Literal::Bool),
            _ => self.number().map(Literal::Int),
        }
    }

    fn named<T: Copy>(&mut self, table: &[(T, &'static str)], what: &str) -> Parsed<T> {
        match by_name(table, self.peek_word()?) {
            Some(op) => {
                self.at += 1;
                Ok(op)
            }
            None => self.wrong(what),
        }
    }

    /// `%1: f32[4], %2: i64`, each with a place of its own if it has one.
    fn typed(&mut self) -> Parsed<Vec<Defined>> {
        let mut values = Vec::new();
        loop {
            let at = self.at;
            let value = self.value()?;
            self.mark(':')?;
            let elem = self.elem()?;
            let shape = if self.peek().kind == Kind::Mark('[') {
                self.list('[', ']', Self::number)?
            } else {
                Vec::new()
            };
            let loc = if self.is_word("loc") { Some(self.stated_loc()?) } else { None };
            values.push(Defined { value, ty: Type { elem, shape }, loc, at });
            if self.peek().kind != Kind::Mark(',') {
                return Ok(values);
            }
            self.at += 1;
        }
    }

    fn define(&mut self, values: &[Defined], around: Loc) -> Parsed<Vec<Value>> {
        for Defined { value, ty, loc, at } in values {
            let index = value.0 as usize;
            // A text of n tokens defines fewer than n values.
            if index >= self.tokens.len() {
                return self.fault_at(*at, ParseFault::Undefined(index));
            }
            if self.values.len() <= index {
                self.values.resize(index + 1, None);
            }
            let info = ValueInfo { ty: ty.clone(), loc: loc.unwrap_or(around) };
            if self.values[index].replace(info).is_some() {
                return self.fault_at(*at, ParseFault::DefinedTwice(index));
            }
        }
        Ok(values.iter().map(|defined| defined.value).collect())
    }

    fn elem(&mut self) -> Parsed<Elem> {
        let elem = match self.peek_word()? {
            "f32" => Elem::F32,
            "i32" => Elem::I32,
            "i64" => Elem::I64,
            "u32" => Elem::U32,
            "u64" => Elem::U64,
            "bool" => Elem::Bool,
            "stored" => {
                self.at += 1;
                self.mark('<')?;
                let element = self.element()?;
                return self.mark('>').map(|()| Elem::Stored(element));
            }
            "packed" => {
                self.at += 1;
                self.mark('<')?;
                let format = self.format()?;
                return self.mark('>').map(|()| Elem::Packed(format));
            }
            _ => return self.wrong("an element"),
        };
        self.at += 1;
        Ok(elem)
    }

    fn element(&mut self) -> Parsed<Element> {
        let name = self.peek_word()?;
        let known = self.names.elements.iter().copied().find(|element| element.name() == name);
        let Some(element) = known else { return self.wrong("a number format") };
        self.at += 1;
        Ok(element)
    }

    fn format(&mut self) -> Parsed<&'static Format> {
        let name = self.peek_word()?;
        let known = self.names.formats.iter().copied().find(|format| format.name == name);
        let Some(format) = known else { return self.wrong("a block format") };
        self.at += 1;
        Ok(format)
    }

    fn dim(&mut self) -> Parsed<usize> {
        let name = self.peek_word()?;
        let Some(dim) = self.kernel.dims.iter().position(|dim| dim == name) else {
            return self.wrong("a dim");
        };
        self.at += 1;
        Ok(dim)
    }

    fn param_name(&mut self) -> Parsed<usize> {
        let name = self.peek_word()?;
        let Some(param) = self.kernel.params.iter().position(|param| param.name == name) else {
            return self.wrong("a parameter");
        };
        self.at += 1;
        Ok(param)
    }

    /// The stated place, or the one in the text.
    fn loc(&mut self, here: Loc) -> Parsed<Loc> {
        if self.is_word("loc") { self.stated_loc() } else { Ok(here) }
    }

    fn stated_loc(&mut self) -> Parsed<Loc> {
        self.keyword("loc")?;
        self.mark('(')?;
        let file = interned(&self.text()?);
        self.mark(':')?;
        let line = self.number()?;
        self.mark(':')?;
        let column = self.number()?;
        self.mark(')')?;
        Ok(Loc { file, line, column })
    }

    fn here(&self) -> Loc {
        let token = self.peek();
        Loc { file: self.file, line: token.line, column: token.column }
    }

    fn list<T>(
        &mut self,
        open: char,
        close: char,
        mut item: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.mark(open)?;
        let mut items = Vec::new();
        while self.peek().kind != Kind::Mark(close) {
            items.push(item(self)?);
            if self.peek().kind != Kind::Mark(',') {
                break;
            }
            self.at += 1;
        }
        self.mark(close)?;
        Ok(items)
    }

    fn peek(&self) -> &Token {
        // The last token is the end, and nothing moves past it.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn peek_word(&self) -> Parsed<&str> {
        match &self.peek().kind {
            Kind::Word(word) => Ok(word),
            _ => self.wrong("a word"),
        }
    }

    fn is_word(&self, word: &str) -> bool {
        matches!(&self.peek().kind, Kind::Word(next) if next == word)
    }

    fn word(&mut self) -> Parsed<String> {
        let word = self.peek_word()?.to_owned();
        self.at += 1;
        Ok(word)
    }

    fn keyword(&mut self, word: &str) -> Parsed<()> {
        if !self.is_word(word) {
            return self.wrong(&format!("`{word}`"));
        }
        self.at += 1;
        Ok(())
    }

    fn number<T: FromStr>(&mut self) -> Parsed<T> {
        match self.peek_word()?.parse() {
            Ok(number) => {
                self.at += 1;
                Ok(number)
            }
            Err(_) => self.wrong("a number"),
        }
    }

    fn text(&mut self) -> Parsed<String> {
        let Kind::Text(text) = &self.peek().kind else { return self.wrong("a quoted text") };
        let text = text.clone();
        self.at += 1;
        Ok(text)
    }

    fn value(&mut self) -> Parsed<Value> {
        let Kind::Value(value) = self.peek().kind else { return self.wrong("a value") };
        self.at += 1;
        Ok(Value(value))
    }

    fn mark(&mut self, mark: char) -> Parsed<()> {
        if self.peek().kind != Kind::Mark(mark) {
            return self.wrong(&format!("`{mark}`"));
        }
        self.at += 1;
        Ok(())
    }

    fn small(&self, index: usize) -> Parsed<u32> {
        u32::try_from(index).or_else(|_| self.fault(ParseFault::Undefined(index)))
    }

    fn wrong<T>(&self, want: &str) -> Parsed<T> {
        let (got, want) = (self.peek().kind.to_string(), want.to_owned());
        self.fault(ParseFault::Expected { got, want })
    }

    fn fault<T>(&self, fault: ParseFault) -> Parsed<T> {
        self.fault_at(self.at, fault)
    }

    fn fault_at<T>(&self, at: usize, fault: ParseFault) -> Parsed<T> {
        let Token { line, column, .. } = self.tokens[at.min(self.tokens.len() - 1)];
        Err(ParseError { line, column, fault })
    }
}
