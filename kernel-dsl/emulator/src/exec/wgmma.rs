//! Tensor-core operations of four warps. Each warp of the four makes sixteen rows of the result, so
//! each is executed by itself; the factors in shared memory are read when the schedule says so.

use super::access::{Issue, lanes};
use super::copies::{self, Work};
use super::cta::{Cta, Warp};
use super::matrix;
use super::reach::{Reach, Who, reach_all};
use super::space::Location;
use super::step::check;
use super::{Trouble, World};
use crate::body::SHARED_BASE;
use crate::fault::FaultKind;
use crate::number::{self, F16, F32};
use crate::profile::Counts;
use crate::program::{Factors, Lanes, Left, Src, Wgmma};
use crate::tensor::{self, MMA_F16, MMA_F32, Model, WGMMA_EIGHT, WGMMA_EIGHT_F16};
use crate::types::{low_mask, sign_extend};

/// Bytes of a row that one operation takes: the depth is chosen so.
const ROW: usize = 32;
/// Bytes that lie together in every layout.
const CHUNK: usize = 16;

/// An operation whose operands were read from registers.
#[derive(Clone, Debug)]
pub(super) struct Multiply {
    wgmma: Wgmma,
    /// Rows of A, if they come from registers.
    rows: Option<Vec<u64>>,
    descriptors: [u64; 2],
    accumulate: bool,
}

/// Where a factor lies in shared memory.
#[derive(Clone, Copy, Debug)]
struct Layout {
    start: u64,
    leading: u64,
    stride: u64,
    /// Bytes of a row of the swizzled pattern; sixteen if there is none.
    pitch: u64,
}

impl Layout {
    fn new(descriptor: u64) -> Result<Layout, Trouble> {
        let field = |shift: u32| (descriptor >> shift & 0x3fff) << 4;
        if descriptor >> 49 & 7 != 0 {
            let message = "descriptors with a base offset are not known".to_owned();
            return Err(Trouble::new(FaultKind::Operand, message));
        }
        let pitch = match descriptor >> 62 {
            0 => 16,
            1 => 128,
            2 => 64,
            _ => 32,
        };
        Ok(Layout { start: field(0), leading: field(16), stride: field(32), pitch })
    }

    /// Where a chunk lies: `line` counts rows, or steps of the depth if transposed; `chunk` counts
    /// sixteen bytes along them.
    fn address(self, line: u64, chunk: u64, transposed: bool) -> u64 {
        let (group, row) = (line / 8, line % 8);
        let in_pattern = self.pitch / 16;
        let linear = match (self.pitch, transposed) {
            (16, false) => row * 16 + group * self.stride + chunk * self.leading,
            (16, true) => row * 16 + group * self.leading + chunk * self.stride,
            (pitch, false) => row * pitch + group * self.stride + chunk * 16,
            (pitch, true) => {
                let (outer, inner) = (chunk / in_pattern, chunk % in_pattern);
                row * pitch + group * self.stride + inner * 16 + outer * self.leading
            }
        };
        let address = self.start + linear;
        // Bits 4 and up are exchanged with those of the line of 128 bytes.
        address ^ (address >> 7 & (in_pattern - 1)) << 4
    }
}

/// A source that all lanes must agree on.
fn uniform(warp: &Warp, consts: &[Lanes], src: Src, mask: u32) -> Result<u64, Trouble> {
    check(warp, &[src], mask)?;
    let values = warp.value(src, consts);
    if values.iter().any(|value| *value != values[0]) {
        let message = "lanes give different descriptors".to_owned();
        return Err(Trouble::new(FaultKind::Operand, message));
    }
    Ok(values[0])
}

