//! A rank's view of its group: sums over ranks on the devices, and decisions that the hosts take
//! jointly.
//!
//! Ranks launch the same kernels in the same order, and some kernels wait for those of other ranks.
//! So every decision that depends on a measurement or on free memory is taken jointly
//! ([`Meeting`](super::meeting::Meeting)). Memory is allocated and freed only between two meetings,
//! because the driver may then synchronise all devices, which must not happen while another rank's
//! kernel waits for this one's.

use kernels::{
    device::{Collective, DeviceError},
    launch::{Added, Rows},
};

use super::{machine::Machine, workspace::Activations};

/// Numbers of rows for which the library's sum is timed.
const LARGE: [usize; 5] = [128, 256, 512, 1024, 2048];
/// Number of sums timed together.
const RUNS: usize = 20;

impl Machine {
    /// Waits until all ranks have reached this call.
    pub fn meet(&self) -> Result<(), DeviceError> {
        self.agree(())
    }

    /// Returns rank 0's value on all ranks.
    pub fn agree<V: Clone + Send + 'static>(&self, value: V) -> Result<V, DeviceError> {
        match &self.ranks {
            Some(ranks) => ranks.meeting.agree(value),
            None => Ok(value),
        }
    }

    /// The smallest value among ranks.
    pub fn least(&self, value: u64) -> Result<u64, DeviceError> {
        match &self.ranks {
            Some(ranks) => Ok(ranks.meeting.exchange(value)?.into_iter().min().unwrap_or(value)),
            None => Ok(value),
        }
    }

    /// The sum over ranks of a contribution to the stream, of which each rank has computed a part.
    /// The result is in `work.added`.
    pub fn over_ranks<'a>(
        &self,
        work: &'a Activations,
        add: Added<'a>,
        rows: usize,
        width: usize,
    ) -> Result<Added<'a>, DeviceError> {
        let Some(ranks) = &self.ranks else { return Ok(add) };
        let all = self.rows(&work.added, width);
        // Calls of the library are not recorded in graphs, so captured rounds use the own kernels.
        match ranks.library.as_ref().filter(|_| rows >= ranks.library_from && !self.device().is_capturing()) {
            Some(library) => self.library_over_ranks(library, all, add, rows, width)?,
            None => self.kernels.sum_ranks(&ranks.mail, all, add, rows, width)?,
        }
        Ok(Added::Rows(all))
    }

    fn library_over_ranks(
        &self,
        library: &Collective,
        all: Rows<'_>,
        add: Added<'_>,
        rows: usize,
        width: usize,
    ) -> Result<(), DeviceError> {
        match add {
            Added::Parts(parts) => self.kernels.add_parts(all.at, false, parts, rows, width)?,
            Added::Rows(own) if own.at.address() != all.at.address() => {
                self.kernels.gather_rows(all, None, own, None, rows, width)?;
            }
            Added::Rows(_) => {}
        }
        library.sum(all.at, rows * width, self.kernels.element())
    }

    /// Minimum number of rows for which the library sums over ranks faster than our own kernel, in
    /// passes that are not captured. Unused in batch-invariant mode, since the library's summation
    /// order depends on the size.
    pub fn compare_with_library(&self, work: &Activations) -> Result<usize, DeviceError> {
        let Some((ranks, library)) = self.ranks.as_ref().and_then(|ranks| Some((ranks, ranks.library.as_ref()?)))
        else {
            return Ok(usize::MAX);
        };
        if self.batch_invariant {
            return Ok(usize::MAX);
        }
        let width = self.target.spec.hidden;
        let all = self.rows(&work.added, width);
        let most = work.added.bytes() / (width * self.element_bytes());
        let marks = [self.device().event()?, self.device().event()?];
        let time = |sum: &dyn Fn() -> Result<(), DeviceError>| {
            // The first call loads the kernel and sets up connections.
            sum()?;
            self.device().record(&marks[0])?;
            (0..RUNS).try_for_each(|_| sum())?;
            self.device().record(&marks[1])?;
            marks[1].wait()?;
            marks[1].since(&marks[0])
        };
        let mut from = usize::MAX;
        for rows in LARGE.into_iter().filter(|rows| *rows <= most) {
            let own = time(&|| self.kernels.sum_ranks(&ranks.mail, all, Added::Rows(all), rows, width))?;
            let theirs = time(&|| library.sum(all.at, rows * width, self.kernels.element()))?;
            // From the size above which the library wins at every larger one as well.
            from = if theirs < own { from.min(rows) } else { usize::MAX };
        }
        // Ranks time slightly different values, but must call the library for the same sizes.
        self.agree(from)
    }
}

#[cfg(test)]
mod tests {
    use kernels::device::{Alarm, Device, Mail};

    use super::super::meeting::Meeting;

    /// The alarm of a group of two ranks.
    fn alarm() -> Alarm {
        let devices = [(); 2].map(|()| Device::emulated().expect("a C++ compiler"));
        Mail::open(&devices).expect("they reach each other").0[0].alarm().clone()
    }

    #[test]
    fn all_see_what_all_bring_time_after_time() {
        let alarm = alarm();
        std::thread::scope(|scope| {
            for meeting in Meeting::for_ranks(3, &alarm) {
                scope.spawn(move || {
                    for time in 0..200 {
                        let rank = meeting.share().rank;
                        assert_eq!(meeting.exchange((time, rank)), Ok(vec![(time, 0), (time, 1), (time, 2)]));
                        assert_eq!(meeting.agree(rank), Ok(0));
                    }
                });
            }
        });
    }

    #[test]
    fn who_waits_in_vain_is_let_go() {
        let alarm = alarm();
        let meeting = Meeting::for_ranks(2, &alarm).remove(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(move || meeting.agree(1));
            alarm.ring();
            assert!(waiting.join().expect("it does not panic").is_err());
        });
    }
}
