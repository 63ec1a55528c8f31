//! Ops element by element.

use crate::{fault, filled, floats, run, single};
use tessera_tile_ir::eval::{Arg, Data};
use tessera_tile_ir::op::Literal;

/// `op` of f32 scalars.
fn float(op: &str, operands: &[&str]) -> f32 {
    let consts: String =
        (1..).zip(operands).map(|(i, value)| format!("%{i}: f32 = const {value} ")).collect();
    let list: Vec<String> = (1..=operands.len()).map(|i| format!("%{i}")).collect();
    let body = format!("{consts} %8: f32 = {op} ({}) %9: f32[1] = broadcast (%8)", list.join(", "));
    floats(&body, 1)[0]
}

#[test]
fn unary_ops_of_floats() {
    for (op, x, expect) in [
        ("neg", "1.5", -1.5),
        ("abs", "-1.5", 1.5),
        ("exp", "1.0", std::f32::consts::E),
        ("exp", "-inf", 0.0),
        ("exp2", "10.0", 1024.0),
        ("ln", "10.0", std::f32::consts::LN_10),
        ("log2", "8.0", 3.0),
        ("sin", "0.5", 0.479_425_55),
        ("cos", "0.5", 0.877_582_55),
        ("sqrt", "2.0", std::f32::consts::SQRT_2),
        ("rsqrt", "4.0", 0.5),
        ("rsqrt", "0.0", f32::INFINITY),
        ("recip", "8.0", 0.125),
        ("floor", "-1.5", -2.0),
        ("round", "2.5", 2.0),
        ("round", "3.5", 4.0),
        ("round", "-0.75", -1.0),
    ] {
        assert_eq!(float(op, &[x]), expect, "{op} of {x}");
    }
    assert!(float("sqrt", &["-1.0"]).is_nan());
}

#[test]
fn binary_ops_of_floats() {
    for (op, a, b, expect) in [
        ("add", "1.0", "2.5", 3.5),
        ("sub", "1.0", "2.5", -1.5),
        ("mul", "3.0", "2.5", 7.5),
        ("div", "1.0", "4.0", 0.25),
        ("div", "1.0", "0.0", f32::INFINITY),
        ("min", "1.0", "-4.0", -4.0),
        ("max", "1.0", "-4.0", 1.0),
    ] {
        assert_eq!(float(op, &[a, b]), expect, "{op} of {a} and {b}");
    }
    for op in ["min", "max"] {
        assert!(float(op, &["NaN", "1.0"]).is_nan(), "{op}");
        assert!(float(op, &["1.0", "NaN"]).is_nan(), "{op}");
    }
    assert_eq!(float("fma", &["3.0", "4.0", "5.0"]), 17.0);
}

#[test]
fn results_round_once_when_they_are_stored() {
    // 1 + 2^-30 is no f32, and stays until it is multiplied back.
    let body = "%1: f32 = const 1.0 %2: f32 = const 9.313225746154785e-10
                %3: f32 = add (%1, %2) %4: f32 = sub (%3, %1) %9: f32[1] = broadcast (%4)";
    assert_eq!(floats(body, 1), [2.0_f32.powi(-30)]);
}

#[test]
fn constants_are_f32() {
    // 0.1 as f32 is 0.100000001490116119384765625.
    let body = "%1: f32 = const 0.1 %2: f32 = const 10.0 %3: f32 = mul (%1, %2)
                %4: f32 = const 1.0 %5: f32 = sub (%3, %4) %9: f32[1] = broadcast (%5)";
    assert_eq!(floats(body, 1), [1.490_116_1e-8]);
}

/// `op` of one integer element, on a view of that element.
fn int(elem: &str, op: &str, operands: &[i64]) -> i64 {
    let data = match elem {
        "i32" => Data::I32(vec![7]),
        "i64" => Data::I64(vec![7]),
        "u32" => Data::U32(vec![7]),
        _ => Data::U64(vec![7]),
    };
    let after = run(&int_kernel(elem, op, operands), vec![Arg::array(data, &[1])]);
    let Arg::Array(array) = &after[0] else { panic!("an array went in") };
    match &array.data {
        Data::I32(values) => i64::from(values[0]),
        Data::I64(values) => values[0],
        Data::U32(values) => i64::from(values[0]),
        Data::U64(values) => values[0].cast_signed(),
        other => panic!("{other:?}"),
    }
}

