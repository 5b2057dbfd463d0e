//! Opens the data a configuration names: files, or a generated demo set.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use pelton_feed::Stages;
use pelton_fetch::{Device, DeviceSpeed};
use pelton_format::{
    ClassMap, ColumnKind, DataFile, Dataset, FormatKind, KnownColumns, LabelColumn, Missing,
    OpenOptions, Reach, RowLayout, Rows, Scale, Schema, is_remote,
};
use pelton_run::{Event, Interrupt, Observer, RunContext};
use pelton_storage::{
    DeviceModel, LocalMode, LocalOptions, ModelledDevice, ThrottleMode, Throttled, cache_folder,
    cached_fraction, hold, quick_probe, refuse_address, tidy_cache_folder,
};

use crate::alike;
use crate::config::DataConfig;
use crate::error::DataError;
use crate::names::resolve;
use crate::pairs;
use crate::record_bytes::fetch_bytes;
use crate::remote::Remote;

/// A data set, and what is known about its device.
#[derive(Clone, Debug)]
pub struct OpenedData {
    /// The records.
    pub dataset: Arc<Dataset>,
    /// Measured or modelled speed.
    pub device: Device,
    /// The device that is modelled, where one is.
    pub modelled: Option<Arc<ModelledDevice>>,
    /// The files.
    pub paths: Vec<PathBuf>,
    /// Test files that belong to the data: those of a demo set.
    pub test: Vec<String>,
    /// Whether the records are pairs of lines of two texts.
    pub of_pairs: bool,
    /// Folder of what is derived from the data and kept.
    pub cache_dir: PathBuf,
    /// Stages that come before those of any pipeline: what makes the records, where a program does.
    pub first_stages: Stages,
}

impl Expected {
    /// Refuses a setting `classes` that contradicts the classes of a model.
    pub fn check(&self, config: &DataConfig) -> Result<(), DataError> {
        match (&config.classes, &self.labels) {
            (Some(setting), Some(labels)) if !setting.map()?.reads_as(labels) => {
                Err(DataError::Config(format!(
                    "`classes` differs from the classes of the model, {}; leave it out",
                    labels.listed()
                )))
            }
            _ => Ok(()),
        }
    }
}

impl OpenedData {
    /// The same data with the features scaled, where there is a scale.
    pub fn scaled(mut self, scale: Option<&Arc<Scale>>) -> OpenedData {
        if let Some(scale) = scale {
            self.dataset = Arc::new(self.dataset.scaled(Arc::clone(scale)));
        }
        self
    }

    /// Drops the files' clean pages from the page cache, so that the next reads come from the
    /// device.
    pub fn drop_page_cache(&self) -> Result<(), DataError> {
        let here = self.dataset.files().iter().filter(|file| !file.is_remote());
        let parts = here.flat_map(|file| {
            // Of a folder each file, of a file the whole at once.
            let records = if file.is_folder() { file.records() } else { 1 };
            (0..records).map(|record| match file.decompressed() {
                Some(copy) => copy.to_path_buf(),
                None => file.record_path(record),
            })
        });
        for path in parts {
            let path = &path;
            let dropped = pelton_storage::open_file(path).and_then(|file| {
                file.sync_all()?;
                rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
                Ok(())
            });
            dropped.map_err(|error| {
                DataError::Config(format!(
                    "{}: its pages cannot be dropped from the page cache: {error}",
                    path.display()
                ))
            })?;
        }
        Ok(())
    }

    /// The same data with `centre` subtracted from its targets.
    pub fn centred(mut self, centre: f64) -> OpenedData {
        if centre != 0.0 {
            self.dataset = Arc::new(self.dataset.centred(centre));
        }
        self
    }

