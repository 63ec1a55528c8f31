//! Which registers of a warp tensor cores work with, and which they may begin to: those that a thread
//! wrote before the warp's last `wgmma.fence`. What they work with nobody may touch before a wait.

use super::Trouble;
use crate::fault::FaultKind;
use crate::program::Reg;

/// Of one warp.
#[derive(Default)]
pub(crate) struct Custody {
    registers: Vec<Register>,
    /// Those that will hold a result that nobody waited for.
    results: Vec<Reg>,
    /// Fences so far.
    fences: u32,
    /// Groups of operations before this one are done.
    done: u32,
    /// A register that a thread wrote while it was lent.
    trampled: bool,
}

#[derive(Clone, Copy, Default)]
struct Register {
    /// Fences that came before it was written last, and one; 0 if it never was.
    written: u32,
    /// One more than the last group that it was lent to.
    lent: u32,
    /// Whether it will hold a result of that group.
    result: bool,
}

impl Custody {
    pub(crate) fn new(registers: u32) -> Custody {
        let registers = vec![Register::default(); registers as usize];
        Custody { registers, ..Custody::default() }
    }

    /// A thread writes a register.
    pub(crate) fn write(&mut self, reg: Reg) {
        let register = &mut self.registers[reg.0 as usize];
        register.written = self.fences + 1;
        self.trampled |= register.lent > self.done;
    }

    /// `wgmma.fence`
    pub(crate) fn fence(&mut self) {
        self.fences += 1;
    }

    /// An operation of a group takes a register, as a factor or for its results.
    pub(crate) fn lend(&mut self, reg: Reg, group: u32, result: bool) -> Result<(), Trouble> {
        let register = &mut self.registers[reg.0 as usize];
        if self.fences == 0 || register.written > self.fences {
            let message =
                "a register goes to a tensor core with no wgmma.fence since it was written";
            return Err(Trouble::new(FaultKind::MissingFence, message.to_owned()));
        }
        register.lent = group + 1;
        if result && !register.result {
            register.result = true;
            self.results.push(reg);
        }
        Ok(())
    }

    /// Whether a register will hold a result that nobody waited for.
    pub(crate) fn is_awaited(&self, reg: Reg) -> bool {
        let register = self.registers[reg.0 as usize];
        register.result && register.lent > self.done
    }

    /// Operations of groups before this one are done: the registers that now hold their results.
    pub(crate) fn settle(&mut self, done: u32) -> Vec<Reg> {
        self.done = self.done.max(done);
        let lent = |reg: &Reg| self.registers[reg.0 as usize].lent > done;
        let (rest, back): (Vec<Reg>, Vec<Reg>) =
            std::mem::take(&mut self.results).into_iter().partition(lent);
        self.results = rest;
        for reg in &back {
            self.registers[reg.0 as usize].result = false;
        }
        back
    }

    /// Refuses what a thread did to registers that were lent.
    pub(crate) fn check(&self) -> Result<(), Trouble> {
        match self.trampled {
            false => Ok(()),
            true => {
                let message = "a register is written while a tensor core works with it".to_owned();
                Err(Trouble::new(FaultKind::MissingWait, message))
            }
        }
    }
}
