//! A keyed random order of 0..n that is computed, not stored.
//!
//! Above [`TABLE_LIMIT`] elements it is a Feistel network with cycle walking (see `feistel`): O(1)
//! memory, any position at any time, forwards and backwards. At and below the limit a network has so
//! few bits that its statistics would show, so a Fisher–Yates table (at most 4 KiB, microseconds to
//! make) is used: exactly uniform given uniform keys. The switch depends on n only and is part of
//! the golden vectors.

use crate::feistel::{Network, walk_each, walk_run};
use pelton_key::KeyedRng;

/// Largest n that is shuffled by table.
const TABLE_LIMIT: u64 = 1024;

/// A random permutation of `0..len` chosen by a key.
///
/// Cost on one core of a 2023 server with AVX2 (`examples/ids_per_second.rs`): 3 to 10 ns an id in
/// bulk for n ≤ 2^32, 4 to 13 ns beyond, most just above a power of two; 20 to 90 ns alone. No memory
/// above 1024 elements.
#[derive(Debug, Clone)]
pub struct Permutation {
    len: u64,
    method: Method,
}

#[derive(Debug, Clone)]
enum Method {
    Table {
        forward: Box<[u16]>,
        inverse: Box<[u16]>,
    },
    Narrow(Network<u32>),
    Wide(Network<u64>),
}

impl Permutation {
    /// Up to this length a permutation keeps a table.
    pub(crate) const TABLE_LIMIT: u64 = TABLE_LIMIT;

    /// The permutation of `0..len` that belongs to `key`.
    pub fn new(len: u64, key: u64) -> Permutation {
        let method = if len <= TABLE_LIMIT {
            table(len as u16, key)
        } else if len <= 1 << 32 {
            Method::Narrow(Network::covering(len, key))
        } else {
            Method::Wide(Network::covering(len, key))
        };
        Permutation { len, method }
    }

    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at `position`. Asserts `position < len`.
    pub fn get(&self, position: u64) -> u64 {
        assert!(position < self.len, "position {position} of {}", self.len);
        match &self.method {
            Method::Table { forward, .. } => u64::from(forward[position as usize]),
            Method::Narrow(network) => network.walk::<false>(self.len, position),
            Method::Wide(network) => network.walk::<false>(self.len, position),
        }
    }

    /// The position of `element`: the inverse of [`get`](Self::get). Asserts `element < len`.
    pub fn position_of(&self, element: u64) -> u64 {
        assert!(element < self.len, "element {element} of {}", self.len);
        match &self.method {
            Method::Table { inverse, .. } => u64::from(inverse[element as usize]),
            Method::Narrow(network) => network.walk::<true>(self.len, element),
            Method::Wide(network) => network.walk::<true>(self.len, element),
        }
    }

    /// The elements at positions `start..start + out.len()`. Asserts that they exist.
    pub fn fill(&self, start: u64, out: &mut [u64]) {
        self.check_run(start, out.len());
        match &self.method {
            Method::Table { forward, .. } => copy_run(forward, start, out),
            Method::Narrow(network) => walk_run::<_, false>(network, self.len, start, out),
            Method::Wide(network) => walk_run::<_, false>(network, self.len, start, out),
        }
    }

    /// The positions of elements `first..first + out.len()`. Asserts that they exist.
    pub fn fill_positions(&self, first: u64, out: &mut [u64]) {
        self.check_run(first, out.len());
        match &self.method {
            Method::Table { inverse, .. } => copy_run(inverse, first, out),
            Method::Narrow(network) => walk_run::<_, true>(network, self.len, first, out),
            Method::Wide(network) => walk_run::<_, true>(network, self.len, first, out),
        }
    }

    /// Replaces each element by its position. Asserts that the elements exist.
    pub fn positions_of_each(&self, places: &mut [u64]) {
        assert!(
            places.iter().fold(true, |all, &id| all & (id < self.len)),
            "an element of {} is outside",
            self.len
        );
        match &self.method {
            _ if places.len() == 1 => places[0] = self.position_of(places[0]),
            Method::Table { inverse, .. } => {
                for place in places {
                    *place = u64::from(inverse[*place as usize]);
                }
            }
            Method::Narrow(network) => walk_each::<_, true>(network, self.len, places),
            Method::Wide(network) => walk_each::<_, true>(network, self.len, places),
        }
    }

    /// Replaces each position by the element there. Asserts that the positions exist.
    pub fn get_each(&self, places: &mut [u64]) {
        check_each(self.len, places);
        match &self.method {
            _ if places.len() == 1 => places[0] = self.get(places[0]),
            Method::Table { forward, .. } => {
                for place in places {
                    *place = u64::from(forward[*place as usize]);
                }
            }
            Method::Narrow(network) => walk_each::<_, false>(network, self.len, places),
            Method::Wide(network) => walk_each::<_, false>(network, self.len, places),
        }
    }

    fn check_run(&self, start: u64, count: usize) {
        assert!(
            start <= self.len && count as u64 <= self.len - start,
            "{count} from {start} on, of {}",
            self.len
        );
    }
}

fn check_each(len: u64, places: &[u64]) {
    let inside = places.iter().fold(true, |all, &at| all & (at < len));
    assert!(inside, "a position of {len} is outside");
}

fn table(len: u16, key: u64) -> Method {
    let mut forward: Box<[u16]> = (0..len).collect();
    KeyedRng::new(key).shuffle(&mut forward);
    let mut inverse = vec![0; usize::from(len)].into_boxed_slice();
    for (position, &element) in forward.iter().enumerate() {
        inverse[usize::from(element)] = position as u16;
    }
    Method::Table { forward, inverse }
}

fn copy_run(table: &[u16], start: u64, out: &mut [u64]) {
    let start = start as usize;
    for (slot, &value) in out.iter_mut().zip(&table[start..]) {
        *slot = u64::from(value);
    }
}
