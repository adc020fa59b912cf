//! The mapped programs and libraries. Each image is a group of mappings of one file that were made together.

use std::collections::HashMap;

use nanoprobe_patch::TargetAddress;

use crate::map::{Map, Mapping, MappingKind};

/// A further mapping of a file may belong to one of the file's latest images, at most this many of them.
const NEAREST: usize = 64;

/// One ELF file (or the vDSO) as it lies in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The address that corresponds to the file's offset 0. To get the load bias, subtract from a mapping's start the
    /// virtual address that its segment has in the file.
    pub base: TargetAddress,
    pub mappings: Vec<Mapping>,
}

impl Image {
    pub fn kind(&self) -> Option<&MappingKind> {
        self.mappings.first().map(|mapping| &mapping.kind)
    }

    pub fn end(&self) -> TargetAddress {
        self.mappings.last().map_or(self.base, |mapping| mapping.end)
    }

    /// The image's mappings that contain code.
    pub fn executable(&self) -> impl Iterator<Item = &Mapping> {
        self.mappings.iter().filter(|mapping| mapping.permissions.execute)
    }
}

impl Map {
    /// The files with code, and the vDSO, in ascending order. A file that is mapped twice (dlmopen) gives two
    /// images: a mapping begins a new image if its file offset is not higher than that of the mapping before it.
    pub fn images(&self) -> Vec<Image> {
        let mut images: Vec<Image> = Vec::new();
        let mut of_file: HashMap<((u32, u32), u64), Vec<usize>> = HashMap::new();
        for mapping in self.mappings() {
            if !matches!(mapping.kind, MappingKind::File { .. } | MappingKind::Vdso) {
                continue;
            }
            let before = of_file.entry((mapping.device, mapping.inode)).or_default();
            let mut nearest = before.iter().rev().take(NEAREST);
            let continued = nearest.find(|index| images.get(**index).is_some_and(|image| continues(image, mapping)));
            if let Some(image) = continued.and_then(|index| images.get_mut(*index)) {
                image.mappings.push(mapping.clone());
            } else {
                before.push(images.len());
                let base = TargetAddress(mapping.start.0.saturating_sub(mapping.offset));
                images.push(Image {
                    base,
                    mappings: vec![mapping.clone()],
                });
            }
        }
        images.retain(|image| image.executable().next().is_some());
        images
    }
}

/// Whether a mapping belongs to an image. A data segment may map the last file page of the previous segment again, so
/// an equal offset still continues the image. An offset of 0 begins a new image.
fn continues(image: &Image, mapping: &Mapping) -> bool {
    image.mappings.last().is_some_and(|last| {
        (last.device, last.inode) == (mapping.device, mapping.inode)
            && last.kind == mapping.kind
            && mapping.offset >= last.offset
            && (mapping.offset > 0 || last.permissions != mapping.permissions)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_of_one_file_are_grouped() {
        let text = b"400000-401000 r--p 00000000 fe:00 12  /bin/a\n\
            401000-402000 r-xp 00001000 fe:00 12  /bin/a\n\
            402000-403000 rw-p 00001000 fe:00 12  /bin/a\n\
            403000-404000 rw-p 00000000 00:00 0 \n\
            7f0000000000-7f0000001000 r--p 00000000 fe:00 13  /lib/b\n\
            7f0000001000-7f0000002000 r-xp 00001000 fe:00 13  /lib/b\n\
            7f0000100000-7f0000101000 r--p 00000000 fe:00 13  /lib/b\n\
            7f0000101000-7f0000102000 r-xp 00001000 fe:00 13  /lib/b\n\
            7f0000200000-7f0000201000 r--p 00000000 fe:00 14  /usr/lib/locale\n\
            7f0000300000-7f0000301000 r-xp 00005000 fe:00 15  /lib/only_text\n\
            7ffc2fa4b000-7ffc2fa4d000 r-xp 00000000 00:00 0  [vdso]\n";
        let images = Map::parse(text).images();
        let shape: Vec<(u64, u64, usize)> = images
            .iter()
            .map(|image| (image.base.0, image.end().0, image.mappings.len()))
            .collect();
        assert_eq!(
            shape,
            [
                (0x400000, 0x403000, 3),
                (0x7f0000000000, 0x7f0000002000, 2),
                (0x7f0000100000, 0x7f0000102000, 2),
                (0x7f00002fb000, 0x7f0000301000, 1),
                (0x7ffc2fa4b000, 0x7ffc2fa4d000, 1),
            ]
        );
        assert_eq!(images[4].kind(), Some(&MappingKind::Vdso));
        assert_eq!(images[0].executable().count(), 1);
    }
}
