//! Boxes follow their pictures: they enclose the mask of the same object.

use pelton_image::{Layout, Pipeline, Pixels, Workspace};
use pelton_key::KeyedRng;

/// The smallest box around the ones of a mask after a pipeline.
fn seen(text: &str, mask: &Pixels, key: u64) -> Option<[f32; 4]> {
    let pipeline: Pipeline = text.parse().unwrap();
    let (height, width) = pipeline.output_size(mask.height(), mask.width()).unwrap();
    let mut out = vec![0; (height * width) as usize];
    let work = &mut Workspace::new();
    pipeline.apply_to_mask(mask, key, work, &mut out).unwrap();
    let places = (0..out.len() as u32).filter(|&place| out[place as usize] == 1);
    places.fold(None, |found: Option<[f32; 4]>, place| {
        let (x, y) = ((place % width) as f32, (place / width) as f32);
        let [x1, y1, x2, y2] = found.unwrap_or([x, y, x, y]);
        Some([x1.min(x), y1.min(y), x2.max(x + 1.0), y2.max(y + 1.0)])
    })
}

/// A mask with ones in a box.
fn of_box((height, width): (u32, u32), [x1, y1, x2, y2]: [u32; 4]) -> Pixels {
    let places = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
    let is_inside = |(x, y)| (x1..x2).contains(&x) && (y1..y2).contains(&y);
    let bytes: Vec<u8> = places.map(|place| u8::from(is_inside(place))).collect();
    let mut mask = Pixels::new();
    mask.set(height, width, 1, Layout::Hwc, &bytes);
    mask
}

/// Random boxes under random keys; each edge of a box is at most `most` pixels from the visible object.
fn check(text: &str, most: f32, margin: u32) {
    let pipeline: Pipeline = text.parse().unwrap();
    let mut rng = KeyedRng::new(text.len() as u64);
    let mut visible = 0;
    for key in 0..200 {
        let size = (40 + rng.below(30) as u32, 40 + rng.below(30) as u32);
        let mut span = |length: u32| {
            let start = margin + rng.below(u64::from(length - 2 * margin - 4)) as u32;
            let longest = u64::from(length - margin - start - 3);
            (start, start + 4 + rng.below(longest) as u32)
        };
        let ((y1, y2), (x1, x2)) = (span(size.0), span(size.1));
        let mask = of_box(size, [x1, y1, x2, y2]);
        let mut boxes = [[x1, y1, x2, y2].map(|edge| edge as f32)];
        pipeline.apply_to_boxes(size, key, &mut boxes).unwrap();
        let [x1, y1, x2, y2] = boxes[0];
        let [bottom, right] = [size.0, size.1].map(|side| side as f32);
        if text.contains("affine") && (x1.min(y1) == 0.0 || x2 == right || y2 == bottom) {
            // The visible part of a turned box that is cut off is smaller than its corners suggest.
            continue;
        }
        match seen(text, &mask, key) {
            Some(seen) => {
                let far = |(a, b): (&f32, &f32)| (a - b).abs() > most;
                let differ = boxes[0].iter().zip(&seen).any(far);
                assert!(!differ, "{text} {key}: {:?} {seen:?}", boxes[0]);
                visible += 1;
            }
            // Nothing of it is visible, or less than a pixel.
            None => assert!(
                (x2 - x1).min(y2 - y1) < 1.0 + most,
                "{text} {key}: {boxes:?}"
            ),
        }
    }
    assert!(visible > 60, "{text}: {visible}");
}

#[test]
fn boxes_lie_around_what_masks_show() {
    for text in [
        "",
        "flip",
        "crop:30",
        "crop:80",
        "randomcrop:25",
        "flip,randomcrop:30:9",
        "randomcrop:30:9,flip:0.3,crop:20,jitter:0.4,cutout:3,normalise",
    ] {
        check(text, 0.0, 0);
    }
    for text in [
        "resize:80x90",
        "resize:96",
        "rrc:64,flip",
        "flip,rrc:70:0.5-1,randomcrop:50:4",
    ] {
        check(text, 1.0, 0);
    }
    check("affine:5:0.05:0.1:2", 2.0, 8);
    check("flip,affine:180:0.1:0.2", 2.0, 8);
}

#[test]
fn what_is_cropped_away_has_no_area() {
    let pipeline: Pipeline = "crop:10".parse().unwrap();
    let mut boxes = [[0.0, 0.0, 3.0, 4.0], [1.0, 8.0, 30.0, 12.5]];
    pipeline.apply_to_boxes((30, 30), 1, &mut boxes).unwrap();
    assert_eq!(boxes, [[0.0; 4], [0.0, 0.0, 10.0, 2.5]]);
    assert!(pipeline.moves_pixels());
    let colours: Pipeline = "jitter:0.4,normalise".parse().unwrap();
    assert!(!colours.moves_pixels());
    let small: Pipeline = "randomcrop:10".parse().unwrap();
    assert!(small.apply_to_boxes((5, 5), 1, &mut boxes).is_err());
}

#[test]
fn a_turned_box_is_the_smallest_around_its_corners() {
    let pipeline: Pipeline = "affine:180:0:0".parse().unwrap();
    let (mut areas, mut rng) = (Vec::new(), KeyedRng::new(1));
    for _ in 0..200 {
        let mut boxes = [[40.0, 45.0, 60.0, 55.0]];
        pipeline
            .apply_to_boxes((100, 100), rng.next_u64(), &mut boxes)
            .unwrap();
        let [x1, y1, x2, y2] = boxes[0];
        // About the middle, in which it stays.
        assert!((x1 + x2 - 100.0).abs() < 1e-3 && (y1 + y2 - 100.0).abs() < 1e-3);
        let (wide, high) = (x2 - x1, y2 - y1);
        // A rectangle of 20 x 10 turned by t: 20 |cos t| + 10 |sin t| by 20 |sin t| + 10 |cos t|.
        let cosine = (20.0 * wide - 10.0 * high) / 300.0;
        let sine = (20.0 * high - 10.0 * wide) / 300.0;
        assert!(
            (cosine * cosine + sine * sine - 1.0).abs() < 1e-3,
            "{boxes:?}"
        );
        areas.push(wide * high);
    }
    assert!(areas.iter().any(|area| *area > 400.0) && areas.iter().any(|area| *area < 300.0));
}
