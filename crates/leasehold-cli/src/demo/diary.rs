//! What the demo's workers did, as they noted it themselves: from when to when each ran, on the boot clock.
//!
//! Each node process keeps one file. A worker adds a page when it starts and turns its last moment forward at every
//! beat. The kernel keeps what was written, so that the notes of a node that was killed are complete to the last beat.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use leasehold_core::{Epoch, Moment};

const PAGE_BYTES: u64 = 32;

/// Writes the notes of one node.
#[derive(Debug)]
pub(super) struct Diary {
    file: File,
    pages: AtomicU64,
}

/// The page of one start of one shard.
#[derive(Debug)]
pub(super) struct Page<'a> {
    diary: &'a Diary,
    offset: u64,
}

/// From when to when one worker ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ran {
    pub(super) shard: u32,
    pub(super) from: Moment,
    pub(super) to: Moment,
    pub(super) epoch: Epoch,
    /// Which node of the demo, by number.
    pub(super) node: usize,
}

impl Diary {
    /// Goes on with a file, or begins it.
    pub(super) fn open(path: &Path) -> io::Result<Diary> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        let pages = file.metadata()?.len() / PAGE_BYTES;
        Ok(Diary { file, pages: AtomicU64::new(pages) })
    }

    /// A worker starts.
    pub(super) fn begin(&self, shard: u32, epoch: Epoch, at: Moment) -> io::Result<Page<'_>> {
        let offset = self.pages.fetch_add(1, Ordering::Relaxed) * PAGE_BYTES;
        let mut page = [0u8; PAGE_BYTES as usize];
        for (at, word) in
            [u64::from(shard) + 1, epoch.0, at.as_nanos(), at.as_nanos()].into_iter().enumerate()
        {
            page[at * 8..][..8].copy_from_slice(&word.to_le_bytes());
        }
        self.file.write_all_at(&page, offset)?;
        Ok(Page { diary: self, offset })
    }
}

impl Page<'_> {
    /// The worker still runs.
    pub(super) fn beat(&self, at: Moment) -> io::Result<()> {
        self.diary.file.write_all_at(&at.as_nanos().to_le_bytes(), self.offset + 24)
    }
}

/// Reads the notes of one node; a page that is not whole yet is left out.
pub(super) fn read(path: &Path, node: usize) -> Vec<Ran> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let pages = bytes.chunks_exact(PAGE_BYTES as usize);
    let word =
        |page: &[u8], at: usize| u64::from_le_bytes(page[at * 8..][..8].try_into().expect("eight bytes"));
    pages
        .filter(|page| word(page, 0) > 0)
        .map(|page| Ran {
            shard: (word(page, 0) - 1) as u32,
            epoch: Epoch(word(page, 1)),
            from: Moment::from_nanos(word(page, 2)),
            to: Moment::from_nanos(word(page, 3)),
            node,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_read_back_also_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let at = Moment::from_millis;
        {
            let diary = Diary::open(&path).unwrap();
            let page = diary.begin(3, Epoch(7), at(10)).unwrap();
            page.beat(at(25)).unwrap();
        }
        let diary = Diary::open(&path).unwrap();
        diary.begin(0, Epoch(1), at(30)).unwrap();
        let ran = read(&path, 2);
        assert_eq!(ran.len(), 2);
        assert_eq!((ran[0].shard, ran[0].epoch, ran[0].from, ran[0].to), (3, Epoch(7), at(10), at(25)));
        assert_eq!((ran[1].shard, ran[1].to, ran[1].node), (0, at(30), 2));
    }
}
