//! Starts a process a step, reads what it says, and ends it when it takes too long.

use crate::cases::kernels;
use crate::options::Options;
use crate::record::{Bits, Record};
use crate::report::{Report, StepEnd};
use crate::worker::{CaseName, CaseResult, Device, Message};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::spawn;
use std::time::{Duration, Instant};
use tessera_runtime::device::KernelBundle;

/// Of all the time there is: until when cases may run, and timing after them. Serving has the rest.
const CASES_SHARE: f64 = 0.55;
const TIMING_SHARE: f64 = 0.75;
/// A case that takes longer is stuck.
const SILENCE: Duration = Duration::from_secs(90);
/// Workers at a time for cases; the evaluator takes longer than the device.
const MAX_WORKERS: usize = 8;
/// Characters of a worker's last words that are kept.
const LAST_WORDS: usize = 600;

/// The check. Whether all is well; if not, the table says what is not.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let start = now();
    let whole = Duration::from_secs(60 * options.minutes);
    let until = |share: f64| start + whole.mul_f64(share);
    let bundle = KernelBundle::open(&options.kernels()).context("kernels")?;
    let host = Host::find(options, until(CASES_SHARE))?;
    let record = Record::read(&options.record(), bundle.target())?;
    let mut report = Report::new(&host.device, bundle.target(), host.is_stand_in);
    let names = kernels(&bundle);
    let only = options.only.as_deref().unwrap_or_default();
    let names = names.into_iter().filter(|name| name.starts_with(only)).collect();
    eprintln!("{}: cases ...", host.device.name);
    report.cases = all_cases(&host, names, until(CASES_SHARE));
    for case in &report.cases {
        let bits = record.as_ref().map_or(Bits::Unrecorded, |record| record.compare(case));
        report.bits.push(bits);
    }
    report.end("cases", StepEnd::Done, start.elapsed());
    if options.only.is_none() {
        let few = host.is_stand_in && !options.full;
        for (step, share, small) in
            [("timing", TIMING_SHARE, host.is_stand_in), ("serve", 1.0, few)]
        {
            eprintln!("{}: {step} ...", host.device.name);
            let began = now();
            let (said, end) = host.worker(&[step.to_owned()], small, (whole, until(share)));
            said.into_iter().for_each(|message| match message {
                Message::Timed(timed) => report.timed.push(timed),
                Message::Served(served) => report.served.push(served),
                _ => {}
            });
            report.end(step, end, began.elapsed());
        }
    }
    report.write(&options.json())?;
    print!("{}", report.table());
    if options.bless {
        bless(options, &report)?;
        return Ok(report.is_fine_but_for_bits());
    }
    Ok(report.is_fine())
}

fn bless(options: &Options, report: &Report) -> Result<()> {
    let record = Record::of(&report.target, &report.device.name, &report.cases);
    eprintln!("wrote {}", record.write(&options.record())?.display());
    Ok(())
}

/// Cases of every kernel, several kernels at a time.
fn all_cases(host: &Host, names: Vec<String>, until: Instant) -> Vec<CaseResult> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let queue = Mutex::new(names.into_iter().rev().collect::<Vec<_>>());
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            // The lock is for this statement alone.
            let next = queue.lock().expect("no worker panics").pop();
            let Some(kernel) = next else { return };
            let own = kernel_cases(host, &kernel, until);
            results.lock().expect("no worker panics").extend(own);
        }
    };
    std::thread::scope(|scope| {
        (0..cores.min(MAX_WORKERS)).for_each(|_| _ = scope.spawn(work));
    });
    let mut results = results.into_inner().expect("no worker panics");
    results.sort_by(|a: &CaseResult, b| a.name.label.cmp(&b.name.label));
    results
}

/// Cases of one kernel. After one that ended its process, the rest goes on in another.
fn kernel_cases(host: &Host, kernel: &str, until: Instant) -> Vec<CaseResult> {
    let mut results: Vec<CaseResult> = Vec::new();
    loop {
        let task = ["cases", kernel, "--skip", &results.len().to_string()].map(str::to_owned);
        let before = results.len();
        let (said, end) = host.worker(&task, false, (SILENCE, until));
        let mut running = None;
        for message in said {
            match message {
                Message::Started(name) => running = Some(name),
                Message::Case(result) => {
                    running = None;
                    results.push(result);
                }
                _ => {}
            }
        }
        let wrong = match end {
            StepEnd::Done => return results,
            StepEnd::TimedOut => "it takes too long".to_owned(),
            StepEnd::Died(words) => words,
        };
        match running {
            Some(name) => results.push(broken(name, wrong)),
            // It broke the device with the case that it told of last.
            None if results.len() > before => {}
            None => {
                let name = CaseName { label: kernel.to_owned(), case: "-".to_owned() };
                results.push(broken(name, wrong));
                return results;
            }
        }
        if now() >= until {
            let name = CaseName { label: kernel.to_owned(), case: "the others".to_owned() };
            results.push(broken(name, "there is no time left for them".to_owned()));
            return results;
        }
    }
}

