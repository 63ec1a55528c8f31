//! The launch of an entry: its arguments, the choice of a variant, and one program of each.

use crate::class::Class;
use crate::dots::quantized_field;
use crate::generate::{Generator, field};
use crate::plan::{index, is_elementwise};
use crate::text::{Text, camel, place};
use std::collections::BTreeMap;
use tessera_tile_ir::format::{Element, Format};
use tessera_tile_ir::kernel::Extent;
use tessera_tile_ir::{Access, BuildError, Elem, Kernel, OpKind, Param, ParamKind, Region};

/// What the body of a variant became.
#[derive(Debug)]
pub(crate) struct Variant<'k> {
    pub(crate) kernel: &'k Kernel,
    pub(crate) body: Text,
    carving: Text,
    grid: Text,
    extents: Vec<String>,
    /// Checks what the kernel asserts of its extents alone.
    fits: Text,
    sizes: String,
    /// Parameters whose rows are quantized before the launch, each with the weights they meet.
    quantized: Vec<(usize, usize)>,
    pub(crate) codecs: BTreeMap<String, Element>,
    pub(crate) formats: BTreeMap<&'static str, &'static Format>,
}

impl<'k> Variant<'k> {
    /// Generates the code of one kernel.
    pub(crate) fn generate(kernel: &'k Kernel) -> Result<Self, Vec<BuildError>> {
        let mut generator = Generator::new(kernel);
        generator.region(&kernel.grid);
        let extents = generator.grid_extents();
        let grid = std::mem::replace(&mut generator.text, Text::indented(2));
        generator.region(&kernel.body);
        if !generator.errors.is_empty() {
            return Err(generator.errors);
        }
        Ok(Self {
            kernel,
            carving: generator.carving(),
            grid,
            extents,
            fits: fits(kernel),
            sizes: generator.sizes(),
            quantized: generator.quantized.iter().copied().collect(),
            codecs: std::mem::take(&mut generator.codecs),
            formats: std::mem::take(&mut generator.formats),
            body: generator.text,
        })
    }

    /// Everything that makes code of it: variants that have it in common share their code.
    fn code(&self) -> String {
        let mut text = Text::default();
        self.write_signature("S", &mut text);
        self.write("P", &mut text);
        text.to_string()
    }

    /// Writes the variant's struct and its program.
    fn write(&self, name: &str, text: &mut Text) {
        let kernel = self.kernel;
        text.line(format!("struct {name}<'a> {{"));
        for param in &kernel.params {
            text.line(format!("{}: {},", field(&param.name), inner_type(param)));
        }
        for &met in &self.quantized {
            text.line(format!("{}: A16Rows<'a>,", quantized_field(kernel, met)));
        }
        text.line(format!("dims: [i64; {}],", kernel.dims.len()));
        text.line("}");
        text.line("");
        text.line(format!("impl {name}<'_> {{"));
        text.line("/// Programs along each axis.");
        text.line("fn grid(&self) -> [i64; 3] {");
        text.lines(&self.grid.to_string());
        text.line(format!("[{}]", self.extents.join(", ")));
        text.line("}");
        text.line("");
        text.line("/// Whether what the kernel asserts of its extents holds.");
        text.line("fn fits(&self) -> Result<(), AssertFailed> {");
        text.lines(&self.fits.to_string());
        text.line("Ok(())");
        text.lines("}\n}");
        text.line("");
        text.line(format!("impl Program for {name}<'_> {{"));
        text.line(format!("const KERNEL: &'static str = {:?};", kernel.name));
        text.line(format!("const SIZES: Sizes = {};", self.sizes));
        text.line("");
        text.line("#[inline(always)]");
        text.line("fn run<I: Isa>(");
        text.lines("&self,\nisa: I,\nid: [i64; 3],\nscratch: &mut Scratch,");
        text.line(") -> Result<(), AssertFailed> {");
        text.lines(&self.carving.to_string());
        text.lines(&self.body.to_string());
        text.line("Ok(())");
        text.lines("}\n}");
        text.line("");
    }

    /// Writes the signature that the shapes of a launch are checked by.
    fn write_signature(&self, name: &str, text: &mut Text) {
        let kernel = self.kernel;
        text.line(format!("const {name}: Signature = Signature {{"));
        text.line(format!("kernel: {:?},", kernel.name));
        text.line(format!("dims: &{:?},", kernel.dims));
        text.line("views: &[");
        for (param, dims) in views(kernel) {
            let axes: Vec<String> = dims
                .iter()
                .map(|axis| {
                    format!("Axis {{ dims: &{:?}, constant: {} }}", axis.dims, axis.constant)
                })
                .collect();
            text.line(format!("({:?}, &[{}]),", param.name, axes.join(", ")));
        }
        text.line("],");
        text.line("};");
        text.line("");
    }
}

