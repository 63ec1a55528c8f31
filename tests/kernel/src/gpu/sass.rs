//! What a kernel's machine code does, from the disassembler's text: facts that a test can ask for.
//!
//! ```text
//!         //## File "kernels/src/tiles/scale.rs", line 12
//!         /*00a0*/                   LDG.E.128 R4, desc[UR6][R2.64] ;
//! ```

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// Opcodes of the matrix units, for they begin like this.
const MATRIX: [&str; 14] = [
    "HMMA", "IMMA", "QMMA", "OMMA", "BMMA", "DMMA", "HGMMA", "QGMMA", "IGMMA", "BGMMA", "UTCHMMA",
    "UTCQMMA", "UTCIMMA", "UTCOMMA",
];

/// One machine instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// Its offset in the kernel.
    pub address: u32,
    /// Opcode with its modifiers, such as `LDG.E.128`.
    pub opcode: String,
    /// All of it, guard and operands included.
    pub text: String,
    /// File and line of the author's source that it comes from.
    pub source: Option<(String, u32)>,
}

impl Instruction {
    /// Opcode without its modifiers.
    pub fn base(&self) -> &str {
        self.opcode.split('.').next().unwrap_or_default()
    }

    /// Whether it reads global memory, into registers or into shared memory.
    pub fn loads_global(&self) -> bool {
        ["LDG", "LDGSTS", "UBLKCP", "UTMALDG"].contains(&self.base())
    }

    /// Whether a thread moves 16 bytes with it.
    pub fn moves_16_bytes(&self) -> bool {
        self.opcode.split('.').any(|part| part == "128")
    }

    /// Whether it touches local memory.
    pub fn is_local(&self) -> bool {
        ["LDL", "STL"].contains(&self.base())
    }

    fn is_matrix(&self) -> bool {
        MATRIX.contains(&self.base())
    }

    /// Whether it multiplies and adds. A constant is often made by a product with zero.
    fn is_fma(&self) -> bool {
        let fma = ["FFMA", "FFMA2", "HFMA2", "DFMA"].contains(&self.base());
        fma && !self.text.contains("RZ, RZ") && !self.text.contains("-RZ")
    }

    fn target(&self) -> Option<&str> {
        if self.base() != "BRA" {
            return None;
        }
        self.text.split("`(").nth(1)?.split(')').next()
    }
}

/// Instructions that a branch at their end repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loop {
    /// Address of its first instruction.
    pub first: u32,
    /// Address of the branch.
    pub last: u32,
}

impl Loop {
    fn contains(&self, instruction: &Instruction) -> bool {
        (self.first..=self.last).contains(&instruction.address)
    }
}

/// Which unit multiplies, and how many of its instructions there are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Products {
    /// Opcode of the matrix unit, `FMA` without one, `-` where nothing is multiplied and added.
    pub unit: String,
    /// Instructions.
    pub count: usize,
}

impl fmt::Display for Products {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.count {
            0 => f.pad(&self.unit),
            count => f.pad(&format!("{} {count}", self.unit)),
        }
    }
}

impl Products {
    /// Whether a matrix unit does it.
    pub fn by_matrix_unit(&self) -> bool {
        MATRIX.contains(&self.unit.as_str())
    }
}

/// A kernel's machine code.
#[derive(Debug, Clone, Default)]
pub struct Sass {
    /// In order, without the padding behind the end.
    pub instructions: Vec<Instruction>,
    /// By address of their ends.
    pub loops: Vec<Loop>,
}

impl Sass {
    /// Reads what `nvdisasm --print-line-info --print-code` wrote of one kernel.
    pub fn parse(text: &str) -> Self {
        let mut sass = Self::default();
        let mut source = None;
        let mut labels: BTreeMap<&str, u32> = BTreeMap::new();
        let mut waiting: Vec<&str> = Vec::new();
        for line in text.lines().map(str::trim) {
            if let Some(mark) = line.strip_prefix("//## File ") {
                source = file_and_line(mark);
            } else if let Some(label) = line.strip_suffix(':') {
                waiting.push(label);
            } else if let Some((address, text)) = instruction(line) {
                waiting.drain(..).for_each(|label| _ = labels.insert(label, address));
                let opcode = text.split_whitespace().find(|word| !word.starts_with('@'));
                let opcode = opcode.unwrap_or_default().trim_end_matches(';').to_owned();
                if opcode != "NOP" {
                    let source = source.clone();
                    let text = text.to_owned();
                    sass.instructions.push(Instruction { address, opcode, text, source });
                }
            }
        }
        sass.loops = sass.instructions.iter().filter_map(|i| back(i, &labels)).collect();
        sass
    }

    /// How many instructions are like this.
    pub fn count(&self, like: impl Fn(&Instruction) -> bool) -> usize {
        self.instructions.iter().filter(|instruction| like(instruction)).count()
    }

    /// How many instructions have this opcode, whatever its modifiers.
    pub fn opcode(&self, base: &str) -> usize {
        self.count(|instruction| instruction.base() == base)
    }

    /// The innermost loop with most instructions of that line of the source: for the line of a
    /// `for`, the loop that it became.
    pub fn loop_at(&self, file: &str, line: u32) -> Option<Loop> {
        let of_line = |i: &&Instruction| {
            i.source.as_ref().is_some_and(|(name, at)| *at == line && name.ends_with(file))
        };
        let of =
            |l: &Loop| self.instructions.iter().filter(of_line).filter(|i| l.contains(i)).count();
        // What is copied row by row has small loops of the same line.
        let most = self.loops.iter().map(of).filter(|count| *count > 0).max()?;
        let all = self.loops.iter().filter(|l| of(l) == most);
        all.min_by_key(|l| l.last - l.first).copied()
    }

