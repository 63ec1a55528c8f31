//! Stored elements and block formats.

use crate::{E4M3_G2, I4_G4, fault, filled, run, single};
use tessera_tile_ir::eval::{Arg, Array, Data, Evaluator, PackedSource};
use tessera_tile_ir::format::Format;

#[test]
fn codes_are_decoded_and_encoded() {
    let kernel = single(
        "N",
        "param x: in stored<e4m3>[N] param y: out f32[N] param z: out stored<bf16>[N]",
        "%1: i64 = const 0 %2: stored<e4m3>[4] = load x (%1) %3: f32[4] = decode (%2)
         store y (%1, %3) %4: stored<bf16>[4] = encode bf16 (%3) store z (%1, %4)",
    );
    let codes = vec![0x38, 0x7e, 0x01, 0xc0];
    let args = vec![
        Arg::array(Data::Stored(codes), &[4]),
        Arg::f32(vec![0.0; 4], &[4]),
        Arg::array(Data::Stored(vec![0; 8]), &[4]),
    ];
    let after = run(&kernel, args);
    assert_eq!(after[1].as_f32(), [1.0, 448.0, 2.0_f32.powi(-9), -2.0]);
    let Arg::Array(Array { data: Data::Stored(z), .. }) = &after[2] else { panic!("codes") };
    assert_eq!(z, &[0x80, 0x3f, 0xe0, 0x43, 0x00, 0x3b, 0x00, 0xc0]);
}

#[test]
fn half_bytes_have_the_first_code_low() {
    let kernel = single(
        "N",
        "param x: in stored<e2m1>[N] param y: out f32[N] param z: out stored<e2m1>[N]",
        "%1: i64 = const 1 %2: stored<e2m1>[3] = load x (%1) %3: f32[3] = decode (%2)
         %4: i64 = const 0 store y (%4, %3) store z (%4, %2)",
    );
    let codes = |bytes: Vec<u8>| Arg::array(Data::Stored(bytes), &[4]);
    let args = vec![codes(vec![0x21, 0xf7]), Arg::f32(vec![0.0; 4], &[4]), codes(vec![0xaa; 2])];
    let after = run(&kernel, args);
    assert_eq!(after[1].as_f32(), [1.0, 6.0, -6.0, 0.0]);
    let Arg::Array(Array { data: Data::Stored(z), .. }) = &after[2] else { panic!("codes") };
    assert_eq!(z, &[0x72, 0xaf]);
}

#[test]
fn encoding_rounds_to_even_and_saturates() {
    let kernel = single(
        "N",
        "param x: in f32[N] param y: out f32[N]",
        "%1: i64 = const 0 %2: f32[5] = load x (%1) %3: stored<e2m1>[5] = encode e2m1 (%2)
         %4: f32[5] = decode (%3) store y (%1, %4)",
    );
    let x = Arg::f32(vec![2.5, 3.5, 5.0, 100.0, -0.25], &[5]);
    let after = run(&kernel, vec![x, Arg::f32(vec![0.0; 5], &[5])]);
    assert_eq!(after[1].as_f32(), [2.0, 4.0, 4.0, 6.0, 0.0]);
    let args = vec![Arg::f32(vec![f32::NAN; 5], &[5]), Arg::f32(vec![0.0; 5], &[5])];
    assert_eq!(fault(&kernel, args).fault.to_string(), "NaN has no code in e2m1");
}

/// A weight whose value at `[.., i, j]` is `100 * expert + 10 * i + j`.
#[derive(Debug)]
struct Counted(&'static Format);

impl PackedSource for Counted {
    fn format(&self) -> &'static Format {
        self.0
    }

    fn value(&self, idx: &[usize]) -> f64 {
        idx.iter().fold(0.0, |value, &at| value * 10.0 + at as f64)
    }
}

fn packed(format: &'static Format, dims: &[usize]) -> Arg {
    Arg::strided(Data::Packed(Box::new(Counted(format))), dims, &[])
}

#[test]
fn weights_say_their_values() {
    let body = "%1: i64 = const 1 %2: packed<i4-g4>[2, 4] = load w (%1, %1, %1)
                %3: f32[2, 4] = decode (%2) %4: i64 = const 0 store y (%4, %4, %3)";
    let params = "param w: in packed<i4-g4>[E, N, K] param y: out f32[N, K]";
    let kernel = single("E, N, K", params, body);
    let y = || Arg::f32(vec![-1.0; 8], &[2, 4]);
    let after = run(&kernel, vec![packed(&I4_G4, &[2, 2, 4]), y()]);
    assert_eq!(after[1].as_f32(), [111., 112., 113., 0., 0., 0., 0., 0.]);
    let error = fault(&kernel, vec![packed(&E4M3_G2, &[2, 2, 4]), y()]).to_string();
    assert_eq!(
        error,
        "k: `w` holds an array of packed<e4m3-g2>, expected an array of packed<i4-g4>"
    );
}

