//! What a host does before it launches a compiled kernel: solves the extents from the arguments'
//! shapes, picks a variant, evaluates the grid and packs the argument words. Pure: addresses are
//! numbers here, and nothing is launched.

use crate::extents::Expr;
use crate::manifest::{AxisEntry, KernelEntry, ParamEntry, ParamEntryKind};
use std::fmt::Write as _;
use tessera_tile_ir::launch::ShapeError;

/// Most axes of a view.
pub const MAX_RANK: usize = 4;

/// Most programs along each axis of a grid.
pub const MAX_GRID: [i64; 3] = [i32::MAX as i64, 65_535, 65_535];

/// One number an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Axes {
    values: [usize; MAX_RANK],
    rank: usize,
}

impl Axes {
    /// The numbers of an array, which has at most [`MAX_RANK`].
    pub const fn new<const R: usize>(values: [usize; R]) -> Self {
        const { assert!(R <= MAX_RANK, "a view has at most four axes") };
        let mut all = [0; MAX_RANK];
        let mut axis = 0;
        while axis < R {
            all[axis] = values[axis];
            axis += 1;
        }
        Self { values: all, rank: R }
    }
}

impl AsRef<[usize]> for Axes {
    fn as_ref(&self) -> &[usize] {
        &self.values[..self.rank]
    }
}

/// An argument of a launch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Arg<'a> {
    /// A number for a parameter of type `f32`.
    F32(f32),
    /// A number for a parameter of any integer type, or of `bool`.
    Int(i64),
    /// An array.
    View(ViewArg<'a>),
    /// Codes and scales of a block format.
    Packed(PackedArg<'a>),
}

/// A strided array.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ViewArg<'a> {
    /// Address of its first element.
    pub address: u64,
    /// Name of its element.
    pub elem: &'a str,
    /// Extent of each axis.
    pub dims: Axes,
    /// Elements from one index of an axis to the next; 1 on the last axis.
    pub strides: Axes,
}

/// Codes and scales of a block format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PackedArg<'a> {
    /// Name of the format.
    pub format: &'a str,
    /// Address of the codes.
    pub codes: u64,
    /// Address of the scales; 0 if there are none.
    pub scales: u64,
    /// Address of the zero points; 0 if there are none.
    pub zero_points: u64,
    /// Address of an f32 scale for each whole matrix; 0 if there are none.
    pub tensor_scales: u64,
    /// Extent of each axis.
    pub dims: Axes,
}

impl Arg<'_> {
    fn dims(&self) -> &[usize] {
        match self {
            Self::F32(_) | Self::Int(_) => &[],
            Self::View(view) => view.dims.as_ref(),
            Self::Packed(packed) => packed.dims.as_ref(),
        }
    }

    /// What it is, as errors say it.
    fn describe(&self) -> String {
        match self {
            Self::F32(_) => "f32".to_owned(),
            Self::Int(_) => "an integer".to_owned(),
            Self::View(view) => format!("an array of {}", view.elem),
            Self::Packed(packed) => format!("codes of {}", packed.format),
        }
    }
}

/// Why arguments make no launch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum LaunchError {
    #[error("{kernel}: {got} arguments for {want} parameters")]
    Count { kernel: String, got: usize, want: usize },
    #[error("{kernel}: no variant takes {got}")]
    Kinds { kernel: String, got: String },
    #[error("{kernel}: `{arg}` is not contiguous along its last axis")]
    Stride { kernel: String, arg: String },
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error("{kernel}: no variant fits {dims}")]
    NoFit { kernel: String, dims: String },
    #[error("{kernel}: {got} programs along axis {axis} of the grid, at most {limit} can be")]
    Grid { kernel: String, axis: usize, got: i64, limit: i64 },
}

/// A launch in the making; keeps its memory for the next one.
#[derive(Debug, Clone, Default)]
pub struct Plan {
    solved: Vec<Option<usize>>,
    dims: Vec<i64>,
    words: Vec<u64>,
    grid: [u32; 3],
}