impl Generator<'_> {
    /// The three extents of the grid as text.
    fn grid_extents(&mut self) -> Vec<String> {
        let results = self.results(&self.kernel.grid);
        if results.len() > 3 {
            self.refuse(self.kernel.loc, "grid of more than three axes");
        }
        let zero = crate::nest::Ix::zero();
        let mut nest = crate::nest::Nest::flat();
        let mut extents: Vec<String> =
            results.iter().map(|&v| self.scalar(&mut nest, v, &zero, &zero)).collect();
        extents.resize(3, "1".to_owned());
        extents
    }
}

/// The asserts of a kernel that read nothing but its extents, with what they read.
fn fits(kernel: &Kernel) -> Text {
    let mut known = vec![false; kernel.values.len()];
    let mut ops = Vec::new();
    for &id in &kernel.body.ops {
        let op = kernel.op(id);
        let pure = match op.kind {
            OpKind::Dim(_) | OpKind::Const(_) => true,
            OpKind::Assert(_) => true,
            _ => is_elementwise(kernel, op),
        };
        if pure && op.operands.iter().all(|v| known[index(*v)]) {
            let scalars = op.results.iter().all(|v| kernel.ty(*v).shape.is_empty());
            if scalars {
                op.results.iter().for_each(|v| known[index(*v)] = true);
                ops.push(id);
            }
        }
    }
    let mut generator = Generator::new(kernel);
    if ops.iter().any(|&id| matches!(kernel.op(id).kind, OpKind::Assert(_))) {
        generator.region(&Region { args: Vec::new(), ops });
    }
    generator.text
}

