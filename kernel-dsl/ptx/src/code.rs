//! Instructions of one entry as they are made: typed virtual registers, structured control flow,
//! and which shared memory an instruction touches.

use std::borrow::Cow;
use tessera_tile_ir::Loc;

/// Width of a register; what it means is up to the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Class {
    B16,
    B32,
    B64,
    Pred,
}

/// A virtual register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Reg {
    pub(crate) class: Class,
    pub(crate) id: u32,
}

/// What an instruction reads or writes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Operand {
    Reg(Reg),
    Int(i64),
    /// Bits of an f32.
    F32(u32),
    /// Bits of an f64.
    F64(u64),
    /// A special register, or a shared array.
    Name(&'static str),
    /// An argument of the entry.
    Param(usize),
    Vector(Vec<Operand>),
    /// What lies so many bytes past an address.
    At(Box<Operand>, i64),
}

impl From<Reg> for Operand {
    fn from(reg: Reg) -> Self {
        Self::Reg(reg)
    }
}

impl From<i64> for Operand {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl From<f32> for Operand {
    fn from(value: f32) -> Self {
        Self::F32(value.to_bits())
    }
}

impl From<&'static str> for Operand {
    fn from(name: &'static str) -> Self {
        Self::Name(name)
    }
}

impl Operand {
    /// So many bytes, or things that are as few.
    pub(crate) fn count(count: usize) -> Self {
        Self::Int(i64::try_from(count).expect("tiles are small"))
    }

    /// What lies so many bytes past an address.
    pub(crate) fn at(base: impl Into<Self>, offset: usize) -> Self {
        let offset = i64::try_from(offset).expect("tiles are small");
        Self::At(Box::new(base.into()), offset)
    }

    /// Registers as a vector.
    pub(crate) fn vector(regs: &[Reg]) -> Self {
        Self::Vector(regs.iter().map(|reg| (*reg).into()).collect())
    }

    /// Registers that one access moves, and how its instruction says that there are several.
    pub(crate) fn moved(regs: &[Reg]) -> (Self, String) {
        match regs {
            [one] => ((*one).into(), String::new()),
            many => (Self::vector(many), format!(".v{}", many.len())),
        }
    }
}

/// Memory whose accesses by different threads must be kept apart by barriers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Buffer {
    /// The part of shared memory that tiles pass through on their way to another layout.
    Exchange,
    /// A tile that stays in shared memory.
    Stage(usize),
    /// The slots of the tiles of loops in shared memory, one loop's at a time.
    Ring,
    /// A view that the kernel writes, by its parameter.
    View(usize),
}

/// How an instruction touches memory that threads share. This is the only table that barriers
/// follow: an instruction that touches such memory in any way must say so here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Nothing that threads share.
    None,
    Read(Buffer, Share),
    Write(Buffer, Share),
    /// An instruction of four warps begins to read what lies there, by the asynchronous proxy: it
    /// sees what threads wrote if they fenced it and then met.
    Fetch(Buffer),
    /// Every fetch that this thread began is over: only now may others meet it and write there.
    Fetched,
    /// From here on the slots of the ring of that number are filled.
    Open(u32),
    /// Writes a slot of a ring, which nobody reads before the ring's next barrier.
    Fill,
    /// Writes one by the asynchronous proxy.
    Refill,
    /// What filled slots in the turns before was begun.
    Filled,
    /// All threads meet here: as good as a barrier.
    Meet,
}

impl Effect {
    /// Whether it is on shared memory.
    pub(crate) fn is_shared(self) -> bool {
        match self {
            Self::Read(buffer, _) | Self::Write(buffer, _) | Self::Fetch(buffer) => {
                !matches!(buffer, Buffer::View(_))
            }
            Self::Open(_) | Self::Fill | Self::Refill | Self::Filled => true,
            Self::None | Self::Fetched | Self::Meet => false,
        }
    }
}

/// Which thread touches which element. Accesses of one share never meet: an element is always the
/// same thread's, or is touched once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    /// Nothing is known: meets every other access, and itself in another turn.
    Unknown,
    /// What one op of the kernel writes: in several turns of a loop it writes the same elements by
    /// the same threads, or others.
    Op(u32),
    /// An element's index alone decides whose it is, by a rule of that number.
    Rule(usize),
    /// What the ring of that number does, which sees to itself.
    Ring(u32),
}

