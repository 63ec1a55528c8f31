//! The floors as tables, and what keeps a kernel from its own.

use super::model::{Counted, Modelled, Resource, wavefronts};
use super::peaks::{GPUS, Gpu, SOURCES};
use crate::source::Sources;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;

/// A gap that is explained.
const GAP: f64 = 1.3;
/// Forms of instructions that are listed.
const FORMS: usize = 16;

/// Everything that is known of the workloads.
#[derive(Debug, Serialize)]
pub struct Report {
    gpus: [Gpu; 2],
    rows: Vec<Row>,
}

/// A workload on one GPU.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    shape: String,
    kernel: String,
    programs: u64,
    emulated_programs: u64,
    counts: LaunchCounts,
    classes: BTreeMap<String, f64>,
    modelled: Modelled,
    model_us: f64,
    floor_us: f64,
    ratio: f64,
    costly: Vec<Costly>,
    forms: Vec<(String, f64)>,
    why: &'static str,
}

/// What the whole launch does.
#[derive(Debug, Serialize)]
struct LaunchCounts {
    least_bytes: f64,
    flop: u64,
    requested_bytes: f64,
    sectors: f64,
    warp_instructions: f64,
    machine_instructions_for_one: f64,
    mma: f64,
    shared_wavefronts: f64,
    shared_conflicts: f64,
    barriers: f64,
}

/// A line of the source that takes much of what is short.
#[derive(Debug, Serialize)]
struct Costly {
    place: String,
    text: String,
    share: f64,
}

impl Row {
    fn new(counted: &Counted, gpu: &Gpu) -> Self {
        let modelled = counted.on(gpu);
        let total = &counted.profile.total;
        let counts = LaunchCounts {
            least_bytes: counted.least_bytes(),
            flop: counted.workload.flop,
            requested_bytes: counted.of_launch(total.global_bytes),
            sectors: counted.of_launch(total.global_sectors),
            warp_instructions: counted.of_launch(total.warp_instructions),
            machine_instructions_for_one: counted.expansion,
            mma: counted.of_launch(total.mma),
            shared_wavefronts: counted.of_launch(wavefronts(total)),
            shared_conflicts: counted.of_launch(total.shared_conflicts),
            barriers: counted.of_launch(total.barriers),
        };
        let forms = counted.forms.iter().take(FORMS);
        let forms =
            forms.map(|(form, n)| (form.clone(), *n as f64 / total.warp_instructions as f64));
        let classes = counted.profile.classes.iter();
        let classes =
            classes.map(|(class, n)| (format!("{class:?}").to_lowercase(), counted.of_launch(*n)));
        Self {
            name: counted.workload.name.clone(),
            shape: counted.workload.shape.clone(),
            kernel: counted.label.clone(),
            programs: counted.workload.programs,
            emulated_programs: counted.profile.ctas,
            counts,
            classes: classes.collect(),
            model_us: modelled.model_us(),
            floor_us: modelled.floor_us(),
            ratio: modelled.ratio(),
            costly: costly(counted, modelled.limit),
            forms: forms.collect(),
            why: counted.workload.why,
            modelled,
        }
    }

    /// Why the model is so far from the floor, but for what is said once for the kernel.
    fn explanation(&self) -> String {
        let mut text = String::new();
        let mut times: Vec<_> = Resource::ALL.iter().zip(self.modelled.resources_us).collect();
        times.sort_by(|a, b| b.1.total_cmp(&a.1));
        let Modelled { gpu, limit, .. } = &self.modelled;
        let [(_, first), (next, second), ..] = times[..] else { return text };
        let _ = write!(
            text,
            "{gpu}: {} {}, {}x; next {}, {}x.",
            limit.name(),
            because(*limit),
            short(first / self.floor_us),
            next.name(),
            short(second / self.floor_us)
        );
        for (i, Costly { place, text: code, share }) in self.costly.iter().enumerate() {
            let begin = if i == 0 { " Lines:" } else { "," };
            let _ = write!(text, "{begin} {:.0} % `{place}`", share * 100.0);
            if i == 0 {
                let _ = write!(text, " (`{code}`)");
            }
        }
        for (i, (form, share)) in self.forms.iter().take(6).enumerate() {
            let begin = if i == 0 { ". Instructions:" } else { "," };
            let _ = write!(text, "{begin} {:.0} % `{form}`", share * 100.0);
        }
        text + "."
    }
}

/// What it means that a resource is short.
fn because(limit: Resource) -> &'static str {
    match limit {
        Resource::Memory => "(the launch moves more than the result needs)",
        Resource::L2 => "(the same is read again, or sectors in part)",
        Resource::Issue => "(more instructions than slots)",
        Resource::Integer => "(arithmetic of addresses and codes)",
        Resource::Tensor => "(more products than `mma.sync` gives)",
        Resource::Shared => "(tiles pass through shared memory too often)",
    }
}

/// The lines that take most of a resource.
fn costly(counted: &Counted, resource: Resource) -> Vec<Costly> {
    let sources = Sources::of_workspace();
    let named = counted.costly(resource).into_iter().map(|(line, share)| {
        let Some((file, number)) = &line.source else {
            let place = format!("PTX line {}", line.ptx_line);
            return Costly { place, text: String::new(), share };
        };
        let lines = sources.lines(file);
        let text = lines.get(*number as usize - 1).map_or("", |text| text.trim()).to_owned();
        Costly { place: format!("{file}:{number}"), text, share }
    });
    named.collect()
}

