//! Decodes Huffman codes: tables of codes, and the bits that contain them.

/// Bits that index a table. With more bits, fewer codes are longer than the index, but tables exceed the L1 cache.
const LOOK: usize = 10;

/// A table's entry for the next bits. From the lowest bit: six bits for the length of the code with its value, two
/// flags, a byte for the distance from the previous coefficient, and the value.
type Entry = u32;
const BEHIND: u32 = 8;
const VALUE: u32 = 16;
/// The value is not within the bits looked at: the six bits are the length of the code alone, and the value field
/// contains the code's meaning.
const MORE: Entry = 1 << 7;
/// No code begins with these bits, or it is longer than the index.
const LONGER: Entry = MORE | 1 << 6;
/// The run length of no value: the end of a block.
const END: usize = 128;
/// A run length that no value has, for invalid codes.
const NO_CODE: Entry = 64 << BEHIND;

/// A table of codes, ready to decode.
#[derive(Clone)]
pub(crate) struct Table {
    /// Its definition: how many codes there are of each length, and their values.
    definition: Vec<u8>,
    entries: [Entry; 1 << LOOK],
    /// For each length the first code, filled up to 16 bits, that is longer.
    limits: [u32; 17],
    /// Makes an index from a code of each length.
    offsets: [i32; 17],
}

impl Table {
    /// A table from the number of codes of each length from 1 to 16, and their values. An identical definition reuses
    /// the table.
    pub fn set(&mut self, definition: &[u8]) -> Result<(), &'static str> {
        if self.definition == definition {
            return Ok(());
        }
        self.definition.clear();
        let (counts, meanings) = definition.split_at(16);
        self.entries.fill(LONGER);
        let (mut code, mut number) = (0u32, 0usize);
        for length in 1..=16 {
            self.offsets[length] = number as i32 - code as i32;
            for &meaning in &meanings[number..number + usize::from(counts[length - 1])] {
                // No code consists of ones alone.
                if code + 1 >= 1 << length {
                    return Err("a table has more codes than there are");
                }
                if length <= LOOK {
                    let from = (code as usize) << (LOOK - length);
                    for look in from..from + (1 << (LOOK - length)) {
                        self.entries[look] = if length + usize::from(meaning & 15) <= LOOK {
                            entry(length, meaning, (look as u64) << (64 - LOOK))
                        } else {
                            length as Entry | MORE | Entry::from(meaning) << VALUE
                        };
                    }
                }
                code += 1;
                number += 1;
            }
            self.limits[length] = code << (16 - length);
            code <<= 1;
        }
        self.definition.extend_from_slice(definition);
        Ok(())
    }

    /// Looks up a code that the entry alone does not resolve.
    #[inline(always)]
    fn more(&self, bits: u64, found: Entry) -> Entry {
        match found & LONGER {
            LONGER => self.longer(bits),
            _ => entry((found & 63) as usize, (found >> VALUE) as u8, bits),
        }
    }

    #[cold]
    #[inline(never)]
    fn longer(&self, bits: u64) -> Entry {
        let code = (bits >> 48) as u32;
        let Some(length) = (LOOK + 1..17).find(|&length| code < self.limits[length]) else {
            return NO_CODE;
        };
        let number = (code >> (16 - length)) as i32 + self.offsets[length];
        entry(length, self.definition[16 + number as usize], bits)
    }
}

/// The entry of a code of this length and what it means, which begins at the top of `bits`.
#[inline(always)]
fn entry(length: usize, meaning: u8, bits: u64) -> Entry {
    let (run, size) = (Entry::from(meaning >> 4), u32::from(meaning & 15));
    let behind = match (run, size) {
        (0..15, 0) => END as Entry,
        _ => run + 1,
    };
    // The lower half of the bit patterns of a size are negative numbers, in ones' complement.
    let bits = bits << length;
    let below = !(bits as i64) >> 63;
    let distance = (bits ^ below as u64) >> 1 >> (63 - size);
    let value = (distance as i64 ^ below).wrapping_sub(below) as Entry;
    (length as Entry + size) | (behind << BEHIND) | (value << VALUE)
}

