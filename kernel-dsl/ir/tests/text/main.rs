//! The text form: what is printed is read back, and what is not of the form is pointed at.

mod arbitrary;

use tessera_tile_ir::format::{Element, Format, ScaleTile, ScaleType, Tol};
use tessera_tile_ir::text::{Names, parse};

static GROUPS: Format = Format {
    name: "e4m3-g2",
    element: Element::F8E4M3,
    scale_tile: Some(ScaleTile {
        scale: ScaleType::F32,
        rows: 1,
        cols: 2,
        ragged: false,
        divisor: 448.0,
        precision: ScaleType::F32,
    }),
    zero_point: false,
    tensor_scale: false,
    tol: Tol { element: 0.0, tensor: 0.0 },
    activation: None,
};

const NAMES: Names<'static> =
    Names { elements: &[Element::Bf16, Element::F8E4M3], formats: &[&GROUPS] };

const EVERY_OP: &str = r#"kernel every formats("e4m3-g2", "bf16") consts(BM = 4, BN = 2) dims(M, N) {
  param x: in f32[M, N + 8]
  param w: in packed<e4m3-g2>[N, M + N]
  param codes: in stored<bf16>[4]
  param n: inout u32[M]
  param y: out f32[M, N]
  param scale: f32
  grid {
    %0: i64 = dim M
    %1: i64 = const 4
    %2: i64 = div (%0, %1)
    yield (%2)
  }
  body {
    %3: i64 = program_id 0
    %4: f32 = scalar scale
    %5: i64[4] = iota 4
    %6: f32[4, 4] = load x (%3, %3)
    %7: f32[4, 4] = load_rows x (%5, %3)
    %8: f32[4] = gather x (%5, %5)
    %9: f32[4, 4] = broadcast (%8)
    %10: f32[4, 4] = transpose (%9)
    %11: f32[16] = reshape (%10)
    %12: f32[4, 2] = slice 1 2 (%10)
    %13: f32[4, 4] = concat 1 (%12, %12)
    %14: f32[4, 4] = exp2 (%13)
    %15: f32[4, 4] = max (%14, %6)
    %16: bool[4, 4] = le (%15, %7)
    %17: f32[4, 4] = select (%16, %15, %7)
    %18: f32[4, 4] = fma (%17, %17, %17)
    %19: i64[4, 4] = cast i64 (%18)
    %20: u32[4, 4] = cast u32 (%18)
    %21: f32[4, 4] = bitcast f32 (%20)
    %22: f32[1, 4] = reduce sum 0 (%21)
    %23: i64[4, 1] = argmax 1 (%21)
    %24: i64[4, 4] = scan xor 1 (%19)
    %25: stored<bf16>[4] = load codes (%3)
    %26: f32[4] = decode (%25)
    %27: stored<bf16>[4] = encode bf16 (%26)
    %28: packed<e4m3-g2>[4, 4] = quantize e4m3-g2 (%21)
    %29: packed<e4m3-g2>[4, 4] = load w (%3, %3)
    %30: f32[4, 4] = dot (%21, %21, %21)
    %31: f32[4, 4] = dot_scaled (%28, %29, %30)
    %32: f32[4, 4] = for 8 (%3, %3, %31) {|%33: i64, %34: f32[4, 4]|
      %35: bool = const true
      %36: f32 = if (%35) {
        %37: f32 = const -1e-5
        yield (%37)
      } {
        yield (%4)
      }
      yield (%31)
    }
    assert "rows \"fit\"\n\u{1}" (%35)
    print "sum" (%22)
    store y (%3, %3, %32)
    %39: f32[2, 4] = load_until x (%3, %3, %0)
    store_until y (%3, %3, %0, %39)
    store_rows y (%5, %3, %32)
    scatter y (%5, %5, %8)
    %38: u32 = const 7
    atomic max n (%3, %38)
    yield
  }
}
"#;

#[test]
fn a_text_is_printed_as_it_was() {
    let kernel = parse("every.tile", EVERY_OP, &NAMES).unwrap();
    assert_eq!(kernel.to_text(), EVERY_OP);
    let located = kernel.to_string();
    assert_eq!(parse("other.tile", &located, &NAMES).unwrap(), kernel, "{located}");
    assert_eq!(kernel.op(kernel.body.ops[3]).loc.to_string(), "every.tile:18:5");
}

