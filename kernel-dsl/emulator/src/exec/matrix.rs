//! Tensor-core operations and the movement of their fragments.

use super::access::{Issue, lanes};
use super::cta::{Cta, Warp};
use super::reach::{Who, reach};
use super::space::{Location, Spaces, aligned};
use super::step::check;
use super::traffic;
use super::{Trouble, World};
use crate::decode::float;
use crate::fault::FaultKind;
use crate::number::{self, F16, F32, Format, Round};
use crate::program::{Factors, Lanes, Matrix, Mma, Reg, Src};
use crate::tensor::{self, MMA_F16, MMA_F32};
use crate::types::{low_mask, sign_extend};

/// Rows of A and of the result.
const ROWS: usize = 16;
/// Columns of B and of the result.
const COLUMNS: usize = 8;

/// All lanes of a warp must take part.
fn all_lanes(issue: Issue, what: &str) -> Result<(), Trouble> {
    if issue.mask == u32::MAX {
        return Ok(());
    }
    let message = format!("{what} needs all lanes of a warp, {:#x} execute it", issue.mask);
    Err(Trouble::new(FaultKind::DivergentWarp, message))
}

/// The codes of a factor, `depth` for each row of A or column of B.
pub(super) fn codes(
    warp: &Warp,
    consts: &[Lanes],
    registers: &[Src],
    (bits, depth, rows): (u32, usize, usize),
) -> Vec<u64> {
    let mut out = vec![0; rows * depth];
    let per_register = (32 / bits) as usize;
    // With sixteen rows, every other register belongs to the lower eight.
    let halves = rows / 8;
    for (index, &register) in registers.iter().enumerate() {
        let values = warp.value(register, consts);
        for (lane, &value) in values.iter().enumerate() {
            let row = lane / 4 + 8 * (index % halves);
            let first = (index / halves) * 4 * per_register + lane % 4 * per_register;
            for part in 0..per_register {
                let code = value >> (part as u32 * bits) & low_mask(bits);
                out[row * depth + first + part] = code;
            }
        }
    }
    out
}

/// Where a lane's result `index` stands.
fn result_place(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index / 2), lane % 4 * 2 + index % 2)
}

/// The addends, as codes, row by row.
fn addends(warp: &Warp, consts: &[Lanes], mma: &Mma) -> [u64; ROWS * COLUMNS] {
    let mut out = [0; ROWS * COLUMNS];
    for lane in 0..32 {
        for index in 0..4 {
            let (row, column) = result_place(lane, index);
            out[row * COLUMNS + column] = match mma.half {
                true => warp.value(mma.c[index / 2], consts)[lane] >> (16 * (index % 2)) & 0xffff,
                false => warp.value(mma.c[index], consts)[lane],
            };
        }
    }
    out
}

pub(super) fn mma(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    mma: &Mma,
) -> Result<(), Trouble> {
    all_lanes(issue, "mma")?;
    let consts = world.setup.consts;
    let warp = &mut cta.warps[issue.warp];
    for sources in [&mma.a, &mma.b, &mma.c] {
        check(warp, sources, issue.mask)?;
    }
    world.counts[issue.pc as usize].mma += 1;
    let (bits, depth) = (mma.factors.bits(), mma.depth as usize);
    let a = codes(warp, consts, &mma.a, (bits, depth, ROWS));
    let b = codes(warp, consts, &mma.b, (bits, depth, COLUMNS));
    let c = addends(warp, consts, mma);
    let results = match mma.factors {
        Factors::Float(format) => floats(mma, format, (&a, &b), &c),
        Factors::Eight { a: fa, b: fb } => eights((fa, fb), (&a, &b), &c),
        Factors::Bytes { a_signed, b_signed, saturate } => {
            bytes((a_signed, b_signed, saturate), depth, (&a, &b), &c)
        }
    };
    let at = |lane: usize, index: usize| {
        let (row, column) = result_place(lane, index);
        results[row * COLUMNS + column]
    };
    for (index, &dst) in mma.d.iter().enumerate() {
        let out: Lanes = std::array::from_fn(|lane| match mma.half {
            true => at(lane, 2 * index) | at(lane, 2 * index + 1) << 16,
            false => at(lane, index),
        });
        warp.set_register(dst, &out, issue.mask);
    }
    Ok(())
}