/// `wgmma.mma_async`
pub(super) fn issue(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    wgmma: &Wgmma,
) -> Result<(), Trouble> {
    if issue.mask != u32::MAX || !cta.warps.len().is_multiple_of(4) {
        let message = "wgmma needs all lanes of four warps".to_owned();
        return Err(Trouble::new(FaultKind::DivergentWarp, message));
    }
    let consts = world.setup.consts;
    let warp = &mut cta.warps[issue.warp];
    let (bits, depth) = (wgmma.factors.bits(), wgmma.depth as usize);
    let mut descriptors = [0, uniform(warp, consts, wgmma.right, issue.mask)?];
    let rows = match &wgmma.left {
        Left::Registers(registers) => {
            check(warp, registers, issue.mask)?;
            Some(matrix::codes(warp, consts, registers, (bits, depth, 16)))
        }
        Left::Descriptor(src) => {
            descriptors[0] = uniform(warp, consts, *src, issue.mask)?;
            None
        }
    };
    let (holds, missing) = warp.condition(wgmma.accumulate);
    if missing != 0 || (holds != 0 && holds != u32::MAX) {
        let message = "whether to accumulate is unset, or differs between lanes".to_owned();
        return Err(Trouble::new(FaultKind::Operand, message));
    }
    if holds != 0 {
        for &reg in &wgmma.d {
            // Results of an operation in flight may be added to before anybody waits.
            if !warp.custody.is_awaited(reg) {
                check(warp, &[Src::Reg(reg)], issue.mask)?;
            }
        }
    }
    let group = warp.products.open_group();
    if let Left::Registers(registers) = &wgmma.left {
        for src in registers {
            if let Src::Reg(reg) = src {
                warp.custody.lend(*reg, group, false)?;
            }
        }
    }
    for &reg in &wgmma.d {
        warp.custody.lend(reg, group, true)?;
        warp.written[reg.0 as usize] = 0;
    }
    count(&mut world.counts[issue.pc as usize], wgmma);
    let accumulate = holds != 0;
    let multiply = Multiply { wgmma: wgmma.clone(), rows, descriptors, accumulate };
    copies::queue(world, cta, issue, Work::Multiply(Box::new(multiply)))
}

/// Counts an operation as the `mma.sync` that it stands for, and a quarter of what the four warps read
/// of shared memory.
fn count(counts: &mut Counts, wgmma: &Wgmma) {
    counts.mma += u64::from(wgmma.columns / 8);
    counts.shared_bytes += u64::from(wgmma.columns) * ROW as u64 / 4;
    if matches!(wgmma.left, Left::Descriptor(_)) {
        counts.shared_bytes += 16 * ROW as u64;
    }
}

/// `wgmma.wait_group`: the results of groups before this one are there.
pub(super) fn settle(warp: &mut Warp, group: u32) {
    for reg in warp.custody.settle(group) {
        warp.written[reg.0 as usize] = u32::MAX;
    }
}