impl Report {
    /// Of every workload, each on the GPU that it was built for.
    pub fn new(counted: &[Counted]) -> Self {
        let on = |counted: &Counted| {
            let own = GPUS.iter().filter(|gpu| gpu.sm == counted.sm);
            own.map(|gpu| Row::new(counted, gpu)).collect::<Vec<_>>()
        };
        Self { gpus: GPUS, rows: counted.iter().flat_map(on).collect() }
    }

    /// The report for a reader.
    pub fn markdown(&self) -> String {
        let mut text = "# Modelled floors of kernels\n\n\
             Modelled, not measured: **no GPU was used.** Counts are the emulator's, of one program \
             that stands for all of its launch (of all programs for the page-tag check); rates are \
             the table's at the end. *Floor* is the larger of the bytes that must move over the \
             memory's bandwidth and of the operations over the matrix units' best rate. *Model* is \
             the longest time of a resource, as if all others hid behind it: latencies, launches \
             and waiting are not in it, so a GPU takes longer.\n\n"
            .to_owned();
        self.floors(&mut text);
        self.counts(&mut text);
        self.gaps(&mut text);
        text += "\n## Rates\n\n| | memory TB/s | SMs | GHz | BF16 TFLOP/s | a cycle and SM: issue | \
                 integer | shared B | L2 B | mma.sync FLOP | wgmma FLOP |\n|---|---|---|---|---|---|---|---|---|---|---|\n";
        for gpu in &self.gpus {
            let _ = writeln!(
                text,
                "| {} | {:.1} | {} | {:.3} | {:.0} | {} | {} | {} | {} | {:.0} | {:.0} |",
                gpu.name,
                gpu.memory_bytes_s / 1e12,
                gpu.multiprocessors,
                gpu.clock_hz / 1e9,
                gpu.bf16_flop_s / 1e12,
                gpu.issue,
                gpu.integer,
                gpu.shared_bytes,
                gpu.l2_bytes,
                gpu.mma_flop,
                gpu.wgmma_flop
            );
        }
        text + "\n" + SOURCES + "\n"
    }

    fn floors(&self, text: &mut String) {
        *text += "| workload | GPU | memory floor us | FLOP floor us |";
        for resource in Resource::ALL {
            let _ = write!(text, " {} us |", resource.name());
        }
        *text += " limit | model / floor |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let Modelled { gpu, memory_floor_us, flop_floor_us, resources_us, limit } =
                &row.modelled;
            let _ = write!(
                text,
                "| {} | {gpu} | {} | {} |",
                row.name,
                short(*memory_floor_us),
                short(*flop_floor_us)
            );
            for time in resources_us {
                let _ = write!(text, " {} |", short(*time));
            }
            let _ = writeln!(text, " {} | {:.1}x |", limit.name(), row.ratio);
        }
    }

    /// Once for a kernel, at the first of its workloads; both GPUs.
    fn gaps(&self, text: &mut String) {
        *text += "\n## Gaps above 1.3x\n";
        let mut said: Vec<&str> = Vec::new();
        for row in self.rows.iter().filter(|row| row.ratio > GAP) {
            if said.contains(&row.kernel.as_str()) {
                continue;
            }
            said.push(&row.kernel);
            let _ = write!(text, "\n`{}`: {}\n\n", row.kernel, row.why);
            let same = self.rows.iter().filter(|other| other.kernel == row.kernel);
            for other in same.filter(|other| other.ratio > GAP && other.name == row.name) {
                let _ = writeln!(text, "- {}, {}", other.name, other.explanation());
            }
        }
    }

    fn counts(&self, text: &mut String) {
        *text += "\n## What the launches do\n\n\
                  Millions, but for the last two. *SASS* is machine instructions for one of PTX, in \
                  the text of the kernel; issue is scaled by it. Integers are PTX's: the assembler joins \
                  some, and takes two for those of 64 bits.\n\n\
                  | workload | GPU | least B | FLOP | asked B | sectors | warp instr. | integer | \
                  convert | move | MMA | shared passes | conflicts | barriers | SASS | programs |\n\
                  |---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n";
        for row in &self.rows {
            let counts = &row.counts;
            let class = |name: &str| row.classes.get(name).copied().unwrap_or_default();
            let _ = write!(text, "| {} | {} |", row.name, row.modelled.gpu);
            let millions = [
                counts.least_bytes,
                counts.flop as f64,
                counts.requested_bytes,
                counts.sectors,
                counts.warp_instructions,
                class("integer"),
                class("convert"),
                class("move"),
                counts.mma,
                counts.shared_wavefronts,
                counts.shared_conflicts,
                counts.barriers,
            ];
            for value in millions {
                let _ = write!(text, " {} |", short(value / 1e6));
            }
            let scale = counts.machine_instructions_for_one;
            let _ = writeln!(text, " {scale:.2} | {} |", row.programs);
        }
        for row in self.rows.iter().filter(|row| row.modelled.gpu == GPUS[0].name) {
            let _ = write!(text, "\n- {}: `{}`, {}", row.name, row.kernel, row.shape);
            let _ = write!(text, "; {} of {} programs ran", row.emulated_programs, row.programs);
        }
        *text += "\n";
    }
}

/// A number with two or three digits that mean something.
fn short(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        _ if value < 0.1 => format!("{value:.3}"),
        _ if value < 10.0 => format!("{value:.2}"),
        _ if value < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}
