//! Errors in the description of a plan.

/// Why a plan cannot be made. Each message names the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The text of an order has no accepted form.
    #[error("order '{text}' is unknown: use {forms}")]
    UnknownOrder {
        /// The text as given.
        text: String,
        /// The forms that are accepted.
        forms: String,
    },
    /// A count inside an order or batching is not a whole number from 1 on.
    #[error("'{number}' in '{text}' must be a whole number from 1 to 2^63, for instance {example}")]
    BadCount {
        /// The text as given.
        text: String,
        /// The part that should be a count.
        number: String,
        /// A form that works.
        example: &'static str,
    },
    /// Blocks of zero or more than one per record.
    #[error(
        "order block:{blocks} cannot divide {records} records: give 1 to {records} blocks, for \
         instance `order` block:{}", .records.min(&40)
    )]
    BlockCount {
        /// Blocks asked for.
        blocks: u64,
        /// Records there are.
        records: u64,
    },
    /// A shuffle buffer without room.
    #[error(
        "order queue:0 has no room for a record: give at least 1, for instance `order` queue:10000"
    )]
    EmptyQueue,
    /// A shuffle buffer, or a table of blocks, larger than a plan keeps in memory.
    #[error(
        "order {order} needs a table of {entries} entries: give {limit} or fewer, or use `order` \
         full, which needs no table"
    )]
    TableTooLarge {
        /// The order as asked for.
        order: String,
        /// Entries it needs.
        entries: u64,
        /// Most entries allowed.
        limit: u64,
    },
    /// No loads, or more than there are units to load.
    #[error(
        "order opportunistic:{loads}:{unit_bytes} asks for {loads} loads of {}: {}",
        units_there(*.records, *.units, *.unit_bytes), fewer_loads(*.loads, *.units, *.records)
    )]
    LoadCount {
        /// Loads asked for.
        loads: u64,
        /// Units there are.
        units: u64,
        /// Least size of a unit.
        unit_bytes: u64,
        /// Records there are.
        records: u64,
    },
    /// Units of zero bytes.
    #[error(
        "units of 0 bytes cannot hold a record: give at least 1 byte, for instance `order` page:4096 or \
         `order` opportunistic:8:1048576"
    )]
    EmptyUnit,
    /// A batch of zero examples, or zero batches.
    #[error("a batch of 0 examples never ends an epoch: give `batch` 1 or more")]
    EmptyBatch,
    /// More batches than records.
    #[error("{batches} batches cannot be made from {records} records: give 1 to {records} batches")]
    TooManyBatches {
        /// Batches asked for.
        batches: u64,
        /// Records there are.
        records: u64,
    },
    /// More batches than units of a `page` order, which are not cut.
    #[error(
        "order page:{unit_bytes} cannot make {batches} batches of {}: give smaller units, as in `order` \
         page:1, or ask for fewer batches (`blocks`, or more `memory`)",
        units_there(*.records, *.units, *.unit_bytes)
    )]
    TooManyUnitBatches {
        /// Batches asked for.
        batches: u64,
        /// Units there are.
        units: u64,
        /// Least size of a unit.
        unit_bytes: u64,
        /// Records there are.
        records: u64,
    },
    /// More records than positions can be counted for.
    #[error(
        "{records} records are too many for a plan: split the data into parts below 2^63 records"
    )]
    TooManyRecords {
        /// Records given.
        records: u64,
    },
    /// Units were made from another number of records or another unit size than the plan's.
    #[error(
        "units over {found_records} records of {found_unit_bytes} bytes do not fit a plan of \
    {expected_records} records with units of {expected_unit_bytes} bytes: make the units from \
         the same data and order"
    )]
    UnitsMismatch {
        /// Records of the plan.
        expected_records: u64,
        /// Unit size of the plan's order.
        expected_unit_bytes: u64,
        /// Records the units cover.
        found_records: u64,
        /// Unit size the units were cut with.
        found_unit_bytes: u64,
    },
    /// An echo with an invalid factor, or an empty window.
    #[error(
        "echo '{text}' is unknown: use FACTOR or FACTOR:WINDOW with a factor from 1 to 1000 of at most three \
         decimals and a window of at least 1 example, for instance 2, 1.5 or 2:4096"
    )]
    BadEcho {
        /// The text as given.
        text: String,
    },
    /// The text of a bucket policy has no accepted form.
    #[error(
        "bucket policy '{text}' is unknown: use none, static:LENGTH,LENGTH,…, auto, optimal:BUCKETS, \
         tokens:MAX, pack:ROW_LENGTH or pack:ROW_LENGTH:LOOK_AHEAD"
    )]
    UnknownBucketPolicy {
        /// The text as given.
        text: String,
    },
    /// A number inside a bucket policy is not a whole number from 1 on.
    #[error(
        "'{number}' in bucket policy '{text}' must be a whole number from 1 to 4294967295, for instance \
         static:10,20,30, optimal:8, tokens:4096 or pack:64"
    )]
    BadLength {
        /// The text as given.
        text: String,
        /// The part that should be a number.
        number: String,
    },
    /// Boundaries of buckets that do not rise.
    #[error(
        "boundary {second} follows {first}, but boundaries must increase, for instance \
         static:10,20,30"
    )]
    FallingBoundaries {
        /// A boundary.
        first: u32,
        /// The next one, which is not greater.
        second: u32,
    },
    /// Boundaries of buckets of pairs that do not rise.
    #[error(
        "boundary {}x{} follows {}x{}, but neither side may decrease and one must increase, for instance static:10x12,20x25",
        second[0], second[1], first[0], first[1]
    )]
    FallingPairs {
        /// A boundary.
        first: [u32; 2],
        /// The next one.
        second: [u32; 2],
    },
    /// Boundaries of pairs for single sentences.
    #[error(
        "bucket policy {policy} needs pairs of sentences, and these have one length each: give one number a \
         boundary, for instance static:10,20,30"
    )]
    NoPairs {
        /// The policy.
        policy: String,
    },
    /// A policy that is for sentences of one length.
    #[error(
        "bucket policy {policy} does not apply to pairs of sentences: use none, static, auto or tokens"
    )]
    NotForPairs {
        /// The policy.
        policy: String,
    },
    /// No boundaries at all.
    #[error("policy static has no boundary: give at least one, for instance static:10,20,30")]
    NoBoundaries,
    /// A policy with room for nothing.
    #[error("bucket policy {policy} has no room for a sentence: give at least 1")]
    EmptyPolicy {
        /// The policy.
        policy: String,
    },
    /// More buckets than sentences can be numbered with.
    #[error(
        "bucket policy {policy} makes {buckets} buckets, more than {limit}: give larger \
         batches, or use optimal:{limit}"
    )]
    TooManyBuckets {
        /// The policy.
        policy: String,
        /// Buckets it makes.
        buckets: u64,
        /// Most buckets allowed.
        limit: u64,
    },
    /// The optimal boundaries need too large a table.
    #[error(
        "optimal:{buckets} over {lengths} different lengths needs too large a table: ask for {limit} or \
         fewer buckets, or use auto"
    )]
    OptimalTooLarge {
        /// Buckets asked for.
        buckets: u32,
        /// Different lengths there are.
        lengths: u64,
        /// Most buckets over these lengths.
        limit: u64,
    },
    /// Rows requested as buckets.
    #[error(
        "policy {policy} packs rows and has no buckets: use none, static, auto, \
         optimal or tokens"
    )]
    RowsNotBuckets {
        /// The policy.
        policy: String,
    },
    /// Rows or a look-ahead longer than packing keeps tables for.
    #[error(
        "a {what} of {asked} is too large to pack: give {limit} or less, for instance pack:64:4096"
    )]
    PackingTooLarge {
        /// The row length or the look-ahead.
        what: &'static str,
        /// The requested value.
        asked: u32,
        /// Most that is allowed.
        limit: u32,
    },
    /// Sentences so long that rows of this length cut them into too many pieces.
    #[error(
        "{packing} cuts the longest sentence, of {longest} tokens, into too many pieces: give longer rows or \
         a shorter look-ahead, for instance pack:{longest}:1024"
    )]
    CutTooOften {
        /// The packing.
        packing: String,
        /// The greatest length.
        longest: u32,
    },
    /// A batching that does not give the size of a bucket's batch, or drops something.
    #[error(
        "{setting} cannot be used with buckets, which drop nothing and have batches of some number of examples: give \
         for instance `batch` 32 and `last` even"
    )]
    BucketBatching {
        /// The setting.
        setting: &'static str,
    },
    /// An invalid weight.
    #[error(
        "part {part} of the mixture has the weight {weight}: give 0 or a positive number below 1e30, for instance 0.25"
    )]
    BadWeight {
        /// The part, counted from 0.
        part: usize,
        /// Its weight.
        weight: String,
    },
    /// A mixture of nothing.
    #[error(
        "the weights of the mixture need a positive, finite sum: give at least one part a positive weight, for \
         instance 1"
    )]
    NoWeight,
    /// A part of a mixture without a record.
    #[error(
        "part {part} of the mixture has a weight but no records: give it the weight 0, or a filter that keeps \
         some of its records"
    )]
    EmptyPart {
        /// The part, counted from 0.
        part: usize,
    },
    /// A part of a mixture so small that some epochs would draw nothing from it.
    #[error(
        "part {part} of the mixture gets less than one of the {examples} examples of an epoch: give it a larger \
         weight, or 0, or make epochs longer"
    )]
    PartTooSmall {
        /// The part, counted from 0.
        part: usize,
        /// Examples of an epoch.
        examples: u64,
    },
    /// A part of a mixture that is not of the data.
    #[error(
        "part {part} of the mixture is records {start}..{end}, but there are {records}: give a range that ends at {records} at \
         the latest"
    )]
    PartOutside {
        /// The part, counted from 0.
        part: usize,
        /// Its first record.
        start: u64,
        /// The record after its last.
        end: u64,
        /// Records there are.
        records: u64,
    },
    /// An epoch of a mixture longer than its counts are exact for.
    #[error("an epoch of {examples} examples of a mixture is too long: give {limit} or fewer")]
    MixtureEpoch {
        /// Examples asked for.
        examples: u64,
        /// Most examples allowed.
        limit: u64,
    },
    /// A mixture with an order other than full.
    #[error(
        "order {order} cannot be used with a mixture, which draws its parts in random order: give `order` full, or \
         leave the mixture out"
    )]
    MixtureOrder {
        /// The order.
        order: String,
    },
    /// The length of an epoch of no mixture.
    #[error(
        "an epoch without a mixture has every record once, not {examples} examples: leave the number out, or \
         give a mixture of one part, or draws by weight or class"
    )]
    EpochWithoutMixture {
        /// Examples asked for.
        examples: u64,
    },
    /// A sampler next to a mixture.
    #[error("a mixture and a sampler both choose the records of an epoch: give only one of them")]
    SampledMixture,
    /// Draws with an order other than full.
    #[error(
        "order {order} cannot be used with draws by weight or class, which come in random order: give `order` full, or \
         leave the draws out"
    )]
    DrawOrder {
        /// The order.
        order: String,
    },
    /// A list in an order of neighbours.
    #[error(
        "order {order} reads neighbouring records together and cannot follow a list of records: give `order` full, \
         sequential, queue or block"
    )]
    ListOrder {
        /// The order.
        order: String,
    },
    /// Weights or classes of other records.
    #[error("{found} {what} are given for {records} records: give one for each, in their order")]
    SamplerLength {
        /// Weights or classes.
        what: &'static str,
        /// How many are given.
        found: u64,
        /// Records there are.
        records: u64,
    },
    /// A list has a record that there is not.
    #[error(
        "the list has record {id}, but there are {records} records: give indices below {records}"
    )]
    NoSuchRecord {
        /// The record.
        id: u64,
        /// Records there are.
        records: u64,
    },
    /// A list has a record that a filter leaves out.
    #[error(
        "the list has record {id}, which the filter leaves out: list only records that it keeps"
    )]
    ListedLeftOut {
        /// The record.
        id: u64,
    },
    /// An invalid weight.
    #[error(
        "kept record {record} has the weight {weight}: give 0 or a positive number, for instance 0.25"
    )]
    BadRecordWeight {
        /// The record, by its number among those that are kept.
        record: u64,
        /// Its weight.
        weight: String,
    },
    /// Nothing to draw.
    #[error(
        "the weights of the records need a positive, finite sum: give at least one a positive weight, for instance 1"
    )]
    NoRecordWeight,
    /// An epoch in which not all classes come.
    #[error(
        "an epoch of {examples} examples cannot have the same number of examples from every class: make epochs longer"
    )]
    ShortBalancedEpoch {
        /// Examples of an epoch.
        examples: u64,
    },
    /// Examples and batches that are both echoed.
    #[error(
        "examples are echoed {examples} times and batches {batches} times, and the two together save no more than one \
         would: echo one of the two"
    )]
    TwoEchoes {
        /// The factor for examples.
        examples: String,
        /// The factor for batches.
        batches: String,
    },
    /// Batches are echoed that have pieces of one example in common.
    #[error(
        "{packing} cuts the longest example, of {longest} tokens, into rows of several batches, which batch echo would \
         repeat apart: give rows of {longest} tokens, or echo the examples"
    )]
    EchoedCuts {
        /// The packing.
        packing: String,
        /// The greatest length.
        longest: u32,
    },
    /// Buckets of examples that have no length.
    #[error(
        "bucket policy {policy} needs the length of every example: give the lengths, or leave the buckets \
         out"
    )]
    NoLengths {
        /// The policy.
        policy: String,
    },
    /// A selection of other records than the plan's.
    #[error(
        "a selection from {found} records does not fit {records} records: make the selection from the same data"
    )]
    SelectionMismatch {
        /// Records the selection was made from.
        found: u64,
        /// Records of the plan.
        records: u64,
    },
    /// Bytes that are not a hint.
    #[error(
        "the hint is damaged ({what}): leave it out, and the step is found by replaying the epoch"
    )]
    BadHint {
        /// The problem.
        what: &'static str,
    },
    /// Bytes that are not a stored selection.
    #[error("the stored selection is damaged ({what}): make the selection again")]
    SelectionBytes {
        /// The problem.
        what: String,
    },
    /// Units were given to an order that has none.
    #[error(
        "order {order} does not read in units: give `order` page or opportunistic:LOADS, or leave \
         the units out"
    )]
    UnitsUnused {
        /// The plan's order.
        order: String,
    },
}

fn units_there(records: u64, units: u64, unit_bytes: u64) -> String {
    match units {
        _ if units == records => format!("{records} records"),
        1 => format!("{records} records, which are 1 unit of {unit_bytes} bytes"),
        _ => format!("{records} records, which are {units} units of {unit_bytes} bytes"),
    }
}

/// The remedy: fewer loads, or smaller units if there are enough records.
fn fewer_loads(loads: u64, units: u64, records: u64) -> String {
    let fewer = match units {
        0 | 1 => "give 1 load".to_string(),
        _ => format!("give from 1 to {units} loads"),
    };
    if records <= units.max(1) {
        return fewer;
    }
    // A unit of one byte is one record.
    let most = loads.clamp(1, records);
    format!("{fewer}, or smaller units, as in `order` opportunistic:{most}:1")
}
