//! Launch extents from the shapes of the arguments, by the rule and in the words of the tile IR's
//! `solve_dims`, with no allocation where they fit.

use super::LaunchError;

/// `constant + dims`: what an axis must measure.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the two parts of a sum")]
pub struct Axis {
    pub dims: &'static [usize],
    pub constant: usize,
}

/// Names and shapes that a kernel declares.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named as in the kernel")]
pub struct Signature {
    pub kernel: &'static str,
    pub dims: &'static [&'static str],
    pub views: &'static [(&'static str, &'static [Axis])],
}

impl Signature {
    /// The kernel's dims, from the shape of each view in order.
    ///
    /// # Errors
    /// The first argument that does not fit.
    pub fn solve<const D: usize>(&self, shapes: &[&[usize]]) -> Result<[i64; D], LaunchError> {
        let mut solved = [None; D];
        for ((name, axes), &shape) in self.views.iter().zip(shapes) {
            if axes.len() != shape.len() {
                return Err(self.mismatch(name, axes, (shape, &solved)));
            }
            for (axis, &got) in axes.iter().zip(shape) {
                if let ([dim], 0) = (axis.dims, axis.constant) {
                    solved[*dim].get_or_insert(got);
                }
            }
        }
        self.solve_sums(shapes, &mut solved)?;
        for ((name, axes), &shape) in self.views.iter().zip(shapes) {
            if axes.iter().zip(shape).any(|(axis, got)| axis.measure(&solved) != Some(*got)) {
                return Err(self.mismatch(name, axes, (shape, &solved)));
            }
        }
        // Verified kernels define every dim; an extent beyond i64 does not fit into memory.
        Ok(solved.map(|dim| dim.and_then(|dim| i64::try_from(dim).ok()).unwrap_or(0)))
    }

    /// An axis with one unknown dim defines that, until nothing changes.
    fn solve_sums(
        &self,
        shapes: &[&[usize]],
        solved: &mut [Option<usize>],
    ) -> Result<(), LaunchError> {
        let mut changed = true;
        while changed {
            changed = false;
            for ((name, axes), &shape) in self.views.iter().zip(shapes) {
                for (axis, &got) in axes.iter().zip(shape) {
                    let Some((dim, rest)) = axis.unknown(solved) else { continue };
                    let Some(value) = got.checked_sub(rest) else {
                        return Err(self.mismatch(name, axes, (shape, solved)));
                    };
                    solved[dim] = Some(value);
                    changed = true;
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn mismatch(
        &self,
        arg: &'static str,
        axes: &[Axis],
        (got, solved): (&[usize], &[Option<usize>]),
    ) -> LaunchError {
        let want: Vec<String> = axes.iter().map(|axis| axis.describe(self.dims, solved)).collect();
        let want = format!("[{}]", want.join(", "));
        LaunchError::Shape { kernel: self.kernel, arg, got: got.to_vec(), want }
    }
}

impl Axis {
    /// The only unknown dim, and the sum of the rest.
    fn unknown(&self, solved: &[Option<usize>]) -> Option<(usize, usize)> {
        let mut unknown = self.dims.iter().filter(|&&dim| solved[dim].is_none());
        let dim = *unknown.next()?;
        if unknown.next().is_some() {
            return None;
        }
        let rest = self.dims.iter().filter_map(|&dim| solved[dim]);
        Some((dim, rest.fold(self.constant, usize::saturating_add)))
    }

    fn measure(&self, solved: &[Option<usize>]) -> Option<usize> {
        let mut dims = self.dims.iter().map(|&dim| solved[dim]);
        dims.try_fold(self.constant, |sum, dim| Some(sum.saturating_add(dim?)))
    }

    /// `64`, `N = 128`, `DC + DR = 576`, or `N` if it is not known.
    fn describe(&self, names: &[&str], solved: &[Option<usize>]) -> String {
        let mut terms: Vec<String> = self.dims.iter().map(|&dim| names[dim].to_owned()).collect();
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

#[cfg(test)]
mod tests {
    use super::*;

    const NORM: Signature = Signature {
        kernel: "rms_norm",
        dims: &["T", "N", "R"],
        views: &[
            ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
            ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
            ("tail", &[Axis { dims: &[1, 2], constant: 1 }]),
        ],
    };

    #[test]
    fn a_mismatch_names_kernel_argument_and_dims() {
        assert_eq!(NORM.solve(&[&[4, 128], &[4, 128], &[137]]), Ok([4, 128, 8]));
        let error = NORM.solve::<3>(&[&[4, 128], &[4, 96], &[129]]).expect_err("differs");
        let want = "rms_norm: `out` has shape [4, 96], expected [T = 4, N = 128]";
        assert_eq!(error.to_string(), want);
        let error = NORM.solve::<3>(&[&[4, 128], &[4, 128], &[7]]).expect_err("differs");
        assert_eq!(error.to_string(), "rms_norm: `tail` has shape [7], expected [N + R + 1]");
    }
}