/// Reads a factor: `lines` rows of `depth` codes.
fn read(
    reach: &mut Reach<'_>,
    layout: Layout,
    (lines, depth, bits): (std::ops::Range<usize>, usize, u32),
    (transposed, who): (bool, &Who<'_>),
) -> Result<Vec<u64>, Trouble> {
    let size = (bits / 8) as usize;
    let mut out = vec![0; lines.len() * depth];
    let mut chunk_at = |line: usize, chunk: usize| -> Result<[u8; CHUNK], Trouble> {
        let address = layout.address(line as u64, chunk as u64, transposed);
        let offset = address.wrapping_sub(SHARED_BASE);
        if offset.saturating_add(CHUNK as u64) > reach.spaces.shared {
            let message = format!("a factor's bytes at {address:#x} are outside shared memory");
            return Err(Trouble::new(FaultKind::OutOfBounds, message));
        }
        let mut bytes = [0; CHUNK];
        reach.read(Location::Shared(offset as usize), &mut bytes, who)?;
        Ok(bytes)
    };
    let code = |bytes: &[u8]| bytes.iter().rev().fold(0, |code, &byte| code << 8 | u64::from(byte));
    if transposed {
        // Chunks run along the lines, of which eight elements lie together.
        for k in 0..depth {
            for chunk in lines.start / 8..lines.end / 8 {
                for (index, bytes) in chunk_at(k, chunk)?.chunks_exact(size).enumerate() {
                    out[(chunk * 8 + index - lines.start) * depth + k] = code(bytes);
                }
            }
        }
        return Ok(out);
    }
    let per_chunk = CHUNK / size;
    for line in lines.clone() {
        for chunk in 0..ROW / CHUNK {
            for (index, bytes) in chunk_at(line, chunk)?.chunks_exact(size).enumerate() {
                out[(line - lines.start) * depth + chunk * per_chunk + index] = code(bytes);
            }
        }
    }
    Ok(out)
}

/// Does an operation.
pub(super) fn run(
    world: &mut World<'_>,
    cta: &mut Cta,
    (warp, who): (usize, &Who<'_>),
    multiply: &Multiply,
) -> Result<(), Trouble> {
    let Multiply { wgmma, rows, descriptors, accumulate } = multiply;
    let (bits, depth) = (wgmma.factors.bits(), wgmma.depth as usize);
    let first = warp % 4 * 16;
    let mut reach = reach_all(world, cta);
    let a = match rows {
        Some(rows) => rows.clone(),
        None => {
            let layout = Layout::new(descriptors[0])?;
            let part = (first..first + 16, depth, bits);
            read(&mut reach, layout, part, (wgmma.transpose[0], who))?
        }
    };
    let layout = Layout::new(descriptors[1])?;
    let part = (0..wgmma.columns as usize, depth, bits);
    let b = read(&mut reach, layout, part, (wgmma.transpose[1], who))?;
    let negate = wgmma.negate[0] != wgmma.negate[1];
    let multiply = Dot::new(wgmma.factors, (&a, &b), (depth, wgmma.half, negate));
    store(&mut cta.warps[warp], wgmma, *accumulate, &multiply);
    Ok(())
}

/// Factors that are ready to be multiplied.
enum Dot<'c> {
    Floats { model: Model, a: tensor::Factors, b: tensor::Factors },
    Bytes { a: &'c [u64], b: &'c [u64], depth: usize, signed: [bool; 2], saturate: bool },
}

impl<'c> Dot<'c> {
    fn new(
        factors: Factors,
        (a, b): (&'c [u64], &'c [u64]),
        (depth, half, negate): (usize, bool, bool),
    ) -> Dot<'c> {
        let (formats, model) = match factors {
            Factors::Float(format) => ([format; 2], if half { MMA_F16 } else { MMA_F32 }),
            Factors::Eight { a, b } => ([a, b], if half { WGMMA_EIGHT_F16 } else { WGMMA_EIGHT }),
            Factors::Bytes { a_signed, b_signed, saturate } => {
                return Dot::Bytes { a, b, depth, signed: [a_signed, b_signed], saturate };
            }
        };
        let shift = if formats[0] == number::TF32 { 13 } else { 0 };
        let sign = if negate { 1 << (formats[0].bits() - 1) } else { 0 };
        let a = a.iter().map(|code| code >> shift ^ sign);
        let b = b.iter().map(|code| code >> shift);
        Dot::Floats {
            model,
            a: tensor::Factors::new(formats[0], depth, a),
            b: tensor::Factors::new(formats[1], depth, b),
        }
    }

    fn result(&self, row: usize, column: usize, half: bool, c: u64) -> u64 {
        match self {
            Dot::Floats { model, a, b } => {
                let addend = if half { F16 } else { F32 };
                tensor::dot(*model, (a, row), (b, column), (addend, c))
            }
            Dot::Bytes { a, b, depth, signed, saturate } => {
                let number = |signed: bool, code: u64| match signed {
                    true => sign_extend(code, 8),
                    false => code as i64,
                };
                let products = (0..*depth).map(|k| {
                    let (a, b) = (a[row * depth + k], b[column * depth + k]);
                    number(signed[0], a) * number(signed[1], b)
                });
                let sum = products.sum::<i64>() + sign_extend(c, 32);
                let most = (i64::from(i32::MIN), i64::from(i32::MAX));
                let kept = if *saturate { sum.clamp(most.0, most.1) } else { sum };
                kept as u64 & low_mask(32)
            }
        }
    }
}

/// Writes a warp's rows of the result to its registers.
fn store(warp: &mut Warp, wgmma: &Wgmma, accumulate: bool, dot: &Dot<'_>) {
    for (index, &reg) in wgmma.d.iter().enumerate() {
        let old = warp.registers[reg.0 as usize];
        let mut out = [0; 32];
        for lane in lanes(u32::MAX) {
            let one = |element: usize, c: u64| {
                // Four elements of a lane in each eight columns.
                let (block, part) = (element / 4, element % 4);
                let row = lane / 4 + 8 * (part / 2);
                let column = block * 8 + lane % 4 * 2 + part % 2;
                dot.result(row, column, wgmma.half, if accumulate { c } else { 0 })
            };
            out[lane] = match wgmma.half {
                true => {
                    let low = one(2 * index, old[lane] & 0xffff);
                    low | one(2 * index + 1, old[lane] >> 16 & 0xffff) << 16
                }
                false => one(index, old[lane]),
            };
        }
        warp.registers[reg.0 as usize] = out;
    }
}