fn int_kernel(elem: &str, op: &str, operands: &[i64]) -> tessera_tile_ir::Kernel {
    let consts: String =
        (1..).zip(operands).map(|(i, value)| format!("%{i}: {elem} = const {value} ")).collect();
    let list: Vec<String> = (1..=operands.len()).map(|i| format!("%{i}")).collect();
    let body = format!(
        "{consts} %8: {elem} = {op} ({}) %9: i64 = const 0 store y (%9, %8)",
        list.join(", ")
    );
    single("N", &format!("param y: out {elem}[N]"), &filled(&body))
}

#[test]
fn ops_of_integers() {
    for (elem, op, operands, expect) in [
        ("i64", "add", &[5, -7][..], -2),
        ("i64", "sub", &[5, 7], -2),
        ("i64", "mul", &[-5, 7], -35),
        ("i64", "div", &[-7, 2], -3),
        ("i64", "div", &[-7, 0], 0),
        ("i64", "rem", &[-7, 2], -1),
        ("i64", "rem", &[-7, 0], 0),
        ("i32", "min", &[-7, 2], -7),
        ("i32", "max", &[-7, 2], 2),
        ("i32", "neg", &[-7], 7),
        ("i32", "abs", &[-7], 7),
        ("i32", "not", &[0], -1),
        ("u32", "not", &[0], 0xffff_ffff),
        ("u32", "add", &[-1, 2], 1),
        ("u32", "sub", &[0, 1], 0xffff_ffff),
        ("u32", "mul", &[0x1_0001, 0x1_0001], 0x2_0001),
        ("u32", "neg", &[1], 0xffff_ffff),
        ("u64", "sub", &[0, 1], -1),
        ("u64", "mul", &[-1, -1], 1),
        ("u64", "div", &[-2, 2], i64::MAX),
        ("u64", "rem", &[-1, 10], 5),
        ("u64", "max", &[-1, 10], -1),
        ("i64", "and", &[12, 10], 8),
        ("i64", "or", &[12, 10], 14),
        ("i64", "xor", &[12, 10], 6),
        ("i32", "shl", &[1, 31], i64::from(i32::MIN)),
        ("i32", "shl", &[1, 32], 0),
        ("i32", "shr", &[-8, 1], -4),
        ("i32", "shr", &[-8, 40], -1),
        ("u32", "shl", &[3, 31], 0x8000_0000),
        ("u32", "shr", &[-1, 31], 1),
        ("u64", "shl", &[1, 63], i64::MIN),
        ("u64", "shl", &[1, 64], 0),
        ("u64", "shr", &[-1, 63], 1),
        ("u64", "shr", &[-1, 64], 0),
        ("i64", "shl", &[1, -1], 0),
        ("i64", "shr", &[-5, 64], -1),
    ] {
        assert_eq!(int(elem, op, operands), expect, "{op} of {operands:?} as {elem}");
    }
}

#[test]
fn signed_overflow_is_an_error() {
    for (elem, op, operands, expect) in [
        ("i32", "add", &[2_147_483_647, 1][..], "add of 2147483647 and 1 overflows i32"),
        ("i64", "mul", &[i64::MAX, 2], "mul of 9223372036854775807 and 2 overflows i64"),
        ("i64", "sub", &[i64::MIN, 1], "sub of -9223372036854775808 and 1 overflows i64"),
        ("i64", "div", &[i64::MIN, -1], "div of -9223372036854775808 and -1 overflows i64"),
        ("i32", "neg", &[-2_147_483_648], "neg of -2147483648 overflows i32"),
    ] {
        let y = if elem == "i32" { Data::I32(vec![0]) } else { Data::I64(vec![0]) };
        let error = fault(&int_kernel(elem, op, operands), vec![Arg::array(y, &[1])]);
        assert_eq!(error.fault.to_string(), expect);
    }
}

/// `op` of a constant, as f32.
fn converted(from: &str, value: &str, ops: &str) -> f32 {
    floats(&format!("%1: {from} = const {value} {ops} %9: f32[1] = broadcast (%8)"), 1)[0]
}

