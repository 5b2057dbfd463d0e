//! Turns a batch of ranges into requests: long ranges are cut, so that several connections carry them, and
//! neighbouring ranges become one request.

use pelton_storage::RangeRead;

/// Bytes with one destination.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    pub(crate) offset: u64,
    pub(crate) buffer: &'a mut [u8],
}

impl Target<'_> {
    fn end(&self) -> u64 {
        self.offset + self.buffer.len() as u64
    }
}

/// One request: a run of bytes, and the destinations of its parts. Targets are sorted by offset and may overlap.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    pub(crate) start: u64,
    pub(crate) end: u64,
    targets: Vec<Target<'a>>,
    /// The first target that is not full.
    open: usize,
}

impl Request<'_> {
    /// Distributes the next bytes of the answer, which begin at `at`.
    pub(crate) fn put(&mut self, at: u64, bytes: &[u8]) {
        let end = at + bytes.len() as u64;
        while self
            .targets
            .get(self.open)
            .is_some_and(|target| target.end() <= at)
        {
            self.open += 1;
        }
        for target in &mut self.targets[self.open..] {
            if target.offset >= end {
                break;
            }
            let (from, to) = (target.offset.max(at), target.end().min(end));
            if from < to {
                let place = (from - target.offset) as usize..(to - target.offset) as usize;
                target.buffer[place]
                    .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
            }
        }
    }
}

/// The limits by which ranges become requests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Merging {
    /// Most bytes of a request.
    pub(crate) most: u64,
    /// Largest gap that is fetched instead of making another request.
    pub(crate) gap: u64,
}

impl Merging {
    /// The requests for `reads` of a file of `size` bytes; sets what each read will hold.
    pub(crate) fn requests<'a>(
        self,
        reads: &'a mut [RangeRead<'_>],
        size: u64,
    ) -> Vec<Request<'a>> {
        let mut targets = Vec::with_capacity(reads.len());
        for read in reads {
            let there = size.saturating_sub(read.offset);
            read.filled = (read.buffer.len() as u64).min(there) as usize;
            let mut offset = read.offset;
            for buffer in read.buffer[..read.filled].chunks_mut(self.most as usize) {
                let length = buffer.len() as u64;
                targets.push(Target { offset, buffer });
                offset += length;
            }
        }
        targets.sort_by_key(|target| target.offset);
        let mut requests: Vec<Request<'_>> = Vec::new();
        for target in targets {
            let end = target.end();
            if let Some(last) = requests.last_mut()
                && target.offset <= last.end.saturating_add(self.gap)
                && end.max(last.end) - last.start <= self.most
            {
                last.end = end.max(last.end);
                last.targets.push(target);
                continue;
            }
            requests.push(Request {
                start: target.offset,
                end,
                targets: vec![target],
                open: 0,
            });
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pelton_key::splitmix64;

    const MERGING: Merging = Merging { most: 100, gap: 10 };

    /// The requests for ranges of a file of 1000 bytes.
    fn check(ranges: &[(u64, usize)], expected: &[(u64, u64)]) {
        let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|(_, length)| vec![0; *length]).collect();
        let mut reads: Vec<RangeRead<'_>> = ranges
            .iter()
            .zip(&mut buffers)
            .map(|(range, buffer)| RangeRead {
                offset: range.0,
                buffer,
                filled: 77,
            })
            .collect();
        let requests = MERGING.requests(&mut reads, 1000);
        let found: Vec<(u64, u64)> = requests.iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(found, expected, "{ranges:?}");
    }

    #[test]
    fn near_ranges_are_one_request_and_long_ones_several() {
        check(&[], &[]);
        check(&[(0, 0), (5, 0)], &[]);
        check(&[(20, 5), (0, 10)], &[(0, 25)]);
        check(&[(0, 10), (21, 5)], &[(0, 10), (21, 26)]);
        check(&[(0, 90), (90, 11)], &[(0, 90), (90, 101)]);
        check(&[(0, 90), (10, 5), (95, 5)], &[(0, 100)]);
        check(&[(0, 250)], &[(0, 100), (100, 200), (200, 250)]);
        check(&[(0, 250), (250, 30)], &[(0, 100), (100, 200), (200, 280)]);
        // Bytes after the end are not requested.
        check(&[(990, 50), (1000, 5), (5000, 5)], &[(990, 1000)]);
        check(&[(u64::MAX, 5)], &[]);
    }

    /// However the bytes of a request arrive, each range gets its own.
    #[test]
    fn bytes_reach_every_range() {
        let file: Vec<u8> = (0..1000u64).map(|i| splitmix64(i) as u8).collect();
        for seed in 0..300 {
            let number = |i: u64, most: u64| splitmix64(splitmix64(seed) ^ i) % most;
            let ranges: Vec<(u64, usize)> = (0..20)
                .map(|i| (number(i, 1050), number(i + 50, 150) as usize))
                .collect();
            let mut buffers: Vec<Vec<u8>> = ranges.iter().map(|range| vec![0; range.1]).collect();
            let mut reads: Vec<RangeRead<'_>> = ranges
                .iter()
                .zip(&mut buffers)
                .map(|(range, buffer)| RangeRead {
                    offset: range.0,
                    buffer,
                    filled: 0,
                })
                .collect();
            for mut request in MERGING.requests(&mut reads, 1000) {
                let mut at = request.start;
                while at < request.end {
                    let to = (at + 1 + number(at + 99, 40)).min(request.end);
                    request.put(at, &file[at as usize..to as usize]);
                    at = to;
                }
            }
            for ((offset, length), read) in ranges.iter().zip(&reads) {
                let from = (*offset as usize).min(1000);
                let to = (from + length).min(1000);
                assert_eq!(read.filled, to - from);
                assert_eq!(read.buffer[..read.filled], file[from..to]);
            }
        }
    }
}