    /// The same data on a separate modelled device, if the configuration names one.
    fn on_its_device(mut self, config: &DataConfig) -> Result<OpenedData, DataError> {
        if let Some(name) = &config.device_model {
            let modelled = ModelledDevice::new(device_model(name)?, ThrottleMode::RealTime);
            let dataset = Dataset::clone(&self.dataset);
            let throttle = |storage| Arc::new(Throttled::on(&modelled, storage)) as Arc<_>;
            self.dataset = Arc::new(dataset.with_storage(throttle));
            self.modelled = Some(modelled);
        }
        Ok(self)
    }

    /// Seconds the modelled device would have needed for all reads so far.
    pub fn modelled_seconds(&self) -> Option<f64> {
        self.modelled
            .as_ref()
            .map(|device| device.virtual_seconds())
    }
}

/// How sparse rows are decoded for a model with scaled features, of a table with coded columns or not: a shift changes
/// every 0.
pub fn row_layout(scale: Option<&Scale>, columns: Option<&Schema>) -> RowLayout {
    let is_coded = columns.is_some_and(|columns| !columns.codes.is_empty());
    match scale {
        Some(scale) if scale.has_shifts() && !is_coded => RowLayout::Dense,
        Some(_) if is_coded => RowLayout::WithZeros,
        _ => RowLayout::DenseWhereFull,
    }
}

/// What a second data set takes from the first: labels and number of features.
#[derive(Clone, Debug)]
pub struct Expected {
    /// Labels in class order; those of the data where absent.
    pub labels: Option<ClassMap>,
    /// Whether other labels are accepted, because labels are not used.
    pub any_label: bool,
    /// Features of the model.
    pub features: u64,
    /// The replacements of missing cells, if they are means.
    pub means: Option<Arc<[f32]>>,
    /// The columns that the features come from, where they have names.
    pub columns: Option<Arc<Schema>>,
}

/// Opens the files or demo set of `paths` as `config` says.
///
/// Ranks of a process open it together, rank 0 first, so that no two generate or index the same files; each
/// puts the data on its own modelled device, if one is named. All ranks call it, and each must find the
/// same: what is compared, and what that costs and can miss, is said in `alike.rs`.
pub fn open(
    config: &DataConfig,
    paths: &[String],
    expected: Option<&Expected>,
    context: &mut RunContext<'_>,
) -> Result<OpenedData, DataError> {
    let (comm, interrupt) = (context.comm, context.interrupt);
    if comm.size() == 1 {
        return open_files(config, paths, expected, interrupt, context.observer)?
            .on_its_device(config);
    }
    let kind = if expected.is_some() { "other " } else { "" };
    let (opened, own) = comm.once(&format!("{config:?} {paths:?}"), || {
        let opened = open_files(config, paths, expected, interrupt, context.observer)?;
        let own = alike::of_data(&opened.dataset, kind)?;
        Ok::<_, DataError>((opened, own))
    })?;
    comm.agree(&own)?;
    opened.on_its_device(config)
}

