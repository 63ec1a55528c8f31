//! What the assembler says: what a kernel takes, warnings, and errors with the line of the PTX.

use serde::{Deserialize, Serialize};

/// What the assembler found that a kernel takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Figures {
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes that a thread writes because registers ran out.
    pub spill_stores: u32,
    /// Bytes that a thread reads back.
    pub spill_loads: u32,
    /// Bytes of a thread's stack and other local memory.
    pub local_bytes: u32,
    /// Bytes of shared memory that the PTX declares itself.
    pub static_shared_bytes: u32,
    /// Barriers of a program.
    pub barriers: u32,
}

/// What went wrong, or may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether nothing was assembled.
    pub fatal: bool,
    /// Line of the PTX, from 1.
    pub line: Option<usize>,
    /// In the assembler's words.
    pub message: String,
}

impl Finding {
    /// Whether it says that instructions of four warps lack a fence or a wait, which the assembler
    /// then puts itself, or that it makes each wait for the one before: no kernel is meant so.
    pub fn is_of_warpgroups(&self) -> bool {
        ["wgmma", "GMMA"].iter().any(|name| self.message.contains(name))
    }
}

/// Everything that it said of one file with one kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Said {
    /// What the kernel takes; none if it said nothing of a kernel.
    pub figures: Option<Figures>,
    /// Errors and warnings.
    pub findings: Vec<Finding>,
}

impl Said {
    /// Reads what `ptxas -v` wrote.
    pub fn parse(text: &str) -> Self {
        let mut said = Self::default();
        let mut figures = Figures::default();
        for line in text.lines() {
            let line = line.trim();
            if let Some(rest) = line.strip_prefix("ptxas info") {
                let rest = rest.trim_start_matches([' ', ':']);
                if rest.starts_with("Used ") {
                    figures.used(rest);
                    said.figures = Some(figures);
                } else if rest.starts_with("(C") {
                    said.findings.push(Finding {
                        fatal: false,
                        line: None,
                        message: rest.to_owned(),
                    });
                }
            } else if line.contains("bytes stack frame") {
                figures.stack(line);
            } else if let Some(rest) = line.strip_prefix("ptxas ") {
                said.findings.extend(finding(rest));
            }
        }
        // Its last word repeats that there were errors.
        if said.findings.iter().any(|f| f.fatal && f.line.is_some()) {
            said.findings.retain(|f| !f.fatal || f.line.is_some());
        }
        said
    }

    /// Whether nothing was assembled.
    pub fn failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.fatal)
    }
}

impl Figures {
    /// `0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads`.
    fn stack(&mut self, line: &str) {
        for (number, what) in counted(line) {
            match what {
                "bytes stack frame" => self.local_bytes = number,
                "bytes spill stores" => self.spill_stores = number,
                "bytes spill loads" => self.spill_loads = number,
                _ => {}
            }
        }
    }

    /// `Used 12 registers, used 1 barriers, 256 bytes cumulative stack size, 400 bytes smem`.
    fn used(&mut self, line: &str) {
        for (number, what) in counted(line) {
            match what {
                "registers" => self.registers = number,
                "barriers" => self.barriers = number,
                "bytes smem" => self.static_shared_bytes = number,
                "bytes lmem" | "bytes cumulative stack size" => {
                    self.local_bytes = self.local_bytes.max(number);
                }
                _ => {}
            }
        }
    }

    /// Bytes that a thread moves because registers ran out.
    pub fn spill_bytes(&self) -> u32 {
        self.spill_stores + self.spill_loads
    }
}

/// The numbers of a list, and what is counted.
fn counted(line: &str) -> impl Iterator<Item = (u32, &str)> {
    line.split(',').filter_map(|part| {
        let part = part.trim().trim_start_matches("Used ").trim_start_matches("used ");
        let (number, what) = part.split_once(' ')?;
        Some((number.parse().ok()?, what))
    })
}

/// `FILE, line 25; error   : MESSAGE`, or without a place `fatal   : MESSAGE`.
fn finding(rest: &str) -> Option<Finding> {
    let (line, rest) = match rest.split_once("; ") {
        Some((place, rest)) if place.contains(", line ") => {
            (place.rsplit_once(", line ").and_then(|(_, line)| line.parse().ok()), rest)
        }
        _ => (None, rest),
    };
    let (kind, message) = rest.split_once(':')?;
    let fatal = match kind.trim() {
        "error" | "fatal" => true,
        "warning" => false,
        _ => return None,
    };
    Some(Finding { fatal, line, message: message.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read() {
        let text = "ptxas info    : 0 bytes gmem\n\
                    ptxas info    : Compiling entry function 'scale' for 'sm_90a'\n\
                    ptxas info    : Function properties for scale\n    \
                    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                    ptxas info    : Used 12 registers, used 1 barriers\n\
                    ptxas info    : Compile time = 3.225 ms\n";
        let said = Said::parse(text);
        let want = Figures { registers: 12, barriers: 1, ..Figures::default() };
        assert_eq!((said.figures, said.findings), (Some(want), Vec::new()));
    }

    #[test]
    fn what_is_not_in_registers_is_read() {
        let text = "    256 bytes stack frame, 24 bytes spill stores, 72 bytes spill loads\n\
                    ptxas info    : Used 255 registers, used 0 barriers, 264 bytes cumulative \
                    stack size, 400 bytes smem\n";
        let figures = Said::parse(text).figures.unwrap();
        let want = Figures {
            registers: 255,
            spill_stores: 24,
            spill_loads: 72,
            local_bytes: 264,
            static_shared_bytes: 400,
            barriers: 0,
        };
        assert_eq!((figures, figures.spill_bytes()), (want, 96));
    }

    #[test]
    fn what_is_mended_or_serialized_is_found() {
        let check = |text: &str, expect: bool| {
            let said = Said::parse(text);
            let [finding] = said.findings.as_slice() else { panic!("{said:?}") };
            assert_eq!((finding.fatal, finding.is_of_warpgroups()), (false, expect), "{text}");
        };
        check(
            "ptxas info    : (C7517) warpgroup.wait is injected in around line 1116 by compiler to \
             allow use of registers defined by GMMA in function 'f'\n",
            true,
        );
        check(
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are \
             serialized due to insufficient register resources for the wgmma pipeline\n",
            true,
        );
        check("ptxas info    : (C7000) something else\n", false);
    }

    #[test]
    fn errors_keep_their_lines() {
        let text = "ptxas b.ptx, line 25; error   : Unknown modifier '.f33'\n\
                    ptxas c.ptx, line 29; fatal   : Parsing error near '%rd1': syntax error\n\
                    ptxas fatal   : Ptx assembly aborted due to errors\n";
        let said = Said::parse(text);
        let lines: Vec<_> = said.findings.iter().map(|f| (f.line, f.message.as_str())).collect();
        let want = [
            (Some(25), "Unknown modifier '.f33'"),
            (Some(29), "Parsing error near '%rd1': syntax error"),
        ];
        assert_eq!(lines, want);
        assert!(said.failed() && said.figures.is_none());
    }

    #[test]
    fn an_error_without_a_line_is_kept() {
        let said =
            Said::parse("ptxas fatal   : Unsupported .version 9.1; current version is '9.0'");
        assert!(said.failed() && said.findings[0].message.starts_with("Unsupported .version"));
        let warned = Said::parse("ptxas warning : Value of threads per SM is out of range");
        assert!(!warned.failed() && warned.findings.len() == 1);
    }
}
