//! Boxes around the objects of an image, moved with its pixels.

use crate::affine::Affine;

/// Left, top, right and bottom in pixels, measured from the left and upper edge of the image.
pub(crate) type Corners = [f32; 4];

/// Moves a box up by `top` and left by `left`, and clips it to an image of this height and width.
pub(crate) fn shifted(corners: Corners, (top, left): (i64, i64), size: (u32, u32)) -> Corners {
    let [x1, y1, x2, y2] = corners.map(f64::from);
    let (left, top) = (left as f64, top as f64);
    clipped([x1 - left, y1 - top, x2 - left, y2 - top], size)
}

/// Stretches a box with an image that changes its height and width.
pub(crate) fn stretched(corners: Corners, from: (u32, u32), to: (u32, u32)) -> Corners {
    if from == to {
        return corners;
    }
    let high = f64::from(to.0) / f64::from(from.0);
    let wide = f64::from(to.1) / f64::from(from.1);
    let [x1, y1, x2, y2] = corners.map(f64::from);
    [x1 * wide, y1 * high, x2 * wide, y2 * high].map(|edge| edge as f32)
}

/// Exchanges left and right in an image of this width.
pub(crate) fn mirrored([x1, y1, x2, y2]: Corners, width: u32) -> Corners {
    let width = width as f32;
    [width - x2, y1, width - x1, y2]
}

/// The smallest box around the four corners after they have moved with the pixels, clipped.
pub(crate) fn mapped(corners: Corners, affine: Affine, size: (u32, u32)) -> Corners {
    let [[xx, xy], [yx, yy]] = affine.matrix.map(|row| row.map(f64::from));
    let [offset_x, offset_y] = affine.offset.map(f64::from);
    let middle = [f64::from(size.1) / 2.0, f64::from(size.0) / 2.0];
    // The map says where pixels come from.
    let determinant = xx * yy - xy * yx;
    let [x1, y1, x2, y2] = corners.map(f64::from);
    let moved = [[x1, y1], [x2, y1], [x1, y2], [x2, y2]].map(|[x, y]| {
        let (x, y) = (x - middle[0] - offset_x, y - middle[1] - offset_y);
        [
            (yy * x - xy * y) / determinant + middle[0],
            (xx * y - yx * x) / determinant + middle[1],
        ]
    });
    let along = |axis: usize| moved.map(|corner| corner[axis]);
    let least = |axis| along(axis).into_iter().fold(f64::INFINITY, f64::min);
    let most = |axis| along(axis).into_iter().fold(f64::NEG_INFINITY, f64::max);
    clipped([least(0), least(1), most(0), most(1)], size)
}

/// A box outside the image gets area 0.
fn clipped(corners: [f64; 4], (height, width): (u32, u32)) -> Corners {
    let within = |edge: f64, length: u32| edge.clamp(0.0, f64::from(length)) as f32;
    let [x1, y1, x2, y2] = corners;
    [
        within(x1, width),
        within(y1, height),
        within(x2, width),
        within(y2, height),
    ]
}