/// What [`open`] does, without the modelled device.
fn open_files(
    config: &DataConfig,
    paths: &[String],
    expected: Option<&Expected>,
    interrupt: &Interrupt,
    observer: Observer<'_>,
) -> Result<OpenedData, DataError> {
    let (folder, note) = cache_folder(config.cache_dir.as_deref());
    refuse_address(&folder)?;
    if let Some(note) = note {
        observer(Event::Note(&note));
    }
    tidy_cache_folder(&folder);
    let remote = Remote::for_names(paths, &folder, config.remote_cache_bytes, interrupt)?;
    let (mut files, test) = if config.of_items {
        (paths.iter().map(PathBuf::from).collect(), Vec::new())
    } else {
        resolve(paths, &folder, remote.as_ref(), interrupt, observer)?
    };
    let mut label_file = config.label_file.clone();
    if let Some(remote) = &remote {
        files = files.into_iter().map(|file| remote.named(file)).collect();
        label_file = label_file.map(|file| remote.named(file));
    }
    let mut format = config.format.as_deref();
    if let Some(second) = &config.pair {
        let [first] = files.as_slice() else {
            return Err(DataError::Config(format!(
                "`pair` goes with one text file, and {} files are given; give one",
                files.len()
            )));
        };
        files = vec![pairs::joined(first, second, &folder, interrupt)?];
        format = Some("text");
    }
    let known = expected.and_then(|expected| expected.labels.clone());
    let classes = match (&config.classes, known) {
        (Some(_), None) if config.positive.is_some() => {
            return Err(DataError::Config(
                "`positive` and `classes` both define the classes; leave one of them out"
                    .to_owned(),
            ));
        }
        (_, Some(known)) => Some(known),
        (Some(setting), None) => Some(setting.map()?),
        (None, None) => None,
    };
    let known = expected.and_then(|expected| expected.columns.clone());
    let unnamed = expected.is_some() && known.is_none();
    let is_coded = known
        .as_ref()
        .is_some_and(|schema| !schema.codes.is_empty());
    if !config.columns.is_empty() && !config.codes_columns {
        return Err(DataError::Config(
            "`column` says what columns are when a linear model is trained; leave it out"
                .to_owned(),
        ));
    }
    let told = config
        .columns
        .iter()
        .find(|told| told.kind == ColumnKind::Label);
    let label = match told {
        Some(_) if config.label != DataConfig::default().label => {
            return Err(DataError::Config(
                "`label` and `column` both name the label; leave one of them out".to_owned(),
            ));
        }
        Some(told) => &told.column,
        None => &config.label,
    };
    let options = OpenOptions {
        format: format.map(format_kind).transpose()?,
        zero_based: config.zero_based,
        features_only: !config.bytes_too,
        rows: config.rows,
        label: label_column(label)?,
        // The one that trains on features takes the label from them.
        whole_arrays: config.whole_arrays && config.bytes_too,
        label_file,
        file_column: column(&config.file_column),
        file_classes: config.file_classes.clone(),
        of_items: config.of_items,
        positive: config.positive.clone(),
        labels: classes,
        targets: config.targets,
        by_number: config.by_number,
        tolerant: config.tolerant,
        any_label: expected.is_some_and(|expected| expected.any_label),
        features: expected.map(|expected| expected.features),
        missing: config.missing,
        codes_columns: config.codes_columns || is_coded,
        column_kinds: config.columns.clone(),
        dtype: config.dtype,
        means: expected.and_then(|expected| expected.means.clone()),
        header: config.header,
        decimal: config.decimal,
        columns: known.map(|schema| KnownColumns {
            schema,
            of: "the training data".into(),
        }),
        interrupt: Arc::clone(interrupt),
        cache_dir: Some(folder.clone()),
        storage: LocalOptions {
            mode: local_mode(config, &files),
            ..LocalOptions::default()
        },
        remote: remote.as_ref().map(Remote::opener),
        ..OpenOptions::default()
    };
    // Generated files stay while this process runs.
    for file in files.iter().filter(|file| file.starts_with(&folder)) {
        hold(file);
    }
    let dataset = Arc::new(Dataset::open(&files, &options)?);
    // Other data for the same model is opened with the settings of its training data.
    if expected.is_none() {
        refuse_idle(config, &dataset)?;
    }
    for note in dataset.notes() {
        observer(Event::Note(note));
    }
    if unnamed && dataset.columns().is_some() {
        observer(Event::Note(&format!(
            "{}: columns are matched by position, because the model was trained on data without column names",
            paths.join(", ")
        )));
    }
    if let Some(note) = remote.and_then(|remote| remote.note(&files)) {
        observer(Event::Note(&note));
    }
    let device = match &config.device_model {
        // Says what is wrong with the name before anything else is done.
        Some(name) => Device::from(speed_of(&device_model(name)?)),
        None => {
            let dataset = Arc::clone(&dataset);
            Device::measured_by(move || measure(&dataset))
        }
    };
    Ok(OpenedData {
        dataset,
        device,
        modelled: None,
        paths: files,
        test,
        of_pairs: config.pair.is_some(),
        cache_dir: folder,
        first_stages: Stages::default(),
    })
}

