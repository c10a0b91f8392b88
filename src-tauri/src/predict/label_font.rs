//! Glyphs for labels: from the system's fonts where they have them, else from a small built-in bitmap.

use ab_glyph::{Font, FontRef, FontVec, GlyphId, PxScale, ScaleFont, point};
use font8x8::UnicodeFonts;
use fontdb::{Database, FaceInfo, ID, Stretch, Style};

/// Stands for a character that no font has.
const REPLACEMENT: char = '?';

/// Pixels of a built-in glyph's side.
const BITMAP_SIDE: usize = 8;

/// The faces labels are set in. Looking for them reads the system's font folders: make one and keep it.
pub struct LabelFont {
    /// For each character the first face that has it is used; if none has, the built-in bitmap.
    faces: Vec<FontVec>,
}

/// A drawn line of text: how much of each pixel is ink, 0..=1, row by row.
#[derive(Debug, Clone, PartialEq)]
pub struct TextMask {
    pub width_px: usize,
    pub height_px: usize,
    pub coverage: Vec<f32>,
}

impl LabelFont {
    /// Faces of the system that together have every character of `texts`, as far as there are any: one for ASCII, and
    /// more for what it lacks.
    pub fn for_texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut database = Database::new();
        database.load_system_fonts();
        let ids = faces_by_preference(&database);
        let ascii: Vec<char> = (' '..='~').collect();
        let mut faces = Vec::from_iter(ids.iter().find_map(|&id| loaded(&database, id, |has| ascii.iter().all(has))));
        let mut missing: Vec<char> = texts.into_iter().flat_map(str::chars).filter(|c| !c.is_control()).collect();
        missing.sort_unstable();
        missing.dedup();
        missing.retain(|&c| faces.iter().all(|face| glyph(face, c).is_none()));
        for id in ids {
            if missing.is_empty() {
                break;
            }
            if let Some(face) = loaded(&database, id, |has| missing.iter().any(has)) {
                missing.retain(|&c| glyph(&face, c).is_none());
                faces.push(face);
            }
        }
        Self { faces }
    }

    /// The bitmap alone: Latin letters, digits and signs.
    pub fn built_in() -> Self {
        Self { faces: Vec::new() }
    }

    /// Whether the character can be drawn as itself.
    pub fn has(&self, c: char) -> bool {
        self.faces.iter().any(|face| glyph(face, c).is_some()) || bitmap(c).is_some()
    }

    /// Draws one line of `height_px` pixels; what no font has becomes a question mark.
    pub fn mask(&self, text: &str, height_px: usize) -> TextMask {
        let scale = PxScale::from(height_px as f32);
        let baseline = self.faces.iter().map(|face| face.as_scaled(scale).ascent()).fold(0.0, f32::max);
        let mut placed = Vec::new();
        let mut x = 0.0;
        for c in text.chars().map(|c| if c.is_control() { ' ' } else { c }) {
            let shape = self.shape(c);
            placed.push((x, shape));
            x += shape.advance_px(scale);
        }
        let mut mask = TextMask::empty(x.ceil() as usize, height_px);
        for (x, shape) in placed {
            shape.draw(x, baseline, scale, &mut mask);
        }
        mask
    }

    fn shape(&self, c: char) -> Shape<'_> {
        let in_faces = |c: char| self.faces.iter().find_map(|face| Some(Shape::Outline(face, glyph(face, c)?)));
        let drawn = |c: char| in_faces(c).or_else(|| bitmap(c).map(Shape::Bitmap));
        drawn(c).or_else(|| drawn(REPLACEMENT)).unwrap_or(Shape::Bitmap([0; BITMAP_SIDE]))
    }
}

/// One character, ready to be drawn.
#[derive(Clone, Copy)]
enum Shape<'a> {
    Outline(&'a FontVec, GlyphId),
    /// One byte a row, the lowest bit leftmost.
    Bitmap([u8; BITMAP_SIDE]),
}

impl Shape<'_> {
    fn advance_px(self, scale: PxScale) -> f32 {
        match self {
            Shape::Outline(face, id) => face.as_scaled(scale).h_advance(id),
            Shape::Bitmap(_) => scale.y,
        }
    }

    fn draw(self, x: f32, baseline: f32, scale: PxScale, mask: &mut TextMask) {
        match self {
            Shape::Outline(face, id) => {
                let placed = id.with_scale_and_position(scale, point(x, baseline));
                let Some(outline) = face.outline_glyph(placed) else { return };
                let corner = outline.px_bounds().min;
                outline.draw(|dx, dy, ink| mask.add(corner.x as i64 + dx as i64, corner.y as i64 + dy as i64, ink));
            }
            Shape::Bitmap(rows) => {
                let side = mask.height_px;
                for (dy, dx) in (0..side).flat_map(|dy| (0..side).map(move |dx| (dy, dx))) {
                    let (row, column) = (dy * BITMAP_SIDE / side, dx * BITMAP_SIDE / side);
                    if rows[row] >> column & 1 == 1 {
                        mask.add(x as i64 + dx as i64, dy as i64, 1.0);
                    }
                }
            }
        }
    }
}

