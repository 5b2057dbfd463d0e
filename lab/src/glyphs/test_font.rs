//! The smallest fonts that are fonts, for tests: rectangles as glyphs.

/// A rectangle: left, bottom, right and top in thousandths of an em.
pub type Ink = [i16; 4];

/// A character and its outline.
pub type Drawn<'a> = (u32, &'a [Ink]);

/// A TrueType font of 1000 units an em whose characters are rectangles, or nothing where there are none.
pub fn font(family: &str, characters: &[Drawn<'_>]) -> Vec<u8> {
    table_of(&tables(family, characters), 0)
}

/// A collection of such fonts.
pub fn collection(fonts: &[(&str, &[Drawn<'_>])]) -> Vec<u8> {
    let mut bytes = b"ttcf\0\x01\0\0".to_vec();
    bytes.extend((fonts.len() as u32).to_be_bytes());
    let mut at = bytes.len() + 4 * fonts.len();
    let mut all = Vec::new();
    for (family, characters) in fonts {
        bytes.extend((at as u32).to_be_bytes());
        all.push(table_of(&tables(family, characters), at));
        at += all.last().expect("it was pushed").len();
    }
    bytes.extend(all.concat());
    bytes
}

type Table = ([u8; 4], Vec<u8>);

/// A font that begins at `at` in its file.
fn table_of(tables: &[Table], at: usize) -> Vec<u8> {
    let mut bytes = words(&[0, 1]);
    bytes.rotate_left(2);
    bytes.extend(words(&[tables.len() as u16, 0, 0, 0]));
    let mut data = Vec::new();
    let from = at + bytes.len() + 16 * tables.len();
    for (tag, table) in tables {
        bytes.extend(tag);
        for number in [0, from + data.len(), table.len()] {
            bytes.extend((number as u32).to_be_bytes());
        }
        data.extend(table);
        data.resize(data.len().next_multiple_of(4), 0);
    }
    bytes.extend(data);
    bytes
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn longs(longs: &[u32]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_be_bytes()).collect()
}

fn glyph(inks: &[Ink]) -> Vec<u8> {
    if inks.is_empty() {
        return Vec::new();
    }
    let least = |i: usize| inks.iter().map(|ink| ink[i]).min().expect("some ink") as u16;
    let most = |i: usize| inks.iter().map(|ink| ink[i]).max().expect("some ink") as u16;
    let mut bytes = words(&[inks.len() as u16, least(0), least(1), most(2), most(3)]);
    bytes.extend((0..inks.len() as u16).flat_map(|i| (4 * i + 3).to_be_bytes()));
    bytes.extend([0, 0]);
    // Every point is on the curve, and its place is two bytes a side.
    bytes.extend(vec![1; 4 * inks.len()]);
    for sides in [[0, 0, 2, 2], [1, 3, 3, 1]] {
        let mut last = 0;
        for ink in inks {
            for side in sides {
                bytes.extend((ink[side] - last).to_be_bytes());
                last = ink[side];
            }
        }
    }
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn tables(family: &str, characters: &[Drawn<'_>]) -> Vec<Table> {
    let count = characters.len() as u16 + 1;
    let mut glyf = glyph(&[[0, 0, 500, 500]]);
    let mut loca = vec![0, glyf.len() as u32];
    for (_, inks) in characters {
        glyf.extend(glyph(inks));
        loca.push(glyf.len() as u32);
    }
    let mut cmap = words(&[0, 1, 3, 10, 0, 12, 12, 0]);
    cmap.extend(longs(&[
        16 + 12 * characters.len() as u32,
        0,
        characters.len() as u32,
    ]));
    for (glyph, (character, _)) in (1..).zip(characters) {
        cmap.extend(longs(&[*character, *character, glyph]));
    }
    let name: Vec<u8> = family.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let mut names = words(&[0, 1, 18, 3, 1, 0x409, 1, name.len() as u16, 0]);
    names.extend(name);
    let mut head = longs(&[0x10000, 0x10000, 0, 0x5f0f_3cf5]);
    head.extend(words(&[0, 1000]));
    head.extend([0; 16]);
    head.extend(words(&[0, 0, 1000, 1000, 0, 8, 2, 1, 0]));
    let mut hhea = longs(&[0x10000]);
    hhea.extend(words(&[
        880, 120, 0, 1000, 0, 0, 1000, 1, 0, 0, 0, 0, 0, 0, 0, count,
    ]));
    let mut maxp = longs(&[0x10000]);
    maxp.extend(words(&[count, 64, 16, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]));
    vec![
        (*b"cmap", cmap),
        (*b"glyf", glyf),
        (*b"head", head),
        (*b"hhea", hhea),
        (*b"hmtx", words(&[1000, 0].repeat(count.into()))),
        (*b"loca", longs(&loca)),
        (*b"maxp", maxp),
        (*b"name", names),
    ]
}