/// Refuses settings that change nothing of these files.
fn refuse_idle(config: &DataConfig, dataset: &Dataset) -> Result<(), DataError> {
    let kind = |file: &DataFile| {
        let spelled = file.kind().to_string();
        spelled.split(':').next().unwrap_or_default().to_string()
    };
    let of_no_file = |kinds: &[&str]| {
        let mut files = dataset.files().iter();
        !files.any(|file| kinds.contains(&kind(file).as_str()))
    };
    let with = |kinds: &str| {
        let found = dataset.files().first().map(kind).unwrap_or_default();
        format!("with {found}, but with {kinds}")
    };
    let tables = ["csv", "tsv", "jsonl", "parquet", "arrow"];
    let file_column = DataConfig::default().file_column;
    let idle = [
        (
            config.zero_based && of_no_file(&["libsvm"]),
            "zero_based",
            with("libsvm"),
        ),
        (
            config.missing.is_some_and(Missing::fills) && of_no_file(&tables),
            "missing",
            with(&tables.join(", ")),
        ),
        (
            config.file_column != file_column && config.label_file.is_none(),
            "file_column",
            "without `label_file`".to_string(),
        ),
    ];
    match idle.into_iter().find(|(is_idle, ..)| *is_idle) {
        Some((_, setting, with)) => Err(DataError::Config(format!(
            "`{setting}` does nothing {with}; leave it out"
        ))),
        None => Ok(()),
    }
}

fn format_kind(name: &str) -> Result<FormatKind, DataError> {
    FormatKind::parse(name).map_err(|why| DataError::Config(format!("`format` {name} {why}")))
}

/// A column, or a key of samples' members `json`.
fn label_column(text: &str) -> Result<LabelColumn, DataError> {
    match text.strip_prefix("json:") {
        Some(key) => {
            let key = key.parse();
            Ok(LabelColumn::Json(key.map_err(DataError::Config)?))
        }
        None => Ok(column(text)),
    }
}

fn column(text: &str) -> LabelColumn {
    match text {
        "first" => LabelColumn::First,
        "last" => LabelColumn::Last,
        _ => match text.parse() {
            Ok(position) => LabelColumn::Position(position),
            Err(_) => LabelColumn::Name(text.to_string()),
        },
    }
}

/// Whether a file is in the page cache.
fn is_warm(file: &Path) -> bool {
    const WARM: f64 = 0.9;
    is_remote(file) || cached_fraction(file).is_ok_and(|fraction| fraction >= WARM)
}

/// Files already in the page cache are read from there; others bypass it.
fn local_mode(config: &DataConfig, files: &[PathBuf]) -> LocalMode {
    match config.io.0 {
        LocalMode::Auto
            if config.device_model.is_none() && files.iter().all(|file| is_warm(file)) =>
        {
            LocalMode::Buffered
        }
        mode => mode,
    }
}

fn device_model(name: &str) -> Result<DeviceModel, DataError> {
    DeviceModel::preset(name).ok_or_else(|| {
        DataError::Config(format!(
            "`device_model` {name} is unknown: use hdd, ssd, optane, pfs or none"
        ))
    })
}

fn speed_of(model: &DeviceModel) -> DeviceSpeed {
    DeviceSpeed {
        random_reads_per_s: model.random_read_iops,
        read_bytes_per_s: model.sequential_read_iops * 4096.0,
        write_bytes_per_s: model.sequential_write_iops * 4096.0,
    }
}

/// A server 20 ms away on a fast connection, with 128 requests in flight. A guess to choose the access path by;
/// to measure it would take as long as what is gained.
const SERVER: DeviceSpeed = DeviceSpeed {
    random_reads_per_s: 6000.0,
    read_bytes_per_s: 250e6,
    write_bytes_per_s: 0.7e9,
};