impl TextMask {
    fn empty(width_px: usize, height_px: usize) -> Self {
        Self { width_px, height_px, coverage: vec![0.0; width_px * height_px] }
    }

    /// Glyphs may reach beyond their line; that part is cut off.
    fn add(&mut self, x: i64, y: i64, ink: f32) {
        if (0..self.width_px as i64).contains(&x) && (0..self.height_px as i64).contains(&y) {
            let cell = &mut self.coverage[y as usize * self.width_px + x as usize];
            *cell = (*cell + ink).min(1.0);
        }
    }
}

/// The plainest first: upright, of regular weight, sans-serif. The order does not depend on the file system.
fn faces_by_preference(database: &Database) -> Vec<ID> {
    let mut faces: Vec<&FaceInfo> = database.faces().collect();
    faces.sort_by_cached_key(|face| {
        let shape = (face.style != Style::Normal, face.stretch != Stretch::Normal, face.weight.0.abs_diff(400));
        (shape, face.monospaced, !is_sans_serif(face), face.post_script_name.clone())
    });
    faces.into_iter().map(|face| face.id).collect()
}

/// By name, since font files do not say it reliably.
fn is_sans_serif(face: &FaceInfo) -> bool {
    let is_plain = |name: &str| name.contains("Sans") || ["Arial", "Helvetica", "Segoe UI"].contains(&name);
    face.families.iter().any(|(name, _)| is_plain(name))
}

/// The face, if it `is_wanted` for the characters it has; its data is copied only then.
fn loaded(database: &Database, id: ID, is_wanted: impl Fn(&dyn Fn(&char) -> bool) -> bool) -> Option<FontVec> {
    database.with_face_data(id, |data, index| {
        let face = FontRef::try_from_slice_and_index(data, index).ok()?;
        is_wanted(&|&c| glyph(&face, c).is_some()).then_some(())?;
        FontVec::try_from_vec_and_index(data.to_vec(), index).ok()
    })?
}

/// The glyph of a character that leaves ink (or is a space); emoji faces may have pictures only, which we cannot draw.
fn glyph(face: &impl Font, c: char) -> Option<GlyphId> {
    let id = face.glyph_id(c);
    (id.0 != 0 && (c.is_whitespace() || face.outline(id).is_some())).then_some(id)
}

fn bitmap(c: char) -> Option<[u8; BITMAP_SIDE]> {
    font8x8::BASIC_FONTS.get(c).or_else(|| font8x8::LATIN_FONTS.get(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_font_draws_ascii() {
        let mask = LabelFont::built_in().mask("fish", 8);
        assert_eq!((mask.width_px, mask.height_px), (32, 8));
        for letter in 0..4 {
            let column = |x: usize| (0..8).any(|y| mask.coverage[y * 32 + x] > 0.0);
            assert!((letter * 8..letter * 8 + 8).any(column), "letter {letter} leaves ink");
        }
    }

    #[test]
    fn the_built_in_l_is_as_in_its_table() {
        let font = LabelFont::built_in();
        let (once, twice) = (font.mask("l", 8), font.mask("l", 16));
        let rows = bitmap('l').unwrap();
        let ink = |x: usize, y: usize| rows[y] >> x & 1 == 1;
        for (x, y) in (0..8).flat_map(|y| (0..8).map(move |x| (x, y))) {
            assert_eq!(once.coverage[y * 8 + x] > 0.0, ink(x, y));
            assert_eq!(twice.coverage[2 * y * 16 + 2 * x] > 0.0, ink(x, y), "twice as large, each dot four pixels");
        }
    }

    #[test]
    fn characters_without_a_glyph_become_question_marks() {
        let font = LabelFont::built_in();
        assert!(!font.has('鱼') && font.has('?'));
        assert_eq!(font.mask("鱼", 8), font.mask("?", 8));
    }

    #[test]
    fn control_characters_leave_no_ink() {
        assert!(LabelFont::built_in().mask("\n", 8).coverage.iter().all(|&ink| ink == 0.0));
    }

    #[test]
    fn with_or_without_system_fonts_ascii_leaves_ink() {
        let mask = LabelFont::for_texts(["fish"]).mask("fish", 16);
        assert!(mask.coverage.iter().any(|&ink| ink > 0.5), "a label is never silently empty");
    }
}
