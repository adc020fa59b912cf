//! What the system and its limits leave to a process: where memory may be mapped, and how much.

use std::sync::OnceLock;

use nanoprobe_patch::TargetAddress;

use crate::holes::HoleRules;
use crate::process::Process;
use crate::status::Stat;
use crate::{ThreadId, proc_file, threads};

impl Process {
    /// The rules for holes that may hold near memory, by the limits of this system and process.
    pub fn hole_rules(&self) -> HoleRules {
        const PAGE: u64 = 4096;
        const MIB: u64 = 1 << 20;
        static MINIMUM: OnceLock<Option<u64>> = OnceLock::new();
        let minimum = *MINIMUM.get_or_init(|| {
            let text = proc_file::read_text("/proc/sys/vm/mmap_min_addr").ok()?;
            text.trim().parse().ok()
        });
        let stack_limit = self.stack_limit().unwrap_or(0);
        let break_of = |tid: ThreadId| Some(Stat::of(tid).ok()?.break_start).filter(|&start| start != 0);
        // A main thread that has ended shows none.
        let break_start = break_of(self.pid()).or_else(|| break_of(threads::living(self.pid())?));
        HoleRules {
            minimum: TargetAddress(minimum.unwrap_or(0x10000).max(PAGE)),
            break_start: break_start.map(TargetAddress),
            stack_guard: HoleRules::STACK_GUARD.max(stack_limit.saturating_add(MIB)),
            ..HoleRules::default()
        }
    }

    /// The bytes of address space that the process may still map; `None` when there is no limit, or it is not
    /// known.
    pub fn spare_address_space(&self) -> Option<u64> {
        let limit = self.soft_limit("Max address space")?;
        let text = proc_file::read_text(format!("/proc/{}/statm", self.living_thread())).ok()?;
        let pages: u64 = text.split_ascii_whitespace().next()?.parse().ok()?;
        Some(limit.saturating_sub(pages.saturating_mul(4096)))
    }

    /// The soft limit of the stack in bytes; `None` when unlimited (the kernel then lays out memory bottom-up) or
    /// unknown.
    fn stack_limit(&self) -> Option<u64> {
        self.soft_limit("Max stack size")
    }

    /// A line of /proc/PID/limits; `None` when unlimited or unknown.
    fn soft_limit(&self, name: &str) -> Option<u64> {
        // A main thread that has ended shows the limits of its process, too.
        let text = proc_file::read_text(format!("/proc/{}/limits", self.pid())).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse().ok()
    }
}