#[test]
fn conversions_round_to_nearest_or_towards_zero() {
    assert_eq!(converted("i64", "-3", "%8: f32 = cast f32 (%1)"), -3.0);
    assert_eq!(converted("u64", "-1", "%8: f32 = cast f32 (%1)"), 2.0_f32.powi(64));
    for (value, to, expect) in [
        ("2.9", "i32", 2.0),
        ("-2.9", "i64", -2.0),
        ("-2.9", "u32", 0.0),
        ("3e9", "i32", 2_147_483_648.0),
        ("NaN", "i64", 0.0),
        ("inf", "u32", 4_294_967_296.0),
    ] {
        let ops = format!("%2: {to} = cast {to} (%1) %8: f32 = cast f32 (%2)");
        assert_eq!(converted("f32", value, &ops), expect, "{value} as {to}");
    }
    let ops = "%2: u32 = cast u32 (%1) %8: f32 = cast f32 (%2)";
    assert_eq!(converted("i64", "4294967299", ops), 3.0, "to unsigned keeps the low bits");
}

#[test]
fn bits_stay_in_a_bitcast() {
    assert_eq!(converted("i32", "1065353216", "%8: f32 = bitcast f32 (%1)"), 1.0);
    let ops = "%2: u32 = bitcast u32 (%1) %8: f32 = cast f32 (%2)";
    assert_eq!(converted("f32", "-2.0", ops), 3_221_225_472.0);
    let ops = "%2: i32 = bitcast i32 (%1) %8: f32 = cast f32 (%2)";
    assert_eq!(converted("u32", "4294967295", ops), -1.0);
}

/// Whether `a op b`.
fn holds(elem: &str, op: &str, a: &str, b: &str) -> bool {
    let ops = format!(
        "%1: {elem} = const {a} %2: {elem} = const {b} %3: bool = {op} (%1, %2)
         %4: f32 = const 1.0 %5: f32 = const 0.0 %8: f32 = select (%3, %4, %5)
         %9: f32[1] = broadcast (%8)"
    );
    floats(&ops, 1)[0] == 1.0
}

#[test]
fn comparisons() {
    for (op, below, same, above) in [
        ("eq", false, true, false),
        ("ne", true, false, true),
        ("lt", true, false, false),
        ("le", true, true, false),
        ("gt", false, false, true),
        ("ge", false, true, true),
    ] {
        for (elem, small, large) in [("f32", "-1.5", "2.0"), ("i64", "-1", "2"), ("u64", "2", "-1")]
        {
            assert_eq!(holds(elem, op, small, large), below, "{op} {elem}");
            assert_eq!(holds(elem, op, small, small), same, "{op} {elem}");
            assert_eq!(holds(elem, op, large, small), above, "{op} {elem}");
        }
        assert_eq!(holds("f32", op, "NaN", "1.0"), op == "ne", "{op} of NaN");
    }
}

#[test]
fn truths() {
    let ops = "%1: bool = const true %2: bool = const false
               %3: bool = and (%1, %2) %4: bool = or (%3, %1) %5: bool = xor (%4, %1)
               %6: bool = not (%5) %7: f32 = const NaN %10: bool = is_nan (%7)
               %11: bool = and (%6, %10) %12: f32 = const 1.0 %13: f32 = const 0.0
               %8: f32 = select (%11, %12, %13) %9: f32[1] = broadcast (%8)";
    assert_eq!(floats(ops, 1), [1.0]);
}

#[test]
fn scalars_are_rounded_to_their_element() {
    let kernel = single(
        "N",
        "param y: out f32[N] param eps: f32 param n: i64",
        "%1: f32 = scalar eps %2: i64 = scalar n %3: f32 = cast f32 (%2)
         %4: f32 = add (%1, %3) %5: i64 = const 0 store y (%5, %4)",
    );
    let scalars = [Arg::Scalar(Literal::Float(0.1)), Arg::Scalar(Literal::Int(2))];
    let args = [Arg::f32(vec![0.0], &[1])].into_iter().chain(scalars).collect();
    assert_eq!(run(&kernel, args)[0].as_f32(), [2.1]);
}
