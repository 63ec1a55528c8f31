//! The inside of an entry while it is read: names, registers, constants, labels, instructions.

use crate::ParseError;
use crate::program::{Class, Instr, Lanes, Op, Pred, Reg};
use std::collections::HashMap;

/// Where shared memory starts in its own space, as on hardware that keeps the first KiB.
pub(crate) const SHARED_BASE: u64 = 0x400;
/// Where a thread's local memory starts in its own space.
pub(crate) const LOCAL_BASE: u64 = 0x100;

/// What a name of an entry stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Symbol {
    Reg {
        reg: Reg,
        bits: u32,
    },
    Pred(Pred),
    Param {
        offset: u32,
    },
    /// An address that is known at once.
    Address(u64),
    /// Dynamic shared memory: behind what is declared.
    Dynamic,
    /// A variable of module scope.
    Variable(u32),
}

/// What a family of registers or a single one is declared as.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Declared {
    Reg { bits: u32 },
    Pred,
}

/// A constant, before its value is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    Dynamic,
    Variable(u32),
}

#[derive(Default)]
struct Scope<'a> {
    symbols: HashMap<&'a str, Symbol>,
    /// `%r<10>`: the prefix, the count and what they are.
    families: Vec<(&'a str, u32, Declared)>,
    labels: HashMap<&'a str, u32>,
    /// Branches to labels: instruction, label, line.
    branches: Vec<(usize, &'a str, u32)>,
}

/// An entry that is being read.
pub(crate) struct Body<'a> {
    pub(crate) code: Vec<Instr>,
    pub(crate) constants: Vec<Constant>,
    interned: HashMap<Constant, u32>,
    scopes: Vec<Scope<'a>>,
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    pub(crate) shared_bytes: u32,
    pub(crate) shared_align: u32,
    pub(crate) local_bytes: u32,
    pub(crate) source: Option<u32>,
}

fn align_up(value: u32, align: u32) -> u32 {
    // What does not fit is refused when it is launched.
    value.checked_next_multiple_of(align.max(1)).unwrap_or(value)
}

impl<'a> Body<'a> {
    pub(crate) fn new() -> Body<'a> {
        Body {
            code: Vec::new(),
            constants: Vec::new(),
            interned: HashMap::new(),
            scopes: vec![Scope::default()],
            registers: 0,
            predicates: 0,
            shared_bytes: 0,
            shared_align: 16,
            local_bytes: 0,
            source: None,
        }
    }

    fn scope(&mut self) -> &mut Scope<'a> {
        self.scopes.last_mut().expect("an entry has its outermost scope until it ends")
    }

    pub(crate) fn open(&mut self) {
        self.scopes.push(Scope::default());
    }

    /// Ends a scope; branches that it cannot resolve are left to the one around it.
    pub(crate) fn close(&mut self) -> Result<(), ParseError> {
        let scope = self.scopes.pop().unwrap_or_default();
        for (instr, label, line) in scope.branches {
            match (scope.labels.get(label), self.scopes.last_mut()) {
                (Some(&pc), _) => {
                    if let Op::Branch { target, .. } = &mut self.code[instr].op {
                        *target = pc;
                    }
                }
                (None, Some(outer)) => outer.branches.push((instr, label, line)),
                (None, None) => {
                    let message = format!("label `{label}` is not defined");
                    return Err(ParseError { line, message });
                }
            }
        }
        Ok(())
    }

    pub(crate) fn depth(&self) -> usize {
        self.scopes.len()
    }

    pub(crate) fn label(&mut self, name: &'a str) -> bool {
        let pc = self.code.len() as u32;
        self.scope().labels.insert(name, pc).is_none()
    }

    pub(crate) fn branch(&mut self, label: &'a str, line: u32) {
        let instr = self.code.len();
        self.scope().branches.push((instr, label, line));
    }

    pub(crate) fn family(&mut self, prefix: &'a str, count: u32, declared: Declared) {
        self.scope().families.push((prefix, count, declared));
    }

    pub(crate) fn define(&mut self, name: &'a str, symbol: Symbol) {
        self.scope().symbols.insert(name, symbol);
    }

    pub(crate) fn declare(&mut self, name: &'a str, declared: Declared) {
        let symbol = self.fresh(declared);
        self.define(name, symbol);
    }

    fn fresh(&mut self, declared: Declared) -> Symbol {
        match declared {
            Declared::Reg { bits } => Symbol::Reg { reg: self.register(), bits },
            Declared::Pred => {
                self.predicates += 1;
                Symbol::Pred(Pred(self.predicates - 1))
            }
        }
    }

    /// A register that no name stands for.
    pub(crate) fn register(&mut self) -> Reg {
        self.registers += 1;
        Reg(self.registers - 1)
    }

    pub(crate) fn lookup(&mut self, name: &'a str) -> Option<Symbol> {
        let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
        for depth in (0..self.scopes.len()).rev() {
            if let Some(&symbol) = self.scopes[depth].symbols.get(name) {
                return Some(symbol);
            }
            if let Some(declared) = member(&self.scopes[depth].families, name, digits) {
                let symbol = self.fresh(declared);
                self.scopes[depth].symbols.insert(name, symbol);
                return Some(symbol);
            }
        }
        None
    }

    pub(crate) fn shared(&mut self, bytes: u32, align: u32) -> u64 {
        let start = align_up(self.shared_bytes, align);
        self.shared_bytes = start.saturating_add(bytes);
        self.shared_align = self.shared_align.max(align);
        SHARED_BASE + u64::from(start)
    }

    pub(crate) fn local(&mut self, bytes: u32, align: u32) -> u64 {
        let start = align_up(self.local_bytes, align);
        self.local_bytes = start.saturating_add(bytes);
        LOCAL_BASE + u64::from(start)
    }

    pub(crate) fn constant(&mut self, constant: Constant) -> u32 {
        if let Some(&index) = self.interned.get(&constant) {
            return index;
        }
        let index = self.constants.len() as u32;
        self.constants.push(constant);
        self.interned.insert(constant, index);
        index
    }

    /// The constants' lanes, now that the size of declared shared memory is known, and which of
    /// them are variables.
    pub(crate) fn resolve(&self) -> (Vec<Lanes>, Vec<(u32, u32)>) {
        let dynamic = SHARED_BASE + u64::from(align_up(self.shared_bytes, self.shared_align));
        let value = |constant: &Constant| match *constant {
            Constant::Value(value) => [value; 32],
            Constant::Dynamic => [dynamic; 32],
            Constant::Variable(_) => [0; 32],
        };
        let variables = self.constants.iter().zip(0..).filter_map(|(c, index)| match c {
            Constant::Variable(variable) => Some((index, *variable)),
            _ => None,
        });
        (self.constants.iter().map(value).collect(), variables.collect())
    }

    pub(crate) fn push(&mut self, op: Op, guard: Option<(Pred, bool)>, class: Class, line: u32) {
        let source = self.source;
        self.code.push(Instr { op, guard, class, line, source });
    }
}

/// What a numbered name is, if a family has it. A prefix may itself end in digits.
fn member(families: &[(&str, u32, Declared)], name: &str, digits: usize) -> Option<Declared> {
    families.iter().find_map(|&(prefix, count, declared)| {
        let number = name.strip_prefix(prefix)?;
        let plain = number == "0" || !number.starts_with('0');
        let inside = number.len() <= digits && plain && number.parse::<u32>().ok()? < count;
        inside.then_some(declared)
    })
}
