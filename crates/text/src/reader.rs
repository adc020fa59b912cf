//! Reads a text page by page: each comparison needs only a few bytes, and most comparisons need the same page as the
//! previous one.

use nanoprobe_patch::TargetAddress;

use crate::live::LiveText;

const PAGE_BYTES: u64 = 4096;

/// Reads text. The result may be slightly outdated, so code that writes must compare again.
pub struct Reader<'a, T> {
    text: &'a T,
    /// The last page that was read: its address, and its bytes; `None` if it cannot be read.
    page: Option<(u64, Option<Vec<u8>>)>,
}

impl<'a, T: LiveText> Reader<'a, T> {
    /// A reader that has not read anything yet.
    pub fn new(text: &'a T) -> Reader<'a, T> {
        Reader { text, page: None }
    }

    /// Whether the text holds these bytes at an address.
    pub fn holds(&mut self, address: TargetAddress, wanted: &[u8]) -> bool {
        let start = address.0 & !(PAGE_BYTES - 1);
        let offset = (address.0 - start) as usize;
        if offset + wanted.len() <= PAGE_BYTES as usize
            && let Some(page) = self.page_at(start)
        {
            return page.get(offset..offset + wanted.len()) == Some(wanted);
        }
        let mut bytes = vec![0; wanted.len()];
        self.text.read(address, &mut bytes) && bytes == wanted
    }

    fn page_at(&mut self, start: u64) -> Option<&[u8]> {
        if self.page.as_ref().is_none_or(|(known, _)| *known != start) {
            let mut bytes = vec![0; PAGE_BYTES as usize];
            let is_read = self.text.read(TargetAddress(start), &mut bytes);
            self.page = Some((start, is_read.then_some(bytes)));
        }
        self.page.as_ref().and_then(|(_, bytes)| bytes.as_deref())
    }
}