/// An instruction.
#[derive(Debug, Clone)]
pub(crate) struct Inst {
    /// Mnemonic with its modifiers.
    pub(crate) op: Cow<'static, str>,
    /// Operands in PTX's order, the destination first.
    pub(crate) operands: Vec<Operand>,
    /// Runs where this holds.
    pub(crate) guard: Option<Operand>,
    pub(crate) effect: Effect,
    pub(crate) loc: Loc,
    /// What readers should know of it.
    pub(crate) remark: Option<&'static str>,
}

/// Structured code.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    Inst(Inst),
    /// Runs `head`, leaves unless `go_on`, runs `body`, and begins anew. All threads agree.
    Loop {
        head: Vec<Node>,
        go_on: Reg,
        body: Vec<Node>,
        /// Whether there certainly is a first turn.
        runs: bool,
    },
    If {
        condition: Reg,
        yes: Vec<Node>,
        no: Vec<Node>,
        /// Whether all threads take the same side. No barrier may stand where they do not.
        together: bool,
    },
    /// All threads of the program wait for each other, for the sake of shared memory or of global
    /// memory alone; unless it turned out not to be needed. With a fence, what they wrote to shared
    /// memory is then seen by the asynchronous proxy too.
    Barrier {
        shared: bool,
        needed: bool,
        fence: bool,
        /// Whether it is needed for what the effects do not tell.
        kept: bool,
    },
}

/// Code under construction.
#[derive(Debug)]
pub(crate) struct Code {
    open: Vec<Vec<Node>>,
    counts: [u32; 4],
    /// Whose line is being lowered.
    pub(crate) loc: Loc,
}

impl Code {
    pub(crate) fn new(loc: Loc) -> Self {
        Self { open: vec![Vec::new()], counts: [0; 4], loc }
    }

    /// A register of its own.
    pub(crate) fn reg(&mut self, class: Class) -> Reg {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Reg { class, id: *count - 1 }
    }

    pub(crate) fn regs(&mut self, class: Class, count: usize) -> Vec<Reg> {
        (0..count).map(|_| self.reg(class)).collect()
    }

    /// Adds an instruction.
    pub(crate) fn push(&mut self, op: impl Into<Cow<'static, str>>, operands: Vec<Operand>) {
        self.push_with(op, operands, None, Effect::None);
    }

    pub(crate) fn push_with(
        &mut self,
        op: impl Into<Cow<'static, str>>,
        operands: Vec<Operand>,
        guard: Option<Operand>,
        effect: Effect,
    ) {
        let inst = Inst { op: op.into(), operands, guard, effect, loc: self.loc, remark: None };
        self.node(Node::Inst(inst));
    }

    /// Says something of the instruction that was added last.
    pub(crate) fn remark(&mut self, remark: &'static str) {
        let last = self.open.last_mut().and_then(|nodes| nodes.last_mut());
        let Some(Node::Inst(inst)) = last else { unreachable!("an instruction was added") };
        inst.remark = Some(remark);
    }

    /// Adds an instruction with one result.
    pub(crate) fn op<const N: usize>(
        &mut self,
        class: Class,
        op: impl Into<Cow<'static, str>>,
        sources: [Operand; N],
    ) -> Reg {
        let result = self.reg(class);
        let mut operands = vec![Operand::Reg(result)];
        operands.extend(sources);
        self.push(op, operands);
        result
    }

    pub(crate) fn node(&mut self, node: Node) {
        self.open.last_mut().expect("the entry itself is open").push(node);
    }

    /// Begins a list of nodes; [`Code::close`] gives it back.
    pub(crate) fn begin(&mut self) {
        self.open.push(Vec::new());
    }

    pub(crate) fn close(&mut self) -> Vec<Node> {
        self.open.pop().expect("what is closed was begun")
    }

    /// Copies a register or constant into a register.
    pub(crate) fn set(&mut self, to: Reg, from: Operand) {
        let op = match to.class {
            Class::B16 => "mov.b16",
            Class::B32 => "mov.b32",
            Class::B64 => "mov.b64",
            Class::Pred => "mov.pred",
        };
        self.push(op, vec![to.into(), from]);
    }

    /// How many registers of each class there are.
    pub(crate) fn counts(&self) -> [(Class, u32); 4] {
        [Class::B16, Class::B32, Class::B64, Class::Pred].map(|c| (c, self.counts[c as usize]))
    }
}
