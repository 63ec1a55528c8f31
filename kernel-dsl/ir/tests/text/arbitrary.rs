//! Kernels out of a number: sound ones, of f32 tiles, loops and branches.

use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::op::{Binary, Cmp, Combine, Literal, Unary};
use tessera_tile_ir::{Access, Builder, Elem, Kernel, Loc, OpKind, Param, ParamKind, Type, Value};

/// xorshift64.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % bound as u64).expect("below a usize")
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    fn loc(&mut self) -> Loc {
        let file = self.pick(&["kernels/src/a.rs", "b \"quoted\".rs", ""]);
        let at = |n| u32::try_from(n).expect("small");
        Loc { file, line: at(self.below(900)), column: at(self.below(90)) }
    }
}

/// The kernel of a seed.
pub(crate) fn kernel(seed: u64) -> Kernel {
    let mut make = Make {
        b: Builder::new("any", Loc { file: "x.rs", line: 1, column: 1 }),
        random: Random(seed << 20 | 99),
    };
    make.b.describe(vec!["int4-g32".to_owned()], vec![("BM".to_owned(), make.random.below(99))]);
    let dims = ["M", "N"].map(|name| make.b.dim(name));
    for (name, access) in [("x", Access::Read), ("y", Access::ReadWrite)] {
        let mut axes = dims.map(|dim| Extent { dims: vec![dim], constant: 0 }).to_vec();
        axes.push(Extent { dims: dims.to_vec(), constant: make.random.below(9) });
        let kind = ParamKind::View { elem: Elem::F32, access, dims: axes };
        let loc = make.random.loc();
        make.b.param(Param { name: name.to_owned(), kind, loc });
    }
    let loc = make.random.loc();
    make.b.open(loc, &[]);
    let extents: Vec<Value> = (0..=make.random.below(3)).map(|_| make.int()).collect();
    let grid = make.b.close(loc, &extents);
    make.b.open(loc, &[]);
    let scope = vec![make.float()];
    make.ops(scope, 3);
    let body = make.b.close(loc, &[]);
    make.b.finish(grid, body).unwrap_or_else(|errors| panic!("seed {seed}: {}", errors[0]))
}

struct Make {
    b: Builder,
    random: Random,
}

/// A tile's shape in every kernel here.
fn tile() -> Type {
    Type::tile(Elem::F32, &[4, 8])
}

impl Make {
    fn push(&mut self, kind: OpKind, operands: &[Value], ty: Type) -> Value {
        let loc = self.random.loc();
        self.b.push(loc, kind, operands, &[ty])[0]
    }

    fn int(&mut self) -> Value {
        let value = i64::try_from(self.random.below(50)).expect("small") - 25;
        self.push(OpKind::Const(Literal::Int(value)), &[], Type::scalar(Elem::I64))
    }

    fn float(&mut self) -> Value {
        let value = self.random.pick(&[0.0, -0.0, 1e30, -2.5e-7, f64::INFINITY, 0.1]);
        let scalar = self.push(OpKind::Const(Literal::Float(value)), &[], Type::scalar(Elem::F32));
        self.push(OpKind::Broadcast, &[scalar], tile())
    }

    /// Adds ops over the tiles in `scope` and gives the last one made.
    fn ops(&mut self, mut scope: Vec<Value>, depth: usize) -> Value {
        for _ in 0..=self.random.below(6) {
            let (a, b) = (self.random.pick(&scope), self.random.pick(&scope));
            let made = match self.random.below(10) {
                0 => {
                    let op = self.random.pick(&[Unary::Neg, Unary::Exp, Unary::Rsqrt]);
                    self.push(OpKind::Unary(op), &[a], tile())
                }
                1 => {
                    let op = self.random.pick(&[Binary::Add, Binary::Min, Binary::Div]);
                    self.push(OpKind::Binary(op), &[a, b], tile())
                }
                2 => {
                    let (axis, combine) = (1, self.random.pick(&[Combine::Sum, Combine::Max]));
                    self.push(OpKind::Scan { axis, combine }, &[a], tile())
                }
                3 => {
                    let at = [self.int(), self.int(), self.int()];
                    let view = self.random.below(2);
                    self.push(OpKind::Load(view), &at, tile())
                }
                4 => {
                    let operands = [self.int(), self.int(), self.int(), a];
                    let loc = self.random.loc();
                    self.b.push(loc, OpKind::Store(1), &operands, &[]);
                    a
                }
                8 => {
                    let operands = [self.int(), self.int(), self.int(), self.int()];
                    self.push(OpKind::LoadUntil(0), &operands, tile())
                }
                9 => {
                    let operands = [self.int(), self.int(), self.int(), self.int(), a];
                    let loc = self.random.loc();
                    self.b.push(loc, OpKind::StoreUntil(1), &operands, &[]);
                    a
                }
                5 if depth > 0 => self.branch(&scope, depth),
                6 if depth > 0 => self.repeat(&scope, a, depth),
                _ => self.float(),
            };
            scope.push(made);
        }
        scope[scope.len() - 1]
    }

    fn branch(&mut self, scope: &[Value], depth: usize) -> Value {
        let (a, b) = (self.int(), self.int());
        let condition = self.push(OpKind::Cmp(Cmp::Lt), &[a, b], Type::scalar(Elem::Bool));
        let regions = [(); 2].map(|()| {
            let loc = self.random.loc();
            self.b.open(loc, &[]);
            let result = self.ops(scope.to_vec(), depth - 1);
            self.b.close(loc, &[result])
        });
        let loc = self.random.loc();
        self.b.push_with(loc, (OpKind::If, regions.into()), &[condition], &[tile()])[0]
    }

    fn repeat(&mut self, scope: &[Value], before: Value, depth: usize) -> Value {
        let (start, end, loc) = (self.int(), self.int(), self.random.loc());
        let inside = self.b.open(loc, &[Type::scalar(Elem::I64), tile()]);
        let mut scope = scope.to_vec();
        scope.push(inside[1]);
        let result = self.ops(scope, depth - 1);
        let region = self.b.close(loc, &[result]);
        let kind = (OpKind::For { step: 1 + self.random.below(9) }, vec![region]);
        let loc = self.random.loc();
        self.b.push_with(loc, kind, &[start, end, before], &[tile()])[0]
    }
}
