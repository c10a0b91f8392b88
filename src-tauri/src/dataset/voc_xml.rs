//! One Pascal VOC annotation file: the objects, the stated image size and the image's file name. `path` is ignored: it
//! is where the image lay on the machine of the person who labelled it.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::{BytesRef, Event};

/// What an annotation file says, not yet checked.
#[derive(Debug, Default, PartialEq)]
pub(super) struct VocAnnotation {
    pub filename: Option<String>,
    pub width: Option<f64>,
    pub height: Option<f64>,
    pub objects: Vec<VocObject>,
}

/// One `<object>`; coordinates in pixels.
#[derive(Debug, Default, PartialEq)]
pub(super) struct VocObject {
    /// 1-based line of its `<object>` tag.
    pub line: usize,
    pub name: String,
    pub xmin: Option<f64>,
    pub ymin: Option<f64>,
    pub xmax: Option<f64>,
    pub ymax: Option<f64>,
}

/// What broke an annotation file.
#[derive(Debug, PartialEq)]
pub(super) struct BadXml {
    pub line: usize,
    pub reason: String,
}

/// Reads the text of an annotation file. Parts nested in an object (`<part>` of the VOC person layout) are no objects.
///
/// # Errors
/// Text that is not XML, or has no `<annotation>`.
pub(super) fn parse_annotation(text: &str) -> Result<VocAnnotation, BadXml> {
    let mut reader = Reader::from_str(text);
    let mut annotation = VocAnnotation::default();
    let mut path: Vec<String> = Vec::new();
    let mut value = String::new();
    let mut has_root = false;
    let mut lines = LineCounter::new(text);
    loop {
        let start = reader.buffer_position();
        let event = reader
            .read_event()
            .map_err(|error| BadXml { line: lines.line_at(reader.error_position()), reason: error.to_string() })?;
        match event {
            Event::Start(tag) => {
                path.push(tag.local_name().into_inner().to_owned());
                value.clear();
                has_root |= path == ["annotation"];
                if path == ["annotation", "object"] {
                    annotation.objects.push(VocObject { line: lines.line_at(start), ..VocObject::default() });
                }
            }
            Event::End(_) => {
                annotation.take_value(&path, value.trim());
                path.pop();
                value.clear();
            }
            Event::Text(part) => value.push_str(&part.xml10_content()),
            Event::CData(part) => value.push_str(&part),
            Event::GeneralRef(reference) => value.push_str(&resolved(&reference)),
            Event::Eof => break,
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
    let line = lines.line_at(text.len() as u64);
    if let Some(open) = path.last() {
        return Err(BadXml { line, reason: format!("the file ends inside <{open}>") });
    }
    if !has_root {
        return Err(BadXml { line, reason: "no <annotation> in it".to_owned() });
    }
    Ok(annotation)
}

impl VocAnnotation {
    fn take_value(&mut self, path: &[String], value: &str) {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        match path[..] {
            ["annotation", "filename"] => self.filename = Some(value.to_owned()),
            ["annotation", "size", "width"] => self.width = value.parse().ok(),
            ["annotation", "size", "height"] => self.height = value.parse().ok(),
            ["annotation", "object", ref rest @ ..] => {
                let Some(object) = self.objects.last_mut() else { return };
                match rest {
                    ["name"] => object.name = value.to_owned(),
                    ["bndbox", "xmin"] => object.xmin = value.parse().ok(),
                    ["bndbox", "ymin"] => object.ymin = value.parse().ok(),
                    ["bndbox", "xmax"] => object.xmax = value.parse().ok(),
                    ["bndbox", "ymax"] => object.ymax = value.parse().ok(),
                    _ => {}
                }
            }
            _ => {}
        }
    }
}

/// The character that `&amp;` or `&#40060;` stands for; entities of the file's own are never expanded.
fn resolved(reference: &BytesRef) -> String {
    match reference.resolve_char_ref() {
        Ok(Some(character)) => character.to_string(),
        _ => resolve_predefined_entity(reference).unwrap_or_default().to_owned(),
    }
}

/// Line numbers of positions that come in rising order.
struct LineCounter<'a> {
    text: &'a [u8],
    position: usize,
    line: usize,
}

impl<'a> LineCounter<'a> {
    fn new(text: &'a str) -> Self {
        Self { text: text.as_bytes(), position: 0, line: 1 }
    }

    fn line_at(&mut self, position: u64) -> usize {
        let position = usize::try_from(position).map_or(self.text.len(), |position| position.min(self.text.len()));
        if position > self.position {
            self.line += self.text[self.position..position].iter().filter(|byte| **byte == b'\n').count();
            self.position = position;
        }
        self.line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "<annotation>\n<filename>a &amp; &#40060;.jpg</filename>\n<path>D:\\x\\a.jpg</path>\n\
        <size><width>64</width><height>48</height></size>\n\
        <object><name> cat </name><bndbox><xmin>1.5</xmin><ymin>2</ymin><xmax>30</xmax><ymax>40</ymax></bndbox>\n\
        <part><name>head</name><bndbox><xmin>9</xmin><ymin>9</ymin><xmax>9</xmax><ymax>9</ymax></bndbox></part>\n\
        </object>\n</annotation>\n";

    #[test]
    fn objects_have_their_line_and_not_their_parts_boxes() {
        let annotation = parse_annotation(TEXT).unwrap();
        assert_eq!(annotation.filename.as_deref(), Some("a & 鱼.jpg"), "references are resolved");
        assert_eq!((annotation.width, annotation.height), (Some(64.0), Some(48.0)), "the stated size");
        let [cat] = &annotation.objects[..] else { panic!("one object") };
        assert_eq!(
            (cat.line, cat.name.as_str(), cat.xmin, cat.ymax),
            (5, "cat", Some(1.5), Some(40.0)),
            "not the head"
        );
    }

    #[test]
    fn text_cut_short_or_without_annotation_is_refused_with_its_line() {
        assert_eq!(parse_annotation(&TEXT[..TEXT.len() / 2]).unwrap_err().line, 5, "inside the object");
        assert!(parse_annotation("<html></html>").unwrap_err().reason.contains("annotation"), "another kind of XML");
        assert!(parse_annotation("<annotation><a></b></annotation>").is_err(), "tags that do not match");
    }
}
