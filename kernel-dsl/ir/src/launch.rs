//! Launch extents from the shapes of the arguments: every executor solves them by this rule and
//! reports mistakes in these words.

use crate::kernel::{Extent, Kernel, ParamKind};

/// An argument whose shape does not fit the kernel's declaration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kernel}: `{arg}` has shape {got:?}, expected {want}")]
pub struct ShapeError {
    /// Name of the kernel.
    pub kernel: String,
    /// Name of the argument.
    pub arg: String,
    /// Its shape.
    pub got: Vec<usize>,
    /// The shape it should have, such as `[T = 4, N = 128]`; a dim that no argument fixed before
    /// has no number.
    pub want: String,
}

/// The kernel's dims, from one shape per parameter (that of a scalar is not read).
///
/// A dim that stands alone in an axis is defined by the first such axis; then an axis that is a
/// sum with one unknown dim defines that. Every other axis must agree.
///
/// # Errors
/// The first argument that does not fit.
///
/// # Panics
/// Unless there is one shape per parameter, and if the kernel leaves a dim undefined, which
/// [`Kernel::verify`] refuses.
pub fn solve_dims<S: AsRef<[usize]>>(
    kernel: &Kernel,
    shapes: &[S],
) -> Result<Vec<usize>, ShapeError> {
    assert_eq!(shapes.len(), kernel.params.len(), "one shape per parameter");
    let mut solved = vec![None; kernel.dims.len()];
    let views = || {
        kernel.params.iter().zip(shapes).filter_map(|(param, shape)| match &param.kind {
            ParamKind::View { dims, .. } => Some((param, dims.as_slice(), shape.as_ref())),
            ParamKind::Scalar(_) => None,
        })
    };
    let error = |name: &str, dims: &[Extent], shape: &[usize], solved: &[Option<usize>]| {
        let want: Vec<String> = dims.iter().map(|axis| axis.describe(kernel, solved)).collect();
        ShapeError {
            kernel: kernel.name.clone(),
            arg: name.to_owned(),
            got: shape.to_vec(),
            want: format!("[{}]", want.join(", ")),
        }
    };
    for (param, dims, shape) in views() {
        if dims.len() != shape.len() {
            return Err(error(&param.name, dims, shape, &solved));
        }
        for (axis, &got) in dims.iter().zip(shape) {
            if let Some(dim) = axis.alone().filter(|&dim| solved[dim].is_none()) {
                solved[dim] = Some(got);
            }
        }
    }
    loop {
        let before = solved.clone();
        for (param, dims, shape) in views() {
            for (axis, &got) in dims.iter().zip(shape) {
                let Some((dim, rest)) = axis.unknown(&solved) else { continue };
                let value = got.checked_sub(rest);
                let value = value.ok_or_else(|| error(&param.name, dims, shape, &solved))?;
                solved[dim] = Some(value);
            }
        }
        if before == solved {
            break;
        }
    }
    for (param, dims, shape) in views() {
        let fits = |(axis, got): (&Extent, &usize)| axis.measure(&solved) == Some(*got);
        if !dims.iter().zip(shape).all(fits) {
            return Err(error(&param.name, dims, shape, &solved));
        }
    }
    Ok(solved.into_iter().map(|dim| dim.expect("every dim is defined by some view")).collect())
}

/// Which dims the views define, by the rule of [`solve_dims`].
pub(crate) fn defined_dims(kernel: &Kernel) -> Vec<bool> {
    let mut solved = vec![None; kernel.dims.len()];
    loop {
        let before = solved.clone();
        for param in &kernel.params {
            let ParamKind::View { dims, .. } = &param.kind else { continue };
            for axis in dims {
                if let Some((dim, _)) = axis.unknown(&solved) {
                    solved[dim] = Some(0);
                }
            }
        }
        if before == solved {
            return solved.iter().map(Option::is_some).collect();
        }
    }
}

impl Extent {
    /// The dim that is the whole axis.
    fn alone(&self) -> Option<usize> {
        match *self.dims.as_slice() {
            [dim] if self.constant == 0 => Some(dim),
            _ => None,
        }
    }

    /// The only unknown dim, if it occurs once, and the sum of the rest.
    fn unknown(&self, solved: &[Option<usize>]) -> Option<(usize, usize)> {
        let mut unknown = self.dims.iter().filter(|&&dim| solved[dim].is_none());
        let dim = *unknown.next()?;
        if unknown.next().is_some() {
            return None;
        }
        let rest = self.dims.iter().filter_map(|&dim| solved[dim]);
        Some((dim, rest.fold(self.constant, usize::saturating_add)))
    }

    /// The sum, once all its dims are known.
    fn measure(&self, solved: &[Option<usize>]) -> Option<usize> {
        let mut dims = self.dims.iter().map(|&dim| solved[dim]);
        dims.try_fold(self.constant, |sum, dim| Some(sum.saturating_add(dim?)))
    }

    /// `64`, `N = 128`, `DC + DR = 576`, or `N` if it is not known.
    fn describe(&self, kernel: &Kernel, solved: &[Option<usize>]) -> String {
        let mut terms: Vec<String> =
            self.dims.iter().map(|&dim| kernel.dims[dim].clone()).collect();
        if self.constant != 0 || terms.is_empty() {
            terms.push(self.constant.to_string());
        }
        let sum = terms.join(" + ");
        match self.measure(solved) {
            Some(extent) if !self.dims.is_empty() => format!("{sum} = {extent}"),
            _ => sum,
        }
    }
}
