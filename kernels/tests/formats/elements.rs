//! Every code decoded; every f16 value, every tie and its neighbours encoded.

use crate::{all_elements, fixture, fixture_u32, fnv, small_floats};
use tessera_kernels::formats::{Element, ScaleType};

const HALVES: [(&str, Element); 2] = [("f16", Element::F16), ("bf16", Element::Bf16)];

/// Bits of a value, all NaNs made one.
fn bits(value: f32) -> u32 {
    if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() }
}

/// Finite values from 0 up, the middle of each and the next, the f32 on either side of that
/// middle; then all of them negated.
fn ties(element: Element) -> Vec<f32> {
    let codes = 0..1u32 << (element.bits() - 1);
    let values: Vec<f32> = codes.map(|c| element.decode(c)).filter(|v| v.is_finite()).collect();
    let mut rows = Vec::new();
    for pair in values.windows(2) {
        let middle = f32::midpoint(pair[0], pair[1]);
        rows.extend([pair[0], middle.next_down(), middle, middle.next_up()]);
    }
    let negated: Vec<f32> = rows.iter().map(|v| -v).collect();
    rows.extend(negated);
    rows
}

#[test]
fn every_code_decodes_as_ml_dtypes_decodes_it() {
    for element in small_floats() {
        let name = element.name();
        let expect = fixture_u32(&format!("{name}.decode"));
        assert_eq!(expect.len(), 1 << element.bits(), "{name}");
        for (code, expect) in (0..).zip(expect) {
            assert_eq!(bits(element.decode(code)), expect, "{name} code {code:#x}");
        }
    }
    for (name, element) in HALVES {
        let values = (0..1 << 16).flat_map(|code| bits(element.decode(code)).to_le_bytes());
        assert_eq!(fnv(values)[..], fixture(&format!("{name}.decode.fnv")), "{name}");
    }
    for (code, expect) in (0..).zip(fixture_u32("e8m0.decode")) {
        assert_eq!(bits(ScaleType::Ue8m0.decode(code)), expect, "ue8m0 code {code}");
    }
}

#[test]
fn every_code_decodes_as_the_f64_rule_says() {
    for element in all_elements().into_iter().filter(|element| element.bits() <= 16) {
        let name = element.name();
        for code in 0..1 << element.bits() {
            let (fast, rule) = (f64::from(element.decode(code)), element.rule(code));
            let same = fast == rule && fast.is_sign_negative() == rule.is_sign_negative();
            assert!(same || fast.is_nan() && rule.is_nan(), "{name} {code:#x}: {fast} {rule}");
        }
    }
    for value in [0.0, -1.5, 1.0e-45, -3.4e38, std::f32::consts::PI, f32::INFINITY] {
        assert_eq!(Element::F32.rule(value.to_bits()), f64::from(value));
    }
}

#[test]
fn every_f16_value_encodes_as_ml_dtypes_encodes_it() {
    let halves = || (0..1u32 << 16).map(|code| Element::F16.decode(code));
    for element in small_floats() {
        let name = element.name();
        let expect = fixture(&format!("{name}.encode_f16"));
        assert_eq!(expect.len(), 1 << 16, "{name}");
        for (value, expect) in halves().zip(expect) {
            if value.is_nan() && !element.has_nan() {
                continue;
            }
            assert_eq!(element.encode(value), u32::from(expect), "{name} of {value}");
        }
    }
    let codes = halves().flat_map(|value| Element::Bf16.encode(value).to_le_bytes()[..2].to_vec());
    assert_eq!(fnv(codes)[..], fixture("bf16.encode_f16.fnv"));
    for code in 0..1u32 << 16 {
        let value = Element::F16.decode(code);
        if value.is_finite() {
            assert_eq!(Element::F16.encode(value), code, "f16 of {value}");
        }
    }
}

#[test]
fn ties_and_their_neighbours_encode_as_ml_dtypes_encodes_them() {
    for element in small_floats() {
        let name = element.name();
        let expect = fixture_u32(&format!("{name}.ties"));
        let ours = ties(element);
        assert_eq!(ours.len() * 2, expect.len(), "{name}");
        for (value, expect) in ours.into_iter().zip(expect.chunks_exact(2)) {
            assert_eq!(value.to_bits(), expect[0], "{name}: the same inputs in the same order");
            assert_eq!(element.encode(value), expect[1], "{name} of {value:e}");
        }
    }
    for (name, element) in HALVES {
        let codes =
            ties(element).into_iter().flat_map(|v| element.encode(v).to_le_bytes()[..2].to_vec());
        assert_eq!(fnv(codes)[..], fixture(&format!("{name}.ties.fnv")), "{name}");
    }
}

#[test]
fn overflow_saturates_and_nan_stays_nan_in_every_element() {
    let small = small_floats().map(|element| (element.name(), element));
    for (name, element) in small.chain(HALVES) {
        let sign = 1 << (element.bits() - 1);
        let top = element.encode(element.max());
        assert_eq!(element.decode(top), element.max(), "{name}");
        for big in [element.max() * 1.001, f32::MAX, f32::INFINITY] {
            assert_eq!(element.encode(big), top, "{name} of {big}");
            assert_eq!(element.encode(-big), top | sign, "{name} of -{big}");
        }
        if element.has_nan() {
            assert!(element.decode(element.encode(f32::NAN)).is_nan(), "{name}");
            assert_eq!(element.encode(-f32::NAN), element.encode(f32::NAN) | sign, "{name}");
        }
    }
    for (value, code) in
        [(0.0, 32768), (32767.4, 65535), (1.0e9, 65535), (-1.0e9, 0), (-0.5, 32768)]
    {
        assert_eq!(Element::I16.encode(value), code, "i16 of {value}");
    }
    for (value, code) in [(7.0, 15), (7.5, 15), (1.0e9, 15), (-8.0, 0), (-1.0e9, 0), (0.5, 8)] {
        assert_eq!(Element::I4.encode(value), code, "i4 of {value}");
    }
}

#[test]
fn a_ue8m0_scale_is_the_power_of_two_at_or_below() {
    let cases = [
        (1.0, 127),
        (1.999, 127),
        (2.0, 128),
        (0.75, 126),
        (f32::MAX, 254),
        (f32::INFINITY, 254),
        (f32::MIN_POSITIVE, 1),
        (f32::MIN_POSITIVE / 2.0, 0),
        (0.0, 0),
        (f32::NAN, 255),
    ];
    for (value, code) in cases {
        assert_eq!(ScaleType::Ue8m0.encode(value), code, "{value}");
    }
}