impl Plan {
    /// Plans a launch of one of `variants`, which are those of one kernel in order of preference:
    /// the first whose elements and formats are the arguments' and whose `fits` hold. The result
    /// is its index.
    ///
    /// # Errors
    /// [`LaunchError`] that names the kernel and what does not fit.
    pub fn make(
        &mut self,
        variants: &[KernelEntry],
        args: &[Arg<'_>],
    ) -> Result<usize, LaunchError> {
        let mut misfit = None;
        for (index, entry) in variants.iter().enumerate() {
            if !takes(entry, args)? {
                continue;
            }
            // Variants of a kernel declare the same axes, so one solution serves all.
            if misfit.is_none() {
                self.solve(entry, args)?;
            }
            if entry.fits.iter().all(|fit| fit.value(&self.dims) != 0) {
                self.grid = grid(entry, &self.dims)?;
                self.pack(entry, args)?;
                return Ok(index);
            }
            misfit = Some(entry);
        }
        Err(match misfit {
            Some(entry) => no_fit(entry, &self.dims),
            None => no_kinds(variants, args),
        })
    }

    /// Number of programs along each axis.
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// Whether there is nothing to launch.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }

    /// The named extents.
    pub fn dims(&self) -> &[i64] {
        &self.dims
    }

    /// The argument words, with the address of the word that failed asserts are told in.
    pub fn words(&mut self, faults: u64) -> &mut [u64] {
        if let Some(first) = self.words.first_mut() {
            *first = faults;
        }
        &mut self.words
    }

    /// Solves the extents by the rule of [`tessera_tile_ir::launch::solve_dims`]: an extent that
    /// stands alone in an axis is defined by the first such axis; then an axis that is a sum with
    /// one unknown extent defines that. Every other axis must agree.
    fn solve(&mut self, entry: &KernelEntry, args: &[Arg<'_>]) -> Result<(), ShapeError> {
        let solved = &mut self.solved;
        solved.clear();
        solved.resize(entry.dims.len(), None);
        let views =
            || entry.params.iter().zip(args).filter_map(|(p, arg)| Some((p, axes(p)?, arg.dims())));
        for (param, axes, shape) in views() {
            if axes.len() != shape.len() {
                return Err(misshapen(entry, (param, axes), shape, solved));
            }
            for (axis, &got) in axes.iter().zip(shape) {
                if let Some(dim) = alone(axis).filter(|&dim| solved[dim].is_none()) {
                    solved[dim] = Some(got);
                }
            }
        }
        // Each round but the last solves an extent.
        let mut goes_on = true;
        while goes_on {
            goes_on = false;
            for (param, axes, shape) in views() {
                for (axis, &got) in axes.iter().zip(shape) {
                    let Some((dim, rest)) = unknown(axis, solved) else { continue };
                    let Some(value) = got.checked_sub(rest) else {
                        return Err(misshapen(entry, (param, axes), shape, solved));
                    };
                    solved[dim] = Some(value);
                    goes_on = true;
                }
            }
        }
        for (param, axes, shape) in views() {
            if !axes.iter().zip(shape).all(|(axis, &got)| measure(axis, solved) == Some(got)) {
                return Err(misshapen(entry, (param, axes), shape, solved));
            }
        }
        self.dims.clear();
        let known = solved.iter().map(|dim| dim.expect("verified kernels define every extent"));
        self.dims.extend(known.map(int));
        Ok(())
    }

    fn pack(&mut self, entry: &KernelEntry, args: &[Arg<'_>]) -> Result<(), LaunchError> {
        let words = &mut self.words;
        words.clear();
        words.push(0);
        words.extend(self.dims.iter().map(|dim| dim.cast_unsigned()));
        for (param, arg) in entry.params.iter().zip(args) {
            match arg {
                Arg::F32(value) => words.push(u64::from(value.to_bits())),
                Arg::Int(value) => words.push(integer(&param.kind, *value)),
                Arg::View(view) => {
                    words.push(view.address);
                    let strides = view.strides.as_ref();
                    let Some((last, outer)) = strides.split_last() else { continue };
                    if *last != 1 {
                        let (kernel, arg) = (entry.kernel.clone(), param.name.clone());
                        return Err(LaunchError::Stride { kernel, arg });
                    }
                    words.extend(outer.iter().map(|&stride| int(stride).cast_unsigned()));
                }
                Arg::Packed(packed) => words.extend([
                    packed.codes,
                    packed.scales,
                    packed.zero_points,
                    packed.tensor_scales,
                ]),
            }
        }
        Ok(())
    }
}

/// Whether the elements and formats of a variant are those of the arguments.
fn takes(entry: &KernelEntry, args: &[Arg<'_>]) -> Result<bool, LaunchError> {
    let (got, want) = (args.len(), entry.params.len());
    if got != want {
        return Err(LaunchError::Count { kernel: entry.kernel.clone(), got, want });
    }
    let is_kind = |(param, arg): (&ParamEntry, &Arg<'_>)| match (&param.kind, arg) {
        (ParamEntryKind::Scalar(kind), Arg::F32(_)) => kind == "f32",
        (ParamEntryKind::Scalar(kind), Arg::Int(_)) => kind != "f32",
        (ParamEntryKind::View { elem, .. }, Arg::View(view)) => elem == view.elem,
        (ParamEntryKind::Packed { format, .. }, Arg::Packed(packed)) => format == packed.format,
        _ => false,
    };
    Ok(entry.params.iter().zip(args).all(is_kind))
}

/// An integer as its word: narrow ones are extended by their sign or by zeros.
#[expect(clippy::cast_possible_truncation, reason = "the low bits are the value of a narrow type")]
fn integer(kind: &ParamEntryKind, value: i64) -> u64 {
    match kind {
        ParamEntryKind::Scalar(kind) if kind == "u32" => u64::from(value as u32),
        ParamEntryKind::Scalar(kind) if kind == "bool" => u64::from(value != 0),
        ParamEntryKind::Scalar(kind) if kind == "i32" => i64::from(value as i32).cast_unsigned(),
        _ => value.cast_unsigned(),
    }
}

fn grid(entry: &KernelEntry, dims: &[i64]) -> Result<[u32; 3], LaunchError> {
    let mut grid = [0; 3];
    for (axis, programs) in entry.grid.iter().enumerate() {
        let got = Expr::value(programs, dims).max(0);
        let limit = MAX_GRID[axis];
        let fits = u32::try_from(got).ok().filter(|_| got <= limit);
        let kernel = || entry.kernel.clone();
        grid[axis] =
            fits.ok_or_else(|| LaunchError::Grid { kernel: kernel(), axis, got, limit })?;
    }
    Ok(grid)
}

fn int(value: usize) -> i64 {
    i64::try_from(value).expect("an extent or a stride is below 2^63")
}

fn axes(param: &ParamEntry) -> Option<&[AxisEntry]> {
    match &param.kind {
        ParamEntryKind::View { axes, .. } | ParamEntryKind::Packed { axes, .. } => Some(axes),
        ParamEntryKind::Scalar(_) => None,
    }
}

/// The extent that is the whole axis.
fn alone(axis: &AxisEntry) -> Option<usize> {
    match *axis.dims.as_slice() {
        [dim] if axis.constant == 0 => Some(dim),
        _ => None,
    }
}

/// The only unknown extent, if it occurs once, and the sum of the rest.
fn unknown(axis: &AxisEntry, solved: &[Option<usize>]) -> Option<(usize, usize)> {
    let mut unknown = axis.dims.iter().filter(|&&dim| solved[dim].is_none());
    let dim = *unknown.next()?;
    if unknown.next().is_some() {
        return None;
    }
    let rest = axis.dims.iter().filter_map(|&dim| solved[dim]);
    Some((dim, rest.fold(axis.constant, usize::saturating_add)))
}

/// The sum, once all its extents are known.
fn measure(axis: &AxisEntry, solved: &[Option<usize>]) -> Option<usize> {
    let mut dims = axis.dims.iter().map(|&dim| solved[dim]);
    dims.try_fold(axis.constant, |sum, dim| Some(sum.saturating_add(dim?)))
}

#[cold]
fn misshapen(
    entry: &KernelEntry,
    (param, axes): (&ParamEntry, &[AxisEntry]),
    shape: &[usize],
    solved: &[Option<usize>],
) -> ShapeError {
    let want: Vec<String> = axes.iter().map(|axis| describe(entry, axis, solved)).collect();
    ShapeError {
        kernel: entry.kernel.clone(),
        arg: param.name.clone(),
        got: shape.to_vec(),
        want: format!("[{}]", want.join(", ")),
    }
}

/// `64`, `N = 128`, `DC + DR = 576`, or `N` if it is not known.
fn describe(entry: &KernelEntry, axis: &AxisEntry, solved: &[Option<usize>]) -> String {
    let mut terms: Vec<String> = axis.dims.iter().map(|&dim| entry.dims[dim].clone()).collect();
    if axis.constant != 0 || terms.is_empty() {
        terms.push(axis.constant.to_string());
    }
    let sum = terms.join(" + ");
    match measure(axis, solved) {
        Some(extent) if !axis.dims.is_empty() => format!("{sum} = {extent}"),
        _ => sum,
    }
}

#[cold]
fn no_fit(entry: &KernelEntry, dims: &[i64]) -> LaunchError {
    let mut text = String::new();
    for (name, dim) in entry.dims.iter().zip(dims) {
        let comma = if text.is_empty() { "" } else { ", " };
        write!(text, "{comma}{name} = {dim}").expect("a string takes everything");
    }
    LaunchError::NoFit { kernel: entry.kernel.clone(), dims: text }
}

#[cold]
fn no_kinds(variants: &[KernelEntry], args: &[Arg<'_>]) -> LaunchError {
    let kernel = variants.first().map_or_else(|| "?".to_owned(), |entry| entry.kernel.clone());
    let kinds: Vec<String> = args.iter().map(Arg::describe).collect();
    LaunchError::Kinds { kernel, got: kinds.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::ExprOp;
    use tessera_tile_ir::kernel::Extent;
    use tessera_tile_ir::launch::solve_dims;
    use tessera_tile_ir::{Access, Elem, Kernel, Loc, Param, ParamKind, Region};

    /// Axes of each array, as sums of dims and a constant.
    type Shapes = Vec<Vec<(Vec<usize>, usize)>>;

    fn kernel(num_dims: usize, views: &Shapes) -> Kernel {
        let loc = Loc { file: "test.rs", line: 1, column: 1 };
        let param = |(i, axes): (usize, &Vec<(Vec<usize>, usize)>)| {
            let dims = axes
                .iter()
                .map(|(dims, constant)| Extent { dims: dims.clone(), constant: *constant });
            let (elem, access) = (Elem::F32, Access::Read);
            let kind = ParamKind::View { elem, access, dims: dims.collect() };
            Param { name: format!("v{i}"), kind, loc }
        };
        Kernel {
            name: "k".to_owned(),
            formats: Vec::new(),
            consts: Vec::new(),
            dims: (0..num_dims).map(|i| format!("D{i}")).collect(),
            params: views.iter().enumerate().map(param).collect(),
            grid: Region::default(),
            body: Region::default(),
            ops: Vec::new(),
            values: Vec::new(),
            loc,
        }
    }

    fn entry(num_dims: usize, views: &Shapes) -> KernelEntry {
        let param = |(i, axes): (usize, &Vec<(Vec<usize>, usize)>)| {
            let axes = axes
                .iter()
                .map(|(dims, constant)| AxisEntry { dims: dims.clone(), constant: *constant });
            let (elem, axes) = ("f32".to_owned(), axes.collect());
            let kind = ParamEntryKind::View { elem, bits: 32, written: false, axes };
            ParamEntry { name: format!("v{i}"), kind }
        };
        KernelEntry {
            kernel: "k".to_owned(),
            label: "k".to_owned(),
            entry: "k".to_owned(),
            file: "k.ptx".to_owned(),
            formats: Vec::new(),
            class: "exact".to_owned(),
            source_hash: String::new(),
            dims: (0..num_dims).map(|i| format!("D{i}")).collect(),
            params: views.iter().enumerate().map(param).collect(),
            grid: [Expr::Const(1), Expr::Const(1), Expr::Const(1)],
            threads: 32,
            shared_bytes: 0,
            fits: Vec::new(),
            asserts: Vec::new(),
        }
    }

    fn view(shape: &[usize]) -> Arg<'static> {
        let axes = |values: &[usize]| {
            let mut all = [0; MAX_RANK];
            all[..values.len()].copy_from_slice(values);
            Axes { values: all, rank: values.len() }
        };
        let strides: Vec<usize> =
            (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect();
        let (dims, strides) = (axes(shape), axes(&strides));
        Arg::View(ViewArg { address: 4096, elem: "f32", dims, strides })
    }

    /// Both rules give the same extents, or the same error in the same words.
    fn check(num_dims: usize, views: &Shapes, shapes: &[Vec<usize>]) -> bool {
        let want = solve_dims(&kernel(num_dims, views), shapes);
        let args: Vec<Arg<'_>> = shapes.iter().map(|shape| view(shape)).collect();
        let mut plan = Plan::default();
        let got = plan.make(&[entry(num_dims, views)], &args);
        match (&want, &got) {
            (Ok(want), Ok(_)) => {
                let want: Vec<i64> = want.iter().map(|&dim| int(dim)).collect();
                assert_eq!(plan.dims(), want, "{views:?} {shapes:?}");
            }
            (Err(want), Err(LaunchError::Shape(got))) => assert_eq!(got, want),
            _ => panic!("{want:?} but {got:?} for {views:?} {shapes:?}"),
        }
        want.is_ok()
    }

    #[test]
    fn extents_are_solved_as_the_evaluator_solves_them() {
        let sum = |dims: &[usize], constant| (dims.to_vec(), constant);
        let views: Shapes = vec![
            vec![sum(&[0], 0), sum(&[1, 2], 0)],
            vec![sum(&[1], 0)],
            vec![sum(&[0], 1), sum(&[3, 3], 0), sum(&[], 64)],
            vec![sum(&[3], 0), sum(&[2], 2)],
        ];
        let fine = vec![vec![4, 10], vec![7], vec![5, 6, 64], vec![3, 5]];
        assert!(check(4, &views, &fine));
        // Every neighbour of a fitting shape, one axis and one rank at a time.
        let mut refused = 0;
        for view in 0..fine.len() {
            for axis in 0..fine[view].len() {
                for value in 0..12 {
                    let mut shapes = fine.clone();
                    shapes[view][axis] = value;
                    refused += usize::from(!check(4, &views, &shapes));
                }
            }
            let mut shapes = fine.clone();
            shapes[view].pop();
            refused += usize::from(!check(4, &views, &shapes));
        }
        assert!(refused > 40, "only {refused} shapes were refused");
    }

    #[test]
    fn sums_define_what_no_axis_defines_alone() {
        let views: Shapes = vec![vec![(vec![0, 1], 0)], vec![(vec![1], 0)], vec![(vec![0, 2], 3)]];
        assert!(check(3, &views, &[vec![9], vec![4], vec![10]]));
        assert!(!check(3, &views, &[vec![3], vec![4], vec![10]]));
    }

    #[test]
    fn words_follow_the_layout() {
        let mut entry = entry(2, &vec![vec![(vec![0], 0), (vec![1], 0)]]);
        let axes = vec![AxisEntry { dims: vec![1], constant: 0 }];
        let scalar = |name: &str, kind: &str| ParamEntry {
            name: name.to_owned(),
            kind: ParamEntryKind::Scalar(kind.to_owned()),
        };
        let packed = ParamEntryKind::Packed { format: "int4-g32".to_owned(), axes };
        entry.params.extend([
            scalar("a", "f32"),
            scalar("b", "i32"),
            scalar("c", "u32"),
            scalar("d", "bool"),
            scalar("e", "u64"),
            ParamEntry { name: "w".to_owned(), kind: packed },
        ]);
        let args = [
            Arg::View(ViewArg {
                address: 0x1000,
                elem: "f32",
                dims: Axes::new([3, 5]),
                strides: Axes::new([8, 1]),
            }),
            Arg::F32(-1.0),
            Arg::Int(-2),
            Arg::Int(-2),
            Arg::Int(7),
            Arg::Int(-2),
            Arg::Packed(PackedArg {
                format: "int4-g32",
                codes: 1,
                scales: 2,
                zero_points: 0,
                tensor_scales: 3,
                dims: Axes::new([5]),
            }),
        ];
        let mut plan = Plan::default();
        assert_eq!(plan.make(&[entry.clone()], &args), Ok(0));
        let minus_one = u64::from((-1.0f32).to_bits());
        let (minus_two, low) = ((-2i64).cast_unsigned(), 0xffff_fffe);
        let want =
            [77, 3, 5, 0x1000, 8, minus_one, minus_two, low, 1, minus_two, 1, 2, 0, 3].to_vec();
        assert_eq!(plan.words(77), want);
        let mut strided = args;
        strided[0] = Arg::View(ViewArg {
            address: 0,
            elem: "f32",
            dims: Axes::new([3, 5]),
            strides: Axes::new([1, 3]),
        });
        let error = LaunchError::Stride { kernel: "k".to_owned(), arg: "v0".to_owned() };
        assert_eq!(plan.make(&[entry], &strided), Err(error));
    }

    #[test]
    fn the_first_variant_that_fits_is_taken() {
        let fits = |limit| {
            let sides = Box::new([Expr::Dim(0), Expr::Const(limit)]);
            let mut entry = entry(1, &vec![vec![(vec![0], 0)]]);
            entry.fits = vec![Expr::Op(ExprOp::Le, sides)];
            entry.grid[0] = Expr::Dim(0);
            entry
        };
        let mut other = fits(1 << 40);
        other.params[0].kind = ParamEntryKind::View {
            elem: "e4m3".to_owned(),
            bits: 8,
            written: false,
            axes: vec![AxisEntry { dims: vec![0], constant: 0 }],
        };
        let variants = [other, fits(16), fits(64)];
        let mut plan = Plan::default();
        let mut make = |len: usize| plan.make(&variants, &[view(&[len])]).map(|i| (i, plan.grid()));
        assert_eq!(make(16), Ok((1, [16, 1, 1])));
        assert_eq!(make(17), Ok((2, [17, 1, 1])));
        assert_eq!(make(0), Ok((1, [0, 1, 1])));
        assert!(plan.is_empty());
        let error = plan.make(&variants, &[view(&[65])]).unwrap_err();
        assert_eq!(error.to_string(), "k: no variant fits D0 = 65");
        let error = plan.make(&variants, &[Arg::Int(1)]).unwrap_err();
        assert_eq!(error.to_string(), "k: no variant takes an integer");
        let error = plan.make(&variants, &[]).unwrap_err();
        assert_eq!(error.to_string(), "k: 0 arguments for 1 parameters");
    }

    #[test]
    fn a_grid_past_the_limit_is_refused() {
        let mut entry = entry(1, &vec![vec![(vec![0], 0)]]);
        entry.grid[1] = Expr::Dim(0);
        let mut plan = Plan::default();
        assert!(plan.make(&[entry.clone()], &[view(&[65_535])]).is_ok());
        let error = plan.make(&[entry], &[view(&[65_536])]).unwrap_err();
        let want = "k: 65536 programs along axis 1 of the grid, at most 65535 can be";
        assert_eq!(error.to_string(), want);
    }
}
