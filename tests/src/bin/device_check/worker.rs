//! A step's process: what it says, line by line, to the process that asked.

use crate::options::{Options, Step, Task};
use crate::record::Outputs;
use crate::{cases, serve, timing};
use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use std::io::Write;
use tessera_runtime::device::Launcher;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    Device(Device),
    /// A case is about to run.
    Started(CaseName),
    Case(CaseResult),
    Timed(Timed),
    Served(Served),
}

/// What the device is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Device {
    pub(crate) name: String,
    pub(crate) compute_capability: (u32, u32),
    pub(crate) num_multiprocessors: u32,
}

/// A case of a variant.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseName {
    /// Label of the variant.
    pub(crate) label: String,
    pub(crate) case: String,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CaseResult {
    #[serde(flatten)]
    pub(crate) name: CaseName,
    /// What the kernel promises: `exact`, `model` or `bounded`.
    pub(crate) class: String,
    /// What is wrong.
    pub(crate) wrong: Option<String>,
    /// Hash of what each output holds.
    pub(crate) outputs: Outputs,
}

/// A kernel at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Timed {
    pub(crate) what: String,
    /// Label of the variant that was picked.
    pub(crate) label: String,
    /// Median and least time of the repeats; none where launches were not timed.
    pub(crate) micros: Option<[f64; 2]>,
    /// Bytes that must be moved, and operations that must be done.
    pub(crate) bytes: f64,
    pub(crate) flops: f64,
    /// The least time that the device could take.
    pub(crate) floor_micros: Option<f64>,
    /// What is wrong.
    pub(crate) wrong: Option<String>,
}

/// A prompt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Formats of the pools.
    pub(crate) formats: String,
    pub(crate) prompt: String,
    /// Greedy tokens of the device.
    pub(crate) tokens: Vec<u32>,
    /// Those of the CPU.
    pub(crate) cpu_tokens: Vec<u32>,
    /// Those that transformers gave from the stored weights.
    pub(crate) transformers_tokens: Vec<u32>,
}

/// Says a line.
pub(crate) fn say(message: &Message) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{}", serde_json::to_string(message)?).context("nobody listens")?;
    out.flush().context("nobody listens")
}

/// Does a step.
pub(crate) fn run(task: &Task, options: &Options) -> Result<()> {
    match &task.step {
        Step::Probe => {
            let facts = Launcher::open(0)?.facts()?;
            say(&Message::Device(Device {
                name: facts.name,
                compute_capability: facts.compute_capability,
                num_multiprocessors: facts.num_multiprocessors,
            }))
        }
        Step::Cases { kernel, skip } => cases::run(options, kernel, *skip),
        Step::Timing => timing::run(options, task.small),
        Step::Serve => serve::run(options, task.small),
    }
}
