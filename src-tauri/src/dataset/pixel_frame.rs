//! From boxes in pixels of the picture a label file speaks of to boxes relative to the image as it is shown.

use image::metadata::Orientation;

use super::decode::ImageSize;
use crate::geometry::BoxXywhNorm;

/// How much two side ratios may differ and still be one picture in two sizes.
const SAME_SHAPE: f64 = 0.01;

/// The picture whose pixels a label file counts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct PixelFrame {
    width: f64,
    height: f64,
    /// How that picture is turned to be shown.
    orientation: Orientation,
}

impl PixelFrame {
    /// The frame for a label file that states this width and height, with a note where they are not the image's.
    ///
    /// Stated sides equal to the stored ones of an image that is shown turned: the labels were made on the stored
    /// picture. The same shape in another size: on a scaled copy. Anything else, also no or zero size: on the shown image.
    pub fn new(stated: Option<(f64, f64)>, size: ImageSize) -> (Self, Option<String>) {
        let (width, height) = (f64::from(size.width_px), f64::from(size.height_px));
        let shown = Self { width, height, orientation: Orientation::NoTransforms };
        let Some((stated_width, stated_height)) =
            stated.filter(|(w, h)| *w > 0.0 && *h > 0.0 && (*w, *h) != (width, height))
        else {
            return (shown, None);
        };
        let on_stated = |orientation| Self { width: stated_width, height: stated_height, orientation };
        let is_turned = turned(size.orientation, 0.0, 0.0).is_some();
        let (frame, how) = if is_turned && (stated_width, stated_height) == (height, width) {
            (on_stated(size.orientation), "boxes are turned with the image's EXIF orientation")
        } else if (stated_width * height / (stated_height * width) - 1.0).abs() < SAME_SHAPE {
            (on_stated(Orientation::NoTransforms), "boxes are scaled to the image")
        } else {
            (shown, "the image's own size is used")
        };
        let note =
            format!("labels state {stated_width} x {stated_height} pixels, the image has {width} x {height}: {how}");
        (frame, Some(note))
    }

    /// Corners in pixels of this frame to a box of the shown image.
    pub fn to_norm(self, [x1, y1, x2, y2]: [f64; 4]) -> BoxXywhNorm {
        let (cx, cy) = ((x1 + x2) / 2.0 / self.width, (y1 + y2) / 2.0 / self.height);
        let (w, h) = ((x2 - x1) / self.width, (y2 - y1) / self.height);
        match turned(self.orientation, cx, cy) {
            Some((cx, cy)) => BoxXywhNorm { cx, cy, w: h, h: w },
            None => BoxXywhNorm { cx, cy, w, h },
        }
    }
}

/// Where a normalised point goes under an orientation that swaps the sides; `None` for the others, which cannot be told
/// from an upright image by its size.
fn turned(orientation: Orientation, x: f64, y: f64) -> Option<(f64, f64)> {
    match orientation {
        Orientation::Rotate90 => Some((1.0 - y, x)),
        Orientation::Rotate270 => Some((y, 1.0 - x)),
        Orientation::Rotate90FlipH => Some((y, x)),
        Orientation::Rotate270FlipH => Some((1.0 - y, 1.0 - x)),
        Orientation::NoTransforms
        | Orientation::Rotate180
        | Orientation::FlipHorizontal
        | Orientation::FlipVertical => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURNED: ImageSize = ImageSize { width_px: 40, height_px: 100, orientation: Orientation::Rotate90 };

    #[test]
    fn pixels_of_the_shown_image_are_divided_by_its_size() {
        let (frame, note) = PixelFrame::new(Some((40.0, 100.0)), TURNED);
        assert_eq!(
            frame.to_norm([10.0, 20.0, 30.0, 60.0]),
            BoxXywhNorm { cx: 0.5, cy: 0.4, w: 0.5, h: 0.4 },
            "upright"
        );
        assert_eq!(note, None, "nothing to say");
    }

    #[test]
    fn labels_made_on_the_stored_picture_turn_with_it() {
        let (frame, note) = PixelFrame::new(Some((100.0, 40.0)), TURNED);
        let b = frame.to_norm([0.0, 0.0, 20.0, 10.0]);
        assert_eq!(
            b,
            BoxXywhNorm { cx: 0.875, cy: 0.1, w: 0.25, h: 0.2 },
            "top left goes to top right, a quarter turn"
        );
        assert!(note.is_some_and(|note| note.contains("turned")), "it is said");
    }

    #[test]
    fn labels_made_on_a_scaled_copy_scale() {
        let (frame, note) = PixelFrame::new(Some((80.0, 200.0)), TURNED);
        assert_eq!(frame.to_norm([0.0, 0.0, 40.0, 100.0]), BoxXywhNorm { cx: 0.25, cy: 0.25, w: 0.5, h: 0.5 }, "half");
        assert!(note.is_some_and(|note| note.contains("scaled")), "it is said");
    }

    #[test]
    fn a_size_of_zero_says_nothing() {
        assert_eq!(PixelFrame::new(Some((0.0, 0.0)), TURNED).1, None, "some tools write no size");
    }
}
