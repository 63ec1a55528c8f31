//! Modules, entries and declarations.

use crate::body::{Body, Declared, Symbol};
use crate::decode::{self, call::Call};
use crate::lex::{Token, lex};
use crate::program::{Entry, Module, Param, Pred, Variable};
use crate::syntax::Cursor;
use crate::types::Ty;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a text is no module that the emulator can run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}: {message}")]
pub struct ParseError {
    /// Line of the text, counted from one.
    pub line: u32,
    /// What is wrong, with the name of what is not known.
    pub message: String,
}

/// Modules are told apart by number, so that a machine places a module's variables once.
static NEXT_MODULE: AtomicU64 = AtomicU64::new(1);

impl Module {
    /// Reads a module.
    ///
    /// # Errors
    /// [`ParseError`] for what is malformed, and for every directive, instruction or modifier that
    /// is not known.
    pub fn parse(text: &str) -> Result<Module, ParseError> {
        let mut parser = Parser {
            cursor: Cursor::new(lex(text)?),
            module: Module {
                id: NEXT_MODULE.fetch_add(1, Ordering::Relaxed),
                target: String::new(),
                version: (0, 0),
                entries: Vec::new(),
                variables: Vec::new(),
                files: Vec::new(),
                sources: Vec::new(),
            },
            globals: Vec::new(),
            shared: Vec::new(),
            sources: HashMap::new(),
        };
        parser.module()?;
        Ok(parser.module)
    }
}

/// A shared variable of module scope: name, bytes and alignment, or dynamic.
struct SharedVariable<'a> {
    name: &'a str,
    bytes: Option<u32>,
    align: u32,
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    module: Module,
    /// Names of module variables and what they stand for.
    globals: Vec<(&'a str, Symbol)>,
    shared: Vec<SharedVariable<'a>>,
    sources: HashMap<(u32, u32), u32>,
}

/// A declared variable.
struct Declaration<'a> {
    name: &'a str,
    align: u32,
    /// `None` for `name[]`.
    bytes: Option<u32>,
    element: u32,
}

impl<'a> Parser<'a> {
    fn module(&mut self) -> Result<(), ParseError> {
        while let Some(token) = self.cursor.peek() {
            let Token::Word(word) = token else {
                return self.cursor.error(format!("expected a directive, found {token:?}"));
            };
            let line = self.cursor.line();
            self.cursor.next();
            match word {
                ".version" => {
                    let rest = self.cursor.rest_of_line(line);
                    self.version(&rest)?;
                }
                ".target" => {
                    let rest = self.cursor.rest_of_line(line);
                    self.target(&rest)?;
                }
                ".address_size" => {
                    if self.cursor.int()? != 64 {
                        return self.cursor.error("only 64-bit addresses are known");
                    }
                }
                ".file" => self.file(line)?,
                ".visible" | ".weak" | ".common" => {}
                ".extern" => {
                    if !self.cursor.accept_word(".shared") {
                        return self.cursor.error("only shared memory can be `.extern`");
                    }
                    self.shared_variable()?;
                }
                ".shared" => self.shared_variable()?,
                ".global" => self.variable(false)?,
                ".const" => self.variable(true)?,
                ".section" => self.section()?,
                ".entry" => self.entry()?,
                other => {
                    return Err(ParseError {
                        line,
                        message: format!("directive `{other}` is not known"),
                    });
                }
            }
        }
        Ok(())
    }

    /// What a debugger reads: nothing of it changes what is executed.
    fn section(&mut self) -> Result<(), ParseError> {
        self.cursor.word()?;
        self.cursor.expect('{')?;
        let mut depth = 1;
        while depth > 0 {
            match self.cursor.next() {
                Some(Token::Mark('{')) => depth += 1,
                Some(Token::Mark('}')) => depth -= 1,
                Some(_) => {}
                None => return self.cursor.error("a section without an end"),
            }
        }
        Ok(())
    }

