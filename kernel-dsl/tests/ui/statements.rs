//! Syntax that is not part of the language: all of it is reported at once.
use tessera_kernel_dsl::prelude::*;

#[kernel(grid = (M))]
fn statements(x: &In<f32, {[M]}>, y: &mut Out<f32, {[M]}>) {
    let late;
    let mut n = 0;
    while n < 4 {
        n += 1;
        if n == 2 {
            continue;
        }
    }
    loop {
        break;
    }
    match n {
        0 => return,
        _ => {}
    }
    let value = x.read()?;
    unsafe { y.write(value) };
    println!("{n}");
    let shown: &dyn Show = &n;
    fn inner() {}
    if let Some(k) = shown.next() {}
    'outer: for i in 0..4 {}
}

fn main() {}
