//! The system calls that a tracer needs in its target, typed and checked.

use std::sync::atomic::Ordering;

use nanoprobe_patch::TargetAddress;
use nix::errno::Errno;

use crate::error::RemoteError;
use crate::homing::TEXT_ROOM;
use crate::map::MappingKind;
use crate::process::Process;
use crate::remote::Remote;
use crate::remote::listed::{ListRoom, Listed};

/// The protection of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protection {
    /// No access.
    None,
    /// `r--`
    Read,
    /// `rw-`
    ReadWrite,
    /// `r-x`. There is no way to ask for pages that are writable and executable (invariant I7).
    ReadExecute,
}

impl Protection {
    fn bits(self) -> u64 {
        let bits = match self {
            Protection::None => libc::PROT_NONE,
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
            Protection::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
        };
        bits as u64
    }
}

/// A kernel sigaction, as rt_sigaction takes it on x86-64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SignalAction {
    /// 0: default; 1: ignore; any other value: the handler's address.
    pub handler: u64,
    /// SA_*; SA_RESTORER (0x04000000) is needed with a handler.
    pub flags: u64,
    /// The address to which a handler returns.
    pub restorer: u64,
    /// Signals blocked while it runs; bit n-1 is signal n.
    pub mask: u64,
}

impl SignalAction {
    const BYTES: usize = 32;

    fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        for (chunk, word) in bytes
            .chunks_exact_mut(8)
            .zip([self.handler, self.flags, self.restorer, self.mask])
        {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::BYTES]) -> SignalAction {
        let mut words = bytes
            .chunks_exact(8)
            .map(|chunk| chunk.iter().rev().fold(0u64, |word, &byte| word << 8 | u64::from(byte)));
        let mut next = || words.next().unwrap_or(0);
        SignalAction {
            handler: next(),
            flags: next(),
            restorer: next(),
            mask: next(),
        }
    }
}

