//! Look-ups on the device, in the texts of its slots: no round waits for the host, which would have
//! to know its tokens first.
//!
//! The host sends the tokens of a sequence when its slot is opened. From then on acceptance adds
//! what rounds produce (`accept.cu`), and each round that drafts looks its own drafts up
//! (`look_up.cu`).

use kernels::{
    device::{DeviceError, DeviceEvent, HostBuffer},
    launch::{LOOK_UP_WORDS, LookUpBatch, LookUpOutput},
};
use schemas::tree::TreeShape;

use super::{
    CudaBackend,
    device_texts::DeviceTexts,
    host_drafts::{bytes_of, chain_words},
    machine::Machine,
    round::RoundMemory,
};
use crate::{backend::Slot, error::EngineError, spec::Occurrence, text_drafts::Tally};

/// Number of texts that may be on their way to the device.
const PLACES: usize = 4;

/// Page-locked memory for texts that the host sends: tokens, then counts.
pub struct TextStaging {
    /// Each with the end of the last copy from it.
    places: Vec<(HostBuffer, DeviceEvent)>,
    sent: usize,
}

impl TextStaging {
    /// Memory for the texts of a machine, if it looks up in them.
    pub fn new(machine: &Machine) -> Result<Self, DeviceError> {
        let Some(texts) = &machine.texts else { return Ok(Self { places: Vec::new(), sent: 0 }) };
        let device = machine.kernels.device();
        let place = |_| Ok((device.host_buffer((texts.width + LOOK_UP_WORDS) * 4)?, device.event()?));
        Ok(Self { places: (0..PLACES).map(place).collect::<Result<_, DeviceError>>()?, sent: 0 })
    }
}

impl Machine {
    /// Looks up the drafts of a round, and leaves them where those of the host would be.
    pub(super) fn look_up(
        &self,
        texts: &DeviceTexts,
        memory: RoundMemory<'_>,
        shape: TreeShape,
        batch: usize,
    ) -> Result<(), DeviceError> {
        let (given, steps, nodes) = (&memory.round.given, shape.num_steps, shape.num_draft_tokens);
        let output = if self.joins_chains {
            let [length, token, chance] = chain_words(batch, steps).map(|words| given.range(bytes_of(words)));
            LookUpOutput::Chains { length, token, chance }
        } else {
            let [token, parent] = [0, batch * nodes].map(|at| given.range(bytes_of(at..at + batch * nodes)));
            LookUpOutput::Trees { nodes, token, parent, filled: texts.rule.occurrence == Occurrence::LatestFilled }
        };
        let of = LookUpBatch {
            batch,
            steps,
            batch_slot: memory.round.slot.slice(),
            length: self.slots.length.slice(),
            root: self.slots.root.slice(),
        };
        self.kernels.look_up(texts.operands(self.capacity.slots + 1), of, output)
    }
}

impl CudaBackend {
    /// Sends the tokens of a slot's sequence, in which its drafts are looked up from now on, after
    /// the work in flight.
    pub(super) fn send_text(&mut self, slot: Slot, prompt: &[u32], output: &[u32]) -> Result<(), EngineError> {
        let Some(texts) = &self.machine.texts else { return Ok(()) };
        let open = self.slots.get(slot)?;
        let (at, count) = (slot.0 as usize, prompt.len() + output.len());
        if count > texts.width {
            let width = texts.width;
            return Err(EngineError::Device(format!("a text of {count} tokens, where there is room for {width}")));
        }
        let tally = Tally::after(texts.rule, prompt, output);
        let most = open
            .sampling
            .most_drafts
            .filter(|_| !self.machine.joins_chains)
            .unwrap_or(usize::MAX)
            .min(i32::MAX as usize);
        let counts = tally.right.iter().chain(&tally.all).map(|count| count.to_bits() as i32);
        let counted: Vec<i32> = [count as i32, most as i32].into_iter().chain(counts).collect();
        let staging = &mut self.text_staging;
        let place = staging.sent % PLACES;
        let (host, end) = &mut staging.places[place];
        // The memory is written again only after it was copied; at first nothing was.
        if staging.sent >= PLACES {
            end.wait()?;
        }
        staging.sent += 1;
        let tokens: Vec<i32> = prompt.iter().chain(output).map(|token| *token as i32).collect();
        host.store(0, &tokens);
        host.store(texts.width, &counted);
        let (first, words) = (at * texts.width, at * LOOK_UP_WORDS);
        self.device.write_async(texts.text.range(bytes_of(first..first + count)), host, bytes_of(0..count))?;
        let to = texts.counted.range(bytes_of(words..words + LOOK_UP_WORDS));
        self.device.write_async(to, host, bytes_of(texts.width..texts.width + LOOK_UP_WORDS))?;
        Ok(self.device.record(end)?)
    }
}
