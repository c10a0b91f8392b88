//! Mirroring an image and its boxes.

use image::imageops;

use super::labeled::LabeledImage;
use crate::geometry::BoxXyxyPx;

/// Mirrors left to right.
pub fn flip_lr(labeled: &mut LabeledImage) {
    let width = labeled.image.width() as f32;
    imageops::flip_horizontal_in_place(&mut labeled.image);
    for label in &mut labeled.boxes {
        let BoxXyxyPx { x1, x2, .. } = label.box_px;
        (label.box_px.x1, label.box_px.x2) = (width - x2, width - x1);
    }
}

/// Turns upside down.
pub fn flip_ud(labeled: &mut LabeledImage) {
    let height = labeled.image.height() as f32;
    imageops::flip_vertical_in_place(&mut labeled.image);
    for label in &mut labeled.boxes {
        let BoxXyxyPx { y1, y2, .. } = label.box_px;
        (label.box_px.y1, label.box_px.y2) = (height - y2, height - y1);
    }
}

#[cfg(test)]
mod tests {
    use super::super::labeled::painted;
    use super::*;

    #[test]
    fn image_and_box_move_together() {
        let mut labeled = painted::labeled(40, 30, BoxXyxyPx::new(5.0, 4.0, 15.0, 10.0));
        flip_lr(&mut labeled);
        assert_eq!(labeled.boxes[0].box_px, BoxXyxyPx::new(25.0, 4.0, 35.0, 10.0), "mirrored about x = 20");
        assert_eq!(painted::found(&labeled.image), labeled.boxes[0].box_px, "the paint went along");
        flip_ud(&mut labeled);
        assert_eq!(labeled.boxes[0].box_px, BoxXyxyPx::new(25.0, 20.0, 35.0, 26.0), "mirrored about y = 15");
        assert_eq!(painted::found(&labeled.image), labeled.boxes[0].box_px, "the paint went along");
    }

    #[test]
    fn flipping_twice_changes_nothing() {
        let labeled = painted::labeled(41, 30, BoxXyxyPx::new(5.0, 4.0, 15.0, 10.0));
        let mut flipped = labeled.clone();
        flip_lr(&mut flipped);
        flip_ud(&mut flipped);
        flip_lr(&mut flipped);
        flip_ud(&mut flipped);
        assert_eq!(flipped, labeled, "undo gives back image and box");
    }
}