impl Remote<'_> {
    /// Maps private anonymous memory at exactly this address, where nothing may be mapped.
    ///
    /// # Errors
    /// [`RemoteError::Call`] with EEXIST when something is already mapped there.
    pub fn map_anonymous(
        &mut self,
        address: TargetAddress,
        bytes: u64,
        protection: Protection,
    ) -> Result<(), RemoteError> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        self.map(address, bytes, protection, flags, u64::MAX)
    }

    /// Maps memory whose pages stay untouched. In a process that has called mlockall(MCL_FUTURE), the kernel would
    /// fill and lock all of a new mapping: gigabytes, for an arena. In such a process the memory is first mapped
    /// without access, so that the kernel cannot fill it, then unlocked, and only then gets its protection.
    fn map(
        &mut self,
        address: TargetAddress,
        bytes: u64,
        protection: Protection,
        flags: i32,
        descriptor: u64,
    ) -> Result<(), RemoteError> {
        if !self.process().locks_new_memory().load(Ordering::Relaxed) {
            return self.map_at(address, bytes, protection, flags, descriptor);
        }
        self.map_at(address, bytes, Protection::None, flags, descriptor)?;
        let unlocked = self.unlock(address, bytes);
        let protected = unlocked.and_then(|()| self.protect(address, bytes, protection));
        if protected.is_err() {
            self.unmap(address, bytes)?;
        }
        protected
    }

    /// Finds out whether the kernel locks new memory, by means of a mapping: the kernel refuses to drop the pages of
    /// a locked mapping.
    pub(crate) fn find_out_whether_locked(&mut self, address: TargetAddress, bytes: u64) {
        let dropped = self.advise(address, bytes, libc::MADV_DONTNEED);
        let locked = matches!(
            dropped,
            Err(RemoteError::Call {
                errno: Errno::EINVAL,
                ..
            })
        );
        self.process().locks_new_memory().store(locked, Ordering::Relaxed);
    }

    pub(crate) fn unlock(&mut self, address: TargetAddress, bytes: u64) -> Result<(), RemoteError> {
        let call = || format!("munlock of {bytes} bytes at {address}");
        self.named_syscall(libc::SYS_munlock, [address.0, bytes, 0, 0, 0, 0], call)
            .map(drop)
    }

    /// Maps pages that system calls may write to, at any address.
    pub(crate) fn map_page(&mut self) -> Result<TargetAddress, RemoteError> {
        const PAGE: u64 = 4096;
        const BYTES: u64 = Process::SCRATCH_BYTES;
        let call = || "mmap of some pages".to_owned();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let arguments = [0, BYTES, Protection::ReadWrite.bits(), flags as u64, u64::MAX, 0];
        let returned = self.named_syscall(libc::SYS_mmap, arguments, call)?;
        let page = TargetAddress(returned as u64);
        // A sandbox may have returned any number. Really new memory is zero, and does not overlap a mapping of the
        // program.
        let is_page = page.0.is_multiple_of(PAGE)
            && self.process().map().is_ok_and(|map| {
                map.find(page)
                    .is_some_and(|found| found.kind == MappingKind::Anonymous && found.permissions.write)
            });
        match is_page {
            true => Ok(page),
            false => Err(RemoteError::Lied {
                pid: self.process().pid(),
                call: call(),
                returned,
            }),
        }
    }

    pub(crate) fn map_at(
        &mut self,
        address: TargetAddress,
        bytes: u64,
        protection: Protection,
        flags: i32,
        descriptor: u64,
    ) -> Result<(), RemoteError> {
        let call = || format!("mmap of {bytes} bytes at {address}");
        let arguments = [address.0, bytes, protection.bits(), flags as u64, descriptor, 0];
        let returned = self.named_syscall(libc::SYS_mmap, arguments, call)?;
        if returned as u64 == address.0 {
            return Ok(());
        }
        // Kernels before 4.17 take the address as a hint. A sandbox may return any address, so the memory at the
        // returned address must not be unmapped.
        let pid = self.process().pid();
        let mapped = TargetAddress(returned as u64);
        let exists = self
            .process()
            .map()
            .is_ok_and(|map| map.find(mapped).is_some_and(|found| found.start == mapped));
        if returned > 0 && exists {
            self.unmap(mapped, bytes)?;
        }
        Err(RemoteError::Lied {
            pid,
            call: call(),
            returned,
        })
    }

    /// Unmaps everything in this range.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn unmap(&mut self, address: TargetAddress, bytes: u64) -> Result<(), RemoteError> {
        let call = || format!("munmap of {bytes} bytes at {address}");
        self.named_syscall(libc::SYS_munmap, [address.0, bytes, 0, 0, 0, 0], call)
            .map(drop)
    }

    /// Changes the protection of pages.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn protect(&mut self, address: TargetAddress, bytes: u64, protection: Protection) -> Result<(), RemoteError> {
        let call = || format!("mprotect of {bytes} bytes at {address}");
        self.named_syscall(libc::SYS_mprotect, [address.0, bytes, protection.bits(), 0, 0, 0], call)
            .map(drop)
    }

    /// madvise(2), with one of libc's MADV_*.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn advise(&mut self, address: TargetAddress, bytes: u64, advice: i32) -> Result<(), RemoteError> {
        let call = || format!("madvise({advice}) of {bytes} bytes at {address}");
        self.named_syscall(libc::SYS_madvise, [address.0, bytes, advice as u64, 0, 0, 0], call)
            .map(drop)
    }

    /// Makes a nameless file in the target that can be sealed and is closed on execve. Returns the target's
    /// descriptor of the file.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn memfd_create(&mut self, name: &str) -> Result<i32, RemoteError> {
        const NOEXEC_SEAL: u32 = 8;
        let mut text: Vec<u8> = name.bytes().filter(|&byte| byte != 0).take(TEXT_ROOM - 1).collect();
        text.push(0);
        let room = self.text_room();
        self.process().memory().write(room, &text)?;
        let mut create = |flags: u32| {
            let arguments = [room.0, u64::from(flags), 0, 0, 0, 0];
            self.named_syscall(libc::SYS_memfd_create, arguments, || {
                format!("memfd_create(\"{name}\")")
            })
        };
        // A system may require that the file can never become executable (vm.memfd_noexec=2); older kernels do not
        // know the flag.
        let descriptor = match create(libc::MFD_CLOEXEC | NOEXEC_SEAL) {
            Err(RemoteError::Call {
                errno: Errno::EINVAL, ..
            }) => create(libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?,
            other => other?,
        };
        i32::try_from(descriptor).map_err(|_| RemoteError::Lied {
            pid: self.process().pid(),
            call: "memfd_create".to_owned(),
            returned: descriptor,
        })
    }

    /// Closes a descriptor of the target.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn close(&mut self, descriptor: i32) -> Result<(), RemoteError> {
        let call = || format!("close({descriptor})");
        self.named_syscall(libc::SYS_close, [descriptor as u64, 0, 0, 0, 0, 0], call)
            .map(drop)
    }

    /// Sets the process's action for a signal (`None`: only reads it), and returns the former action.
    ///
    /// # Errors
    /// [`RemoteError::Call`].
    pub fn signal_action(&mut self, signal: i32, action: Option<SignalAction>) -> Result<SignalAction, RemoteError> {
        let before_at = self.scratch()?;
        let action_at = TargetAddress(before_at.0 + SignalAction::BYTES as u64);
        let memory = self.process().memory();
        memory.write(before_at, &[0; SignalAction::BYTES])?;
        if let Some(action) = action {
            memory.write(action_at, &action.to_bytes())?;
        }
        let new = action.map_or(0, |_| action_at.0);
        let arguments = [signal as u64, new, before_at.0, 8, 0, 0];
        self.named_syscall(libc::SYS_rt_sigaction, arguments, || format!("rt_sigaction({signal})"))?;
        Ok(SignalAction::from_bytes(
            &self.process().memory().read_array(before_at)?,
        ))
    }

    /// Sets the actions for many signals, and resumes the thread only once. Returns the former actions, in the
    /// order of the signals.
    ///
    /// # Errors
    /// [`RemoteError::Call`]: one failed; all others were made.
    pub fn signal_actions(&mut self, wanted: &[(i32, Option<SignalAction>)]) -> Result<Vec<SignalAction>, RemoteError> {
        const DATA: u64 = 2 * SignalAction::BYTES as u64;
        let mut before = Vec::with_capacity(wanted.len());
        for wanted in wanted.chunks(ListRoom::calls_max(DATA)) {
            let room = self.list_room(wanted.len())?;
            let data = |index: usize| room.data().0 + index as u64 * DATA;
            let mut bytes = Vec::with_capacity(wanted.len() * DATA as usize);
            let mut calls = Vec::with_capacity(wanted.len());
            for (index, (signal, action)) in wanted.iter().enumerate() {
                bytes.extend([0; SignalAction::BYTES]);
                bytes.extend(action.unwrap_or_default().to_bytes());
                let new = action.map_or(0, |_| data(index) + SignalAction::BYTES as u64);
                calls.push(Listed {
                    number: libc::SYS_rt_sigaction,
                    arguments: [*signal as u64, new, data(index), 8, 0, 0],
                });
            }
            self.process().memory().write(room.data(), &bytes)?;
            let results = self.listed(room, &calls)?;
            self.process().memory().read(room.data(), &mut bytes)?;
            let former = bytes.chunks_exact(DATA as usize).filter_map(|data| data.first_chunk());
            for (((signal, _), result), former) in wanted.iter().zip(results).zip(former) {
                self.check_result(result, libc::SYS_rt_sigaction, || format!("rt_sigaction({signal})"))?;
                before.push(SignalAction::from_bytes(former));
            }
        }
        Ok(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_have_the_kernels_layout() {
        let action = SignalAction {
            handler: 0x1122,
            flags: 0x0400_0004,
            restorer: 0x3344,
            mask: 1 << 63,
        };
        let bytes = action.to_bytes();
        assert_eq!(bytes[..2], [0x22, 0x11]);
        assert_eq!(bytes[31], 0x80);
        assert_eq!(SignalAction::from_bytes(&bytes), action);
    }
}
