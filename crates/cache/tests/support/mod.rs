//! Data sets in memory that count their reads, and readers that check every byte.

// Each test uses only a part of this.
#![allow(dead_code)]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pelton_cache::{CacheError, PeerCache, loads_for};
use pelton_comm::Comm;
use pelton_format::{Dataset, OpenOptions};
use pelton_key::splitmix64;
use pelton_plan::{Catalog, Order, Plan, PlanSpec, Units, local_slots};
use pelton_storage::{Granularity, MemoryStorage, Metered, RangeRead, Storage, StorageError};
use tempfile::TempDir;

/// Files on disk, opened, and their bytes.
pub struct Data {
    pub dataset: Dataset,
    pub bytes: Vec<Arc<[u8]>>,
    _folder: TempDir,
}

/// LIBSVM files of lines of very different lengths.
pub fn ragged(records: &[u64]) -> Data {
    let mut state = 7;
    let contents = records.iter().map(|&records| {
        let mut text = String::from("# a line that is no record\n");
        for _ in 0..records {
            state = splitmix64(state);
            text.push_str(if state & 1 == 0 { "-1" } else { "+1" });
            let features = match state >> 8 & 15 {
                0 => 200,
                few => few,
            };
            for feature in 1..=features {
                text.push_str(&format!(" {feature}:{}", state >> 16 & 1023));
            }
            text.push('\n');
        }
        text.into_bytes()
    });
    of_files("svm", contents)
}

/// Arrays of rows of one length: a label and `width` numbers.
pub fn even(records: &[u64], width: u64) -> Data {
    let mut state = 3;
    let contents = records.iter().map(|&records| {
        let shape = format!("({records}, {})", width + 1);
        let mut header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}");
        while !(10 + header.len() + 1).is_multiple_of(64) {
            header.push(' ');
        }
        header.push('\n');
        let mut file = b"\x93NUMPY\x01\x00".to_vec();
        file.extend((header.len() as u16).to_le_bytes());
        file.extend(header.as_bytes());
        for record in 0..records {
            file.extend(((record % 2) as f32).to_le_bytes());
            for _ in 0..width {
                state = splitmix64(state);
                file.extend(((state >> 40) as f32).to_le_bytes());
            }
        }
        file
    });
    of_files("npy", contents)
}

fn of_files(extension: &str, contents: impl Iterator<Item = Vec<u8>>) -> Data {
    let folder = tempfile::tempdir().expect("temporary folder");
    let mut paths: Vec<PathBuf> = Vec::new();
    let mut bytes: Vec<Arc<[u8]>> = Vec::new();
    for (number, content) in contents.enumerate() {
        let path = folder.path().join(format!("{number}.{extension}"));
        std::fs::write(&path, &content).expect("write");
        paths.push(path);
        bytes.push(content.into());
    }
    let options = OpenOptions {
        sidecar: false,
        any_label: true,
        ..OpenOptions::default()
    };
    let dataset = Dataset::open(&paths, &options).expect("open");
    Data {
        dataset,
        bytes,
        _folder: folder,
    }
}

impl Data {
    /// The data set over bytes in memory, each file behind what `wrap` makes of it.
    pub fn behind(&self, wrap: impl Fn(Arc<dyn Storage>) -> Arc<dyn Storage>) -> Dataset {
        let next = AtomicU64::new(0);
        self.dataset.clone().with_storage(|_| {
            let file = next.fetch_add(1, Ordering::Relaxed) as usize;
            wrap(Arc::new(MemoryStorage::new(Arc::clone(&self.bytes[file]))))
        })
    }

    /// The data set on devices, by file.
    pub fn on_devices(&self) -> (Dataset, Vec<Arc<Device>>) {
        let of_file = |bytes: &Arc<[u8]>| Arc::new(Device::new(Arc::clone(bytes)));
        let devices: Vec<Arc<Device>> = self.bytes.iter().map(of_file).collect();
        let next = AtomicU64::new(0);
        let dataset = self.dataset.clone().with_storage(|_| {
            let file = next.fetch_add(1, Ordering::Relaxed) as usize;
            Arc::clone(&devices[file]) as Arc<dyn Storage>
        });
        (dataset, devices)
    }

    /// The data set over bytes in memory, and a read counter of each file.
    pub fn metered(&self) -> (Dataset, Vec<Arc<Metered>>) {
        let meters = std::sync::Mutex::new(Vec::new());
        let dataset = self.behind(|storage| {
            let metered = Arc::new(Metered::new(storage));
            meters.lock().unwrap().push(Arc::clone(&metered));
            metered
        });
        (dataset, meters.into_inner().unwrap())
    }

    /// Checks that `dataset` gives the bytes of the records `ids`, read as one batch a file.
    pub fn check(
        &self,
        dataset: &Dataset,
        ids: &[u64],
    ) -> Result<(), pelton_storage::StorageError> {
        for (file, storage) in dataset.files().iter().enumerate() {
            let places: Vec<_> = ids
                .iter()
                .map(|&id| dataset.locate(id))
                .filter(|place| place.file as usize == file)
                .collect();
            let mut buffers: Vec<Vec<u8>> = places
                .iter()
                .map(|place| vec![0; place.length as usize])
                .collect();
            let mut reads: Vec<RangeRead<'_>> = places
                .iter()
                .zip(&mut buffers)
                .map(|(place, buffer)| RangeRead {
                    offset: place.offset,
                    buffer,
                    filled: 0,
                })
                .collect();
            storage.storage().read_batch(&mut reads)?;
            for (place, buffer) in places.iter().zip(&buffers) {
                let (from, to) = (
                    place.offset as usize,
                    (place.offset + place.length) as usize,
                );
                assert!(
                    buffer[..] == self.bytes[file][from..to],
                    "other bytes at {place:?}"
                );
            }
        }
        Ok(())
    }
}

