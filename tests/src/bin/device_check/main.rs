//! `device-check`: whether a GPU does what the kernels were written for.
//!
//! It needs nothing but its folder and a driver, so it can be carried to a machine that has neither
//! Rust nor a network. Every step runs in a process of its own, under a time limit: a kernel that
//! breaks the device, or never ends, ends its step's process and nothing else.
//!
//! ```text
//! options    what it is told, and where everything lies
//! worker     a step's process: messages to the process that asked
//! steps      starts workers, reads their messages, holds them to their limits
//! cases      every case of every kernel by the driver, judged by the f64 evaluator
//! record     hashes of the bits that kernels wrote, and what is committed of them
//! timing     kernels at the sizes of a served model, against what the device can do at best
//! stage      those kernels' arguments
//! peaks      what devices can do at best
//! serve      the bundled model, on the CPU and on the device
//! report     the table and the JSON
//! ```

mod cases;
mod options;
mod peaks;
mod record;
mod report;
mod serve;
mod stage;
mod steps;
mod timing;
mod worker;

use clap::Parser;
use options::{Command, Options};
use std::process::ExitCode;

fn main() -> ExitCode {
    let options = Options::parse();
    let done = match &options.command {
        Some(Command::Worker(task)) => worker::run(task, &options).map(|()| true),
        None => steps::run(&options),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
