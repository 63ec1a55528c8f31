//! Types that decode and encode stored numbers, from the fields of their declaration.

use crate::dots::{codes_name, is_integer, scale_name, scaled_function};
use crate::text::{Text, camel};
use std::collections::BTreeMap;
use tessera_tile_ir::format::{Element, FloatBits, Format, Kind, ScaleType, Special};

/// All types for these elements and formats, once each.
pub(crate) fn codecs(
    elements: &BTreeMap<String, Element>,
    formats: &BTreeMap<&'static str, &'static Format>,
) -> Text {
    let mut text = Text::default();
    let mut decoded = elements.clone();
    let mut integers = BTreeMap::new();
    let mut scales = BTreeMap::new();
    for format in formats.values() {
        let name = camel(format.element.name());
        if is_integer(format) {
            integers.insert(name, format.element);
        } else {
            decoded.insert(name, format.element);
        }
        if let Some(tile) = format.scale_tile {
            scales.insert(format!("Scale{:?}", tile.scale), tile.scale);
        }
    }
    for (name, element) in &decoded {
        if let Some(rule) = element.float_bits_rule() {
            let what = format!("`{}`.", element.name());
            decode(&mut text, name, (&what, element.bits(), rule));
        }
        if elements.contains_key(name) {
            encode(&mut text, name, *element);
        }
    }
    for (name, element) in integers {
        integer_codes(&mut text, &name, element);
    }
    for (name, scale) in scales {
        let what = format!("Scales of {scale:?}.");
        decode(&mut text, &name, (&what, 8 * scale.bytes(), scale_rule(scale)));
    }
    for (function, operand, micro) in [
        ("scaled_integers", "x: A16Rows<'_>", "scaled_int"),
        ("scaled_floats", "x: &View<'_, f32, 2>", "scaled_float"),
    ] {
        let met = formats.values().filter(|format| scaled_function(format) == function);
        dispatch(&mut text, (function, operand, micro), met.copied());
    }
    text
}

/// The function that calls the micro-kernel of the weights' format.
fn dispatch(
    text: &mut Text,
    (function, operand, micro): (&str, &str, &str),
    formats: impl Iterator<Item = &'static Format>,
) {
    let mut arms: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for format in formats {
        let call = format!("{micro}::<I, {}, {}>", codes_name(format), scale_name(format));
        arms.entry(call).or_default().push(format!("{:?}", format.name));
    }
    if arms.is_empty() {
        return;
    }
    text.line("/// Calls the micro-kernel of the weights' format, which the launch has checked.");
    text.line("#[inline(never)]");
    text.line(format!("fn {function}<I: Isa>("));
    text.lines(&format!("isa: I,\n{operand},\nw: Option<&PackedWeights>,"));
    text.lines("block: ScaledBlock,\nacc: &mut Acc<'_>,");
    text.line(") {");
    text.line("let Some(weights) = w else { return };");
    text.line("match weights.format().name {");
    for (call, names) in arms {
        text.line(format!("{} => {call}(isa, x, w, block, acc),", names.join(" | ")));
    }
    text.line("other => unreachable!(\"weights in {other}\"),");
    text.lines("}\n}");
    text.line("");
}

fn scale_rule(scale: ScaleType) -> FloatBits {
    scale.float_bits_rule()
}

fn decode(text: &mut Text, name: &str, (what, bits, rule): (&str, usize, FloatBits)) {
    let FloatBits { sign_mask, sign_shift, magnitude_mask, magnitude_shift, floor, .. } = rule;
    text.line(format!("/// {what}"));
    text.line("#[derive(Debug, Clone, Copy)]");
    text.line(format!("pub struct {name};"));
    text.line("");
    text.line(format!("impl Decode for {name} {{"));
    text.line(format!("const BITS: usize = {bits};"));
    text.line("");
    text.line("#[inline(always)]");
    text.line("fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {");
    if rule == FloatBits::F32 {
        text.line("isa.from_bits(codes)");
        text.lines("}\n}");
        text.line("");
        return;
    }
    let (mask, hex) = (magnitude_mask.cast_signed(), format!("{magnitude_mask:#x}"));
    text.line(format!("let stored = isa.and(codes, isa.splat_i32({mask})); // {hex}"));
    text.line(format!("let magnitude = isa.shl::<{magnitude_shift}>(stored);"));
    if floor != 0 {
        let floor = floor.cast_signed();
        text.line(format!("let magnitude = isa.max_i32(magnitude, isa.splat_i32({floor}));"));
    }
    if rule.multiplier.to_bits() != 1.0f32.to_bits() {
        let bits = rule.multiplier.to_bits();
        let by = format!("isa.splat(f32::from_bits({bits:#x}))");
        text.line(format!("let value = isa.mul(isa.from_bits(magnitude), {by});"));
        text.line("let magnitude = isa.bits(value);");
    }
    if let Some(Special { above, inf }) = rule.special {
        let nan = 0x7fc0_0000;
        text.line(format!("let special = isa.lt_i32(isa.splat_i32({above}), stored);"));
        text.line(format!("let nan = isa.splat_i32({nan:#x});"));
        if let Some(inf) = inf {
            text.line(format!("let is_inf = isa.eq_i32(stored, isa.splat_i32({inf}));"));
            text.line("let nan = isa.select_i32(is_inf, isa.splat_i32(0x7f80_0000), nan);");
        }
        text.line("let magnitude = isa.select_i32(special, nan, magnitude);");
    }
    if sign_mask != 0 {
        text.line(format!("let sign = isa.and(codes, isa.splat_i32({sign_mask}));"));
        text.line(format!("let sign = isa.shl::<{sign_shift}>(sign);"));
        text.line("isa.from_bits(isa.or(sign, magnitude))");
    } else {
        text.line("isa.from_bits(magnitude)");
    }
    text.lines("}\n}");
    text.line("");
}

fn encode(text: &mut Text, name: &str, element: Element) {
    text.line(format!("impl Encode for {name} {{"));
    text.line("#[inline(always)]");
    text.line("fn encode<I: Isa>(isa: I, value: I::F32) -> I::I32 {");
    match element.kind {
        Kind::Float(float) => {
            let (man, bias, max) = (float.man, float.bias, float.max);
            let nan = float.nan.unwrap_or(0);
            let sign = float.sign_shift();
            text.line(format!(
                "encode_float::<I, {man}, {sign}>(isa, value, SmallFloat {{ bias: {bias}, max: {max}, nan: {nan} }})"
            ));
        }
        Kind::Int { bias } => {
            let max = (1u64 << element.bits()) - 1;
            text.line(format!("encode_int(isa, value, {bias}, {max})"));
        }
        Kind::F32 => text.line("isa.bits(value)"),
    }
    text.lines("}\n}");
    text.line("");
}

fn integer_codes(text: &mut Text, name: &str, element: Element) {
    let Some(integers) = element.small_integers() else { return };
    let lowest = integers.table.iter().copied().min().unwrap_or(0);
    let offset = lowest.unsigned_abs();
    text.line(format!("/// `{}` as integers.", element.name()));
    text.line("#[derive(Debug, Clone, Copy)]");
    text.line(format!("pub struct {name}Integers;"));
    text.line("");
    text.line(format!("impl IntCodes for {name}Integers {{"));
    text.line(format!("const TABLE: [i8; 16] = {:?};", integers.table));
    text.line(format!("const UNIT: f32 = {:?};", integers.unit));
    text.line(format!("const OFFSET: u8 = {offset};"));
    text.line("}");
    text.line("");
}