    /// The instructions of a loop, those of loops inside it included.
    pub fn within(&self, of: Loop) -> impl Iterator<Item = &Instruction> {
        self.instructions.iter().filter(move |instruction| of.contains(instruction))
    }

    /// Whether a thread keeps anything in local memory.
    pub fn uses_local_memory(&self) -> bool {
        self.instructions.iter().any(Instruction::is_local)
    }

    /// Which unit multiplies.
    pub fn products(&self) -> Products {
        let mut units: BTreeMap<&str, usize> = BTreeMap::new();
        for matrix in self.instructions.iter().filter(|i| i.is_matrix()) {
            *units.entry(matrix.base()).or_default() += 1;
        }
        let most = units.into_iter().max_by_key(|(_, count)| *count);
        let (unit, count) = most.unwrap_or_else(|| match self.count(Instruction::is_fma) {
            0 => ("-", 0),
            count => ("FMA", count),
        });
        Products { unit: unit.to_owned(), count }
    }
}

/// `"kernels/src/tiles/scale.rs", line 10`, and perhaps where that was inlined.
fn file_and_line(mark: &str) -> Option<(String, u32)> {
    let (file, rest) = mark.strip_prefix('"')?.split_once("\", line ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((file.to_owned(), digits.parse().ok()?))
}

/// `/*00a0*/   LDG.E.128 R4, desc[UR6][R2.64] ;`.
fn instruction(line: &str) -> Option<(u32, &str)> {
    let (address, rest) = line.strip_prefix("/*")?.split_once("*/")?;
    let address = u32::from_str_radix(address, 16).ok()?;
    let (text, _) = rest.trim().split_once(';')?;
    Some((address, text.trim()))
}

/// The loop that a branch back closes. The branch to itself behind every kernel's end is none.
fn back(branch: &Instruction, labels: &BTreeMap<&str, u32>) -> Option<Loop> {
    let first = *labels.get(branch.target()?)?;
    (first < branch.address).then_some(Loop { first, last: branch.address })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel written by hand, as ptxas 13.0.88 assembled it and nvdisasm 13.5.37 showed it.
    const SCALE: &str = include_str!("fixtures/scale.sass");

    #[test]
    fn instructions_keep_their_source_lines() {
        let sass = Sass::parse(SCALE);
        let load = sass.instructions.iter().find(|i| i.base() == "LDG").unwrap();
        assert_eq!(load.opcode, "LDG.E.128");
        assert_eq!(load.source, Some(("kernels/src/tiles/scale.rs".to_owned(), 12)));
        assert_eq!((sass.opcode("STG"), sass.opcode("FMUL"), sass.opcode("EXIT")), (1, 1, 1));
        assert_eq!(sass.opcode("NOP"), 0);
    }

    #[test]
    fn the_loop_of_a_line_is_found() {
        let sass = Sass::parse(SCALE);
        assert_eq!(sass.loops.len(), 1, "the branch behind the end is no loop");
        let of = sass.loop_at("scale.rs", 13).unwrap();
        let loads = sass.within(of).filter(|i| i.loads_global() && i.moves_16_bytes()).count();
        assert_eq!(loads, 1);
        assert!(sass.within(of).all(|i| i.base() != "S2R"));
        assert!(sass.loop_at("scale.rs", 99).is_none() && sass.loop_at("other.rs", 13).is_none());
    }

    #[test]
    fn the_innermost_loop_is_the_one_of_its_line() {
        let text = ".L_a:\n//## File \"a.rs\", line 1\n/*0000*/ IADD3 R1 ;\n.L_b:\n\
                    //## File \"a.rs\", line 2\n/*0010*/ IADD3 R2 ;\n/*0020*/ @P0 BRA `(.L_b) ;\n\
                    //## File \"a.rs\", line 1\n/*0030*/ @!P1 BRA `(.L_a) ;\n";
        let sass = Sass::parse(text);
        assert_eq!(sass.loop_at("a.rs", 2), Some(Loop { first: 0x10, last: 0x20 }));
        assert_eq!(sass.loop_at("a.rs", 1), Some(Loop { first: 0, last: 0x30 }));
    }

    #[test]
    fn products_name_the_unit() {
        let check = |text: &str, want: &str| {
            assert_eq!(Sass::parse(text).products().to_string(), want, "{text}");
        };
        check("/*0000*/ HMMA.16816.F32 R4, R8, R2, R4 ;\n/*0010*/ FFMA R1, R2, R3, R4 ;", "HMMA 1");
        check("/*0000*/ @P0 QGMMA.64x128x32.F32.E4M3.E4M3 R24, gdesc[UR8] ;", "QGMMA 1");
        check("/*0000*/ FFMA R1, R2, R3, R4 ;\n/*0010*/ HFMA2.MMA R1, -RZ, RZ, 0, 0 ;", "FMA 1");
        check("/*0000*/ EXIT ;", "-");
        check(SCALE, "FMA 1");
    }

    #[test]
    fn local_memory_is_seen() {
        assert!(!Sass::parse(SCALE).uses_local_memory());
        assert!(Sass::parse("/*0000*/ STL.64 [R1], R2 ;").uses_local_memory());
    }
}
