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
    let index = |extent: usize| format!("[{}]", extent.saturating_sub(1)).len();
    let widest = texts.iter().map(String::len).max().unwrap_or(0).max(index(cols));
    let label = if ty.shape.len() == 1 { 0 } else { index(rows) };
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
        lines.extend(summary(&ty.shape, cells));
    }
    lines
}

/// Indices to show of `count`, `None` for those left out: never more than `room`, the gap included.
fn pick(count: usize, room: usize) -> Vec<Option<usize>> {
    let room = room.max(3);
    if count <= room {
        return (0..count).map(Some).collect();
    }
    let last = ((room - 1) / 3).max(1);
    let first = room - 1 - last;
    let first = (0..first).map(Some);
    first.chain([None]).chain((count - last..count).map(Some)).collect()
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

/// Floats with as many decimals as the largest leaves room for, or with exponents where it is too
/// large or too small for that.
fn floats(values: &[f64]) -> Vec<String> {
    let finite = || values.iter().filter(|value| value.is_finite());
    let largest = finite().fold(0.0, |largest: f64, value| largest.max(value.abs()));
    let whole = largest < 1e6 && finite().all(|value| value.fract() == 0.0);
    let before_point = format!("{:.0}", largest.floor()).len();
    let decimals = if whole { 1 } else { (DIGITS + 1).saturating_sub(before_point).max(1) };
    let plain = largest == 0.0 || (1e-3..1e6).contains(&largest);
    let text = |&value: &f64| {
        if !value.is_finite() {
            return value.to_string();
        }
        let text = format!("{value:.decimals$}");
        // Nothing but a zero looks like one.
        let vanished = value != 0.0 && !text.contains(|c: char| c.is_ascii_digit() && c != '0');
        match plain {
            true if vanished => format!("{value:.0e}"),
            true => text,
            false => format!("{value:.*e}", DIGITS - 1),
        }
    };
    values.iter().map(text).collect()
}

/// What the elements that were left out may hide.
fn summary(shape: &[usize], cells: &Cells) -> Option<String> {
    let Cells::Float(values) = cells else { return None };
    let numbers = || values.iter().enumerate().filter(|(_, value)| !value.is_nan());
    let (low, least) = numbers().min_by(|a, b| a.1.total_cmp(b.1))?;
    let (high, most) = numbers().max_by(|a, b| a.1.total_cmp(b.1))?;
    let place = |index: usize| match shape {
        [_, cols] => format!("[{}, {}]", index / cols, index % cols),
        _ => format!("[{index}]"),
    };
    let nans = match values.len() - numbers().count() {
        0 => String::new(),
        nans => format!(", {nans} NaN"),
    };
    let texts = floats(&[*least, *most]);
    if least.total_cmp(most).is_eq() {
        return Some(format!("all {}{nans}", texts[0]));
    }
    let (low, high) = (place(low), place(high));
    Some(format!("least {} at {low}, most {} at {high}{nans}", texts[0], texts[1]))
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
            &["          [0]       [1]", "[0]     1.500     0.000", "[1]       NaN  1000.000"],
        );
    }

    #[test]
    fn floats_keep_the_digits_that_tell_them_apart() {
        check(&[2], &[1e-9, 2.5], 80, &["       [0]       [1]", "      1e-9  2.500000"]);
        check(&[2], &[1e-9, 2e7], 80, &["         [0]         [1]", "  1.00000e-9   2.00000e7"]);
        check(&[2], &[0.0, -0.0], 80, &["   [0]   [1]", "   0.0  -0.0"]);
    }

    #[test]
    fn the_middle_is_left_out() {
        let values: Vec<f64> = (0..40u8).map(f64::from).collect();
        let want = [
            "   [0]   [1]  …  [39]",
            "   0.0   1.0  …  39.0",
            "least 0.0 at [0], most 39.0 at [39]",
        ];
        check(&[40], &values, 24, &want);
        let ty = Type::tile(Elem::F32, &[40, 1]);
        let lines = show(&ty, &Cells::Float(values), 80);
        assert_eq!(lines.len(), 1 + MAX_ROWS + 1);
        assert_eq!(lines.last().unwrap(), "least 0.0 at [0, 0], most 39.0 at [39, 0]");
        check(&[9], &[0.0; 9], 20, &["  [0]  [1]  …  [8]", "  0.0  0.0  …  0.0", "all 0.0"]);
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
