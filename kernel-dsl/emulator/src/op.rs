//! What instructions are once they have been decoded: operands and operations without any text.

use crate::number::{self, Format};
use crate::types::Ty;
use std::sync::Arc;

/// One value for each lane of a warp; narrower ones are zero-extended.
pub(crate) type Lanes = [u64; 32];
/// Computes a register from up to three.
pub(crate) type Compute = Arc<dyn Fn(&mut Lanes, [&Lanes; 3]) + Send + Sync>;
/// Computes a mask of lanes from two registers.
pub(crate) type Test = Arc<dyn Fn(&Lanes, &Lanes) -> u32 + Send + Sync>;
/// Combines an old value of memory with operands into its new value.
pub(crate) type Update = Arc<dyn Fn(u64, u64, u64) -> u64 + Send + Sync>;

/// Index of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reg(pub(crate) u32);

/// Index of a predicate register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pred(pub(crate) u32);

/// Where a value comes from: a register, or a constant that every lane sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Src {
    Reg(Reg),
    Const(u32),
}

/// A predicate that may be negated, or a constant one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Pred { pred: Pred, negated: bool },
    Const(bool),
}

/// A state space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Space {
    Param,
    Global,
    Const,
    Shared,
    Local,
    Generic,
}

/// An address: a base and a constant offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub(crate) base: Src,
    pub(crate) offset: i64,
}

/// How strong a memory operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Order {
    #[default]
    Weak,
    Relaxed,
    Acquire,
    Release,
    AcquireRelease,
}

impl Order {
    pub(crate) fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcquireRelease)
    }

    pub(crate) fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcquireRelease)
    }
}

/// A load, a store or an atomic operation: what they share.
#[derive(Clone, Debug)]
pub(crate) struct Access {
    pub(crate) space: Space,
    pub(crate) address: Address,
    /// Bytes of one element.
    pub(crate) bytes: u32,
    pub(crate) order: Order,
}

/// The value that a special register holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    Ntid(usize),
    Ctaid(usize),
    Nctaid(usize),
    LaneId,
    WarpId,
    NumWarps,
    SmId,
    Clock { bits: u32 },
    LaneMask(MaskKind),
    DynamicShared,
    TotalShared,
    Zero,
    One,
}

/// The masks that compare a lane with this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MaskKind {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

/// How a comparison's result is combined with a third predicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combine {
    And,
    Or,
    Xor,
}

/// The ways of `shfl.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Bfly,
    Idx,
}

/// The ways of `vote.sync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uni,
    Ballot,
}

/// What a reduction over a warp, or a barrier, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Redux {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Popc,
}

/// What a fence makes known besides what a warp did to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// Nothing else.
    Memory,
    /// All of it to the asynchronous proxy.
    Proxy,
    /// To the asynchronous proxy, that barrier objects are initialised.
    Barriers,
}

/// What a CTA barrier does to those who come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarKind {
    /// Waits for all.
    Sync,
    /// Comes and goes on.
    Arrive,
    /// Waits, and reduces a predicate of every thread.
    Reduce(Redux),
}

/// What is done when a lane's instruction is reached.
pub(crate) enum Op {
    Compute {
        f: Compute,
        dst: Reg,
        src: [Src; 3],
        count: u8,
    },
    Setp {
        f: Test,
        src: [Src; 2],
        combine: Option<(Combine, Condition)>,
        dst: [Option<Pred>; 2],
    },
    Select {
        dst: Reg,
        src: [Src; 2],
        when: Condition,
    },
    PredLogic {
        dst: Pred,
        table: u8,
        src: [Condition; 2],
    },
    Special {
        dst: Reg,
        what: Special,
    },
    Unpack {
        dst: Vec<Option<Reg>>,
        bits: u32,
        src: Src,
    },
    Pack {
        dst: Reg,
        bits: u32,
        src: Vec<Src>,
    },
    Load {
        access: Access,
        dst: Vec<Option<Reg>>,
        sign: Option<u32>,
        dst_bits: u32,
    },
    Store {
        access: Access,
        src: Vec<Src>,
    },
    Atomic {
        access: Access,
        f: Update,
        dst: Option<Vec<Reg>>,
        src: Vec<[Src; 2]>,
    },
    ToGeneric {
        dst: Reg,
        src: Src,
        space: Space,
    },
    FromGeneric {
        dst: Reg,
        src: Src,
        space: Space,
    },
    IsSpace {
        dst: Pred,
        src: Src,
        space: Space,
    },
    Fence(Fence),
    Branch {
        target: u32,
        uniform: bool,
    },
    Exit,
    Trap,
    Bar {
        kind: BarKind,
        id: Src,
        count: Option<Src>,
        aligned: bool,
        pred: Option<Condition>,
        dst: BarDst,
    },
    Shfl {
        way: Shuffle,
        dst: Reg,
        valid: Option<Pred>,
        src: [Src; 3],
        members: Src,
    },
    Vote {
        way: Vote,
        dst: VoteDst,
        pred: Condition,
        members: Src,
    },
    Match {
        all: bool,
        dst: Reg,
        pred: Option<Pred>,
        src: Src,
        members: Src,
    },
    Redux {
        way: Redux,
        ty: Ty,
        dst: Reg,
        src: Src,
        members: Src,
    },
    Elect {
        dst: Option<Reg>,
        pred: Pred,
        members: Src,
    },
    ActiveMask {
        dst: Reg,
    },
    Wgmma(Box<Wgmma>),
    /// `wgmma.fence`
    WgmmaFence,
    AsyncCopy(Box<AsyncCopy>),
    BulkCopy(Box<BulkCopy>),
    TensorCopy(Box<TensorCopy>),
    CommitGroup {
        queue: Queue,
    },
    /// Waits until at most `left` groups are pending; `None` for `wait_all`.
    WaitGroup {
        queue: Queue,
        read: bool,
        left: Option<u32>,
    },
    Mbarrier(Box<Mbarrier>),
    Mma(Box<Mma>),
    LoadMatrix {
        matrix: Matrix,
        dst: Vec<Reg>,
    },
    StoreMatrix {
        matrix: Matrix,
        src: Vec<Src>,
    },
    MoveMatrix {
        dst: Reg,
        src: Src,
    },
    WarpSync {
        members: Src,
    },
    Nop,
}

