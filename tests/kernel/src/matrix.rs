//! A tile as text: rows and columns with their indices, the middle left out where there is too
//! much of it.

use tessera_tile_ir::eval::Cells;
use tessera_tile_ir::{Elem, Type};

/// Rows shown at most; of more, the first and the last ones.
const MAX_ROWS: usize = 10;
/// Digits of a float that matter here.
const DIGITS: usize = 6;
/// Between columns.
const GAP: usize = 2;

/// What a tile holds, in lines of at most this width where one number fits; a scalar is one line.
pub fn show(ty: &Type, cells: &Cells, width: usize) -> Vec<String> {
    let texts = texts(ty, cells);
    if ty.shape.is_empty() {
        return texts;
    }
    let [rows, cols] = ty.rows_cols();
    let widest = texts.iter().map(String::len).max().unwrap_or(0).max(cols.to_string().len());
    let label = if ty.shape.len() == 1 { 0 } else { rows.to_string().len() + GAP };
    let room = width.saturating_sub(label) / (widest + GAP);
    let (row_picks, col_picks) = (pick(rows, MAX_ROWS), pick(cols, room));
    let line = |name: String, cell: &dyn Fn(usize) -> String| {
        let cells = col_picks.iter().map(|col| match col {
            Some(col) => format!("{:GAP$}{:>widest$}", "", cell(*col)),
            None => format!("{:GAP$}…", ""),
        });
        format!("{name:>label$}{}", cells.collect::<String>()).trim_end().to_owned()
    };
    let mut lines = vec![line(String::new(), &|col| format!("[{col}]"))];
    for row in &row_picks {
        lines.push(match row {
            Some(row) => {
                let name = if label == 0 { String::new() } else { format!("[{row}]") };
                line(name, &|col| texts[row * cols + col].clone())
            }
            None => format!("{:>label$}", "⋮"),
        });
    }
    if row_picks.contains(&None) || col_picks.contains(&None) {
        lines.extend(summary(cols, cells));
    }
    lines
}

/// Indices to show of `count`, `None` for those left out: never more than `room`, the gap included.
fn pick(count: usize, room: usize) -> Vec<Option<usize>> {
    let room = room.max(3);
    if count <= room {
        return (0..count).map(Some).collect();
    }
    let last = (room - 1) / 3;
    let first = room - 1 - last;
    let first = (0..first).map(Some);
    first.chain([None]).chain((count - last.max(1)..count).map(Some)).collect()
}

/// Every element as text, floats in one style.
fn texts(ty: &Type, cells: &Cells) -> Vec<String> {
    match (cells, ty.elem) {
        (Cells::Float(values), _) => floats(values),
        (Cells::Int(codes), Elem::Stored(element)) => {
            // Bits above the code's own do not count.
            let decode = |code: &i64| f64::from(element.decode((code & 0xffff_ffff) as u32));
            floats(&codes.iter().map(decode).collect::<Vec<_>>())
        }
        (Cells::Int(values), Elem::U64) => {
            values.iter().map(|value| value.cast_unsigned().to_string()).collect()
        }
        (Cells::Int(values), _) => values.iter().map(ToString::to_string).collect(),
        (Cells::Bool(values), _) => values.iter().map(ToString::to_string).collect(),
    }
}

/// Floats with as many decimals as the largest leaves room for, or with exponents where they
/// differ too much for that.
fn floats(values: &[f64]) -> Vec<String> {
    let magnitudes = || values.iter().map(|v| v.abs()).filter(|m| m.is_finite() && *m > 0.0);
    let largest = magnitudes().fold(0.0, f64::max);
    let smallest = magnitudes().fold(f64::INFINITY, f64::min);
    let whole = values.iter().all(|v| !v.is_finite() || v.fract() == 0.0) && largest < 1e6;
    let plain = largest == 0.0 || (smallest >= 1e-4 && largest < 1e6);
    let before_point = format!("{:.0}", largest.floor()).len();
    let decimals = if whole { 1 } else { (DIGITS + 1).saturating_sub(before_point).max(1) };
    let text = |value: &f64| match value {
        value if !value.is_finite() => value.to_string(),
        value if plain || whole => format!("{value:.decimals$}"),
        value => format!("{value:.*e}", DIGITS - 1),
    };
    values.iter().map(text).collect()
}

/// What the elements that were left out may hide.
fn summary(cols: usize, cells: &Cells) -> Option<String> {
    let Cells::Float(values) = cells else { return None };
    let numbers = || values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let (low, least) = numbers().min_by(|a, b| a.1.total_cmp(b.1))?;
    let (high, most) = numbers().max_by(|a, b| a.1.total_cmp(b.1))?;
    let place = |index: usize| format!("[{}, {}]", index / cols, index % cols);
    let nans = values.len() - numbers().count();
    Some(format!(
        "least {least:.5e} at {}, most {most:.5e} at {}, {nans} NaN",
        place(low),
        place(high)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(shape: &[usize], values: &[f64], width: usize, want: &[&str]) {
        let ty = Type::tile(Elem::F32, shape);
        assert_eq!(show(&ty, &Cells::Float(values.to_vec()), width), want);
    }

    #[test]
    fn small_tiles_are_shown_whole() {
        check(&[], &[0.5], 80, &["0.500000"]);
        check(&[2], &[1.0, -2.0], 80, &["   [0]   [1]", "   1.0  -2.0"]);
        check(
            &[2, 2],
            &[1.5, 0.0, f64::NAN, 1e3],
            80,
            &["        [0]       [1]", "[0]    1.500     0.000", "[1]      NaN  1000.000"],
        );
    }

    #[test]
    fn very_different_floats_have_exponents() {
        check(&[2], &[1e-9, 1.0], 80, &["         [0]         [1]", "  1.00000e-9   1.00000e0"]);
    }

    #[test]
    fn the_middle_is_left_out() {
        let values: Vec<f64> = (0..40u8).map(f64::from).collect();
        let want = [
            "    [0]   [1]  …  [39]",
            "    0.0   1.0  …  39.0",
            "least 0.00000e0 at [0, 0], most 3.90000e1 at [0, 39], 0 NaN",
        ];
        check(&[40], &values, 24, &want);
        let ty = Type::tile(Elem::F32, &[40, 1]);
        assert_eq!(show(&ty, &Cells::Float(values), 80).len(), 1 + MAX_ROWS + 1);
    }

    #[test]
    fn no_pick_is_larger_than_its_room() {
        for count in 0..30 {
            for room in 3..12 {
                let picks = pick(count, room);
                assert!(picks.len() <= room, "{count} in {room}: {picks:?}");
                assert_eq!(picks.contains(&None), count > room);
                assert_eq!(picks.last().copied().flatten(), count.checked_sub(1));
            }
        }
    }

    #[test]
    fn integers_keep_their_kind() {
        let ty = Type::scalar(Elem::U64);
        assert_eq!(show(&ty, &Cells::Int(vec![-1]), 80), [u64::MAX.to_string()]);
        let ty = Type::scalar(Elem::Bool);
        assert_eq!(show(&ty, &Cells::Bool(vec![true]), 80), ["true"]);
    }
}
