//! Mailboxes in the memory of each device of a group, to which all its devices can write.
//!
//! Ranks pass values by plain peer access; NVLink multicast is never used. A value travels in one
//! store together with the number of the exchange (`cuda/lines.cuh`), so a reader that finds the
//! number has the value and needs no barrier. Two alternating halves of a mailbox are enough
//! because a stream runs its kernels in order. A waiting kernel polls a word of host memory
//! ([`Alarm`]) and the clock, and gives up when told to.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
    time::Duration,
};

use super::{Buffer, Collective, Device, DeviceError, HostBuffer, Link, Slice};

/// Maximum number of ranks of a group.
const MOST_RANKS: usize = 8;
/// Bytes of a mailbox.
const BYTES: usize = 64 << 20;
/// The same for emulated devices: little, so that exchanges in several steps are tested.
const EMULATED_BYTES: usize = 256 << 10;
/// Bytes of a line.
const LINE: usize = 16;
/// Time that a kernel waits for another rank before it gives up. The other may be compiling or
/// timing kernels.
const PATIENCE: Duration = Duration::from_secs(120);

/// A rank's view of a group: its own mailbox and those of the other ranks.
#[derive(Debug)]
pub struct Mail {
    rank: usize,
    /// All mailboxes, in rank order: none is freed while a rank may write to it.
    mailboxes: Vec<Arc<Buffer>>,
    /// Their addresses, u64.
    addresses: Buffer,
    /// int32: the number of the last exchange, the numbers of blocks of this one that have ended
    /// and that have started, and whether a kernel has given up.
    state: Buffer,
    alarm: Alarm,
    /// Maximum number of lines that a rank sends in one exchange.
    capacity: usize,
}

/// Words of host memory that all ranks see: whether to give up, and for each rank the rank whose
/// line timed out.
#[derive(Clone, Debug)]
pub struct Alarm {
    words: Arc<HostBuffer>,
    /// Other waiters that the alarm must release.
    collectives: Arc<Mutex<Vec<Collective>>>,
}

impl Mail {
    /// Enables peer access between devices. Returns the mail of ranks 0, 1, …, and the slowest link
    /// between two of them.
    ///
    /// # Errors
    /// When there are too many devices, they differ, or are not linked.
    pub fn open(devices: &[Device]) -> Result<(Vec<Self>, Link), DeviceError> {
        let ranks = devices.len();
        let Some(first) = devices.first().filter(|_| (2..=MOST_RANKS).contains(&ranks)) else {
            return Err(DeviceError::NoDevice(format!("a group has 2 to {MOST_RANKS} devices, not {ranks}")));
        };
        if let Some(other) = devices.iter().find(|device| device.properties() != first.properties()) {
            let (first, other) = (&first.properties().name, &other.properties().name);
            return Err(DeviceError::NoDevice(format!(
                "the devices of a group must be identical, but these differ: {first} and {other}"
            )));
        }
        let mut slowest = Link::NvLink;
        for (at, device) in devices.iter().enumerate() {
            for (_, other) in devices.iter().enumerate().filter(|(other, _)| *other != at) {
                slowest = slowest.min(device.reach(other)?);
            }
        }
        let bytes = if first.properties().emulated { EMULATED_BYTES } else { BYTES };
        // Zero is not the number of any exchange.
        let mailboxes = devices.iter().map(|device| device.zeros(bytes).map(Arc::new));
        let mailboxes = mailboxes.collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<u64> = mailboxes.iter().map(|mailbox| mailbox.slice().address()).collect();
        let alarm = Alarm::new(first, ranks)?;
        let mail = |(rank, device): (usize, &Device)| {
            device.synchronize()?;
            Ok(Self {
                rank,
                mailboxes: mailboxes.clone(),
                addresses: device.upload(&addresses)?,
                state: device.zeros(16)?,
                alarm: alarm.clone(),
                capacity: bytes / LINE / 2 / ranks,
            })
        };
        Ok((devices.iter().enumerate().map(mail).collect::<Result<_, _>>()?, slowest))
    }

    /// The rank that this mail belongs to.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks of the group.
    pub fn ranks(&self) -> usize {
        self.mailboxes.len()
    }

    /// The flag that tells waiting kernels to give up.
    pub fn alarm(&self) -> &Alarm {
        &self.alarm
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(crate) fn addresses(&self) -> Slice<'_> {
        self.addresses.slice()
    }

    pub(crate) fn state(&self) -> Slice<'_> {
        self.state.slice()
    }

    pub(crate) fn patience(&self) -> usize {
        PATIENCE.as_millis() as usize
    }
}

impl Alarm {
    fn new(device: &Device, ranks: usize) -> Result<Self, DeviceError> {
        let words = device.host_buffer((1 + ranks) * 4)?;
        // Page-locked memory is not zero when it is allocated.
        (0..=ranks).for_each(|at| words.word(at).store(0, Ordering::Relaxed));
        Ok(Self { words: Arc::new(words), collectives: Arc::default() })
    }

    /// Makes kernels that wait for another rank give up, now and from now on. Their results have no
    /// meaning.
    pub fn ring(&self) {
        self.words.word(0).store(1, Ordering::SeqCst);
        let collectives = std::mem::take(&mut *self.collectives.lock().unwrap_or_else(PoisonError::into_inner));
        collectives.iter().for_each(Collective::abort);
    }

    /// Makes the alarm also abort a rank's membership in a group of the collective library.
    pub fn also_ends(&self, collective: &Collective) {
        self.collectives.lock().unwrap_or_else(PoisonError::into_inner).push(collective.clone());
        // It may have been rung since: then nothing else would abort this membership.
        if self.rung() {
            self.ring();
        }
    }

    /// Whether it was rung, by the host or by a kernel that timed out.
    pub fn rung(&self) -> bool {
        self.words.word(0).load(Ordering::SeqCst) != 0
    }

    /// A rank whose kernel timed out, and the rank that it waited for.
    pub fn waited(&self, ranks: usize) -> Option<(usize, usize)> {
        let for_whom = |rank| self.words.word(1 + rank).load(Ordering::SeqCst) as usize;
        (0..ranks).find_map(|rank| Some((rank, for_whom(rank).checked_sub(1)?)))
    }

    pub(crate) fn words(&self) -> Slice<'_> {
        self.words.slice()
    }
}
