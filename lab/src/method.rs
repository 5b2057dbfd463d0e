//! The compared methods of forming blocks.

use pelton_plan::Order;

/// A method of forming blocks, by the names of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// Block minimization: the same blocks in the same order every epoch.
    FixedBmf,
    /// Block minimization with a new order of its blocks every epoch.
    PermutedBmf,
    /// LIRS: new random blocks of rows every epoch.
    LirsRow,
    /// LIRS, page-aware: new random blocks of 4 KiB pages of rows.
    LirsPage,
    /// A shuffle buffer as large as a block over rows shuffled once (TFIP).
    Queue,
    /// Blocks in file order, never shuffled.
    FileOrder,
}

impl Method {
    /// The paper's baseline, with the goals for all methods.
    pub const BASELINE: Method = Method::PermutedBmf;

    /// The methods compared on a generated set.
    pub const COMPARED: [Method; 5] = [
        Method::BASELINE,
        Method::FixedBmf,
        Method::LirsRow,
        Method::LirsPage,
        Method::Queue,
    ];

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Method::FixedBmf => "BMF, fixed blocks",
            Method::PermutedBmf => "BMF, permuted blocks",
            Method::LirsRow => "LIRS, rows",
            Method::LirsPage => "LIRS, 4 KiB pages",
            Method::Queue => "queue of one block",
            Method::FileOrder => "file order, unshuffled",
        }
    }

    /// Whether it is LIRS rather than a baseline.
    pub fn is_lirs(self) -> bool {
        matches!(self, Method::LirsRow | Method::LirsPage)
    }

    /// The plan's order; orders without blocks are divided into `blocks`.
    pub fn order(self, blocks: u64, records: u64) -> Order {
        match self {
            Method::FixedBmf | Method::PermutedBmf => Order::Block {
                blocks,
                permute: self == Method::PermutedBmf,
            },
            Method::LirsRow => Order::Full,
            Method::LirsPage => Order::Page { unit_bytes: 4096 },
            Method::Queue => Order::Queue {
                examples: records.div_ceil(blocks),
                initial_shuffle: true,
            },
            Method::FileOrder => Order::Sequential,
        }
    }
}
