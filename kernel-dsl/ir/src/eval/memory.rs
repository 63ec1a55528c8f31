//! The arrays of a launch: bounded reads and writes, in runs along the last axis.

use super::args::{Array, Data, write_code};
use super::cells::{Cells, cell, number, round_f32};
use super::error::Fault;
use super::race::{Deed, Shadow};
use crate::format::read_code;
use crate::kernel::{Access, Param, ParamKind};
use crate::op::Atomic;
use crate::types::{Elem, Type};
use std::collections::HashSet;

/// An array as one launch sees it.
#[derive(Debug)]
pub(super) struct View<'a> {
    name: &'a str,
    elem: Elem,
    array: &'a mut Array,
    /// Extent of the first axis, which an access may cut short.
    first_extent: usize,
    shadow: Option<Shadow>,
    /// Elements read and written, those outside not counted.
    pub(super) loaded: u64,
    pub(super) stored: u64,
}

/// Consecutive elements of the last axis that lie inside the view.
#[derive(Debug)]
struct Run {
    /// Index in the view of the first.
    idx: Vec<usize>,
    /// Its place in the tile.
    at: usize,
    len: usize,
}

impl<'a> View<'a> {
    pub(super) fn new(param: &'a Param, array: &'a mut Array) -> Self {
        let ParamKind::View { elem, access, .. } = param.kind else {
            unreachable!("the arguments were checked")
        };
        let shadow = array.data.len(elem).filter(|_| access != Access::Read);
        let shadow = shadow.map(|len| Shadow::new(len, elem));
        let first_extent = array.dims.first().copied().unwrap_or(0);
        Self { name: &param.name, elem, array, first_extent, shadow, loaded: 0, stored: 0 }
    }

    /// Calls `access` with the view as it is if its first axis ends at `end`.
    pub(super) fn until<R>(&mut self, end: i64, access: impl FnOnce(&mut Self) -> R) -> R {
        let whole = self.first_extent;
        self.first_extent = whole.min(usize::try_from(end.max(0)).unwrap_or(usize::MAX));
        let result = access(self);
        self.first_extent = whole;
        result
    }

    /// The window of that type at `at`.
    pub(super) fn load(&mut self, at: &[i64], ty: &Type, program: u32) -> Result<Cells, Fault> {
        let mut cells = Cells::zeros(self.elem, ty.len());
        for run in self.window(at, ty) {
            self.read(&run, &mut cells, program)?;
        }
        Ok(cells)
    }

    pub(super) fn store(
        &mut self,
        at: &[i64],
        (ty, cells): (&Type, &Cells),
        program: u32,
    ) -> Result<(), Fault> {
        let runs = self.window(at, ty);
        runs.iter().try_for_each(|run| self.write(run, cells, program))
    }

    pub(super) fn load_rows(
        &mut self,
        (rows, col): (&[i64], i64),
        ty: &Type,
        program: u32,
    ) -> Result<Cells, Fault> {
        let mut cells = Cells::zeros(self.elem, ty.len());
        for run in self.rows(rows, col, ty) {
            self.read(&run, &mut cells, program)?;
        }
        Ok(cells)
    }

    pub(super) fn store_rows(
        &mut self,
        (rows, col): (&[i64], i64),
        (ty, cells): (&Type, &Cells),
        program: u32,
    ) -> Result<(), Fault> {
        let runs = self.rows(rows, col, ty);
        self.write_once(&runs, cells, program)
    }

    pub(super) fn gather(
        &mut self,
        at: &[&[i64]],
        ty: &Type,
        program: u32,
    ) -> Result<Cells, Fault> {
        let mut cells = Cells::zeros(self.elem, ty.len());
        for run in self.elements(at, ty.len()) {
            self.read(&run, &mut cells, program)?;
        }
        Ok(cells)
    }

    pub(super) fn scatter(
        &mut self,
        at: &[&[i64]],
        cells: &Cells,
        (ty, program): (&Type, u32),
    ) -> Result<(), Fault> {
        let runs = self.elements(at, ty.len());
        self.write_once(&runs, cells, program)
    }

