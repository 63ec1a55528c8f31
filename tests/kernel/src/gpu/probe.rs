//! `cargo xtask probe-isa`: asks the assembler for every form of the instruction table, on every
//! target, with one tiny kernel each, and writes its answers into the table.

use super::bar;
use super::toolchain::Toolchain;
use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tessera_ptx::bundle::PTXAS_VERSION;
use tessera_ptx::isa::{Sm, ptx_version};

/// What the assembler says of one form on one target.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Taken,
    /// The target lacks it.
    Lacked,
    /// The table's instruction is wrong: this is said of text that no target could take.
    Malformed(String),
}

/// A line of the table that names a form.
fn instruction(line: &str) -> Option<&str> {
    line.strip_prefix('"')?.split_once("\" = ").map(|(instruction, _)| instruction)
}

/// Asks for every form, says what the table has otherwise, and writes it unless `check`. Whether
/// there was anything.
///
/// # Errors
/// If a tool cannot be run, or an instruction of the table is malformed.
pub fn run(tools: &Toolchain, table: &Path, scratch: &Path, check: bool) -> Result<bool> {
    let text = std::fs::read_to_string(table)
        .with_context(|| format!("cannot read {}", table.display()))?;
    std::fs::create_dir_all(scratch)?;
    let instructions: Vec<&str> = text.lines().filter_map(instruction).collect();
    let answers = ask_all(&instructions, tools, scratch)?;
    let mut malformed = Vec::new();
    for (instruction, answers) in instructions.iter().zip(&answers) {
        let wrong = answers.iter().find_map(|answer| match answer {
            Answer::Malformed(message) => Some(message),
            _ => None,
        });
        malformed.extend(wrong.map(|message| format!("`{instruction}`: {message}")));
    }
    if !malformed.is_empty() {
        bail!("{} instructions are malformed\n  {}", malformed.len(), malformed.join("\n  "));
    }
    let new = rewritten(&text, &answers);
    let changed = text.lines().zip(new.lines()).filter(|(old, new)| old != new);
    changed.for_each(|(old, new)| println!("- {old}\n+ {new}"));
    if !check {
        std::fs::write(table, &new).with_context(|| format!("cannot write {}", table.display()))?;
    }
    println!("{} forms on {} targets", answers.len(), Sm::ALL.len());
    Ok(text != new)
}

/// One answer a target, for every instruction in its order.
fn ask_all(instructions: &[&str], tools: &Toolchain, scratch: &Path) -> Result<Vec<[Answer; 3]>> {
    let bar = bar(instructions.len() as u64, "probing");
    let (next, workers) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let done = Mutex::new(Vec::new());
    let work = || {
        let worker = workers.fetch_add(1, Ordering::Relaxed);
        let own = scratch.join(format!("probe-{}-{worker}", std::process::id()));
        while let Some((i, instruction)) = {
            let i = next.fetch_add(1, Ordering::Relaxed);
            instructions.get(i).map(|instruction| (i, instruction))
        } {
            let answers = Sm::ALL.map(|sm| ask(instruction, sm, tools, &own));
            bar.inc(1);
            done.lock().expect("no worker panics").push((i, answers));
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        (0..cores.min(instructions.len())).for_each(|_| _ = scope.spawn(work));
    });
    bar.finish_and_clear();
    let mut done = done.into_inner().expect("no worker panics");
    done.sort_by_key(|(i, _)| *i);
    let each = done.into_iter().map(|(_, [a, b, c])| Ok([a?, b?, c?]));
    each.collect()
}

