//! Profiles: aggregations with stacks among their keys, as files for other tools, and as pictures.
//!
//! ```text
//! AggregateTable --stacks--> frames and values --tree--> picture: SVG, HTML      --flamegraph
//!                                              --------> lines                   --folded
//!                                              --------> profile.proto           --pprof
//!                                              --------> JSON                    --speedscope
//! files of these formats --read--> tree of two profiles --compare--> table, JSON, picture     nanoprobe diff
//! ```
//!
//! A format is a file with an implementation of [`Sink`], and a row in [`PROFILE_FORMATS`]. All are written at the
//! end, in addition to the text or JSON of the results.

mod colour;
mod compare;
mod file;
mod flame;
mod folded;
mod names;
mod picture;
mod pprof;
mod protobuf;
mod read;
mod speedscope;
mod stacks;
mod tree;

pub use compare::{Comparison, Unread};
pub use file::check;
pub use stacks::has_stacks;

use crate::sink::Sink;

/// A format of profiles.
#[derive(Clone, Copy, Debug)]
pub struct ProfileFormat {
    /// The flag that asks for this format, without the dashes.
    pub flag: &'static str,
    /// The name of the flag's value in the help.
    pub file: &'static str,
    /// The flag's line in the help.
    pub help: &'static str,
    make: fn(path: &str, title: &str) -> Box<dyn Sink>,
}

/// All formats of profiles.
pub const PROFILE_FORMATS: [ProfileFormat; 4] = [
    ProfileFormat {
        flag: "flamegraph",
        file: "file.svg|file.html",
        help: "At the end, draw the counts and sums by ustack() as a flame graph: zoom by a click, search by Ctrl-F",
        make: |path, title| {
            let (path, title) = (path.to_owned(), title.to_owned());
            Box::new(flame::FlameGraph { path, title })
        },
    },
    ProfileFormat {
        flag: "folded",
        file: "file",
        help: "At the end, write them as folded stacks, a line for each stack",
        make: |path, _| Box::new(folded::Folded { path: path.to_owned() }),
    },
    ProfileFormat {
        flag: "pprof",
        file: "file.pb.gz",
        help: "At the end, write them for pprof (`go tool pprof`)",
        make: |path, title| {
            let (path, title) = (path.to_owned(), title.to_owned());
            Box::new(pprof::Pprof { path, title })
        },
    },
    ProfileFormat {
        flag: "speedscope",
        file: "file.json",
        help: "At the end, write them for speedscope (www.speedscope.app)",
        make: |path, title| {
            let (path, title) = (path.to_owned(), title.to_owned());
            Box::new(speedscope::Speedscope { path, title })
        },
    },
];

impl ProfileFormat {
    /// A sink that writes this file. The title names the traced process.
    #[must_use]
    pub fn sink(&self, path: &str, title: &str) -> Box<dyn Sink> {
        (self.make)(path, title)
    }
}
