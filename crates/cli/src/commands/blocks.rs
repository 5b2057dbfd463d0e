//! A picture as characters: half blocks in colour on a terminal, shades elsewhere.

use std::io::{self, Write};

use pelton_tools::picture::Picture;

/// Most characters a row, and twice the most rows: every character shows two pixels.
const MOST_COLUMNS: u32 = 64;

/// Shades from dark to light.
const SHADES: &[u8] = b" .:-=+*#%@";

/// Draws a picture, scaled to fit.
pub fn draw(picture: &Picture, coloured: bool, out: &mut impl Write) -> io::Result<()> {
    let small = picture.fitted(MOST_COLUMNS, MOST_COLUMNS);
    for top in (0..small.height).step_by(2) {
        let bottom = (top + 1).min(small.height - 1);
        for column in 0..small.width {
            let (upper, lower) = (small.pixel(column, top), small.pixel(column, bottom));
            if coloured {
                let ([r, g, b], [lower_r, lower_g, lower_b]) = (upper, lower);
                write!(
                    out,
                    "\x1b[38;2;{r};{g};{b}m\x1b[48;2;{lower_r};{lower_g};{lower_b}m▀"
                )?;
            } else {
                let light = (lightness(upper) + lightness(lower)) / 2;
                let shade = SHADES[light as usize * SHADES.len() / 256];
                out.write_all(&[shade])?;
            }
        }
        out.write_all(if coloured { b"\x1b[0m\n" } else { b"\n" })?;
    }
    Ok(())
}

/// Weights of Rec. 601 in 256ths.
fn lightness([r, g, b]: [u8; 3]) -> u32 {
    (77 * u32::from(r) + 150 * u32::from(g) + 29 * u32::from(b)) >> 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(coloured: bool, expected: &str) {
        let picture = Picture {
            width: 2,
            height: 3,
            rgb: [[0; 3], [255; 3], [0; 3], [255; 3], [255, 0, 0], [0, 0, 9]].concat(),
        };
        let mut drawn = Vec::new();
        draw(&picture, coloured, &mut drawn).unwrap();
        assert_eq!(String::from_utf8(drawn).unwrap(), expected);
    }

    #[test]
    fn shades_and_colours() {
        check(false, " @\n: \n");
        check(
            true,
            "\x1b[38;2;0;0;0m\x1b[48;2;0;0;0m▀\x1b[38;2;255;255;255m\x1b[48;2;255;255;255m▀\x1b[0m\n\
             \x1b[38;2;255;0;0m\x1b[48;2;255;0;0m▀\x1b[38;2;0;0;9m\x1b[48;2;0;0;9m▀\x1b[0m\n",
        );
    }
}
