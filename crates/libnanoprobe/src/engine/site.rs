//! A probed instruction: its entries in the order of registration, and the list of them that hits read.
//!
//! Lists never change. One store replaces the old list by a new one. The old list, and entries that are in no list
//! any more, are freed when every thread has been seen outside of the handlers ([`Epochs`]).

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use nanoprobe_patch::Quick;

use crate::hit::{self, Calls, Entry, ListHeader, Site};

/// The properties that a site's patch must have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The site has an enabled member.
    pub active: bool,
    /// Some member asks for a breakpoint.
    pub trap: bool,
    /// Some member has a post-handler, which runs in the detour.
    pub behind: bool,
}

/// `enum np_kind`: the kind of probe as which a member was registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `np_probe`.
    Probe = b'k',
    /// `np_jprobe`.
    Jumper = b'j',
    /// `np_retprobe`, at the function's entry.
    Retprobe = b'r',
    /// `np_hook`.
    Hook = b'h',
    /// A `ret` of a function with a return probe: it belongs to that probe.
    Exit = 0,
    /// A member of the library itself: it comes before all others.
    Own = 1,
}

/// A registered probe at a site: its entry, and the facts that only the engine needs.
pub struct Member {
    /// The part of the member that hits read.
    pub entry: Box<Entry>,
    /// The member's handlers do not change SIMD registers: the caller has promised it, or it is proven.
    pub no_simd: bool,
    /// The member's handlers provably touch no SIMD registers other than xmm0-15 and MXCSR.
    pub xmm_only: bool,
    /// The member's handlers provably do not change errno.
    pub no_errno: bool,
    /// The handlers that the proof was about.
    pub proven: Vec<u64>,
    /// The member asks for a breakpoint, even where a jump fits.
    pub trap: bool,
    /// The kind as which the member was registered.
    pub kind: Kind,
    /// A number that no other member has ever had.
    pub id: u64,
    /// The calls of a return probe.
    pub calls: Option<Arc<Calls>>,
    /// The function that is called when handlers are left out (`Site::otherwise`); 0: no function.
    pub otherwise: u64,
}

/// Everything that is registered at one instruction.
pub struct SiteState {
    /// The structure that detours point at. It is never freed, since a thread may always be on its way there.
    pub site: &'static Site,
    /// The members, in the order of registration.
    pub members: Vec<Member>,
}

/// A list that was replaced, and that no new hit finds.
pub struct OldList(*mut ListHeader);

// SAFETY: only the list's owner uses it, and threads that `Epochs` waits for.
unsafe impl Send for OldList {}

impl Drop for OldList {
    fn drop(&mut self) {
        if self.0.is_null() {
            return;
        }
        // SAFETY: made by `list_of` with the layout of its count; `Epochs::wait` has seen that no thread reads it.
        unsafe { dealloc(self.0.cast(), layout((*self.0).count as usize)) };
    }
}

fn layout(count: usize) -> Layout {
    let pointers = Layout::array::<*mut Entry>(count).unwrap_or(Layout::new::<ListHeader>());
    Layout::new::<ListHeader>()
        .extend(pointers)
        .map_or(Layout::new::<ListHeader>(), |(layout, _)| layout)
}

/// A new site, which no hit has reached. `next`: the instruction after it. `transfer`: the bytes of a branch, call
/// or return.
pub fn new_site(address: u64, next: u64, transfer: Option<[u8; 64]>) -> &'static Site {
    // The copy consists of words, so that it is aligned like the agent's structure.
    let words = transfer.map(|bytes| {
        let words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        Box::leak(words.collect::<Box<[u64]>>()).as_ptr() as u64
    });
    Box::leak(Box::new(Site {
        address,
        list: AtomicPtr::default(),
        next,
        missed_without_thread: AtomicU64::new(0),
        otherwise: AtomicU64::new(0),
        emulation: words.unwrap_or(0),
        next_with_fault: AtomicPtr::default(),
    }))
}

impl SiteState {
    /// A site at which nothing is registered yet.
    pub fn of(site: &'static Site) -> SiteState {
        SiteState {
            site,
            members: Vec::new(),
        }
    }

    /// The properties that the site's patch must have now.
    pub fn wanted(&self) -> Wanted {
        let enabled = || self.members.iter().filter(|member| member.is_enabled());
        Wanted {
            active: enabled().next().is_some(),
            trap: enabled().any(|member| member.trap),
            behind: self.site.emulation == 0 && enabled().any(|member| member.entry.post.is_some()),
        }
    }

    /// The code that the site's detour tries first, with fewer registers saved, where a return probe is the only
    /// member.
    pub fn quick(&self) -> Option<Quick> {
        let [member] = &self.members[..] else { return None };
        let calls = member.calls.as_ref().filter(|_| member.entry.fault.is_none())?;
        calls.quick(member.entry.function?)
    }

    /// The function that the site's detour calls.
    pub fn dispatch(&self) -> u64 {
        let is_exit = match &self.members[..] {
            [member] if member.kind == Kind::Exit => member.calls.as_ref().is_some_and(|calls| calls.has_handler()),
            _ => false,
        };
        if is_exit {
            hit::dispatch_exit_address()
        } else {
            hit::dispatch_address()
        }
    }

