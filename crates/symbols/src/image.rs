//! The bytes of an image: in memory as a whole, or of a file, part by part.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;

use crate::parts::Parts;

/// The bytes of a file or of a memory image. Any owner will do that keeps them alive and unchanged, for example a
/// `Vec<u8>`.
pub type ImageBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// The source of an ELF image's bytes. Copies share it.
#[derive(Clone)]
pub struct Image(Contents);

#[derive(Clone)]
enum Contents {
    Whole(ImageBytes),
    Parts(Arc<Parts>),
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image").field("bytes", &self.bytes()).finish()
    }
}

impl From<ImageBytes> for Image {
    fn from(bytes: ImageBytes) -> Self {
        Image(Contents::Whole(bytes))
    }
}

impl From<Parts> for Image {
    fn from(parts: Parts) -> Self {
        Image(Contents::Parts(Arc::new(parts)))
    }
}

impl Image {
    /// The length of the file, or of the image in memory.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Contents::Whole(bytes) => (**bytes).as_ref().len() as u64,
            Contents::Parts(parts) => parts.file_bytes(),
        }
    }

    /// The number of bytes of memory that the image takes now.
    pub fn held_bytes(&self) -> u64 {
        match &self.0 {
            Contents::Whole(_) => self.bytes(),
            Contents::Parts(parts) => parts.held_bytes(),
        }
    }

    /// This image without the bytes that it holds: they are read again on demand, as long as the file does not change.
    /// `None` if that is impossible, or would save little.
    pub fn unread(&self) -> Option<Image> {
        match &self.0 {
            Contents::Whole(_) => None,
            Contents::Parts(parts) => parts.unread().map(Image::from),
        }
    }

    /// Whether parts of the file are read on demand.
    pub(crate) fn can_be_read_again(&self) -> bool {
        matches!(&self.0, Contents::Parts(parts) if parts.is_open())
    }

    /// Whether two images hold the same bytes in the same memory.
    pub fn is_shared_with(&self, other: &Image) -> bool {
        match (&self.0, &other.0) {
            (Contents::Whole(one), Contents::Whole(other)) => Arc::ptr_eq(one, other),
            (Contents::Parts(one), Contents::Parts(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether the file really contains most of the image: files that linkers or compilers make have no long holes.
    pub fn is_dense(&self) -> bool {
        match &self.0 {
            Contents::Whole(_) => true,
            Contents::Parts(parts) => parts.is_dense(),
        }
    }

    /// `bytes` bytes from `offset` on; `None` if the file has no such bytes.
    pub fn at(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        self.rest(offset, bytes).filter(|found| found.len() as u64 == bytes)
    }

    /// The existing bytes from `offset` on, at most `bytes` of them.
    pub fn rest(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        if bytes == 0 {
            return (offset <= self.bytes()).then_some(&[]);
        }
        let of = |part: &'_ [u8], offset: u64| -> Option<Range<usize>> {
            let start = usize::try_from(offset).ok()?;
            let length = part.len().checked_sub(start)?;
            Some(start..start + length.min(usize::try_from(bytes).unwrap_or(usize::MAX)))
        };
        let (part, offset) = match &self.0 {
            Contents::Whole(bytes) => ((**bytes).as_ref(), offset),
            Contents::Parts(parts) => parts.part_at(offset, bytes)?,
        };
        part.get(of(part, offset)?).filter(|found| !found.is_empty())
    }

    /// Passes on `bytes` bytes from `offset` on in pieces of whole words, ascending, with their offsets. Passes on
    /// nothing if the file lacks some of them. Used for bytes that are searched once and need not be kept.
    pub fn scan(&self, offset: u64, bytes: u64, take: &mut dyn FnMut(u64, &[u8])) {
        match &self.0 {
            Contents::Whole(_) => take(offset, self.at(offset, bytes).unwrap_or_default()),
            Contents::Parts(parts) => parts.scan(offset, bytes, take),
        }
    }

    /// Whether [`Image::at`] would find the bytes. This reads nothing.
    pub fn is_there(&self, offset: u64, bytes: u64) -> bool {
        match &self.0 {
            Contents::Whole(_) => offset.checked_add(bytes).is_some_and(|end| end <= self.bytes()),
            Contents::Parts(_) if bytes == 0 => offset <= self.bytes(),
            Contents::Parts(parts) => parts.has(offset, bytes),
        }
    }
}

/// Lets the crate `object` read its structures and tables from an image.
impl<'a> ReadRef<'a> for &'a Image {
    fn len(self) -> Result<u64, ()> {
        Ok(self.bytes())
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        self.at(offset, size).ok_or(())
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let bytes = range.end.checked_sub(range.start).ok_or(())?;
        let rest = self.rest(range.start, bytes).ok_or(())?;
        let end = rest.iter().position(|byte| *byte == delimiter).ok_or(())?;
        rest.get(..end).ok_or(())
    }
}