/// The cut of the records into units.
pub fn units_of(dataset: &Dataset, unit_bytes: u64) -> Units {
    let lengths = (0..dataset.records()).map(|id| dataset.locate(id).length);
    Units::from_lengths(lengths, unit_bytes)
}

/// A plan in `loads` loads an epoch.
pub fn plan_in_loads(dataset: &Dataset, loads: u64, unit_bytes: u64, batch: u64) -> Arc<Plan> {
    let order = Order::Opportunistic { loads, unit_bytes };
    let over = Catalog::of_units(units_of(dataset, unit_bytes));
    Arc::new(Plan::new(&PlanSpec::new(order, batch, 11), over).unwrap())
}

/// Memory of one rank for two loads of as few loads as fit in a quarter of the data, and their number.
pub fn quarter(data: &Data, ranks: usize, unit_bytes: u64) -> (u64, u64) {
    let dataset = &data.dataset;
    let mut memory = dataset.bytes() / 4;
    let units = units_of(dataset, unit_bytes);
    loop {
        match loads_for(dataset, &units, memory, ranks) {
            Some(loads) => return (memory.div_ceil(ranks as u64) + 1, loads),
            None => memory += memory / 8,
        }
    }
}

/// The position of an epoch's order at which a step begins.
pub fn position_of(plan: &Plan, (epoch, step): (u64, u64)) -> (u64, u64) {
    let order = plan.epoch_order(epoch).unwrap();
    let positions = order.step_positions(step);
    (
        epoch,
        positions.map_or(plan.examples(), |positions| positions.start),
    )
}

/// This rank's consumer has its part of a step.
pub fn received(cache: &PeerCache, plan: &Plan, (epoch, step): (u64, u64)) {
    let (epoch, position) = position_of(plan, (epoch, step + 1));
    cache.received(epoch, position);
}

/// Reads this rank's part of the steps from `start` to the end of `epochs`, in plan order; `each` is asked
/// before each step.
pub fn consume(
    comm: &Comm,
    data: &Data,
    cache: &PeerCache,
    plan: &Plan,
    (start, epochs): ((u64, u64), u64),
    mut each: impl FnMut(u64, u64) -> Result<(), CacheError>,
) -> Result<(), CacheError> {
    let read = cache.dataset();
    let mut ids = Vec::new();
    for epoch in start.0..epochs {
        let first = if epoch == start.0 { start.1 } else { 0 };
        for step in first..plan.steps(0) {
            each(epoch, step)?;
            ids.clear();
            ids.extend(plan.step_ids(epoch, step));
            let slots = local_slots(ids.len() as u64, comm.rank() as u32, comm.size() as u32);
            data.check(&read, &ids[slots.start as usize..slots.end as usize])?;
            received(cache, plan, (epoch, step));
        }
    }
    Ok(())
}

/// Bytes in memory that are read like a device: in whole units, into aligned buffers. Counts how often each
/// unit is read.
#[derive(Debug)]
pub struct Device {
    bytes: Arc<[u8]>,
    pub reads: Vec<AtomicU64>,
}

/// Unit of a [`Device`].
pub const UNIT: u32 = 512;

impl Device {
    pub fn new(bytes: Arc<[u8]>) -> Device {
        let units = bytes.len().div_ceil(UNIT as usize);
        let reads = std::iter::repeat_with(AtomicU64::default).take(units);
        Device {
            reads: reads.collect(),
            bytes,
        }
    }
}

impl Storage for Device {
    fn name(&self) -> String {
        "device".to_string()
    }

    fn size(&self) -> Result<u64, StorageError> {
        Ok(self.bytes.len() as u64)
    }

    fn granularity(&self) -> Granularity {
        Granularity {
            offset_bytes: UNIT,
            memory_bytes: UNIT,
        }
    }

    fn read_batch(&self, reads: &mut [RangeRead<'_>]) -> Result<(), StorageError> {
        let unit = UNIT as usize;
        for read in reads.iter() {
            let places = [
                read.offset as usize,
                read.buffer.len(),
                read.buffer.as_ptr() as usize,
            ];
            assert!(
                places.iter().all(|place| place.is_multiple_of(unit)),
                "{places:?}"
            );
            let first = read.offset as usize / unit;
            let units = self.reads.iter().skip(first);
            for reads in units.take(read.buffer.len() / unit) {
                reads.fetch_add(1, Ordering::Relaxed);
            }
        }
        MemoryStorage::new(Arc::clone(&self.bytes)).read_batch(reads)
    }
}

/// Bytes read of all files.
pub fn bytes_read(meters: &[Arc<Metered>]) -> u64 {
    meters.iter().map(|meter| meter.meter().bytes).sum()
}
