//! `cargo xtask kernel`: lists kernels, explains one, traces a line of it.

use anyhow::{Context, Result, anyhow, bail};
use clap::Parser;
use std::path::Path;
use std::process::ExitCode;
use tessera_kernel_tool::cases::{Case, load};
use tessera_kernel_tool::choose::{Wanted, describe_one, entry, fitting, list, variants};
use tessera_kernel_tool::explain::explain;
use tessera_kernel_tool::source::Sources;
use tessera_kernel_tool::terminal::{WIDTH, show, terminal_width};
use tessera_kernel_tool::trace::{Request, trace, what};
use tessera_kernels::tiles::entries;
use tessera_tile_ir::Kernel;

/// Shows kernels of the tile language: without a name, which there are.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask kernel")]
struct Options {
    /// The kernel; without more, its variants and cases.
    name: Option<String>,
    /// The variant built for this format.
    #[arg(long, requires = "name")]
    format: Option<String>,
    /// The variant of this label, such as `w_gemm<mxfp4>[BM=4]` or `BM=4`.
    #[arg(long, value_name = "LABEL", requires = "name")]
    variant: Option<String>,
    /// Its source with the ops and the generated code of each line.
    #[arg(long, requires = "name")]
    explain: bool,
    /// What the tiles made at this line hold in the f64 evaluator. FILE:LINE is in another file;
    /// %VALUE is one value of the IR.
    #[arg(long, value_name = "LINE", requires = "name")]
    trace: Option<String>,
    /// The case to trace; the first that fits if not given.
    #[arg(long, value_name = "NAME", requires = "trace")]
    case: Option<String>,
    /// The program to trace, by its index in the grid; may be given more than once.
    #[arg(long = "program", value_name = "I,J,K", value_parser = program, requires = "trace")]
    programs: Vec<Program>,
    /// Characters of a line; the terminal's if not given.
    #[arg(long)]
    width: Option<usize>,
}

/// Index of a program along each axis.
#[derive(Debug, Clone)]
struct Program(Vec<i64>);

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let width = options.width.or_else(terminal_width).unwrap_or(WIDTH).max(40);
    let Some(name) = &options.name else {
        return show(&list(&entries(), width));
    };
    let entry = entry(name)?;
    let wanted = Wanted { format: options.format.as_deref(), variant: options.variant.as_deref() };
    let kernels = fitting(variants(&entry)?, wanted)?;
    let sources = Sources::of_workspace();
    let read = |file: &str| sources.lines(file);
    if options.explain {
        if kernels.len() > 1 {
            eprintln!("one of {} variants: --format and --variant choose another", kernels.len());
        }
        show(&explain(&kernels[0], &read, width)?)?;
    }
    let cases = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../cases"))?;
    if let Some(line) = &options.trace {
        let (kernel, case) = choose_case(&kernels, &cases, options.case.as_deref())?;
        let mut programs: Vec<Vec<i64>> = options.programs.iter().map(|p| p.0.clone()).collect();
        if programs.is_empty() {
            programs.push(vec![0, 0, 0]);
        }
        let what = what(kernel, line, &read)?;
        let request = Request { what, programs: &programs, width };
        show(&trace(kernel, case, &request, &read)?)?;
    }
    if !options.explain && options.trace.is_none() {
        show(&describe_one(&entry, &kernels, &cases))?;
    }
    Ok(())
}

/// The first variant with a case that fits it.
fn choose_case<'a>(
    kernels: &'a [Kernel],
    cases: &'a [Case],
    name: Option<&str>,
) -> Result<(&'a Kernel, &'a Case)> {
    let kernel = &kernels[0].name;
    let own: Vec<&Case> = cases.iter().filter(|case| case.kernel == *kernel).collect();
    let all: Vec<String> = own.iter().map(|case| format!("\n  {}", case.name)).collect();
    let named: Vec<&Case> = match name {
        None => own,
        Some(name) => own.into_iter().filter(|case| case.name == name).collect(),
    };
    if named.is_empty() {
        let name = name.unwrap_or("any");
        bail!("{kernel} has no case `{name}`; there are{}", all.concat());
    }
    let pairs = kernels.iter().flat_map(|kernel| named.iter().map(move |&case| (kernel, case)));
    let mut fits = pairs.filter(|(kernel, case)| case.fits(&kernel.formats, &kernel.consts));
    fits.next().ok_or_else(|| {
        let case = named[0];
        let labels: Vec<String> = kernels.iter().map(Kernel::label).collect();
        let labels = labels.join(", ");
        let Case { name, formats, consts, .. } = case;
        anyhow!("case `{name}` is for formats {formats:?} and constants {consts:?}, not {labels}")
    })
}

fn program(text: &str) -> Result<Program> {
    let index = |part: &str| {
        let index = part.trim().parse::<i64>().ok().filter(|&index| index >= 0);
        index.with_context(|| format!("`{part}` is no index: give up to three, such as 1,0,2"))
    };
    text.split(',').map(index).collect::<Result<_>>().map(Program)
}