impl Default for Table {
    fn default() -> Table {
        Table {
            definition: Vec::new(),
            entries: [LONGER; 1 << LOOK],
            limits: [0; 17],
            offsets: [0; 17],
        }
    }
}

/// Coefficients of a block at their places, and behind them room for those that nothing is kept of.
pub(crate) type Coefficients = [i16; 256];

/// Entropy-coded data between two markers, without stuffed bytes. After their end come ones; no code consists of ones
/// alone.
///
/// Copied to a local variable while a block is decoded, so that it stays in registers.
#[derive(Clone, Copy)]
pub(crate) struct Bits<'a> {
    /// The next bits from the top down; bits below the `count` of them do not matter.
    buffer: u64,
    count: u32,
    /// The source of bytes.
    rest: &'a [u8],
    /// Bytes that were taken after the end.
    beyond: u32,
}

impl<'a> Bits<'a> {
    pub fn new(rest: &'a [u8]) -> Bits<'a> {
        Bits {
            buffer: 0,
            count: 0,
            rest,
            beyond: 0,
        }
    }

    /// Whether more was taken than exists.
    pub fn overrun(&self) -> bool {
        8 * u64::from(self.beyond) > u64::from(self.count)
    }

    /// Fills the buffer up to at least 56 bits.
    #[inline(always)]
    fn refill(&mut self) {
        let Some(next) = self.rest.first_chunk::<8>() else {
            *self = self.refilled_at_the_end();
            return;
        };
        self.buffer |= u64::from_be_bytes(*next) >> self.count;
        self.rest = &self.rest[((63 - self.count) >> 3 & 7) as usize..];
        self.count |= 56;
    }

    #[cold]
    #[inline(never)]
    fn refilled_at_the_end(mut self) -> Bits<'a> {
        while self.count <= 56 {
            let byte = match self.rest.split_off_first() {
                Some(&byte) => byte,
                None => {
                    self.beyond = self.beyond.saturating_add(1);
                    0xFF
                }
            };
            // Bits below, if any, are from the same bytes.
            self.buffer |= u64::from(byte) << (56 - self.count);
            self.count += 8;
        }
        self
    }

    #[inline(always)]
    fn look(&self, table: &Table) -> Entry {
        table.entries[(self.buffer >> (64 - LOOK)) as usize]
    }

    #[inline(always)]
    fn drop(&mut self, bits: Entry) {
        self.buffer <<= bits & 63;
        self.count -= bits & 63;
    }

    /// Decodes the coefficients of a block, each to its position. Returns whether there are others than the first.
    #[inline(always)]
    pub fn block<const KEEP: bool>(
        &mut self,
        [means, others]: [&Table; 2],
        mean: &mut i16,
        places: &[u8; 256],
        block: &mut Coefficients,
    ) -> Result<bool, &'static str> {
        let mut bits = *self;
        bits.refill();
        let mut entry = bits.look(means);
        if entry & MORE != 0 {
            entry = means.more(bits.buffer, entry);
            if entry == NO_CODE {
                return Err(NO_CODES);
            }
        }
        bits.drop(entry);
        *mean = mean.wrapping_add((entry >> VALUE) as i16);
        if KEEP {
            block[0] = *mean;
        }
        let mut place = 0;
        // Stores a value at its position. Returns whether more follow.
        let mut put = |entry: Entry| {
            place += (entry >> BEHIND & 0xFF) as usize;
            if KEEP {
                block[usize::from(places[place & 0xFF])] = (entry >> VALUE) as i16;
            }
            place < 63
        };
        'block: loop {
            bits.refill();
            'looks: {
                // As many lookups as fit in 56 bits.
                for _ in 0..5 {
                    let entry = bits.look(others);
                    if entry & MORE != 0 {
                        break 'looks;
                    }
                    bits.drop(entry);
                    if !put(entry) {
                        break 'block;
                    }
                }
                continue 'block;
            }
            bits.refill();
            let entry = others.more(bits.buffer, bits.look(others));
            bits.drop(entry);
            if !put(entry) {
                break;
            }
        }
        *self = bits;
        match place {
            63 | END.. => Ok(place != END),
            _ => Err(NO_CODES),
        }
    }
}

const NO_CODES: &str = "its data are none of its codes";
