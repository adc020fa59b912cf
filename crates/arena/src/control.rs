//! The arena's head, for the tracer that owns it, and for a later one that finds it (`restore`).

use core::mem::offset_of;

use crate::error::Corrupt;
use crate::layout::{Control, FROZEN_BYTES, MAGIC, Region, Semaphore, Site, VERSION};
use crate::memory::{Memory, OutOfBounds};
use crate::structure::Structure;

/// A table with more entries is damaged: no session has so many sites.
const COUNT_MAX: u32 = 1 << 24;

/// Access to the control block of an arena, at offset 0.
#[derive(Debug)]
pub struct ControlBlock<'a, M> {
    memory: &'a M,
}

impl<M> Clone for ControlBlock<'_, M> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<M> Copy for ControlBlock<'_, M> {}

impl<'a, M: Memory> ControlBlock<'a, M> {
    /// Checks that the memory begins with an arena's control block, of any version.
    pub fn open(memory: &'a M) -> Result<Self, Corrupt> {
        crate::memory::check(memory.bytes(), 0, FROZEN_BYTES as u64)?;
        let magic = memory.load_u64(0)?;
        if magic == MAGIC {
            Ok(Self { memory })
        } else {
            Err(Corrupt::Magic(magic))
        }
    }

    /// Whether the arena has this program's version. If not, only the layout of the frozen part is known.
    pub fn is_current(&self) -> Result<bool, Corrupt> {
        Ok(self.memory.load_u32(offset_of!(Control, version) as u64)? == VERSION)
    }

    /// The whole control block. In an arena of another version only the frozen part has a meaning;
    /// bytes beyond its end read as zero.
    pub fn read(&self) -> Result<Control, Corrupt> {
        let available = self.memory.bytes().min(Control::BYTES as u64);
        let mut bytes = self.memory.copy(0, available)?;
        bytes.resize(Control::BYTES, 0);
        Control::from_bytes(&bytes).ok_or(Corrupt::Bounds(OutOfBounds {
            offset: 0,
            bytes: Control::BYTES as u64,
        }))
    }

    /// The published sites, every one with a length from 1 to 16.
    pub fn sites(&self) -> Result<Vec<Site>, Corrupt> {
        let control = self.read()?;
        let sites: Vec<Site> = self.table(
            "the site table",
            control.sites_offset,
            control.site_count,
            control.site_capacity,
        )?;
        match sites.iter().find(|site| !(1..=16).contains(&site.length)) {
            Some(site) => Err(Corrupt::SiteLength {
                address: site.address,
                length: site.length,
            }),
            None => Ok(sites),
        }
    }

    /// The mappings that were made in the target.
    pub fn regions(&self) -> Result<Vec<Region>, Corrupt> {
        let control = self.read()?;
        self.table(
            "the region table",
            control.regions_offset,
            control.region_count,
            control.region_capacity,
        )
    }

    /// The mappings that were ever made in the target. A child that was forked earlier may still have mappings that
    /// the target has unmapped.
    pub fn regions_ever(&self) -> Result<Vec<Region>, Corrupt> {
        let control = self.read()?;
        let mut all: Vec<Region> = self.table(
            "the region table",
            control.regions_offset,
            control.region_capacity,
            control.region_capacity,
        )?;
        let used = all.iter().take_while(|region| region.address != 0).count();
        all.truncate(used);
        Ok(all)
    }

    /// The semaphores that were ever raised, even if they have been lowered since.
    pub fn semaphores(&self) -> Result<Vec<Semaphore>, Corrupt> {
        let control = self.read()?;
        self.table(
            "the table of semaphores",
            control.semaphores_offset,
            control.semaphore_count,
            control.semaphore_capacity,
        )
    }

    /// Appends a semaphore: its entry first, then the count. `false` when the table is full.
    pub fn publish_semaphore(&self, semaphore: &Semaphore) -> Result<bool, Corrupt> {
        let control = self.read()?;
        if control.semaphore_count >= control.semaphore_capacity {
            return Ok(false);
        }
        let at = semaphore_offset(&control, control.semaphore_count);
        self.memory.write_structure(at, semaphore)?;
        self.store_u32(offset_of!(Control, semaphore_count), control.semaphore_count + 1)?;
        Ok(true)
    }

    /// The offset of a semaphore's entry, for a change.
    pub fn semaphore_at(&self, index: u32) -> Result<u64, Corrupt> {
        Ok(semaphore_offset(&self.read()?, index))
    }

