//! Decode steps: each is asked for while the one before runs, where the device allows it.
//!
//! ```text
//! device     step 1         step 2         step 3
//! host       submit 2       submit 3       submit 4
//!            ... finish 1   ... finish 2   ... finish 3
//! ```
//!
//! The input of a step is what the one before sampled, which the device takes from there; where a
//! token will lie is known to the host beforehand. What the host learns a step late is how a request
//! goes on: if it ended, the step in flight computes one token of it for nothing, and its pages stay
//! its own until that step is over. A token leaves when its step was finished, with the result of
//! the tag check. See docs/adr/0012.

use super::decode::DecodeWorker;
use super::handle::Fault;
use super::prefill::PoolError;
use super::record::add;
use crate::cache::{PageId, PageTag, PageTracker};
use crate::device::{Device, DeviceError};
use crate::model::{NewTokens, SeqInput, SeqOutput, StepTicket};
use crate::request::{IntegrityKind, RequestError, RequestId};
use crate::schedule::{DecodeBatch, DecodeEvent, DecodeSeq};

/// A step that was submitted and not yet finished.
#[derive(Debug)]
pub(super) struct Flight {
    /// Number of its batch.
    batch: u64,
    /// Its sequences, by ascending request.
    seqs: Vec<DecodeSeq>,
    ticket: StepTicket,
}

impl Flight {
    /// In which row the token of a request is sampled.
    fn row_of(&self, request: RequestId) -> Option<usize> {
        self.seqs.binary_search_by_key(&request, |seq| seq.request).ok()
    }
}

impl<D: Device, T: PageTracker> DecodeWorker<D, T> {
    /// Submits a batch, and finishes the step before it; where the host has to sample, in the other
    /// order, and the batch's own step too.
    pub(super) fn run_batch(&mut self, batch: &mut DecodeBatch) -> Result<(), PoolError> {
        let residents = &self.state.residents;
        let params = batch.seqs.iter().map(|seq| residents[&seq.request].record.sampling());
        let runs_ahead = self.forward.runs_ahead(params);
        if !runs_ahead {
            self.land()?;
            let residents = &self.state.residents;
            batch.seqs.retain(|seq| residents.contains_key(&seq.request));
        }
        if batch.seqs.is_empty() {
            return self.land();
        }
        let ticket = self.submit(&batch.seqs)?;
        let metrics = &self.shared.metrics;
        add(&metrics.decode.steps_total, 1);
        if !runs_ahead {
            return self.finish(&batch.seqs, ticket);
        }
        add(&metrics.decode_steps_ahead_total, u64::from(self.state.flight.is_some()));
        self.state.events.push(DecodeEvent::InFlight(batch.number));
        self.land()?;
        self.state.flight = Some(Flight { batch: batch.number, seqs: batch.seqs.clone(), ticket });
        Ok(())
    }

    /// Finishes the step in flight, if there is one.
    pub(super) fn land(&mut self) -> Result<(), PoolError> {
        let Some(flight) = self.state.flight.take() else { return Ok(()) };
        self.state.events.push(DecodeEvent::Landed(flight.batch));
        self.finish(&flight.seqs, flight.ticket)
    }

    fn finish(&mut self, seqs: &[DecodeSeq], ticket: StepTicket) -> Result<(), PoolError> {
        let outputs = self.forward.finish::<T>(ticket)?;
        for (seq, output) in seqs.iter().zip(outputs) {
            self.after_step(seq.request, output)?;
        }
        Ok(())
    }

