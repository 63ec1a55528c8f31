//! Where a thread's elements lie: the thread's own part of an index, and arithmetic on indices.

use super::Lower;
use crate::code::{Class, Code, Operand, Reg};
use crate::layout::{Axis, LANE_BITS, Layout};

impl Lower<'_> {
    /// This thread's number in the program.
    pub(crate) fn thread(&mut self) -> Reg {
        self.thread_parts_entry(&[], |lower| {
            Some(lower.before(|code| code.op(Class::B32, "mov.u32", ["%tid.x".into()])))
        })
        .expect("a thread has a number")
    }

    /// The part of an element's index that depends on the thread, `b32`; `None` if none does.
    pub(crate) fn thread_part(&mut self, layout: &Layout, axis: Option<Axis>) -> Option<Reg> {
        let cols = layout.cols;
        let part = |step: &usize| match axis {
            None => *step,
            Some(Axis::Rows) => step / cols,
            Some(Axis::Cols) => step % cols,
        };
        let steps: Vec<usize> = layout.lanes.iter().chain(&layout.warps).map(part).collect();
        self.thread_steps(steps)
    }

    /// The sum of the steps of the bits that are set in the thread's number.
    pub(crate) fn thread_steps(&mut self, steps: Vec<usize>) -> Option<Reg> {
        if steps.iter().all(|step| *step == 0) {
            return None;
        }
        let thread = self.thread();
        self.thread_parts_entry(&steps.clone(), |lower| {
            lower.before(|code| sum_of_steps(code, thread, &steps))
        })
    }

    fn thread_parts_entry(
        &mut self,
        steps: &[usize],
        make: impl FnOnce(&mut Self) -> Option<Reg>,
    ) -> Option<Reg> {
        if let Some(reg) = self.thread_parts.get(steps) {
            return *reg;
        }
        let reg = make(self);
        self.thread_parts.insert(steps.to_vec(), reg);
        reg
    }

    /// The thread's part of an element's index along the row of a vector, `b64`.
    pub(crate) fn thread_index(&mut self, layout: &Layout) -> Option<Reg> {
        let part = self.thread_part(layout, None)?;
        Some(self.code.op(Class::B64, "cvt.u64.u32", [part.into()]))
    }

    /// `first + part`, where `first` may be nothing.
    pub(crate) fn add_index(&mut self, first: Option<Reg>, part: i64) -> Reg {
        match (first, part) {
            (Some(first), 0) => first,
            (Some(first), part) => self.add(first.into(), part.into()),
            (None, part) => self.code.op(Class::B64, "mov.b64", [part.into()]),
        }
    }

    /// A predicate that holds in threads with that bit of their elements' index set.
    pub(crate) fn thread_bit(&mut self, layout: &Layout, step: usize) -> Reg {
        let steps = || layout.lanes.iter().chain(&layout.warps);
        let bit = steps().position(|known| *known == step).expect("the step is of a thread's bit");
        let thread = self.thread();
        self.before(|code| {
            let masked = code.op(Class::B32, "and.b32", [thread.into(), (1_i64 << bit).into()]);
            code.op(Class::Pred, "setp.ne.u32", [masked.into(), 0.into()])
        })
    }

    /// A predicate that holds in one of the threads that hold copies of the same; `None` if no two
    /// do.
    pub(crate) fn first_copy(&mut self, layout: &Layout) -> Option<Reg> {
        let (lanes, warps) = layout.copy_bits();
        let mask = lanes | warps << LANE_BITS;
        if mask == 0 {
            return None;
        }
        let thread = self.thread();
        #[expect(clippy::cast_possible_wrap, reason = "bits of a thread's number")]
        let mask = mask as i64;
        Some(self.before(|code| {
            let masked = code.op(Class::B32, "and.b32", [thread.into(), mask.into()]);
            code.op(Class::Pred, "setp.eq.u32", [masked.into(), 0.into()])
        }))
    }

    pub(crate) fn add(&mut self, a: Operand, b: Operand) -> Reg {
        self.code.op(Class::B64, "add.s64", [a, b])
    }

    /// `a * b + c` of 64-bit integers.
    pub(crate) fn mad(&mut self, a: Operand, b: Operand, c: Operand) -> Reg {
        self.code.op(Class::B64, "mad.lo.s64", [a, b, c])
    }

    pub(crate) fn both(&mut self, a: Reg, b: Reg) -> Reg {
        self.code.op(Class::Pred, "and.pred", [a.into(), b.into()])
    }

    /// `a` where there is no `b`.
    pub(crate) fn both_of(&mut self, a: Option<Reg>, b: Option<Reg>) -> Option<Reg> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.both(a, b)),
            (a, b) => a.or(b),
        }
    }

    /// Whether an index lies in `0..extent`.
    pub(crate) fn inside(&mut self, at: Reg, extent: Operand) -> Reg {
        self.code.op(Class::Pred, "setp.lt.u64", [at.into(), extent])
    }
}

/// The sum of the steps of the bits that are set in a thread's number.
pub(crate) fn sum_of_steps(code: &mut Code, thread: Reg, steps: &[usize]) -> Option<Reg> {
    let mut sum: Option<Reg> = None;
    for (first, count) in runs(steps) {
        // Bits `first..first + count` of the thread, moved to where their steps are.
        let mask = ((1_i64 << count) - 1) << first;
        let masked = code.op(Class::B32, "and.b32", [thread.into(), mask.into()]);
        let (op, by) = match steps[first].ilog2() as usize {
            to if to >= first => ("shl.b32", to - first),
            to => ("shr.u32", first - to),
        };
        #[expect(clippy::cast_possible_wrap, reason = "bits of a thread's number")]
        let moved = match by {
            0 => masked,
            by => code.op(Class::B32, op, [masked.into(), (by as i64).into()]),
        };
        sum = Some(match sum {
            None => moved,
            Some(sum) => code.op(Class::B32, "or.b32", [sum.into(), moved.into()]),
        });
    }
    sum
}

/// Runs of bits whose steps double: the first bit and how many.
fn runs(steps: &[usize]) -> Vec<(usize, usize)> {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (bit, &step) in steps.iter().enumerate().filter(|(_, step)| **step != 0) {
        match runs.last_mut() {
            Some((first, count)) if *first + *count == bit && steps[bit - 1] * 2 == step => {
                *count += 1;
            }
            _ => runs.push((bit, 1)),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn bits_that_double_move_together() {
        assert_eq!(runs(&[4, 8, 0, 1, 2, 16]), [(0, 2), (3, 2), (5, 1)]);
    }
}