type Results = [u64; ROWS * COLUMNS];

fn each(mut f: impl FnMut(usize, usize) -> u64) -> Results {
    std::array::from_fn(|index| f(index / COLUMNS, index % COLUMNS))
}

fn floats(mma: &Mma, format: Format, (a, b): (&[u64], &[u64]), c: &Results) -> Results {
    // A tf32 is read from the upper bits of its register; the lower ones are cut off.
    let shift = if format == number::TF32 { 13 } else { 0 };
    let apart = |codes: &[u64]| {
        let codes = codes.iter().map(|code| code >> shift);
        tensor::Factors::new(format, mma.depth as usize, codes)
    };
    let (a, b) = (apart(a), apart(b));
    let (model, addend) = if mma.half { (MMA_F16, F16) } else { (MMA_F32, F32) };
    each(|row, column| {
        tensor::dot(model, (&a, row), (&b, column), (addend, c[row * COLUMNS + column]))
    })
}

/// Eight-bit floats, as an assembler for sm_90 and sm_100 expands them: the lower two elements of
/// every register go through f16 into one product from zero, the upper two into another that is
/// chained to it, then C is added in f32. Read off the code that ptxas 13.0.88 makes.
fn eights((fa, fb): (Format, Format), (a, b): (&[u64], &[u64]), c: &Results) -> Results {
    const HALF: usize = 16;
    let part = |format: Format, codes: &[u64], first: usize| {
        let pairs = codes.chunks_exact(4).flat_map(|four| &four[first..first + 2]);
        let halves = pairs.map(|&code| F16.encode(format.decode(code), Round::Nearest, false));
        tensor::Factors::new(F16, HALF, halves)
    };
    let parts = [0, 2].map(|first| (part(fa, a, first), part(fb, b, first)));
    let plain = float::Mode { round: Round::Nearest, ftz: false, saturate: false };
    each(|row, column| {
        let sum = parts
            .iter()
            .fold(0, |sum, (a, b)| tensor::dot(MMA_F32, (a, row), (b, column), (F32, sum)));
        float::add32(plain, sum, c[row * COLUMNS + column])
    })
}

fn bytes(
    (a_signed, b_signed, saturate): (bool, bool, bool),
    depth: usize,
    (a, b): (&[u64], &[u64]),
    c: &Results,
) -> Results {
    let number = |signed: bool, code: u64| if signed { sign_extend(code, 8) } else { code as i64 };
    each(|row, column| {
        let products = (0..depth).map(|k| {
            number(a_signed, a[row * depth + k]) * number(b_signed, b[column * depth + k])
        });
        let sum = products.sum::<i64>() + sign_extend(c[row * COLUMNS + column], 32);
        let kept = match saturate {
            true => sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)),
            false => sum,
        };
        kept as u64 & low_mask(32)
    })
}

/// The addresses of rows, of which the first lanes give one each.
fn rows(
    world: &mut World<'_>,
    cta: &Cta,
    issue: Issue,
    (matrix, count): (&Matrix, usize),
) -> Result<Lanes, Trouble> {
    let named = low_mask(8 * count as u32) as u32;
    let warp = &cta.warps[issue.warp];
    check(warp, &[matrix.address.base], named)?;
    let mut addresses = *warp.value(matrix.address.base, world.setup.consts);
    for address in &mut addresses {
        *address = address.wrapping_add_signed(matrix.address.offset);
    }
    let counts = &mut world.counts[issue.pc as usize];
    counts.shared_bytes += 128 * count as u64;
    counts.shared_conflicts += traffic::conflicts(named, &addresses, 16);
    Ok(addresses)
}

