//! The inner product that every reference uses.

/// Lanes of [`dot`]: enough independent sums for any vector unit to work at full width.
const LANES: usize = 16;

/// Work below this many multiply-adds is not worth another thread.
pub(super) const PARALLEL_MACS: usize = 1 << 16;

/// `sum(a * b)`: element `i` goes to lane `i % 16`, lanes are added in pairs. The order depends on
/// the length alone, so the bits do too.
pub fn dot(a: &[f32], b: &[f32]) -> f32 {
    debug_assert_eq!(a.len(), b.len(), "an inner product of two lengths");
    let mut lanes = [0.0f32; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let (a_tail, b_tail) = (a.remainder(), b.remainder());
    for (a, b) in a.zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    for ((lane, a), b) in lanes.iter_mut().zip(a_tail).zip(b_tail) {
        *lane += a * b;
    }
    tree(lanes)
}

/// Four inner products with one left side, each with the bits of [`dot`].
pub(super) fn dot4(a: &[f32], b: [&[f32]; 4]) -> [f32; 4] {
    let mut lanes = [[0.0f32; LANES]; 4];
    let whole = a.len() / LANES * LANES;
    let b = b.map(|b| &b[..a.len()]);
    for start in (0..whole).step_by(LANES) {
        let a = &a[start..start + LANES];
        for (lanes, b) in lanes.iter_mut().zip(b) {
            for ((lane, a), b) in lanes.iter_mut().zip(a).zip(&b[start..start + LANES]) {
                *lane += a * b;
            }
        }
    }
    for (lanes, b) in lanes.iter_mut().zip(b) {
        for ((lane, a), b) in lanes.iter_mut().zip(&a[whole..]).zip(&b[whole..]) {
            *lane += a * b;
        }
    }
    lanes.map(tree)
}

fn tree(mut lanes: [f32; LANES]) -> f32 {
    let mut width = LANES / 2;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

/// `out += factor * x`.
pub(super) fn add_scaled(out: &mut [f32], factor: f32, x: &[f32]) {
    for (out, x) in out.iter_mut().zip(x) {
        *out += factor * x;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_of_every_length_matches_f64() {
        for len in 0..70 {
            let a: Vec<f32> = (0..len).map(|i| (i as f32 * 0.7).sin()).collect();
            let b: Vec<f32> = (0..len).map(|i| (i as f32 * 1.3).cos()).collect();
            let want: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((f64::from(dot(&a, &b)) - want).abs() < 1e-5, "length {len}");
        }
    }

    #[test]
    fn dot4_has_the_bits_of_dot() {
        let a: Vec<f32> = (0..53).map(|i| (i as f32 * 0.37).sin()).collect();
        let b: Vec<Vec<f32>> =
            (0..4).map(|k| (0..53).map(|i| ((i * k) as f32 * 0.11).cos()).collect()).collect();
        let got = dot4(&a, [&b[0], &b[1], &b[2], &b[3]]);
        for k in 0..4 {
            assert_eq!(got[k].to_bits(), dot(&a, &b[k]).to_bits());
        }
    }
}