    fn version(&mut self, rest: &[Token<'a>]) -> Result<(), ParseError> {
        let [Token::Double(bits)] = *rest else {
            return self.cursor.error("`.version` needs a number such as 9.0");
        };
        let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
        self.module.version = (tenths / 10, tenths % 10);
        Ok(())
    }

    fn target(&mut self, rest: &[Token<'a>]) -> Result<(), ParseError> {
        let Some(Token::Word(name)) = rest.first() else {
            return self.cursor.error("`.target` needs a name");
        };
        self.module.target = (*name).to_owned();
        Ok(())
    }

    fn file(&mut self, line: u32) -> Result<(), ParseError> {
        let rest = self.cursor.rest_of_line(line);
        let [Token::Int(number), Token::Text(name), ..] = *rest else {
            return self.cursor.error("`.file` needs a number and a name");
        };
        self.module.files.push((number as u32, name.to_owned()));
        Ok(())
    }

    /// `.align 8 .b32 name[4]`
    fn declaration(&mut self) -> Result<Declaration<'a>, ParseError> {
        let mut align = None;
        let mut vector = 1;
        let ty = loop {
            let word = self.cursor.word()?;
            match word {
                ".align" => align = Some(self.cursor.small()?),
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                // The space that a pointer parameter points to says nothing here.
                ".ptr" | ".global" | ".shared" | ".const" | ".local" => {}
                _ => match word.strip_prefix('.').and_then(Ty::parse) {
                    Some(ty) => break ty,
                    None => return self.cursor.error(format!("type `{word}` is not known")),
                },
            }
        };
        while self.cursor.accept_word(".ptr")
            || self.cursor.accept_word(".global")
            || self.cursor.accept_word(".shared")
        {}
        if self.cursor.accept_word(".align") {
            self.cursor.small()?;
        }
        let name = self.cursor.word()?;
        let element = ty.bytes();
        let mut bytes = Some(element * vector);
        while self.cursor.accept('[') {
            if self.cursor.accept(']') {
                bytes = None;
                continue;
            }
            let count = self.cursor.small()?;
            self.cursor.expect(']')?;
            let size = bytes.map(|bytes| bytes.checked_mul(count));
            let Some(Some(size)) = size else {
                return self.cursor.error(format!("`{name}` is too large"));
            };
            bytes = Some(size);
        }
        Ok(Declaration { name, align: align.unwrap_or(element * vector), bytes, element })
    }

    fn shared_variable(&mut self) -> Result<(), ParseError> {
        let Declaration { name, align, bytes, .. } = self.declaration()?;
        self.cursor.expect(';')?;
        self.shared.push(SharedVariable { name, bytes, align });
        Ok(())
    }

    /// A variable of module scope in global or constant memory.
    fn variable(&mut self, read_only: bool) -> Result<(), ParseError> {
        let declaration = self.declaration()?;
        let mut bytes = vec![0; declaration.bytes.unwrap_or(0) as usize];
        if self.cursor.accept('=') {
            let values = self.values()?;
            let element = declaration.element as usize;
            if values.len() * element > bytes.len() {
                return self.cursor.error(format!("`{}` has too many values", declaration.name));
            }
            for (chunk, value) in bytes.chunks_exact_mut(element).zip(values) {
                chunk.copy_from_slice(&value.to_le_bytes()[..element]);
            }
        }
        self.cursor.expect(';')?;
        let index = self.module.variables.len() as u32;
        let align = u64::from(declaration.align);
        self.module.variables.push(Variable { bytes, align, read_only });
        self.globals.push((declaration.name, Symbol::Variable(index)));
        Ok(())
    }

    fn values(&mut self) -> Result<Vec<u64>, ParseError> {
        let mut values = Vec::new();
        let mut depth = 0;
        loop {
            match self.cursor.peek() {
                Some(Token::Mark('{')) => depth += 1,
                Some(Token::Mark('}')) => depth -= 1,
                Some(Token::Mark(',')) => {}
                Some(Token::Single(bits)) => values.push(u64::from(bits)),
                Some(Token::Double(bits)) => values.push(bits),
                _ => {
                    values.push(self.cursor.int()?);
                    if depth == 0 {
                        return Ok(values);
                    }
                    continue;
                }
            }
            self.cursor.next();
            if depth == 0 {
                return Ok(values);
            }
        }
    }

    /// Parameters, and their names with where they start.
    #[expect(clippy::type_complexity, reason = "two lists that belong together")]
    fn params(&mut self) -> Result<(Vec<Param>, Vec<(&'a str, u32)>), ParseError> {
        let (mut params, mut names) = (Vec::new(), Vec::new());
        if !self.cursor.accept('(') {
            return Ok((params, names));
        }
        let mut end = 0u32;
        while !self.cursor.accept(')') {
            self.cursor.accept(',');
            if !self.cursor.accept_word(".param") {
                return self.cursor.error("expected `.param`");
            }
            let Declaration { name, align, bytes, .. } = self.declaration()?;
            let Some(bytes) = bytes else {
                return self.cursor.error("a parameter needs a size");
            };
            let offset = end.next_multiple_of(align.max(1));
            end = offset + bytes;
            names.push((name, offset));
            params.push(Param { name: name.to_owned(), offset, bytes });
        }
        Ok((params, names))
    }

    fn dimensions(&mut self) -> Result<[u32; 3], ParseError> {
        let mut dims = [1; 3];
        for (axis, dim) in dims.iter_mut().enumerate() {
            if axis > 0 && !self.cursor.accept(',') {
                break;
            }
            *dim = self.cursor.small()?;
        }
        Ok(dims)
    }

    fn entry(&mut self) -> Result<(), ParseError> {
        let name = self.cursor.word()?;
        let (params, names) = self.params()?;
        let mut entry = Entry {
            name: name.to_owned(),
            params,
            reqntid: None,
            maxntid: None,
            shared_bytes: 0,
            shared_align: 16,
            local_bytes: 0,
            code: Vec::new(),
            consts: Vec::new(),
            relocations: Vec::new(),
            registers: 0,
            predicates: 0,
        };
        while !self.cursor.accept('{') {
            let word = self.cursor.word()?;
            match word {
                ".reqntid" => entry.reqntid = Some(self.dimensions()?),
                ".maxntid" => entry.maxntid = Some(self.dimensions()?),
                ".minnctapersm" | ".maxnreg" | ".maxclusterrank" => {
                    self.cursor.small()?;
                }
                other => {
                    return self.cursor.error(format!("directive `{other}` is not known here"));
                }
            }
        }
        self.statements(&mut entry, &names)?;
        self.module.entries.push(entry);
        Ok(())
    }

    /// The body of an entry, after its brace.
    fn statements(
        &mut self,
        entry: &mut Entry,
        names: &[(&'a str, u32)],
    ) -> Result<(), ParseError> {
        let mut body = Body::new();
        for &(name, symbol) in &self.globals {
            body.define(name, symbol);
        }
        for variable in &self.shared {
            let symbol = match variable.bytes {
                Some(bytes) => Symbol::Address(body.shared(bytes, variable.align)),
                None => {
                    body.shared_align = body.shared_align.max(variable.align);
                    Symbol::Dynamic
                }
            };
            body.define(variable.name, symbol);
        }
        body.open();
        for &(name, offset) in names {
            body.define(name, Symbol::Param { offset });
        }
        self.block(&mut body)?;
        body.close()?;
        let (consts, relocations) = body.resolve();
        entry.consts = consts;
        entry.relocations = relocations;
        entry.registers = body.registers;
        entry.predicates = body.predicates;
        entry.shared_bytes = body.shared_bytes;
        entry.shared_align = body.shared_align;
        entry.local_bytes = body.local_bytes;
        let line = self.cursor.line();
        // Control that runs past the last instruction leaves the entry.
        body.push(crate::program::Op::Exit, None, crate::program::Class::Control, line);
        entry.code = body.code;
        Ok(())
    }

    fn block(&mut self, body: &mut Body<'a>) -> Result<(), ParseError> {
        let outermost = body.depth();
        loop {
            let line = self.cursor.line();
            if self.cursor.accept('{') {
                body.open();
                continue;
            }
            if self.cursor.accept('}') {
                body.close()?;
                if body.depth() < outermost {
                    return Ok(());
                }
                continue;
            }
            if self.cursor.accept(';') {
                continue;
            }
            let guard = self.guard(body)?;
            let word = self.cursor.word()?;
            if self.cursor.peek() == Some(Token::Mark(':')) && guard.is_none() {
                self.cursor.next();
                if !body.label(word) {
                    return self.cursor.error(format!("label `{word}` is defined twice"));
                }
                continue;
            }
            if word.starts_with('.') {
                self.directive(body, word, line)?;
                continue;
            }
            let args = self.cursor.args()?;
            let mut call = Call::new(body, line, (guard, word), args);
            let (op, class) = decode::decode(&mut call)?;
            body.push(op, guard, class, line);
        }
    }

    fn guard(&mut self, body: &mut Body<'a>) -> Result<Option<(Pred, bool)>, ParseError> {
        if !self.cursor.accept('@') {
            return Ok(None);
        }
        let negated = self.cursor.accept('!');
        let name = self.cursor.word()?;
        match body.lookup(name) {
            Some(Symbol::Pred(pred)) => Ok(Some((pred, negated))),
            _ => self.cursor.error(format!("`{name}` is no predicate")),
        }
    }

    fn directive(&mut self, body: &mut Body<'a>, word: &str, line: u32) -> Result<(), ParseError> {
        match word {
            ".reg" => self.registers(body),
            ".shared" => {
                let Declaration { name, align, bytes, .. } = self.declaration()?;
                self.cursor.expect(';')?;
                let Some(bytes) = bytes else {
                    return self.cursor.error("dynamic shared memory is declared outside");
                };
                let address = body.shared(bytes, align);
                body.define(name, Symbol::Address(address));
                Ok(())
            }
            ".local" => {
                let Declaration { name, align, bytes, .. } = self.declaration()?;
                self.cursor.expect(';')?;
                let address = body.local(bytes.unwrap_or(0), align);
                body.define(name, Symbol::Address(address));
                Ok(())
            }
            ".loc" => {
                let rest = self.cursor.rest_of_line(line);
                let [Token::Int(file), Token::Int(row), ..] = *rest else {
                    return self.cursor.error("`.loc` needs a file and a line");
                };
                let key = (file as u32, row as u32);
                let next = self.module.sources.len() as u32;
                let index = *self.sources.entry(key).or_insert(next);
                if index == next {
                    self.module.sources.push(key);
                }
                body.source = Some(index);
                Ok(())
            }
            ".pragma" => {
                while !self.cursor.accept(';') {
                    if self.cursor.next().is_none() {
                        return self.cursor.error("a pragma without an end");
                    }
                }
                Ok(())
            }
            other => self.cursor.error(format!("directive `{other}` is not known here")),
        }
    }

    /// `.reg .b32 %r<10>, a;`
    fn registers(&mut self, body: &mut Body<'a>) -> Result<(), ParseError> {
        let word = self.cursor.word()?;
        let Some(ty) = word.strip_prefix('.').and_then(Ty::parse) else {
            return self.cursor.error(format!("type `{word}` is not known"));
        };
        let declared = match ty {
            Ty::Pred => Declared::Pred,
            ty if ty.bits() > 64 => {
                return self.cursor.error("registers of more than 64 bits are not known");
            }
            ty => Declared::Reg { bits: ty.bits() },
        };
        loop {
            let name = self.cursor.word()?;
            if self.cursor.accept('<') {
                let count = self.cursor.small()?;
                self.cursor.expect('>')?;
                body.family(name, count, declared);
            } else {
                body.declare(name, declared);
            }
            if self.cursor.accept(';') {
                return Ok(());
            }
            self.cursor.expect(',')?;
        }
    }
}