    fn submit(&mut self, seqs: &[DecodeSeq]) -> Result<StepTicket, PoolError> {
        self.scale_new_pages(seqs)?;
        let bent = self.do_damage(seqs[0].request)?;
        let mut inputs = SeqInput::recycle(std::mem::take(&mut self.inputs));
        for (index, seq) in seqs.iter().enumerate() {
            let record = &self.state.residents[&seq.request].record;
            let table = self.scheduler.table(seq.request).expect("a running request has pages");
            let pages = match &bent {
                Some(bent) if index == 0 => bent,
                _ => table.pages(),
            };
            let tokens = match record.tokens.get(seq.position..=seq.position) {
                Some(token) => NewTokens::Given(token),
                None => {
                    let row = self.state.flight.as_ref().and_then(|f| f.row_of(seq.request));
                    NewTokens::Sampled { row: row.expect("the step in flight samples it") }
                }
            };
            inputs.push(SeqInput {
                tokens,
                start: seq.position,
                pages,
                ledger: table.ledger(),
                sample: Some(record.sample_row(seq.position + 1)),
            });
        }
        let ticket = self.forward.submit(&inputs)?;
        self.inputs = SeqInput::recycle(inputs);
        Ok(ticket)
    }

    /// Gives pages that a sequence grew into the scales of its request.
    fn scale_new_pages(&mut self, seqs: &[DecodeSeq]) -> Result<(), DeviceError> {
        if !self.forward.cache_spec().format.scaled {
            return Ok(());
        }
        for seq in seqs {
            let resident = self.state.residents.get_mut(&seq.request);
            let (Some(resident), Some(table)) = (resident, self.scheduler.table(seq.request))
            else {
                continue;
            };
            for &page in &table.pages()[resident.scaled_pages.min(table.pages().len())..] {
                self.forward.set_page_scales(page, &resident.scales)?;
            }
            resident.scaled_pages = table.pages().len();
        }
        Ok(())
    }

    /// Does the damage asked for to `victim`; its page table, if that was to be bent.
    fn do_damage(&mut self, victim: RequestId) -> Result<Option<Vec<PageId>>, DeviceError> {
        let mut bent = None;
        for fault in std::mem::take(&mut self.state.faults) {
            let table = self.scheduler.table(victim).expect("a running request has pages");
            match fault {
                Fault::PageTableEntry => {
                    let mut pages = table.pages().to_vec();
                    let num_pages = self.forward.cache_spec().num_pages;
                    pages[0].0 = (pages[0].0 + 1) % u32::try_from(num_pages).unwrap_or(u32::MAX);
                    bent = Some(pages);
                }
                Fault::PageTag => {
                    if let (&page, Some(tag)) = (&table.pages()[0], table.tags().first()) {
                        self.forward.set_page_tag(page, PageTag(!tag.0))?;
                    }
                }
                // Done where pages leave, in the prefill pool.
                Fault::PageInFlight => {}
            }
        }
        Ok(bent)
    }

    fn after_step(&mut self, id: RequestId, output: SeqOutput) -> Result<(), PoolError> {
        // It ended while the step ran: what was computed of it is thrown away.
        let Some(resident) = self.state.residents.get_mut(&id) else { return Ok(()) };
        add(&self.shared.metrics.kv_saturated_elements_total, output.saturated);
        let record = &mut resident.record;
        if let Some(index) = output.bad_page {
            // The sample is withheld: it was computed from a page that may be another request's.
            record.fail(RequestError::KvIntegrity { kind: IntegrityKind::PageTag });
            let table = self.scheduler.table(id).expect("a running request has pages");
            let pages = vec![table.pages()[index]];
            self.state.events.push(DecodeEvent::Fault { request: id, pages });
            self.state.residents.remove(&id);
            return Ok(());
        }
        let Some(sampled) = output.sampled else { return Ok(()) };
        match record.token(sampled) {
            Ok(token) => {
                if record.push(token) {
                    self.state.events.push(DecodeEvent::Finish(id));
                    self.state.residents.remove(&id);
                }
            }
            Err(error) => {
                record.fail(error);
                let table = self.scheduler.table(id).expect("a running request has pages");
                table.pages().iter().try_for_each(|&page| self.forward.clear_page(page))?;
                self.state.events.push(DecodeEvent::Abort(id));
                self.state.residents.remove(&id);
            }
        }
        Ok(())
    }
}