fn ask(instruction: &str, sm: Sm, tools: &Toolchain, own: &Path) -> Result<Answer> {
    let file = own.with_extension("ptx");
    std::fs::write(&file, kernel(instruction, sm))?;
    let mut ptxas = Command::new(&tools.ptxas);
    ptxas.arg(format!("--gpu-name={sm}")).arg(&file);
    let output = ptxas.arg("--output-file").arg(own.with_extension("cubin")).output();
    let output = output.context("cannot run ptxas")?;
    if output.status.success() {
        return Ok(Answer::Taken);
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let lacks = said.lines().any(is_lack);
    let first = said.lines().next().unwrap_or("nothing").to_owned();
    Ok(if lacks { Answer::Lacked } else { Answer::Malformed(format!("on {sm}: {first}")) })
}

/// Whether the assembler says that a target, or this version of the language, lacks something, and
/// not that the text is no PTX.
fn is_lack(line: &str) -> bool {
    [
        "not supported on .target",
        "requires .target",
        "requires PTX ISA",
        "requires .version",
        "not supported for .target",
        "cannot be compiled to future architecture",
    ]
    .iter()
    .any(|part| line.contains(part))
}

/// `{%f0..3}` as `{%f0, %f1, %f2, %f3}`.
fn expanded(instruction: &str) -> String {
    let expand = |range: &str| {
        let (first, last) = range.split_once("..")?;
        let (bank, first) = first.split_at(first.find(|c: char| c.is_ascii_digit())?);
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        let all: Vec<String> = (first..=last).map(|i| format!("{bank}{i}")).collect();
        Some(all.join(", "))
    };
    let parts = instruction.split_inclusive(['{', '}']);
    let each = parts.map(|part| match part.strip_suffix('}').and_then(expand) {
        Some(all) => all + "}",
        None => part.to_owned(),
    });
    each.collect()
}

/// A kernel of one instruction. Its registers are never set: it is assembled, not run.
fn kernel(instruction: &str, sm: Sm) -> String {
    let instruction = expanded(instruction);
    format!(
        ".version {}\n.target {}\n.address_size 64\n.extern .shared .align 128 .b8 smem[];\n\
         .visible .entry probe(.param .u64 p0)\n.reqntid 128\n{{\n\
         \t.reg .pred %p<4>;\n\t.reg .b8 %b<10>;\n\t.reg .b16 %h<10>;\n\t.reg .b32 %r<136>;\n\
         \t.reg .f32 %f<136>;\n\t.reg .b64 %rd<10>;\n\t.reg .f64 %d<10>;\n\t.reg .b128 %q<4>;\n\
         \t{instruction};\n$end:\n\tret;\n}}\n",
        ptx_version(),
        sm.name()
    )
}

/// The table with new right-hand sides.
fn rewritten(table: &str, answers: &[[Answer; 3]]) -> String {
    let mut answers = answers.iter();
    let mut out = String::new();
    for line in table.lines() {
        let row = match (instruction(line), line.split_once(" = ")) {
            (Some(instruction), _) => answers.next().map(|answers| {
                let taken = Sm::ALL.iter().zip(answers).filter(|(_, a)| **a == Answer::Taken);
                let names: Vec<&str> = taken.map(|(sm, _)| sm.name()).collect();
                format!("\"{instruction}\" = \"{}\"", names.join(" "))
            }),
            (None, Some(("ptxas", _))) => Some(format!("ptxas = \"{PTXAS_VERSION}\"")),
            _ => None,
        };
        out += row.as_deref().unwrap_or(line);
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_written_beside_their_instructions() {
        let table =
            "# head\nptxas = \"1\"\n\n[forms]\n\"a %r0\" = \"\"\n\n# b\n\"b\" = \"sm_90a\"\n";
        let answers = [
            [Answer::Taken, Answer::Lacked, Answer::Taken],
            [Answer::Lacked, Answer::Lacked, Answer::Lacked],
        ];
        let want = "# head\nptxas = \"13.0.88\"\n\n[forms]\n\"a %r0\" = \"sm_90a sm_100f\"\n\n\
                    # b\n\"b\" = \"\"\n";
        assert_eq!(rewritten(table, &answers), want);
    }

    #[test]
    fn ranges_of_registers_are_expanded() {
        let text = expanded("a {%f0..2}, {%r9..10}, [%rd0, {%r1, %r2}], 0");
        assert_eq!(text, "a {%f0, %f1, %f2}, {%r9, %r10}, [%rd0, {%r1, %r2}], 0");
    }

    #[test]
    fn a_lack_is_told_from_a_mistake() {
        let lacks = "ptxas d.ptx, line 27; error   : Feature 'fma.f32x2' requires .target sm_100";
        assert!(is_lack(lacks));
        assert!(is_lack("error : Instruction 'tcgen05.wait' not supported on .target 'sm_90a'"));
        assert!(!is_lack("error : Arguments mismatch for instruction 'mul'"));
    }

    #[test]
    fn the_table_in_the_repository_is_of_the_pinned_assembler() {
        assert_eq!(tessera_ptx::isa::ptxas_version(), PTXAS_VERSION);
    }
}