    /// Reads, combines and writes one element; one outside is left alone.
    pub(super) fn atomic(
        &mut self,
        op: Atomic,
        (at, with): (&[i64], i64),
        program: u32,
    ) -> Result<(), Fault> {
        let scalar = Type::scalar(self.elem);
        let Some(run) = self.window(at, &scalar).pop() else { return Ok(()) };
        self.note(&run, Deed::Update, program)?;
        let mut cells = Cells::zeros(self.elem, 1);
        self.copy_out(&run, &mut cells);
        let (old, new) = (number(self.elem, cells.ints()[0]), number(self.elem, with));
        let result = match op {
            Atomic::Add => old + new,
            Atomic::Min => old.min(new),
            Atomic::Max => old.max(new),
            Atomic::Or => old | new,
        };
        let result = cell(self.elem, result).ok_or_else(|| Fault::Overflow {
            op: "atomic add",
            operands: format!("{old} and {new}"),
            elem: self.elem.to_string(),
        })?;
        self.loaded += 1;
        self.stored += 1;
        self.copy_in(&run, &Cells::Int(vec![result]));
        Ok(())
    }

    /// Runs of the window at `at` over the last axes.
    fn window(&self, at: &[i64], ty: &Type) -> Vec<Run> {
        let lead = at.len() - ty.shape.len();
        let Some(mut idx) = self.inside(&at[..lead], 0) else { return Vec::new() };
        match *ty.shape.as_slice() {
            [] => vec![Run { idx, at: 0, len: 1 }],
            [cols] => self.run(idx, at[lead], (0, cols)).into_iter().collect(),
            [rows, cols] => {
                let mut runs = Vec::with_capacity(rows);
                for row in 0..rows {
                    idx.truncate(lead);
                    let down = at[lead].checked_add_unsigned(row as u64);
                    let Some(down) = down.and_then(|down| self.bounded(lead, down)) else {
                        continue;
                    };
                    idx.push(down);
                    runs.extend(self.run(idx.clone(), at[lead + 1], (row * cols, cols)));
                }
                runs
            }
            _ => unreachable!("tiles have at most two axes"),
        }
    }

    fn rows(&self, rows: &[i64], col: i64, ty: &Type) -> Vec<Run> {
        let [_, cols] = ty.rows_cols();
        let each = rows.iter().enumerate();
        each.filter_map(|(i, &row)| self.run(vec![self.bounded(0, row)?], col, (i * cols, cols)))
            .collect()
    }

    fn elements(&self, at: &[&[i64]], len: usize) -> Vec<Run> {
        let idx = |i: usize| -> Option<Vec<usize>> {
            at.iter().enumerate().map(|(axis, at)| self.bounded(axis, at[i])).collect()
        };
        (0..len).filter_map(|i| Some(Run { idx: idx(i)?, at: i, len: 1 })).collect()
    }

    /// The part of `cols` elements from column `start` that lies inside.
    fn run(&self, mut idx: Vec<usize>, start: i64, (at, cols): (usize, usize)) -> Option<Run> {
        let width = self.extent(self.array.dims.len().checked_sub(1)?);
        let skip = if start < 0 { usize::try_from(start.unsigned_abs()).ok()? } else { 0 };
        let first = usize::try_from(start.max(0)).ok()?;
        let len = cols.checked_sub(skip)?.min(width.checked_sub(first)?);
        idx.push(first);
        (len > 0).then_some(Run { idx, at: at + skip, len })
    }

    fn inside(&self, at: &[i64], first_axis: usize) -> Option<Vec<usize>> {
        at.iter().enumerate().map(|(i, &at)| self.bounded(first_axis + i, at)).collect()
    }

    fn bounded(&self, axis: usize, at: i64) -> Option<usize> {
        usize::try_from(at).ok().filter(|&at| at < self.extent(axis))
    }

    fn extent(&self, axis: usize) -> usize {
        if axis == 0 { self.first_extent } else { self.array.dims[axis] }
    }

    fn offset(&self, idx: &[usize]) -> usize {
        idx.iter().zip(&self.array.strides).map(|(at, stride)| at * stride).sum()
    }

    fn note(&mut self, run: &Run, deed: Deed, program: u32) -> Result<(), Fault> {
        let offset = self.offset(&run.idx);
        let Some(shadow) = &mut self.shadow else { return Ok(()) };
        shadow.note(offset..offset + run.len, deed, program).map_err(|(i, does, other, did)| {
            let mut idx = run.idx.clone();
            if let Some(last) = idx.last_mut() {
                *last += i;
            }
            Fault::Race { arg: self.name.to_owned(), idx, does, other, did }
        })
    }

