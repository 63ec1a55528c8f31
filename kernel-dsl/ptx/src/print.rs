//! Code as PTX text.

use crate::code::{Class, Code, Inst, Node, Operand, Reg};
use crate::isa::{Sm, ptx_version};
use std::fmt::Write as _;
use tessera_tile_ir::Loc;

/// Threads that a multiprocessor should hold at least, if its shared memory does: each then may have
/// 168 registers.
const RESIDENT_THREADS: usize = 384;
/// Shared memory of a program besides its own.
const RESERVED_BYTES: usize = 1024;

/// All that the text of an entry says beside its code.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) entry: &'a str,
    /// The variant, for readers.
    pub(crate) label: &'a str,
    pub(crate) target: Sm,
    pub(crate) params: usize,
    pub(crate) threads: usize,
    /// Bytes of dynamic shared memory.
    pub(crate) shared: usize,
}

/// The text of a module of one entry.
pub(crate) fn module(head: &Head<'_>, code: &Code, nodes: &[Node]) -> String {
    let mut printer = Printer {
        text: String::new(),
        files: Vec::new(),
        last: None,
        labels: 0,
        one_warp: head.threads <= 32,
    };
    nodes.iter().for_each(|node| printer.node(node, 1));
    let mut text = String::new();
    line(&mut text, format_args!("// {}", head.label));
    line(&mut text, format_args!(".version {}", ptx_version()));
    line(&mut text, format_args!(".target {}", head.target.name()));
    text.push_str(".address_size 64\n\n");
    if head.shared > 0 {
        text.push_str(".extern .shared .align 128 .b8 smem[];\n\n");
    }
    line(&mut text, format_args!(".visible .entry {}(", head.entry));
    let params: Vec<String> = (0..head.params).map(|i| format!("    .param .u64 p{i}")).collect();
    line(&mut text, format_args!("{}\n)", params.join(",\n")));
    line(&mut text, format_args!(".reqntid {}, 1, 1", head.threads));
    // Without a goal ptxas spills a register now and then to reach one of its own.
    let fit = head.target.multiprocessor_shared_bytes() / (head.shared + RESERVED_BYTES);
    let together = (RESIDENT_THREADS / head.threads).min(fit).max(1);
    line(&mut text, format_args!(".minnctapersm {together}\n{{"));
    for (class, count) in code.counts() {
        if count > 0 {
            line(&mut text, format_args!("    .reg {} {}<{count}>;", ty(class), prefix(class)));
        }
    }
    text.push_str(&printer.text);
    text.push_str("    ret;\n}\n");
    if !printer.files.is_empty() {
        text.push('\n');
    }
    for (number, file) in (1..).zip(&printer.files) {
        line(&mut text, format_args!(".file {number} \"{file}\""));
    }
    text
}

struct Printer {
    text: String,
    files: Vec<&'static str>,
    last: Option<Loc>,
    labels: usize,
    /// Whether a program is one warp, whose lanes meet without a barrier of all.
    one_warp: bool,
}

impl Printer {
    fn node(&mut self, node: &Node, depth: usize) {
        match node {
            Node::Inst(inst) => self.inst(inst, depth),
            Node::Barrier { .. } if self.one_warp => {
                self.line(depth, "bar.warp.sync 0xffffffff;");
            }
            Node::Barrier { shared: true, fence, .. } => {
                if *fence {
                    self.line(depth, "fence.proxy.async.shared::cta;");
                }
                self.line(depth, "bar.sync 0;");
            }
            Node::Barrier { .. } => self.line(depth, "bar.sync 0; // global memory"),
            Node::Loop { head, go_on, body, .. } => {
                let [top, end] = [self.label(), self.label()];
                self.line(0, &format!("{top}:"));
                head.iter().for_each(|node| self.node(node, depth));
                self.line(depth, &format!("@!{} bra.uni {end};", reg(*go_on)));
                body.iter().for_each(|node| self.node(node, depth + 1));
                self.line(depth, &format!("bra.uni {top};"));
                self.line(0, &format!("{end}:"));
            }
            Node::If { condition, yes, no, together } => {
                let uni = if *together { ".uni" } else { "" };
                let [other, end] = [self.label(), self.label()];
                self.line(depth, &format!("@!{} bra{uni} {other};", reg(*condition)));
                yes.iter().for_each(|node| self.node(node, depth + 1));
                if no.is_empty() {
                    self.line(0, &format!("{other}:"));
                    return;
                }
                self.line(depth, &format!("bra{uni} {end};"));
                self.line(0, &format!("{other}:"));
                no.iter().for_each(|node| self.node(node, depth + 1));
                self.line(0, &format!("{end}:"));
            }
        }
    }

    fn inst(&mut self, inst: &Inst, depth: usize) {
        if self.last != Some(inst.loc) {
            let Loc { file, line, column } = inst.loc;
            let known = self.files.iter().position(|known| *known == file);
            let number = known.unwrap_or_else(|| {
                self.files.push(file);
                self.files.len() - 1
            });
            self.line(depth, &format!(".loc {} {line} {column}", number + 1));
            self.last = Some(inst.loc);
        }
        let guard = match &inst.guard {
            Some(guard) => format!("@{} ", operand(guard)),
            None => String::new(),
        };
        let operands: Vec<String> = inst.operands.iter().map(operand).collect();
        let space = if operands.is_empty() { "" } else { " " };
        let remark = inst.remark.map_or(String::new(), |remark| format!(" // {remark}"));
        self.line(depth, &format!("{guard}{}{space}{};{remark}", inst.op, operands.join(", ")));
    }

    fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    fn line(&mut self, depth: usize, text: &str) {
        for _ in 0..depth {
            self.text.push_str("    ");
        }
        self.text.push_str(text);
        self.text.push('\n');
    }
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    writeln!(text, "{arguments}").expect("a string takes everything");
}

const fn prefix(class: Class) -> &'static str {
    match class {
        Class::B16 => "%h",
        Class::B32 => "%r",
        Class::B64 => "%rd",
        Class::Pred => "%p",
    }
}

const fn ty(class: Class) -> &'static str {
    match class {
        Class::B16 => ".b16",
        Class::B32 => ".b32",
        Class::B64 => ".b64",
        Class::Pred => ".pred",
    }
}

fn reg(reg: Reg) -> String {
    format!("{}{}", prefix(reg.class), reg.id)
}

fn operand(operand_: &Operand) -> String {
    match operand_ {
        Operand::Reg(r) => reg(*r),
        Operand::Int(value) => value.to_string(),
        Operand::F32(bits) => format!("0f{bits:08X}"),
        Operand::F64(bits) => format!("0d{bits:016X}"),
        Operand::Name(name) => (*name).to_owned(),
        Operand::Param(index) => format!("[p{index}]"),
        Operand::Vector(parts) => {
            let parts: Vec<String> = parts.iter().map(operand).collect();
            format!("{{{}}}", parts.join(", "))
        }
        Operand::At(base, 0) => format!("[{}]", operand(base)),
        Operand::At(base, offset) => format!("[{}{offset:+}]", operand(base)),
    }
}