/// Asynchronous work that is counted in groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// `cp.async`
    Copies,
    /// `cp.async.bulk`
    Bulk,
    /// `wgmma`
    Products,
}

/// What `cp.async` leaves out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyLimit {
    None,
    /// Copies so many bytes; zeros follow.
    Bytes(Src),
    /// Copies nothing, writes zeros, where this holds.
    Ignore(Condition),
}

/// `cp.async`
#[derive(Clone, Debug)]
pub(crate) struct AsyncCopy {
    pub(crate) dst: Address,
    pub(crate) src: Address,
    pub(crate) bytes: u32,
    pub(crate) limit: CopyLimit,
}

/// `cp.async.bulk`: into shared memory if it has a barrier, else out of it.
#[derive(Clone, Debug)]
pub(crate) struct BulkCopy {
    pub(crate) dst: Address,
    pub(crate) src: Address,
    pub(crate) bytes: Src,
    pub(crate) barrier: Option<Address>,
}

/// `cp.async.bulk.tensor`: into shared memory if it has a barrier, else out of it.
#[derive(Clone, Debug)]
pub(crate) struct TensorCopy {
    pub(crate) shared: Address,
    pub(crate) map: Address,
    pub(crate) coordinates: Vec<Src>,
    pub(crate) barrier: Option<Address>,
}

/// What is done to an `mbarrier`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MbarrierOp {
    Init {
        count: Src,
    },
    Invalidate,
    Expect {
        bytes: Src,
    },
    Complete {
        bytes: Src,
    },
    Arrive {
        count: Src,
        expect: Option<Src>,
        drops: bool,
        incomplete: bool,
        relaxed: bool,
        dst: Option<Reg>,
    },
    /// Arrives once the `cp.async` copies so far are done; `counted` raises the count first.
    ArriveAfterCopies {
        counted: bool,
    },
    Wait {
        suspends: bool,
        parity: bool,
        relaxed: bool,
        phase: Src,
        dst: Pred,
    },
}

/// An operation on an `mbarrier`.
#[derive(Clone, Debug)]
pub(crate) struct Mbarrier {
    pub(crate) op: MbarrierOp,
    pub(crate) space: Space,
    pub(crate) address: Address,
}

/// The factors of a tensor-core operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factors {
    Float(Format),
    /// Eight-bit floats, which go through f16.
    Eight {
        a: Format,
        b: Format,
    },
    Bytes {
        a_signed: bool,
        b_signed: bool,
        saturate: bool,
    },
}

impl Factors {
    /// Bits of one element in a register.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Factors::Float(format) if format == number::TF32 => 32,
            Factors::Float(_) => 16,
            Factors::Eight { .. } | Factors::Bytes { .. } => 8,
        }
    }
}

/// `mma.sync.m16n8k*`
#[derive(Clone, Debug)]
pub(crate) struct Mma {
    pub(crate) depth: u32,
    pub(crate) factors: Factors,
    /// Whether addends and results are f16, two in a register.
    pub(crate) half: bool,
    pub(crate) d: Vec<Reg>,
    pub(crate) a: Vec<Src>,
    pub(crate) b: Vec<Src>,
    pub(crate) c: Vec<Src>,
}

/// The left factor of `wgmma`.
#[derive(Clone, Debug)]
pub(crate) enum Left {
    Registers(Vec<Src>),
    Descriptor(Src),
}

/// `wgmma.mma_async`
#[derive(Clone, Debug)]
pub(crate) struct Wgmma {
    pub(crate) columns: u32,
    pub(crate) depth: u32,
    pub(crate) factors: Factors,
    /// Whether results are f16, two in a register.
    pub(crate) half: bool,
    pub(crate) d: Vec<Reg>,
    pub(crate) left: Left,
    pub(crate) right: Src,
    pub(crate) accumulate: Condition,
    /// Whether A, and B, are negated.
    pub(crate) negate: [bool; 2],
    /// Whether A, and B, lie with their rows along the depth.
    pub(crate) transpose: [bool; 2],
}

/// Where matrices of eight rows of sixteen bytes are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix {
    pub(crate) space: Space,
    pub(crate) address: Address,
    pub(crate) transposed: bool,
}

/// Where a barrier's reduction goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BarDst {
    None,
    Reg(Reg),
    Pred(Pred),
}

/// Where a vote goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum VoteDst {
    Reg(Reg),
    Pred(Pred),
}