/// The location of a row in shared memory.
fn locate(spaces: Spaces, matrix: &Matrix, address: u64) -> Result<Location, Trouble> {
    aligned(address, 16)?;
    match spaces.locate(matrix.space, address, 16)? {
        location @ Location::Shared(_) => Ok(location),
        _ => {
            let message = format!("a matrix's row at {address:#x} is not in shared memory");
            Err(Trouble::new(FaultKind::WrongSpace, message))
        }
    }
}

/// Element of a lane in a matrix of eight by eight.
fn element(lane: usize, part: usize, transposed: bool) -> (usize, usize) {
    let (row, column) = (lane / 4, lane % 4 * 2 + part);
    if transposed { (column, row) } else { (row, column) }
}

pub(super) fn load(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (matrix, dst): (&Matrix, &[Reg]),
) -> Result<(), Trouble> {
    all_lanes(issue, "ldmatrix")?;
    let addresses = rows(world, cta, issue, (matrix, dst.len()))?;
    let (mut reach, warp) = reach(world, cta, issue.warp);
    for (index, &dst) in dst.iter().enumerate() {
        let mut halves = [[0u64; 8]; 8];
        for (row, halves) in halves.iter_mut().enumerate() {
            let lane = index * 8 + row;
            let who = Who::weak(issue, &warp.clock);
            let mut bytes = [0; 16];
            let location =
                locate(reach.spaces, matrix, addresses[lane]).map_err(|t| t.lane(lane))?;
            reach.read(location, &mut bytes, &who).map_err(|t| t.lane(lane))?;
            for (half, bytes) in halves.iter_mut().zip(bytes.chunks_exact(2)) {
                *half = u64::from(u16::from_le_bytes([bytes[0], bytes[1]]));
            }
        }
        let at = |lane: usize, part: usize| {
            let (row, column) = element(lane, part, matrix.transposed);
            halves[row][column]
        };
        let out: Lanes = std::array::from_fn(|lane| at(lane, 0) | at(lane, 1) << 16);
        warp.set_register(dst, &out, issue.mask);
    }
    Ok(())
}

pub(super) fn store(
    world: &mut World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (matrix, src): (&Matrix, &[Src]),
) -> Result<(), Trouble> {
    all_lanes(issue, "stmatrix")?;
    check(&cta.warps[issue.warp], src, issue.mask)?;
    let addresses = rows(world, cta, issue, (matrix, src.len()))?;
    let consts = world.setup.consts;
    let (mut reach, warp) = reach(world, cta, issue.warp);
    for (index, &src) in src.iter().enumerate() {
        let mut bytes = [[0u8; 16]; 8];
        for (lane, &value) in warp.value(src, consts).iter().enumerate() {
            for part in 0..2 {
                let (row, column) = element(lane, part, matrix.transposed);
                let half = (value >> (16 * part)) as u16;
                bytes[row][2 * column..][..2].copy_from_slice(&half.to_le_bytes());
            }
        }
        for (row, bytes) in bytes.iter().enumerate() {
            let lane = index * 8 + row;
            let who = Who::weak(issue, &warp.clock);
            let location =
                locate(reach.spaces, matrix, addresses[lane]).map_err(|t| t.lane(lane))?;
            reach.write(location, bytes, &who).map_err(|t| t.lane(lane))?;
        }
    }
    Ok(())
}

/// `movmatrix`: a matrix of eight by eight, spread over the lanes, transposed.
pub(super) fn transpose(
    world: &World<'_>,
    cta: &mut Cta,
    issue: Issue,
    (dst, src): (Reg, Src),
) -> Result<(), Trouble> {
    all_lanes(issue, "movmatrix")?;
    let warp = &mut cta.warps[issue.warp];
    check(warp, &[src], issue.mask)?;
    let values = *warp.value(src, world.setup.consts);
    let at =
        |row: usize, column: usize| values[row * 4 + column / 2] >> (16 * (column % 2)) & 0xffff;
    let out: Lanes = std::array::from_fn(|lane| {
        let (row, column) = (lane / 4, lane % 4 * 2);
        at(column, row) | at(column + 1, row) << 16
    });
    warp.set_register(dst, &out, issue.mask);
    debug_assert!(lanes(issue.mask).count() == 32);
    Ok(())
}
