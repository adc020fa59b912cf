//! Reading a target's memory.

use std::cell::RefCell;
use std::collections::HashMap;

/// The memory of a process.
pub trait Memory {
    /// Fills `into` from an address on; yields whether all of it could be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// `N` bytes.
pub(crate) fn array<const N: usize>(memory: &dyn Memory, address: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    memory.read(address, &mut bytes).then_some(bytes)
}

pub(crate) fn word(memory: &dyn Memory, address: u64) -> Option<u64> {
    array(memory, address).map(u64::from_le_bytes)
}

pub(crate) fn half(memory: &dyn Memory, address: u64) -> Option<u32> {
    array(memory, address).map(u32::from_le_bytes)
}

/// Reads `count` bytes; the caller has bounded the number.
pub(crate) fn bytes(memory: &dyn Memory, address: u64, count: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; count];
    memory.read(address, &mut bytes).then_some(bytes)
}

const PAGE: u64 = 4096;
/// At most this many pages are remembered.
const PAGES_MAX: usize = 512;

/// A page, unless it cannot be read.
type Page = Option<Box<[u8; PAGE as usize]>>;

/// Memory of which each page is read once: one system call for all structures in it.
pub struct CachedMemory<'a> {
    memory: &'a dyn Memory,
    pages: RefCell<HashMap<u64, Page>>,
}

impl<'a> CachedMemory<'a> {
    /// A cache of which no page is read yet.
    pub fn new(memory: &'a dyn Memory) -> CachedMemory<'a> {
        CachedMemory {
            memory,
            pages: RefCell::default(),
        }
    }
}

impl Memory for CachedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let within = (address % PAGE) as usize;
        // Whatever is longer than a structure is read as it is.
        if within + into.len() > PAGE as usize {
            return self.memory.read(address, into);
        }
        let mut pages = self.pages.borrow_mut();
        let page = address - within as u64;
        if pages.len() >= PAGES_MAX && !pages.contains_key(&page) {
            return self.memory.read(address, into);
        }
        let page = pages.entry(page).or_insert_with(|| {
            let mut bytes = Box::new([0; PAGE as usize]);
            self.memory.read(page, bytes.as_mut_slice()).then_some(bytes)
        });
        let Some(bytes) = page.as_ref().and_then(|page| page.get(within..within + into.len())) else {
            return false;
        };
        into.copy_from_slice(bytes);
        true
    }
}
