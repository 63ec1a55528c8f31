//! One kernel variant to one module of PTX and its row in the manifest.

use crate::barriers;
use crate::code::Node;
use crate::extents::Expr;
use crate::infer::{element_bits, yielded};
use crate::isa::{Sm, require};
use crate::lower::{Lowered, lower};
use crate::manifest::{AssertEntry, AxisEntry, KernelEntry, ParamEntry, ParamEntryKind};
use crate::print::{Head, module};
use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Access, BuildError, Elem, Kernel, Param, ParamKind};

/// The constant by which a variant says how many warps a program has.
const WARPS: &str = "WARPS";
/// The constant by which a variant says how many turns' tiles the loops that multiply hold in shared
/// memory at once, this turn's and those on their way: fewer where there is no room for them, more
/// in a loop with smaller tiles than another. With one, tiles are loaded when they are used.
const STAGES: &str = "STAGES";
/// Warps of a program that does not say.
const MOST_WARPS: usize = 4;

/// The most bytes of shared memory that warps may take to add up what each made of a part of `k`.
const MOST_SUMS: usize = 32 << 10;

/// What a program is made with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means {
    /// It has `2^warp_bits` warps.
    pub(crate) warp_bits: usize,
    /// Loops fetch tiles so many turns ahead, less one.
    pub(crate) stages: usize,
    /// Bytes that sums of warps may take.
    pub(crate) most_sums: usize,
    pub(crate) target: Sm,
}

impl Means {
    /// The next that take less shared memory: smaller sums first, then fewer turns ahead.
    fn less(self) -> Option<Self> {
        match (self.most_sums, self.stages) {
            (0, 0 | 1) => None,
            (0, stages) => Some(Self { most_sums: MOST_SUMS, stages: stages - 1, ..self }),
            (sums, _) if sums > MOST_SUMS / 2 => Some(Self { most_sums: MOST_SUMS / 2, ..self }),
            _ => Some(Self { most_sums: 0, ..self }),
        }
    }
}

/// What a kernel's registration says beside its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// What it promises of its results: `exact`, `model` or `bounded`.
    pub class: String,
    /// Hash of its source, in hexadecimal.
    pub source_hash: String,
}

/// A compiled variant.
#[derive(Debug, Clone, PartialEq)]
pub struct Compiled {
    /// A module of one entry.
    pub ptx: String,
    /// How to launch it.
    pub entry: KernelEntry,
}

/// Compiles a kernel that [`Kernel::verify`] accepts. The same kernel gives the same text.
///
/// # Errors
/// What the target has no code for, at the author's place:
///
/// | code | what is wrong |
/// |---|---|
/// | K030 | a tile whose extents are no powers of two |
/// | K031 | a slice or join of parts that are not halves of halves |
/// | K032 | a dot with an inner extent below 16 |
/// | K033 | an element or format that an op has no code for |
/// | K034 | a window of a packed view that may cut a scale group |
/// | K035 | more shared memory than a program can have |
/// | K036 | a number of warps that is no power of two of at most 32 |
/// | K037 | a grid that is not made from extents |
/// | K038 | an instruction that the target has not |
pub fn compile(kernel: &Kernel, origin: &Origin, target: Sm) -> Result<Compiled, Vec<BuildError>> {
    let error = |code, message| BuildError { code, message, loc: kernel.loc, notes: Vec::new() };
    let warps = warps(kernel);
    if !warps.is_power_of_two() || warps > 32 {
        let message = format!("{WARPS} is {warps}, expected a power of two of at most 32");
        return Err(vec![error("K036", message)]);
    }
    let most = target.max_shared_bytes();
    let stages = constant(kernel, STAGES).unwrap_or(1);
    let mut means =
        Means { warp_bits: warps.ilog2() as usize, stages, most_sums: MOST_SUMS, target };
    let mut lowered = lower(kernel, means)?;
    while lowered.shared_bytes > most
        && let Some(less) = means.less()
    {
        means = less;
        lowered = lower(kernel, means)?;
    }
    let Lowered { code, mut nodes, params, shared_bytes, asserts } = lowered;
    barriers::insert(&mut nodes);
    let mut missing = Vec::new();
    nodes.iter().for_each(|node| instructions(node, target, &mut missing));
    if !missing.is_empty() {
        return Err(missing);
    }
    if shared_bytes > most {
        let message =
            format!("tiles pass through {shared_bytes} bytes of shared memory, {most} are there");
        return Err(vec![error("K035", message)]);
    }
    let mut grid: Vec<Expr> = Vec::new();
    for value in yielded(kernel, &kernel.grid) {
        let extent = Expr::of(kernel, value);
        let message = || "the grid is not made from extents alone".to_owned();
        grid.push(extent.ok_or_else(|| vec![error("K037", message())])?);
    }
    grid.resize(3, Expr::Const(1));
    let name = symbol(&kernel.label());
    let head = Head {
        entry: &name,
        label: &kernel.label(),
        target,
        params,
        threads: warps * 32,
        shared: shared_bytes,
    };
    let ptx = module(&head, &code, &nodes);
    let threads = u32::try_from(warps * 32).expect("checked above");
    let entry = KernelEntry {
        kernel: kernel.name.clone(),
        label: kernel.label(),
        file: format!("{name}.ptx"),
        entry: name,
        formats: kernel.formats.clone(),
        class: origin.class.clone(),
        source_hash: origin.source_hash.clone(),
        dims: kernel.dims.clone(),
        params: kernel.params.iter().map(param).collect(),
        grid: grid.try_into().expect("was made three long"),
        threads,
        shared_bytes: u32::try_from(shared_bytes).expect("checked above"),
        fits: fits(kernel),
        asserts: asserts
            .into_iter()
            .map(|(message, loc)| AssertEntry { message, place: loc.to_string() })
            .collect(),
    };
    Ok(Compiled { ptx, entry })
}

