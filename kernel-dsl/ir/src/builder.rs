//! Builds a kernel op by op, infers result types and collects the author's mistakes.

use crate::error::{BuildError, Loc};
use crate::kernel::{Kernel, Op, OpId, Param, Region, Value, ValueInfo};
use crate::op::OpKind;
use crate::types::Type;

/// A kernel under construction. Ops go to the innermost open region.
#[derive(Debug)]
pub struct Builder {
    kernel: Kernel,
    open: Vec<Region>,
    errors: Vec<BuildError>,
}

impl Builder {
    /// An empty kernel.
    pub fn new(name: &str, loc: Loc) -> Self {
        let kernel = Kernel {
            name: name.to_owned(),
            formats: Vec::new(),
            consts: Vec::new(),
            dims: Vec::new(),
            params: Vec::new(),
            grid: Region::default(),
            body: Region::default(),
            ops: Vec::new(),
            values: Vec::new(),
            loc,
        };
        Self { kernel, open: Vec::new(), errors: Vec::new() }
    }

    /// What has been built so far.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// Says which formats and constants this variant has.
    pub fn describe(&mut self, formats: Vec<String>, consts: Vec<(String, usize)>) {
        self.kernel.formats = formats;
        self.kernel.consts = consts;
    }

    /// Index of the launch extent of that name, which is added if it is new.
    pub fn dim(&mut self, name: &str) -> usize {
        let known = self.kernel.dims.iter().position(|dim| dim == name);
        known.unwrap_or_else(|| {
            self.kernel.dims.push(name.to_owned());
            self.kernel.dims.len() - 1
        })
    }

    /// Adds a parameter and gives its index.
    pub fn param(&mut self, param: Param) -> usize {
        self.kernel.params.push(param);
        self.kernel.params.len() - 1
    }

    /// Type of a value.
    pub fn ty(&self, value: Value) -> &Type {
        self.kernel.ty(value)
    }

    /// Adds an op to the innermost region and gives its results.
    pub fn push(
        &mut self,
        loc: Loc,
        kind: OpKind,
        operands: &[Value],
        types: &[Type],
    ) -> Vec<Value> {
        self.push_with(loc, (kind, Vec::new()), operands, types)
    }

    /// Adds an op with regions.
    pub fn push_with(
        &mut self,
        loc: Loc,
        (kind, regions): (OpKind, Vec<Region>),
        operands: &[Value],
        types: &[Type],
    ) -> Vec<Value> {
        let results: Vec<Value> = types.iter().map(|ty| self.value(loc, ty.clone())).collect();
        let id = OpId(small(self.kernel.ops.len()));
        let operands = operands.to_vec();
        self.kernel.ops.push(Op { kind, operands, results: results.clone(), regions, loc });
        self.open.last_mut().expect("an open region").ops.push(id);
        results
    }

    /// Opens a region with arguments of these types.
    pub fn open(&mut self, loc: Loc, types: &[Type]) -> Vec<Value> {
        let args: Vec<Value> = types.iter().map(|ty| self.value(loc, ty.clone())).collect();
        self.open.push(Region { args: args.clone(), ops: Vec::new() });
        args
    }

    /// Ends the innermost region with its results.
    pub fn close(&mut self, loc: Loc, results: &[Value]) -> Region {
        self.push(loc, OpKind::Yield, results, &[]);
        self.open.pop().expect("an open region")
    }

    /// Notes a mistake; building goes on, so that one run finds several.
    pub fn error(&mut self, error: BuildError) {
        self.errors.push(error);
    }

    /// The kernel, verified, or every mistake found.
    ///
    /// # Errors
    /// The author's mistakes, in the order of the source.
    pub fn finish(mut self, grid: Region, body: Region) -> Result<Kernel, Vec<BuildError>> {
        assert!(self.open.is_empty(), "a region was left open");
        self.kernel.grid = grid;
        self.kernel.body = body;
        if self.errors.is_empty() {
            // What the author's mistakes would break is no news.
            self.kernel.verify()?;
            Ok(self.kernel)
        } else {
            Err(self.errors)
        }
    }

    fn value(&mut self, loc: Loc, ty: Type) -> Value {
        self.kernel.values.push(ValueInfo { ty, loc });
        Value(small(self.kernel.values.len() - 1))
    }
}

fn small(index: usize) -> u32 {
    u32::try_from(index).expect("a kernel has fewer than 2^32 ops and values")
}
