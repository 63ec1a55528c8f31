//! What generated code is made from, against the f64 rule: every code of every element and scale.

use crate::all_elements;
use tessera_kernels::formats::{Element, FORMATS, ScaleType};
use tessera_tile_ir::format::{Exact, FloatBits};

/// The rule as vector code follows it: plain u32 and f32 operations, no branch.
fn vector_decode(rule: &FloatBits, code: u32) -> f32 {
    let sign = (code & rule.sign_mask) << rule.sign_shift;
    let stored = code & rule.magnitude_mask;
    let magnitude = (stored << rule.magnitude_shift).max(rule.floor);
    let scaled = (f32::from_bits(magnitude) * rule.multiplier).to_bits();
    let value = [scaled, magnitude][usize::from(rule.multiplier == 1.0)];
    let value = rule.special.map_or(value, |special| {
        let not_finite = [0x7fc0_0000, 0x7f80_0000][usize::from(special.inf == Some(stored))];
        [value, not_finite][usize::from(stored > special.above)]
    });
    f32::from_bits(sign | value)
}

fn same(got: f32, rule: f64) -> bool {
    let (got, nan) = (f64::from(got), rule.is_nan());
    got.is_nan() && nan || got == rule && got.is_sign_negative() == rule.is_sign_negative()
}

#[test]
fn every_code_of_every_float_follows_the_shifts() {
    let mut floats = 0;
    for element in all_elements() {
        let Some(rule) = element.float_bits_rule() else { continue };
        floats += 1;
        let step = if element.bits() > 16 { 65521 } else { 1 };
        for code in (0..=element.mask()).step_by(step) {
            let got = vector_decode(&rule, code);
            assert!(same(got, element.rule(code)), "{element:?} {code:#x}: {got}");
            assert_eq!(got.to_bits(), rule.decode(code).to_bits(), "{element:?} {code:#x}");
        }
    }
    assert!(floats >= 6, "f32, bf16, f16, e4m3, e5m2 and e2m1 are stored by some format");
}

#[test]
fn every_stored_scale_follows_the_shifts() {
    for scale in [ScaleType::Bf16, ScaleType::F16, ScaleType::E4M3, ScaleType::Ue8m0] {
        let rule = scale.float_bits_rule();
        for code in 0..1u32 << (8 * scale.bytes()) {
            let expect = match scale.element() {
                Some(element) => element.rule(code),
                None if code == 255 => f64::NAN,
                None => (f64::from(code) - 127.0).exp2(),
            };
            let got = vector_decode(&rule, code);
            assert!(same(got, expect), "{scale:?} {code:#x}: {got} {expect}");
        }
    }
    assert_eq!(ScaleType::F32.float_bits_rule(), FloatBits::F32);
}

#[test]
fn codes_of_four_bits_are_small_integers_times_a_unit() {
    for element in all_elements() {
        let small = element.small_integers();
        assert_eq!(small.is_some(), element.bits() <= 4, "{element:?}");
        let Some(small) = small else { continue };
        for code in 0..=element.mask() {
            let value = small.unit * f32::from(small.table[code as usize]);
            assert_eq!(f64::from(value), element.rule(code), "{element:?} {code:#x}");
        }
    }
    let e2m1 = Element::F4E2M1.small_integers().expect("e2m1 counts halves");
    assert_eq!(e2m1.unit, 0.5);
    assert_eq!(e2m1.table, [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12]);
}

#[test]
fn formats_of_small_integers_meet_integers() {
    for format in FORMATS {
        let activation = format.activation();
        let integers = format.element.small_integers().is_some();
        assert_eq!(activation.element.int_bias().is_some(), integers, "{}", format.name);
        if let (true, Some(tile)) = (integers, format.scale_tile) {
            assert_eq!(activation.scale_tile.map(|a| a.cols), Some(tile.cols), "{}", format.name);
        }
    }
}

#[test]
fn every_value_fits_the_type_that_is_said_to_hold_it() {
    for element in all_elements().into_iter().filter(|element| element.bits() <= 16) {
        let carrier = match element.exact_in {
            Exact::F16 => Element::F16,
            Exact::Bf16 => Element::Bf16,
            Exact::F32 => Element::F32,
        };
        for code in 0..=element.mask() {
            let value = element.decode(code);
            let carried = carrier.decode(carrier.encode(value));
            let same = carried.to_bits() == value.to_bits();
            assert!(same || !value.is_finite(), "{element:?} {code:#x}: {value}");
        }
    }
}