fn broken(name: CaseName, wrong: String) -> CaseResult {
    let (class, outputs) = (String::new(), Default::default());
    CaseResult { name, class, wrong: Some(wrong), outputs }
}

/// Where workers run: this machine with its driver, or with the stand-in.
struct Host {
    options: Options,
    is_stand_in: bool,
    device: Device,
}

impl Host {
    /// The GPU if there is one, else the stand-in, unless one of them is asked for.
    fn find(options: &Options, until: Instant) -> Result<Self> {
        let nothing =
            Device { name: String::new(), compute_capability: (0, 0), num_multiprocessors: 0 };
        let mut host = Self { options: options.clone(), is_stand_in: false, device: nothing };
        let probe = |host: &Self| {
            let (said, end) = host.worker(&["probe".to_owned()], true, (SILENCE, until));
            let device = said.into_iter().find_map(|message| match message {
                Message::Device(device) => Some(device),
                _ => None,
            });
            device.ok_or(end)
        };
        if !options.stand_in {
            match probe(&host) {
                Ok(device) => {
                    // Somebody may have put the stand-in in the driver's place.
                    host.is_stand_in = device.name.starts_with("Tessera emulator");
                    if options.gpu && host.is_stand_in {
                        bail!("there is no GPU, but {}", device.name);
                    }
                    host.device = device;
                    return Ok(host);
                }
                Err(end) if options.gpu => bail!("there is no GPU: {end}"),
                Err(end) => eprintln!("no GPU ({end}): on the stand-in driver"),
            }
        }
        host.is_stand_in = true;
        host.device = probe(&host).map_err(|end| anyhow::anyhow!("the stand-in driver: {end}"))?;
        Ok(host)
    }

    /// Runs a worker and returns what it said and how it ended.
    fn worker(
        &self,
        task: &[String],
        small: bool,
        limits: (Duration, Instant),
    ) -> (Vec<Message>, StepEnd) {
        match self.start(task, small) {
            Ok(mut child) => listen(&mut child, limits),
            Err(error) => (Vec::new(), StepEnd::Died(format!("{error:#}"))),
        }
    }

    fn start(&self, task: &[String], small: bool) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe().context("this program's path")?);
        command.arg("--folder").arg(&self.options.folder).arg("worker");
        if small {
            command.arg("--small");
        }
        if self.is_stand_in {
            command.env("LD_LIBRARY_PATH", self.options.stand_in_folder().canonicalize()?);
        }
        command.args(task).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(command.spawn()?)
    }
}

/// Reads a worker's messages until it ends, or is ended.
fn listen(child: &mut Child, (silence, until): (Duration, Instant)) -> (Vec<Message>, StepEnd) {
    let words = child.stderr.take().map(|mut stderr| {
        spawn(move || {
            let mut words = Vec::new();
            let _ = stderr.read_to_end(&mut words);
            String::from_utf8_lossy(&words).trim().to_owned()
        })
    });
    let messages = messages(child);
    let mut said = Vec::new();
    let in_time = loop {
        let left = until.saturating_duration_since(now()).min(silence);
        match messages.recv_timeout(left) {
            Ok(message) => said.push(message),
            Err(RecvTimeoutError::Timeout) => break false,
            Err(RecvTimeoutError::Disconnected) => break true,
        }
    };
    if !in_time {
        let _ = child.kill();
    }
    let status = child.wait();
    let words = words.and_then(|words| words.join().ok()).unwrap_or_default();
    let end = match status {
        _ if !in_time => StepEnd::TimedOut,
        Ok(status) if status.success() => StepEnd::Done,
        Ok(status) => StepEnd::Died(format!("{status}: {}", last(&words))),
        Err(error) => StepEnd::Died(error.to_string()),
    };
    (said, end)
}

/// The lines of a worker that are messages, as they come.
fn messages(child: &mut Child) -> Receiver<Message> {
    let (send, messages) = channel();
    if let Some(stdout) = child.stdout.take() {
        spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Ok(message) = serde_json::from_str(&line)
                    && send.send(message).is_err()
                {
                    return;
                }
            }
        });
    }
    messages
}

fn last(words: &str) -> &str {
    let start = words.char_indices().rev().nth(LAST_WORDS).map_or(0, |(at, _)| at);
    &words[start..]
}

/// The machine's clock: what limits time reads it.
#[expect(clippy::disallowed_methods, reason = "time limits are of real time")]
fn now() -> Instant {
    Instant::now()
}
