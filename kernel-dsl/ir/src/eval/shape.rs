//! Ops that move elements, and those that combine them along an axis.

use super::cells::Cells;
use super::error::Fault;
use super::math;
use crate::op::{Binary, Combine};
use crate::types::{Elem, Type};

pub(super) fn broadcast(from: &Type, to: &Type, x: &Cells) -> Cells {
    let ([rows, cols], [_, to_cols]) = (from.rows_cols(), to.rows_cols());
    let (down, across) = (usize::from(rows > 1) * cols, usize::from(cols > 1));
    x.pick((0..to.len()).map(|at| at / to_cols * down + at % to_cols * across))
}

pub(super) fn transpose(from: &Type, x: &Cells) -> Cells {
    let [rows, cols] = from.rows_cols();
    x.pick((0..from.len()).map(|at| at % rows * cols + at / rows))
}

pub(super) fn slice(from: &Type, to: &Type, (axis, start): (usize, usize), x: &Cells) -> Cells {
    let ([_, cols], [_, to_cols]) = (from.rows_cols(), to.rows_cols());
    let first = if from.shape.len() == 2 && axis == 0 { start * cols } else { start };
    x.pick((0..to.len()).map(|at| first + at / to_cols * cols + at % to_cols))
}

pub(super) fn concat(axis: usize, types: [&Type; 2], [a, b]: [&Cells; 2]) -> Cells {
    let [[rows, a_cols], [_, b_cols]] = types.map(Type::rows_cols);
    let parts = if types[0].shape.len() == 2 && axis == 0 {
        (1, types[0].len(), types[1].len())
    } else {
        (rows, a_cols, b_cols)
    };
    match (a, b) {
        (Cells::Float(a), Cells::Float(b)) => Cells::Float(interleave(parts, a, b)),
        (Cells::Int(a), Cells::Int(b)) => Cells::Int(interleave(parts, a, b)),
        (Cells::Bool(a), Cells::Bool(b)) => Cells::Bool(interleave(parts, a, b)),
        _ => unreachable!("the verifier checked the elements"),
    }
}

fn interleave<T: Copy>((times, a_len, b_len): (usize, usize, usize), a: &[T], b: &[T]) -> Vec<T> {
    let part = |i: usize| {
        let a = &a[i * a_len..][..a_len];
        a.iter().chain(&b[i * b_len..][..b_len]).copied()
    };
    (0..times).flat_map(part).collect()
}

/// The lines of a tile along an axis: `(how many, how long, place of element i of a line)`.
struct Lines {
    count: usize,
    len: usize,
    along_rows: bool,
    cols: usize,
}

impl Lines {
    fn new(ty: &Type, axis: usize) -> Self {
        let [rows, cols] = ty.rows_cols();
        let along_rows = ty.shape.len() == 2 && axis == 0;
        let (count, len) = if along_rows { (cols, rows) } else { (rows, cols) };
        Self { count, len, along_rows, cols }
    }

    fn place(&self, line: usize, i: usize) -> usize {
        if self.along_rows { i * self.cols + line } else { line * self.cols + i }
    }
}

/// Running results along an axis, in order; the last of a line is its reduction.
pub(super) fn scan(ty: &Type, axis: usize, combine: Combine, x: &Cells) -> Result<Cells, Fault> {
    let lines = Lines::new(ty, axis);
    Ok(match x {
        Cells::Float(x) => Cells::Float(run(&lines, x, |a, b| {
            Ok(match combine {
                Combine::Sum => a + b,
                Combine::Min => math::min(a, b),
                _ => math::max(a, b),
            })
        })?),
        Cells::Int(x) => Cells::Int(run(&lines, x, |a, b| int_combine(combine, ty.elem, a, b))?),
        Cells::Bool(x) => Cells::Bool(run(&lines, x, |a, b| {
            Ok(match combine {
                Combine::And => a && b,
                Combine::Or => a || b,
                _ => a != b,
            })
        })?),
    })
}

pub(super) fn reduce(ty: &Type, axis: usize, combine: Combine, x: &Cells) -> Result<Cells, Fault> {
    let (lines, all) = (Lines::new(ty, axis), scan(ty, axis, combine, x)?);
    Ok(all.pick((0..lines.count).map(|line| lines.place(line, lines.len - 1))))
}

fn int_combine(combine: Combine, elem: Elem, a: i64, b: i64) -> Result<i64, Fault> {
    let op = match combine {
        Combine::Sum => Binary::Add,
        Combine::Min => Binary::Min,
        Combine::Max => Binary::Max,
        Combine::And => Binary::And,
        Combine::Or => Binary::Or,
        Combine::Xor => Binary::Xor,
    };
    let result = math::binary(op, elem, &Cells::Int(vec![a]), &Cells::Int(vec![b]))?;
    Ok(result.ints()[0])
}

fn run<T: Copy>(
    lines: &Lines,
    x: &[T],
    combine: impl Fn(T, T) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut result = x.to_vec();
    for line in 0..lines.count {
        for i in 1..lines.len {
            let at = lines.place(line, i);
            result[at] = combine(result[lines.place(line, i - 1)], x[at])?;
        }
    }
    Ok(result)
}

pub(super) fn argmax(ty: &Type, axis: usize, x: &Cells) -> Cells {
    let lines = Lines::new(ty, axis);
    let above = |a: usize, b: usize| match x {
        Cells::Float(x) => x[a] > x[b] || x[a].is_nan() && !x[b].is_nan(),
        Cells::Int(x) if ty.elem == Elem::U64 => x[a].cast_unsigned() > x[b].cast_unsigned(),
        Cells::Int(x) => x[a] > x[b],
        Cells::Bool(_) => unreachable!("the verifier checked the element"),
    };
    let best = |line: usize| {
        let larger = |best, i| above(lines.place(line, i), lines.place(line, best));
        (1..lines.len).fold(0, |best, i| if larger(best, i) { i } else { best })
    };
    Cells::Int((0..lines.count).map(|line| best(line) as i64).collect())
}