/// Speed of the device under the data's largest file, or of memory if the file is in the page cache.
fn measure(dataset: &Dataset) -> DeviceSpeed {
    let device = speed_under(dataset);
    tracing::debug!(?device, "speed of the device");
    device
}

fn speed_under(dataset: &Dataset) -> DeviceSpeed {
    /// Below this the choice of access path hardly matters and a measurement would cost more.
    const SMALL_BYTES: u64 = 64 << 20;
    let Some(largest) = dataset.files().iter().max_by_key(|file| file.records()) else {
        return DeviceSpeed::default();
    };
    if dataset.bytes() < SMALL_BYTES {
        return DeviceSpeed::default();
    }
    if largest.is_remote() {
        return SERVER;
    }
    if largest.is_folder() {
        // Each read opens a file: four system calls, and on a device two reads before the one of data.
        return DeviceSpeed {
            random_reads_per_s: 1e5,
            read_bytes_per_s: 2e9,
            write_bytes_per_s: 1e9,
        };
    }
    match largest.reach() {
        // A single record costs a microsecond or two, the same as among others.
        Reach::Computed => DeviceSpeed {
            random_reads_per_s: 1e6,
            read_bytes_per_s: 1e6 * dataset.record_bytes().mean(),
            ..DeviceSpeed::default()
        },
        Reach::Gathered { places } => {
            let device = under(largest.path());
            DeviceSpeed {
                random_reads_per_s: device.random_reads_per_s / f64::from(places),
                ..device
            }
        }
        Reach::Blocks(blocks) => {
            /// The decoding rate of two cores for records of a few numbers.
            const DECODED_BYTES_PER_S: f64 = 1e9;
            let device = under(largest.path());
            let read = device.read_bytes_per_s * blocks.bytes / blocks.stored_bytes.max(1.0);
            DeviceSpeed {
                read_bytes_per_s: read.min(DECODED_BYTES_PER_S),
                ..device
            }
        }
        _ if largest.storage().granularity().offset_bytes == 1 => DeviceSpeed::PAGE_CACHE,
        _ => probed(largest.path()),
    }
}

/// Speed of reads of a file whose records are put together out of it.
fn under(path: &Path) -> DeviceSpeed {
    if is_warm(path) {
        DeviceSpeed::PAGE_CACHE
    } else {
        probed(path)
    }
}

fn probed(path: &Path) -> DeviceSpeed {
    match quick_probe(path) {
        Ok(probe) => DeviceSpeed {
            random_reads_per_s: probe.random_iops,
            read_bytes_per_s: probe.sequential_bytes_per_s,
            ..DeviceSpeed::default()
        },
        Err(_) => DeviceSpeed::default(),
    }
}

/// Reads the records `ids` one by one, in that order.
pub fn fetch_rows(dataset: &Dataset, ids: &[u64]) -> Result<Rows, DataError> {
    let mut rows = Rows::new(dataset.layout());
    for &id in ids {
        if id >= dataset.records() {
            return Err(DataError::Config(format!(
                "record {id} is needed, but the data has only {}; start again with `overwrite`",
                dataset.records()
            )));
        }
        let bytes = fetch_bytes(dataset, id)?;
        dataset.decode(id, &bytes, &mut rows)?;
    }
    Ok(rows)
}

/// Refuses unreasonable numbers of threads: each has its own stack and buffers.
pub fn check_threads(setting: &str, threads: usize) -> Result<(), DataError> {
    const MOST: usize = 1024;
    if (1..=MOST).contains(&threads) {
        return Ok(());
    }
    Err(DataError::Config(format!(
        "{setting} {threads} cannot load the data; give 1 or more, at most {MOST}"
    )))
}

/// Refuses a scratch folder that is none, before a run has begun.
pub fn check_scratch(folder: &Path) -> Result<(), DataError> {
    refuse_address(folder)?;
    if folder.is_dir() {
        return Ok(());
    }
    Err(DataError::Config(format!(
        "`scratch` {}: is not a folder; create it or name another",
        folder.display()
    )))
}