    /// Adds a member after the present members. The library's own members come first. A hook comes last: after it the
    /// function's own code is not executed, and no other handler runs.
    pub fn add(&mut self, member: Member) {
        if member.otherwise != 0 {
            self.site.otherwise.store(member.otherwise, Ordering::Release);
        }
        if member.entry.fault.is_some() {
            hit::watch_faults(self.site);
        }
        let before = |other: &Member| match member.kind {
            Kind::Own => other.kind == Kind::Own,
            Kind::Hook => true,
            _ => other.kind != Kind::Hook,
        };
        let place = self.members.partition_point(before);
        self.members.insert(place, member);
    }

    /// Publishes the members as they are now; yields the replaced list.
    #[must_use]
    pub fn publish(&self) -> OldList {
        OldList(self.site.list.swap(self.list_of(), Ordering::AcqRel))
    }

    fn list_of(&self) -> *mut ListHeader {
        if self.members.is_empty() {
            return std::ptr::null_mut();
        }
        let layout = layout(self.members.len());
        // SAFETY: the layout has room for the header and a pointer for each member; all of it is written before any
        // thread sees it.
        unsafe {
            let list = alloc(layout).cast::<ListHeader>();
            if list.is_null() {
                handle_alloc_error(layout);
            }
            let emulates = self.site.emulation != 0 && self.members.iter().any(|member| member.entry.post.is_some());
            let saved = self
                .members
                .iter()
                .map(|member| match (member.no_simd, member.xmm_only) {
                    (true, _) if member.no_errno => hit::Saved::Nothing,
                    (true, _) => hit::Saved::Errno,
                    (_, true) => hit::Saved::Xmm,
                    _ => hit::Saved::All,
                });
            let saved = saved.max().unwrap_or(hit::Saved::Nothing);
            let mut header = ListHeader::new(self.members.len() as u64, saved, emulates);
            if let [member] = &self.members[..]
                && member.entry.fault.is_none()
                && !emulates
            {
                let short = |function| member.calls.as_ref()?.short(function);
                header.set_only(&member.entry, member.entry.function.and_then(short));
            }
            list.write(header);
            let entries = list.add(1).cast::<*const Entry>();
            for (index, member) in self.members.iter().enumerate() {
                entries.add(index).write(&*member.entry);
            }
            list
        }
    }
}

impl Member {
    /// A member whose hits call a function of the library.
    pub fn new(kind: Kind, owner: *mut c_void, function: Option<hit::Function>, data: *mut c_void) -> Member {
        Member {
            entry: Box::new(Entry {
                owner,
                pre: None,
                post: None,
                fault: None,
                function,
                index: 0,
                enabled: AtomicU32::new(1),
                data: AtomicPtr::new(data),
            }),
            no_simd: true,
            xmm_only: false,
            no_errno: false,
            proven: Vec::new(),
            trap: false,
            kind,
            id: 0,
            calls: None,
            otherwise: 0,
        }
    }

    /// The caller's functions that a hit calls; `None`: not all of them are known. (A fault handler is called in a
    /// signal handler.)
    pub fn handlers(&self) -> Option<Vec<u64>> {
        match (self.kind, &self.calls) {
            (Kind::Probe, _) => {
                let pre = self.entry.pre.map(|handler| handler as *const () as u64);
                let post = self.entry.post.map(|handler| handler as *const () as u64);
                Some(pre.into_iter().chain(post).collect())
            }
            (Kind::Retprobe | Kind::Exit, Some(calls)) => Some(calls.handlers()),
            _ => None,
        }
    }

    /// Whether a caller has registered this member, so that it has its own counters.
    pub fn is_counted(&self) -> bool {
        !matches!(self.kind, Kind::Exit | Kind::Own)
    }

    /// Whether this member is enabled.
    pub fn is_enabled(&self) -> bool {
        self.entry.enabled.load(Ordering::Relaxed) != 0
    }
}

/// The threads that were inside of handlers when something was withdrawn, with their epochs.
pub struct Epochs(Vec<(&'static hit::Thread, u64)>);

impl Epochs {
    /// Called after a barrier in every thread: a thread that is in no handler now will see everything that is published
    /// by now.
    pub fn now() -> Epochs {
        let inside = hit::threads().filter(|thread| thread.depth.load(Ordering::Acquire) != 0);
        Epochs(
            inside
                .map(|thread| (thread, thread.epoch.load(Ordering::Acquire)))
                .collect(),
        )
    }

    /// Whether all of these threads have left their handlers.
    pub fn are_over(&mut self) -> bool {
        self.0.retain(|(thread, epoch)| {
            thread.depth.load(Ordering::Acquire) != 0
                && thread.epoch.load(Ordering::Acquire) == *epoch
                && !hit::is_abandoned(thread)
        });
        self.0.is_empty()
    }

    /// Waits until all of these threads have left their handlers.
    pub fn wait(&mut self) {
        while !self.are_over() {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
    }
}
