//! Bandwidth of reads through peers' memory against the least that they could cost, as CSV on standard
//! output.
//!
//! ```text
//! cargo run --release -p pelton-cache --example cache_bandwidth -- 2           two threads
//! cargo build --release -p pelton-cache --example cache_bandwidth
//! mpirun -n 2 target/release/examples/cache_bandwidth                          two processes
//! ```
//!
//! A data set of equal records is spread over the memory of all ranks. All ranks read at once, 64 records a batch at
//! random: records that other ranks hold, or those that they hold themselves (`own`). The reference copies the same
//! bytes from a vector as large as that memory. Its ranges have the same offsets within a page as the records, which
//! follow a file header: 4 KiB across two pages take longer than in one. The two take turns; the results are medians
//! of the turns.

#[path = "../../../comm/examples/window_bandwidth/turns.rs"]
mod turns;

use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use pelton_cache::{CacheError, CacheOptions, PeerCache, Placement};
use pelton_comm::{Comm, run_launched, run_ranks};
use pelton_format::{Dataset, OpenOptions};
use pelton_plan::{Catalog, Order, Plan, PlanSpec};
use pelton_storage::RangeRead;
use turns::{Range, in_turns, memcpy, transport};

/// Sizes of records: a page, and an image of ImageNet.
const READ_BYTES: [usize; 2] = [4096, 110 << 10];
/// Bytes on each rank; together more than any CPU cache.
const WINDOW_BYTES: usize = 128 << 20;
/// Records read at once.
const BATCH: usize = 64;
/// Fewest bytes of a turn.
const TURN_BYTES: usize = 128 << 20;
const TURNS: usize = 15;

/// Records of a batch, and their ranges.
type Batches = Vec<(Vec<u64>, Vec<Range>)>;

fn main() {
    let threads = |ranks| {
        run_ranks(ranks, |comm| {
            measure(&comm, "local", |comm| memcpy(comm, WINDOW_BYTES))
        })
    };
    let result = if let Some((how, name)) = transport() {
        run_launched(&how, &Arc::default(), &mut |_| (), |comm| {
            measure(&comm, name, |comm| memcpy(comm, WINDOW_BYTES))
        })
    } else {
        let ranks = std::env::args().nth(1);
        threads(ranks.map_or(2, |ranks| ranks.parse().expect("ranks"))).map(|_| ())
    };
    if let Err(error) = result {
        eprintln!("{error}");
        std::process::exit(1);
    }
}

fn measure<R: FnMut(&[Range], &mut [u8])>(
    comm: &Comm,
    transport: &str,
    reference: impl Fn(&Comm) -> R,
) -> Result<(), CacheError> {
    if comm.rank() == 0 {
        println!("transport,ranks,memory,read_bytes,cache_gb_per_s,reference_gb_per_s,ratio");
    }
    for read_bytes in READ_BYTES {
        let folder = tempfile::tempdir().expect("temporary folder");
        let path = folder.path().join("records.npy");
        let records = comm.size() * (WINDOW_BYTES / read_bytes);
        write_records(&path, records, read_bytes).expect("write");
        let dataset = Dataset::open(&[path], &OpenOptions::default())?;
        let spec = PlanSpec::new(Order::Full, BATCH as u64, 1);
        let plan = Plan::new(&spec, Catalog::new(records as u64));
        let options = CacheOptions {
            memory_bytes: WINDOW_BYTES as u64,
            ..CacheOptions::default()
        };
        let cache = PeerCache::new(comm, &dataset, &Arc::new(plan.expect("a plan")), &options)?;
        let mut remote = reference(comm);
        let others = |holder| holder != comm.rank() || comm.size() == 1;
        // How far loading moves the records from the begin of a page, to read them straight into memory.
        let storage = dataset.files()[0].storage();
        let shift = dataset.locate(0).offset % u64::from(storage.granularity().memory_bytes);
        let placement = cache.placement();
        let records = (records, read_bytes, shift as usize);
        let batches = batches(comm, &placement, records, others);
        let title = format!("{transport},{},others,{read_bytes}", comm.size());
        compare(comm, &title, &cache, &batches, &mut remote)?;
        drop(remote);
        let mut own = memcpy(comm, WINDOW_BYTES);
        let batches = self::batches(comm, &placement, records, |holder| holder == comm.rank());
        let title = format!("{transport},{},own,{read_bytes}", comm.size());
        compare(comm, &title, &cache, &batches, &mut own)?;
        cache.finish(comm)?;
    }
    Ok(())
}

fn compare(
    comm: &Comm,
    title: &str,
    cache: &PeerCache,
    batches: &Batches,
    reference: &mut impl FnMut(&[Range], &mut [u8]),
) -> Result<(), CacheError> {
    let dataset = cache.dataset();
    let read_bytes = batches[0].1[0].2;
    let mut buffer = vec![0; BATCH * read_bytes];
    let mut other = vec![0; BATCH * read_bytes];
    let bytes = batches.len() * BATCH * read_bytes;
    let rates = in_turns(
        comm,
        TURNS,
        (batches, bytes),
        |(ids, _)| read(&dataset, ids, &mut buffer),
        |(_, ranges)| reference(ranges, &mut other),
    )?;
    if comm.rank() == 0 {
        let (read, bare, ratio) = (rates.read, rates.reference, rates.ratio);
        println!("{title},{read:.3},{bare:.3},{ratio:.3}");
    }
    Ok(())
}

/// An array of zeros: a sparse file.
fn write_records(path: &std::path::Path, records: usize, read_bytes: usize) -> std::io::Result<()> {
    let shape = format!("({records}, {})", read_bytes / 4);
    let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut file = File::create(path)?;
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&(header.len() as u16).to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    file.set_len((10 + header.len() + records * read_bytes) as u64)
}

/// Batches of random records with `wanted` holders.
fn batches(
    comm: &Comm,
    placement: &Placement,
    (records, read_bytes, shift): (usize, usize, usize),
    wanted: impl Fn(usize) -> bool,
) -> Batches {
    let mut state = comm.rank() as u64 + 1;
    let mut random = move |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        ((state >> 33) as usize) % below
    };
    let of_rank = WINDOW_BYTES / read_bytes;
    let mut one = || loop {
        let id = random(records) as u64;
        let holder = placement.holder(0, id).expect("all is in memory") as usize;
        let place = id as usize % of_rank;
        // Shifted, the last would exceed the reference's window.
        if wanted(holder) && place + 1 < of_rank {
            let offset = place * read_bytes + shift;
            return (id, (holder, offset, read_bytes));
        }
    };
    let count = TURN_BYTES / (BATCH * read_bytes);
    (0..count)
        .map(|_| (0..BATCH).map(|_| one()).unzip())
        .collect()
}

/// Reads records as a feed does: their locations, then one batch.
fn read(dataset: &Dataset, ids: &[u64], buffer: &mut [u8]) -> Result<(), CacheError> {
    let length = buffer.len() / ids.len();
    let places = ids.iter().zip(buffer.chunks_mut(length));
    let mut reads: Vec<RangeRead<'_>> = places
        .map(|(&id, buffer)| RangeRead {
            offset: dataset.locate(id).offset,
            buffer,
            filled: 0,
        })
        .collect();
    dataset.files()[0].storage().read_batch(&mut reads)?;
    Ok(())
}