/// The text of an entry: one struct that a caller fills in and launches.
pub(crate) fn entry(variants: &[Variant<'_>]) -> Text {
    let mut text = Text::default();
    let Some(first) = variants.first() else { return text };
    let kernel = first.kernel;
    let name = camel(&kernel.name);
    text.line(format!("/// A launch of `{}`, {}.", kernel.name, place(kernel.loc)));
    text.line(format!("pub struct {name}<'a> {{"));
    for param in &kernel.params {
        text.line(format!("/// `{}`.", describe(param, kernel)));
        text.line(format!("pub {}: {},", field(&param.name), outer_type(param)));
    }
    if !kernel.params.iter().any(|param| matches!(param.kind, ParamKind::View { .. })) {
        text.line("/// Nothing is borrowed.");
        text.line("pub lifetime: std::marker::PhantomData<&'a ()>,");
    }
    text.line("}");
    text.line("");
    text.line(format!("impl {name}<'_> {{"));
    text.line(
        "/// Runs the first variant that is built for the formats of the arguments and whose",
    );
    text.line("/// extents they fit.");
    text.line("///");
    text.line("/// # Errors");
    text.line("/// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.");
    text.line("pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {");
    let shapes: Vec<String> =
        views(kernel).map(|(param, _)| format!("&self.{}.dims()", field(&param.name))).collect();
    text.line(format!("let shapes: [&[usize]; {}] = [{}];", shapes.len(), shapes.join(", ")));
    text.line("let mut misfit = None;");
    let shared = share(variants);
    for (i, alike) in shared.iter().enumerate() {
        write_choice(alike, (&name, i), &mut text);
    }
    let got: Vec<String> = views(kernel)
        .filter(|(param, _)| is_coded(param))
        .map(|(param, _)| format!("self.{}.format()", field(&param.name)))
        .collect();
    let list = got.join(", ");
    text.line(format!("Err(misfit.unwrap_or_else(|| no_variant({:?}, &[{list}])))", kernel.name));
    text.lines("}\n}");
    text.line("");
    for (i, alike) in shared.iter().enumerate() {
        let Some(variant) = alike.first() else { continue };
        variant.write_signature(&signature_name(&kernel.name, i), &mut text);
        for variant in alike {
            text.line(format!("/// `{}`.", variant.kernel.label()));
            text.line("///");
        }
        variant.write(&format!("{name}V{i}"), &mut text);
    }
    text
}

/// Variants in groups that have their code in common, in the order of each group's first.
fn share<'v, 'k>(variants: &'v [Variant<'k>]) -> Vec<Vec<&'v Variant<'k>>> {
    let mut groups: Vec<(String, Vec<&Variant<'k>>)> = Vec::new();
    for variant in variants {
        let code = variant.code();
        match groups.iter_mut().find(|(known, _)| *known == code) {
            Some((_, group)) => group.push(variant),
            None => groups.push((code, vec![variant])),
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

fn signature_name(kernel: &str, i: usize) -> String {
    format!("{}_V{i}", kernel.to_uppercase())
}

/// Whether the arguments are in a variant's formats; empty for a kernel without.
fn formats_match(kernel: &Kernel) -> String {
    let formats = views(kernel).filter_map(|(param, _)| {
        let name = match &param.kind {
            ParamKind::View { elem: Elem::Stored(element), .. } => element.name(),
            ParamKind::View { elem: Elem::Packed(format), .. } => format.name,
            _ => return None,
        };
        Some(format!("self.{}.format() == {name:?}", field(&param.name)))
    });
    formats.collect::<Vec<_>>().join(" && ")
}

/// Writes the lines that launch variants with one code if they fit.
fn write_choice(variants: &[&Variant<'_>], (name, i): (&str, usize), text: &mut Text) {
    let Some(variant) = variants.first() else { return };
    let kernel = variant.kernel;
    let formats: Vec<String> =
        variants.iter().map(|variant| formats_match(variant.kernel)).collect();
    if formats.iter().any(String::is_empty) {
        text.line("{");
    } else {
        text.line(format!("if {} {{", formats.join(" || ")));
    }
    text.line(format!("match {}.solve(&shapes) {{", signature_name(&kernel.name, i)));
    text.line("Ok(dims) => {");
    for (slot, &(x, w)) in variant.quantized.iter().enumerate() {
        let rows = quantized_field(kernel, (x, w));
        let [x, w] = [x, w].map(|param| field(&kernel.params[param].name));
        let group = format!("self.{w}.activation_group()");
        text.line(format!("let {rows} = cpu.quantize({slot}, &self.{x}, {group});"));
    }
    text.line(format!("let program = {name}V{i} {{"));
    for param in &kernel.params {
        let field = field(&param.name);
        let value = match &param.kind {
            ParamKind::View { elem: Elem::Stored(_), .. } => format!("self.{field}.codes()"),
            ParamKind::View { access: Access::Read, .. } | ParamKind::Scalar(_) => {
                format!("self.{field}")
            }
            ParamKind::View { .. } => format!("&self.{field}"),
        };
        text.line(format!("{field}: {value},"));
    }
    for &met in &variant.quantized {
        let rows = quantized_field(kernel, met);
        text.line(format!("{rows}: {rows}.rows(),"));
    }
    text.line("dims,");
    text.line("};");
    text.line("match program.fits() {");
    text.line("Ok(()) => return cpu.launch(program.grid(), &program),");
    text.line(format!(
        "Err(failed) => misfit = misfit.or(Some(failed.at_launch({:?}))),",
        kernel.name
    ));
    text.line("}");
    text.line("}");
    text.line("Err(error) => misfit = misfit.or(Some(error)),");
    text.lines("}\n}");
}

/// Parameters that are views, with their extents.
fn views(kernel: &Kernel) -> impl Iterator<Item = (&Param, &[Extent])> {
    kernel.params.iter().filter_map(|param| match &param.kind {
        ParamKind::View { dims, .. } => Some((param, dims.as_slice())),
        ParamKind::Scalar(_) => None,
    })
}

fn is_coded(param: &Param) -> bool {
    matches!(param.kind, ParamKind::View { elem: Elem::Stored(_) | Elem::Packed(_), .. })
}

/// A parameter as its author declared it.
fn describe(param: &Param, kernel: &Kernel) -> String {
    match &param.kind {
        ParamKind::Scalar(elem) => elem.to_string(),
        ParamKind::View { elem, access, dims } => {
            let extent = |axis: &Extent| {
                let mut terms: Vec<String> =
                    axis.dims.iter().map(|&dim| kernel.dims[dim].clone()).collect();
                if axis.constant != 0 || terms.is_empty() {
                    terms.push(axis.constant.to_string());
                }
                terms.join(" + ")
            };
            let axes: Vec<String> = dims.iter().map(extent).collect();
            let direction = match access {
                Access::Read => "In",
                Access::Write => "Out",
                Access::ReadWrite => "InOut",
            };
            let elem = match elem {
                Elem::Stored(_) => "stored".to_owned(),
                Elem::Packed(_) => "packed".to_owned(),
                elem => elem.to_string(),
            };
            format!("{direction}<{elem}, [{}]>", axes.join(", "))
        }
    }
}

/// Type of a parameter in the struct that callers fill in.
fn outer_type(param: &Param) -> String {
    match &param.kind {
        ParamKind::Scalar(elem) => Class::of(*elem).scalar().to_owned(),
        ParamKind::View { elem, access, dims } => {
            let (rank, class) = (dims.len(), Class::of(*elem));
            match (class, access) {
                (Class::Packed, _) => format!("PackedView<'a, {rank}>"),
                (Class::Code(_), Access::Read) => format!("StoredView<'a, {rank}>"),
                (Class::Code(_), _) => format!("StoredViewMut<'a, {rank}>"),
                (_, Access::Read) => format!("View<'a, {}, {rank}>", class.in_view()),
                _ => format!("ViewMut<'a, {}, {rank}>", class.in_view()),
            }
        }
    }
}

/// Type of a parameter in the struct of a variant.
fn inner_type(param: &Param) -> String {
    match &param.kind {
        ParamKind::View { elem: Elem::Stored(element), access, dims } => {
            let elem = Class::of(Elem::Stored(*element)).in_view();
            let view = if *access == Access::Read { "View" } else { "ViewMut" };
            format!("{view}<'a, {elem}, {}>", dims.len())
        }
        ParamKind::View { access: Access::Write | Access::ReadWrite, .. } => {
            format!("&'a {}", outer_type(param))
        }
        _ => outer_type(param),
    }
}
