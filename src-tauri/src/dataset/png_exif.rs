//! The EXIF orientation of a PNG, wherever writers put it: the `image` crate sees only an `eXIf` chunk before the pixels.
//!
//! Chunks: W3C "Portable Network Graphics (PNG) Specification (Third Edition)", section 5.3. The text key
//! `Raw profile type exif`, hexadecimal after three header lines, is ImageMagick's convention from before `eXIf`.

use std::io::{Read, Seek, SeekFrom};

use flate2::read::ZlibDecoder;
use image::metadata::Orientation;

pub(super) const PNG_SIGNATURE: [u8; 8] = *b"\x89PNG\r\n\x1a\n";

/// EXIF of a photograph is some kilobytes; longer chunks are not read.
const MAX_EXIF_BYTES: u64 = 1 << 20;

/// The orientation a PNG asks for, from its beginning to its end; `None` where it says nothing that can be read.
pub(super) fn png_orientation(mut png: impl Read + Seek) -> Option<Orientation> {
    png.seek(SeekFrom::Start(PNG_SIGNATURE.len() as u64)).ok()?;
    let mut from_text = None;
    loop {
        let mut head = [0; 8];
        if png.read_exact(&mut head).is_err() {
            return from_text;
        }
        let length = u64::from(u32::from_be_bytes([head[0], head[1], head[2], head[3]]));
        let kind = [head[4], head[5], head[6], head[7]];
        let is_wanted = matches!(&kind, b"eXIf" | b"tEXt" | b"zTXt") && length <= MAX_EXIF_BYTES;
        let mut data = Vec::new();
        if is_wanted {
            png.by_ref().take(length).read_to_end(&mut data).ok()?;
        }
        match &kind {
            b"eXIf" => return Orientation::from_exif_chunk(&data),
            b"tEXt" | b"zTXt" => from_text = from_text.or_else(|| raw_profile_orientation(&data, kind)),
            b"IEND" => return from_text,
            _ => {}
        }
        let n_left = length - data.len() as u64 + 4;
        png.seek_relative(i64::try_from(n_left).ok()?).ok()?;
    }
}

fn raw_profile_orientation(chunk: &[u8], kind: [u8; 4]) -> Option<Orientation> {
    let profile = chunk.strip_prefix(b"Raw profile type exif\0".as_slice())?;
    let text = match &kind {
        b"zTXt" => {
            let deflated = profile.strip_prefix(&[0])?;
            let mut text = Vec::new();
            ZlibDecoder::new(deflated).take(MAX_EXIF_BYTES).read_to_end(&mut text).ok()?;
            text
        }
        _ => profile.to_vec(),
    };
    let text = std::str::from_utf8(&text).ok()?;
    // "\nexif\n    LENGTH\nHEX..", the hexadecimal broken into lines.
    let hex: String = text.trim_start().lines().skip(2).flat_map(str::chars).filter(|c| !c.is_whitespace()).collect();
    let exif = bytes_from_hex(&hex)?;
    let tiff = exif.strip_prefix(b"Exif\0\0".as_slice()).unwrap_or(&exif);
    Orientation::from_exif_chunk(tiff)
}

fn bytes_from_hex(hex: &str) -> Option<Vec<u8>> {
    let digits = hex.chars().map(|c| c.to_digit(16)).collect::<Option<Vec<u32>>>()?;
    // Two digits below 16 make a number below 256.
    Some(digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Little-endian TIFF with one entry: orientation 6.
    const EXIF_6: &[u8] = b"II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0";

    fn png_with(kind: &[u8; 4], data: &[u8]) -> Cursor<Vec<u8>> {
        let mut png = PNG_SIGNATURE.to_vec();
        for (kind, data) in [(b"IDAT", &b"pixels"[..]), (kind, data), (b"IEND", b"")] {
            png.extend((data.len() as u32).to_be_bytes());
            png.extend(kind);
            png.extend(data);
            png.extend([0; 4]);
        }
        Cursor::new(png)
    }

    #[test]
    fn an_exif_chunk_after_the_pixels_counts() {
        assert_eq!(png_orientation(png_with(b"eXIf", EXIF_6)), Some(Orientation::Rotate90), "orientation 6");
    }

    #[test]
    fn a_raw_profile_counts() {
        let hex: String = EXIF_6.iter().map(|byte| format!("{byte:02x}")).collect();
        let text = format!("Raw profile type exif\0\nexif\n      26\n457869660000{hex}\n");
        assert_eq!(png_orientation(png_with(b"tEXt", text.as_bytes())), Some(Orientation::Rotate90), "plain text");
    }

    #[test]
    fn a_png_cut_short_says_nothing() {
        let png = png_with(b"eXIf", EXIF_6).into_inner();
        assert_eq!(png_orientation(Cursor::new(&png[..20])), None, "no chunk to read");
        assert_eq!(png_orientation(png_with(b"eXIf", b"nonsense")), None, "not EXIF");
    }
}
