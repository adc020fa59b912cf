//! The bytes of an image: in memory as a whole, or of a file, part by part.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use object::read::ReadRef;

use crate::parts::Parts;

/// The bytes of a file or of a memory image: anything that keeps them alive and unchanging, a `Vec<u8>` for example.
pub type ImageBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// What an ELF image's bytes are asked of. Copies share them.
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
    /// How long the file is, or the image in memory.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Contents::Whole(bytes) => (**bytes).as_ref().len() as u64,
            Contents::Parts(parts) => parts.file_bytes(),
        }
    }

    /// Bytes of memory that it takes now.
    pub fn held_bytes(&self) -> u64 {
        match &self.0 {
            Contents::Whole(_) => self.bytes(),
            Contents::Parts(parts) => parts.held_bytes(),
        }
    }

    /// The same image, of which nothing is held: what is asked for is read again, as long as the file stays as it is.
    /// `None` where that cannot be, or would save little.
    pub fn unread(&self) -> Option<Image> {
        match &self.0 {
            Contents::Whole(_) => None,
            Contents::Parts(parts) => parts.unread().map(Image::from),
        }
    }

    /// Whether two hold the same bytes in the same memory.
    pub fn is_shared_with(&self, other: &Image) -> bool {
        match (&self.0, &other.0) {
            (Contents::Whole(one), Contents::Whole(other)) => Arc::ptr_eq(one, other),
            (Contents::Parts(one), Contents::Parts(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// Whether most of it is really there: a linker's or compiler's file has no long holes.
    pub fn is_dense(&self) -> bool {
        match &self.0 {
            Contents::Whole(_) => true,
            Contents::Parts(parts) => parts.is_dense(),
        }
    }

    /// `bytes` bytes from `offset` on; `None` where the file has no such bytes.
    pub fn at(&self, offset: u64, bytes: u64) -> Option<&[u8]> {
        self.rest(offset, bytes).filter(|found| found.len() as u64 == bytes)
    }

    /// What there is from `offset` on, at most `bytes` bytes.
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

    /// Hands on `bytes` bytes from `offset` on in pieces of whole words, ascending, with their offsets. Nothing where
    /// the file does not have all of them. It is for what is looked through once, and need not be held.
    pub fn scan(&self, offset: u64, bytes: u64, take: &mut dyn FnMut(u64, &[u8])) {
        match &self.0 {
            Contents::Whole(_) => take(offset, self.at(offset, bytes).unwrap_or_default()),
            Contents::Parts(parts) => parts.scan(offset, bytes, take),
        }
    }

    /// Whether [`Image::at`] would find the bytes. Reads nothing.
    pub fn is_there(&self, offset: u64, bytes: u64) -> bool {
        match &self.0 {
            Contents::Whole(_) => offset.checked_add(bytes).is_some_and(|end| end <= self.bytes()),
            Contents::Parts(_) if bytes == 0 => offset <= self.bytes(),
            Contents::Parts(parts) => parts.has(offset, bytes),
        }
    }
}

/// So that `object` and its tables can be read from it.
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