    fn table<S: Structure>(
        &self,
        what: &'static str,
        offset: u64,
        count: u32,
        capacity: u32,
    ) -> Result<Vec<S>, Corrupt> {
        if count > capacity || count > COUNT_MAX {
            return Err(Corrupt::Count {
                what,
                count: u64::from(count),
            });
        }
        let bytes = self.memory.copy(offset, u64::from(count) * S::BYTES as u64)?;
        Ok(bytes.chunks_exact(S::BYTES).filter_map(S::from_bytes).collect())
    }

    /// Appends a site: its entry first, then the count. `false` when the table is full.
    pub fn publish_site(&self, site: &Site) -> Result<bool, Corrupt> {
        let control = self.read()?;
        if control.site_count >= control.site_capacity {
            return Ok(false);
        }
        let at = control
            .sites_offset
            .saturating_add(u64::from(control.site_count) * Site::BYTES as u64);
        self.memory.write_structure(at, site)?;
        self.store_u32(offset_of!(Control, site_count), control.site_count + 1)?;
        Ok(true)
    }

    /// Appends a region: its entry first, then the count. `false` when the table is full.
    pub fn publish_region(&self, region: &Region) -> Result<bool, Corrupt> {
        let control = self.read()?;
        if control.region_count >= control.region_capacity {
            return Ok(false);
        }
        let at = control
            .regions_offset
            .saturating_add(u64::from(control.region_count) * Region::BYTES as u64);
        self.memory.write_structure(at, region)?;
        self.store_u32(offset_of!(Control, region_count), control.region_count + 1)?;
        Ok(true)
    }

    /// Takes the last region off the table, because its mapping failed.
    ///
    /// # Errors
    /// The control block is damaged.
    pub fn withdraw_region(&self) -> Result<(), Corrupt> {
        let count = self.read()?.region_count;
        self.store_u32(offset_of!(Control, region_count), count.saturating_sub(1))
    }

    /// Stores the state, one of `STATE_*`.
    pub fn set_state(&self, state: u32) -> Result<(), Corrupt> {
        self.store_u32(offset_of!(Control, state), state)
    }

    /// Publishes a snapshot of readable ranges, which lie sorted and disjoint at `offset`.
    pub fn publish_ranges(&self, offset: u64, count: u32) -> Result<(), Corrupt> {
        if offset >= 1 << 40 || count >= 1 << 24 {
            return Err(Corrupt::Count {
                what: "the snapshot of readable memory",
                count: u64::from(count),
            });
        }
        self.memory
            .store_u64(offset_of!(Control, ranges) as u64, (offset << 24) | u64::from(count))?;
        Ok(())
    }

    /// Publishes a new unwind table at `offset`.
    pub fn publish_unwind(&self, offset: u64) -> Result<(), Corrupt> {
        Ok(self
            .memory
            .store_u64(offset_of!(Control, unwind_offset) as u64, offset)?)
    }

    /// The status that a clause passed to `exit()`; `None`: no clause has called `exit()`.
    pub fn exit_status(&self) -> Result<Option<i32>, Corrupt> {
        if self.memory.load_u32(offset_of!(Control, exit_requested) as u64)? == 0 {
            return Ok(None);
        }
        Ok(Some(
            self.memory.load_u32(offset_of!(Control, exit_status) as u64)? as i32
        ))
    }

    /// The number of claimed contexts, limited to the number of existing contexts.
    pub fn contexts_in_use(&self) -> Result<u32, Corrupt> {
        let capacity = self.memory.load_u32(offset_of!(Control, context_capacity) as u64)?;
        Ok(self
            .memory
            .load_u32(offset_of!(Control, context_count) as u64)?
            .min(capacity))
    }

    /// The number of the dynamic linker's last event, and of the last event that was answered.
    pub fn library_events(&self) -> Result<(u32, u32), Corrupt> {
        let event = self.memory.load_u32(offset_of!(Control, library_event) as u64)?;
        Ok((event, self.memory.load_u32(offset_of!(Control, library_ack) as u64)?))
    }

    /// Answers events of the dynamic linker up to `event`. A waiting thread looks again within a millisecond.
    pub fn acknowledge_library(&self, event: u32) -> Result<(), Corrupt> {
        self.store_u32(offset_of!(Control, library_ack), event)
    }

