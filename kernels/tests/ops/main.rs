//! References of the small ops against constants worked out elsewhere, on the shapes that are
//! easily got wrong (no row, one row, strided views, ragged sequences), and what plans are refused.

mod batch;
mod cache;
mod plans;
mod rows;

use tessera_kernels::formats::{KvFormat, PackedMatrix, format, kv_format};
use tessera_kernels::launch::{BufferId, PlanError, RowView};

/// A view of contiguous rows. References look at its shape alone.
fn view(rows: usize, cols: usize) -> RowView {
    RowView::contiguous(BufferId(0), rows, cols)
}

/// A weight stored as f32.
fn weight(rows: usize, cols: usize, values: &[f32]) -> PackedMatrix {
    let f32 = format("f32").expect("a format");
    PackedMatrix::encode(f32, rows, cols, values).expect("values that fit")
}

fn kv(name: &str) -> &'static KvFormat {
    kv_format(name).expect(name)
}

/// Deterministic values in -1..1.
fn wave(count: usize, step: f32) -> Vec<f32> {
    (0..count).map(|i| (i as f32 * step).sin()).collect()
}

/// The op and the argument an error names.
fn named(error: &PlanError) -> (&'static str, &'static str) {
    match error {
        PlanError::Shape { op, arg, .. } | PlanError::Value { op, arg, .. } => (op, arg),
        other => panic!("an error that names no argument: {other}"),
    }
}