#[test]
fn places_are_kept() {
    let text = "kernel k dims(N) loc(\"a b.rs\":3:4) {
      param x: in f32[N] loc(\"k.rs\":1:2)
      grid { %0: i64 loc(\"v.rs\":5:6) = const 1 loc(\"k.rs\":3:4) yield (%0) loc(\"k.rs\":7:8) }
      body { yield loc(\"k.rs\":9:10) } }";
    let kernel = parse("k.tile", text, &NAMES).unwrap();
    assert_eq!(kernel.loc.to_string(), "a b.rs:3:4");
    assert_eq!(kernel.params[0].loc.to_string(), "k.rs:1:2");
    assert_eq!(kernel.values[0].loc.to_string(), "v.rs:5:6");
    assert_eq!(kernel.op(kernel.body.ops[0]).loc.to_string(), "k.rs:9:10");
    assert_eq!(parse("k.tile", &kernel.to_string(), &NAMES).unwrap(), kernel);
}

/// The error of a kernel with this body.
fn error(body: &str) -> String {
    let text = format!(
        "kernel k dims(N) {{
param x: in f32[N]
grid {{ %0: i64 = const 1 yield (%0) }}
body {{
{body}
yield }} }}"
    );
    parse("k.tile", &text, &NAMES).expect_err("a mistake").to_string()
}

#[test]
fn mistakes_are_pointed_at() {
    for (body, expect) in [
        ("%1: f32 = cosine (%0)", "5:11: expected an op, found `cosine`"),
        ("%1: f33 = const 1", "5:5: expected an element, found `f33`"),
        ("%1: stored<e9m9> = const 1", "5:12: expected a number format, found `e9m9`"),
        ("%1: packed<int9> = const 1", "5:12: expected a block format, found `int9`"),
        ("%1: f32 = load z (%0)", "5:16: expected a parameter, found `z`"),
        ("%1: i64 = dim K", "5:15: expected a dim, found `K`"),
        ("%1: i64 = const ten", "5:17: expected a number, found `ten`"),
        ("%1: f32[2 = const 1", "5:11: expected `]`, found `=`"),
        ("%1: f32 = reduce mean 0 (%0)", "5:18: expected a reduction, found `mean`"),
        ("%x: f32 = const 1", "5:1: `%x` is no value: it has a number"),
        ("assert 3 (%0)", "5:8: expected a quoted text, found `3`"),
        ("assert \"open (%0)", "5:8: a quoted text has no end"),
        ("%0: i64 = const 1", "5:1: %0 is defined twice"),
        ("%2: i64 = const 1", "6:10: %1 is not defined"),
        ("print \"x\" (%7)", "5:12: %7 is not defined"),
        ("%4000000000: i64 = const 1", "5:1: %4000000000 is not defined"),
        ("}", "6:1: expected `}`, found `yield`"),
    ] {
        assert_eq!(error(body), expect, "{body}");
    }
    assert_eq!(error(&"if {".repeat(100_000)), "5:257: regions are nested deeper than 64");
    let cut = &EVERY_OP[..EVERY_OP.len() - 3];
    let message = parse("k.tile", cut, &NAMES).unwrap_err().to_string();
    assert_eq!(message, "64:4: expected `}`, found the end");
}

#[test]
fn nothing_that_is_read_panics() {
    let mut random = arbitrary::Random(7);
    for _ in 0..3000 {
        let mut text = EVERY_OP.as_bytes().to_vec();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            match random.below(3) {
                0 => text[at] = b" {}()[]<>%=|:,\"\\0aM"[random.below(19)],
                1 => drop(text.drain(at..(at + random.below(9)).min(text.len()))),
                _ => text.extend_from_within(at..(at + random.below(40)).min(text.len())),
            }
        }
        let text = String::from_utf8(text).unwrap();
        if let Ok(kernel) = parse("fuzz.tile", &text, &NAMES) {
            assert!(kernel.verify().is_ok() || kernel.verify().is_err());
        }
    }
}

#[test]
fn any_kernel_is_printed_and_read_back() {
    for seed in 1..300 {
        let kernel = arbitrary::kernel(seed);
        let text = kernel.to_string();
        let again = parse("again.tile", &text, &NAMES).unwrap_or_else(|e| panic!("{e}\n{text}"));
        assert_eq!(again, kernel, "seed {seed}:\n{text}");
    }
}
