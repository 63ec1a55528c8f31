//! Smoke.
use tessera_kernels::formats::{FORMATS, PackedMatrix};
#[test]
fn smoke() {
    let v: Vec<f32> = (0..260 * 256).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    for f in FORMATS {
        let m = PackedMatrix::encode(f, 260, 256, &v).unwrap();
        let d = m.decode();
        let e = v.iter().zip(&d).map(|(a, b)| (a - b).powi(2)).sum::<f32>()
            / v.iter().map(|a| a * a).sum::<f32>();
        println!("{} {}", f.name, e.sqrt());
        assert!(e.sqrt() < 0.2);
    }
}