#[test]
fn rows_of_a_weight_are_picked() {
    let body =
        "%1: i64[2] = iota 2 %2: i64 = const 0 %3: packed<i4-g4>[2, 4] = load_rows w (%1, %2)
                %4: f32[2, 4] = decode (%3) store_rows y (%1, %2, %4)";
    let params = "param w: in packed<i4-g4>[N, K] param y: out f32[N, K]";
    let args = vec![packed(&I4_G4, &[2, 4]), Arg::f32(vec![-1.0; 8], &[2, 4])];
    let after = run(&single("N, K", params, body), args);
    assert_eq!(after[1].as_f32(), [0., 1., 2., 3., 10., 11., 12., 13.]);
}

/// Values after quantization to `format`, one row.
fn quantized(format: &str, x: &[f32]) -> Vec<f32> {
    let n = x.len();
    let body = filled(&format!(
        "%1: i64 = const 0 %2: f32[1, {n}] = load x (%1, %1)
         %3: packed<{format}>[1, {n}] = quantize {format} (%2) %4: f32[1, {n}] = decode (%3)
         store y (%1, %1, %4)"
    ));
    let kernel = single("M, N", "param x: in f32[M, N] param y: out f32[M, N]", &body);
    let args = vec![Arg::f32(x.to_vec(), &[1, n]), Arg::f32(vec![-1.0; n], &[1, n])];
    run(&kernel, args)[1].as_f32().to_vec()
}

#[test]
fn quantization_is_by_group() {
    // Scale 1/64: 7 is 448 codes, 1 is 64. A group of zeros stays zero.
    assert_eq!(quantized("e4m3-g2", &[7.0, 1.0, 0.0, -0.0]), [7.0, 1.0, 0.0, 0.0]);
    // Scale 3 (amax 21 / 7): 4.5 is code 1.5, which rounds to 2; 7.5 is 2.5, to 2 as well.
    assert_eq!(quantized("i4-g4", &[21.0, 4.5, 7.5, -21.0]), [21.0, 6.0, 6.0, -21.0]);
    // The scale rounds to bf16: 1000 / 7 = 142.857 becomes 143.
    assert_eq!(quantized("i4-g4", &[1000.0, 143.0, 0.0, 71.0]), [1001.0, 143.0, 0.0, 0.0]);
    // What is not finite spoils its group alone.
    let spoiled = quantized("e4m3-g2", &[f32::INFINITY, 1.0, 2.0, 448.0]);
    assert!(spoiled[0].is_nan() && spoiled[1].is_nan());
    assert_eq!(spoiled[2..], [2.0, 448.0]);
    let spoiled = quantized("e4m3-g2", &[1.0, f32::NAN, 0.0, 0.0]);
    assert!(spoiled[0].is_nan() && spoiled[1].is_nan());
}

#[test]
fn a_scaled_dot_multiplies_decoded_values() {
    let body = "%1: i64 = const 0 %2: f32[1, 4] = load x (%1, %1)
                %3: packed<e4m3-g2>[1, 4] = quantize e4m3-g2 (%2)
                %4: packed<i4-g4>[2, 4] = load w (%1, %1) %5: f32 = const 0.5
                %6: f32[1, 2] = broadcast (%5) %7: f32[1, 2] = dot_scaled (%3, %4, %6)
                store y (%1, %1, %7)";
    let params = "param x: in f32[M, K] param w: in packed<i4-g4>[N, K] param y: out f32[M, N]";
    let kernel = single("M, N, K", params, body);
    let args = || {
        tessera_tile_ir::eval::Args(vec![
            Arg::f32(vec![7.0, 1.0, 0.0, 448.0], &[1, 4]),
            packed(&I4_G4, &[2, 4]),
            Arg::f32(vec![0.0; 2], &[1, 2]),
        ])
    };
    let mut args = args();
    let counts = Evaluator::new(&kernel).run(&mut args).expect("the launch is sound");
    let first = 1.0 + 3.0 * 448.0;
    assert_eq!(args.0[2].as_f32(), [first + 0.5, first + 10.0 * 456.0 + 0.5]);
    assert_eq!(counts.flops, 8);
    // A code is half a byte, a bf16 scale for each four of them another half.
    assert_eq!(counts.loaded, [16.0, 8.0, 0.0]);
}