/// Notes every instruction that the target has not.
fn instructions(node: &Node, target: Sm, missing: &mut Vec<BuildError>) {
    match node {
        Node::Barrier { .. } => {}
        Node::Inst(inst) => {
            if let Err(why) = require(&inst.op, target) {
                let (loc, message) = (inst.loc, why.to_string());
                let error = BuildError { code: "K038", message, loc, notes: Vec::new() };
                if !missing.contains(&error) {
                    missing.push(error);
                }
            }
        }
        Node::Loop { head, body, .. } => {
            head.iter().chain(body).for_each(|node| instructions(node, target, missing));
        }
        Node::If { yes, no, .. } => {
            yes.iter().chain(no).for_each(|node| instructions(node, target, missing));
        }
    }
}

/// As declared, or enough that the largest tile gives every thread two elements.
fn warps(kernel: &Kernel) -> usize {
    let largest = kernel.values.iter().map(|info| info.ty.len()).max().unwrap_or(1);
    let default = (largest / 64).clamp(1, MOST_WARPS).next_power_of_two();
    constant(kernel, WARPS).unwrap_or(default)
}

/// A constant of the variant.
fn constant(kernel: &Kernel, name: &str) -> Option<usize> {
    kernel.consts.iter().find(|(known, _)| known == name).map(|(_, value)| *value)
}

/// A name that PTX takes.
fn symbol(label: &str) -> String {
    let mut name = String::new();
    for c in label.chars() {
        match c {
            _ if c.is_ascii_alphanumeric() => name.push(c),
            '=' | ']' | '>' | ' ' => {}
            _ => name.push('_'),
        }
    }
    name
}

fn axis(extent: &Extent) -> AxisEntry {
    AxisEntry { dims: extent.dims.clone(), constant: extent.constant }
}

fn param(param: &Param) -> ParamEntry {
    let kind = match &param.kind {
        ParamKind::Scalar(elem) => ParamEntryKind::Scalar(elem.to_string()),
        ParamKind::View { elem: Elem::Packed(format), dims, .. } => ParamEntryKind::Packed {
            format: format.name.to_owned(),
            axes: dims.iter().map(axis).collect(),
        },
        ParamKind::View { elem, access, dims } => ParamEntryKind::View {
            elem: match elem {
                Elem::Stored(element) => element.name().to_owned(),
                number => number.to_string(),
            },
            bits: u32::try_from(element_bits(*elem)).expect("elements are small"),
            written: *access != Access::Read,
            axes: dims.iter().map(axis).collect(),
        },
    };
    ParamEntry { name: param.name.clone(), kind }
}

/// The asserts of a kernel that read nothing but its extents: a launch that breaks one is for
/// another variant.
fn fits(kernel: &Kernel) -> Vec<Expr> {
    let conditions = kernel.body.ops.iter().filter_map(|id| {
        let op = kernel.op(*id);
        matches!(op.kind, OpKind::Assert(_)).then(|| op.operands[0])
    });
    conditions.filter_map(|condition| Expr::of(kernel, condition)).collect()
}