    /// The tracer's heartbeat: the current time stamp counter. 0 tells the target not to wait for the tracer.
    pub fn beat(&self, tsc: u64) -> Result<(), Corrupt> {
        Ok(self
            .memory
            .store_u64(offset_of!(Control, tracer_heartbeat) as u64, tsc)?)
    }

    fn store_u32(&self, field: usize, value: u32) -> Result<(), Corrupt> {
        Ok(self.memory.store_u32(field as u64, value)?)
    }
}

fn semaphore_offset(control: &Control, index: u32) -> u64 {
    let inside = u64::from(index) * Semaphore::BYTES as u64;
    control.semaphores_offset.saturating_add(inside)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bytes;

    fn arena(control: Control) -> Bytes {
        let memory = Bytes::zeroed(8192);
        memory.write_structure(0, &control).unwrap();
        memory
    }

    fn control() -> Control {
        Control {
            magic: MAGIC,
            version: VERSION,
            sites_offset: 4096,
            site_capacity: 2,
            regions_offset: 5000 & !7,
            region_capacity: 1,
            ..Control::default()
        }
    }

    #[test]
    fn published_entries_are_read_back() {
        let memory = arena(control());
        let block = ControlBlock::open(&memory).unwrap();
        let site = Site {
            address: 0x401000,
            length: 5,
            tactic: 1,
            original: [1; 16],
            patched: [2; 16],
        };
        assert!(block.publish_site(&site).unwrap());
        assert!(block.publish_site(&Site { address: 9, ..site }).unwrap());
        assert!(!block.publish_site(&site).unwrap());
        let region = Region {
            address: 0x7000,
            bytes: 4096,
            kind: 2,
            reserved: 0,
        };
        assert!(block.publish_region(&region).unwrap());
        assert!(!block.publish_region(&region).unwrap());
        assert_eq!(block.sites().unwrap(), [site, Site { address: 9, ..site }]);
        assert_eq!(block.regions().unwrap(), [region]);
    }

    #[test]
    fn semaphores_are_published_and_changed() {
        let memory = arena(Control {
            semaphores_offset: 6000,
            semaphore_capacity: 1,
            ..control()
        });
        let block = ControlBlock::open(&memory).unwrap();
        let mut semaphore = Semaphore {
            address: 0x7000,
            site: 0x5000,
            resting: 3,
            seen: 3,
            state: crate::layout::SEMAPHORE_RAISING,
        };
        assert!(block.publish_semaphore(&semaphore).unwrap());
        assert!(!block.publish_semaphore(&semaphore).unwrap());
        semaphore.state = crate::layout::SEMAPHORE_RAISED;
        let at = block.semaphore_at(0).unwrap();
        memory.write_structure(at, &semaphore).unwrap();
        assert_eq!(block.semaphores().unwrap(), [semaphore]);
    }

    #[test]
    fn damage_is_reported() {
        assert_eq!(ControlBlock::open(&Bytes::zeroed(8192)).unwrap_err(), Corrupt::Magic(0));
        assert!(matches!(
            ControlBlock::open(&Bytes::zeroed(8)).unwrap_err(),
            Corrupt::Bounds(_)
        ));
        let memory = arena(Control {
            site_count: 3,
            ..control()
        });
        let sites = ControlBlock::open(&memory).unwrap().sites();
        assert_eq!(
            sites,
            Err(Corrupt::Count {
                what: "the site table",
                count: 3
            })
        );
        let memory = arena(Control {
            site_count: 1,
            ..control()
        });
        let sites = ControlBlock::open(&memory).unwrap().sites();
        assert_eq!(sites, Err(Corrupt::SiteLength { address: 0, length: 0 }));
        let memory = arena(Control {
            site_count: 2,
            sites_offset: u64::MAX - 3,
            ..control()
        });
        assert!(matches!(
            ControlBlock::open(&memory).unwrap().sites(),
            Err(Corrupt::Bounds(_))
        ));
    }

    #[test]
    fn exit_and_counts() {
        let memory = arena(Control {
            exit_status: -3,
            context_capacity: 4,
            context_count: 9,
            ..control()
        });
        let block = ControlBlock::open(&memory).unwrap();
        assert_eq!(block.exit_status(), Ok(None));
        assert_eq!(block.contexts_in_use(), Ok(4));
        memory.store_u32(offset_of!(Control, exit_requested) as u64, 1).unwrap();
        assert_eq!(block.exit_status(), Ok(Some(-3)));
    }
}