    fn read(&mut self, run: &Run, cells: &mut Cells, program: u32) -> Result<(), Fault> {
        self.note(run, Deed::Read, program)?;
        self.loaded += run.len as u64;
        self.copy_out(run, cells);
        Ok(())
    }

    fn write(&mut self, run: &Run, cells: &Cells, program: u32) -> Result<(), Fault> {
        self.note(run, Deed::Write, program)?;
        self.stored += run.len as u64;
        self.copy_in(run, cells);
        Ok(())
    }

    /// Writes of one op, whose order is not defined.
    fn write_once(&mut self, runs: &[Run], cells: &Cells, program: u32) -> Result<(), Fault> {
        let mut written = HashSet::new();
        for run in runs {
            let first = self.offset(&run.idx);
            if let Some(twice) = (first..first + run.len).find(|&at| !written.insert(at)) {
                let mut idx = run.idx.clone();
                if let Some(last) = idx.last_mut() {
                    *last += twice - first;
                }
                return Err(Fault::WrittenTwice { arg: self.name.to_owned(), idx });
            }
            self.write(run, cells, program)?;
        }
        Ok(())
    }

    fn copy_out(&self, run: &Run, cells: &mut Cells) {
        let first = match &self.array.data {
            Data::Packed(source) => {
                let Cells::Float(cells) = cells else { unreachable!("packed tiles hold values") };
                let mut idx = run.idx.clone();
                for cell in &mut cells[run.at..][..run.len] {
                    *cell = source.value(&idx);
                    if let Some(last) = idx.last_mut() {
                        *last += 1;
                    }
                }
                return;
            }
            _ => self.offset(&run.idx),
        };
        let from = first..first + run.len;
        match (&self.array.data, cells) {
            (Data::F32(data), Cells::Float(cells)) => {
                copy(&mut cells[run.at..], &data[from], f64::from);
            }
            (data, Cells::Int(cells)) => match data {
                Data::I32(data) => copy(&mut cells[run.at..], &data[from], i64::from),
                Data::I64(data) => copy(&mut cells[run.at..], &data[from], |v| v),
                Data::U32(data) => copy(&mut cells[run.at..], &data[from], i64::from),
                Data::U64(data) => copy(&mut cells[run.at..], &data[from], u64::cast_signed),
                Data::Stored(bytes) => {
                    let Elem::Stored(element) = self.elem else { return };
                    for (cell, at) in cells[run.at..].iter_mut().zip(from) {
                        *cell = i64::from(read_code(bytes, element.bits(), at));
                    }
                }
                Data::F32(_) | Data::Packed(_) => unreachable!("the arguments were checked"),
            },
            _ => unreachable!("the arguments were checked"),
        }
    }

    fn copy_in(&mut self, run: &Run, cells: &Cells) {
        let first = self.offset(&run.idx);
        let to = first..first + run.len;
        match (&mut self.array.data, cells) {
            (Data::F32(data), Cells::Float(cells)) => {
                copy(&mut data[to], &cells[run.at..][..run.len], round_f32);
            }
            (data, Cells::Int(cells)) => {
                let cells = &cells[run.at..][..run.len];
                match data {
                    Data::I32(data) => copy(&mut data[to], cells, low_i32),
                    Data::I64(data) => copy(&mut data[to], cells, |v| v),
                    Data::U32(data) => copy(&mut data[to], cells, |v| low_i32(v).cast_unsigned()),
                    Data::U64(data) => copy(&mut data[to], cells, i64::cast_unsigned),
                    Data::Stored(bytes) => {
                        let Elem::Stored(element) = self.elem else { return };
                        for (&cell, at) in cells.iter().zip(to) {
                            write_code(bytes, element, at, cell);
                        }
                    }
                    Data::F32(_) | Data::Packed(_) => unreachable!("the arguments were checked"),
                }
            }
            _ => unreachable!("the arguments were checked"),
        }
    }
}

fn copy<T: Copy, U>(to: &mut [U], from: &[T], convert: impl Fn(T) -> U) {
    for (to, &from) in to.iter_mut().zip(from) {
        *to = convert(from);
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cells of 32-bit elements fit")]
fn low_i32(cell: i64) -> i32 {
    cell as i32
}
