//! Compares two recorded profiles: which functions have changed, and by how much.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::Path;

use unicode_width::UnicodeWidthChar as _;

use super::picture::{Picture, Wrapping, draw};
use super::read::{ReadError, Said, bytes_of, read};
use super::tree::{AFTER, BEFORE, Tree};
use super::{file, names::NameId};
use crate::Error;
use crate::json::Json;

/// The columns of a table. Names take the columns that the numbers leave.
const COLUMNS: usize = 80;
const COLUMNS_OF_NUMBERS: usize = 46;

/// Two profiles side by side.
#[derive(Debug)]
pub struct Comparison {
    tree: Tree,
    said: Said,
    /// Whether shares of the sums are compared, instead of the values.
    is_normalized: bool,
    paths: [String; 2],
    changes: Vec<Change>,
}

/// A function in both profiles.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Change {
    name: NameId,
    /// The values of the stacks that end in the function, in both profiles.
    own: [u64; 2],
    /// The values of the stacks that go through the function, in both profiles.
    total: [u64; 2],
}

/// One of a function's two kinds of values.
type ValueOf = fn(&Change) -> [u64; 2];

/// A file of a comparison that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {error}")]
pub struct Unread {
    path: String,
    error: ReadError,
}

impl Comparison {
    /// Reads two files. `kind`: the name of the profile, if a file has several. Without it the first profile is taken.
    ///
    /// # Errors
    /// One of the files is no profile.
    pub fn of(paths: [&str; 2], kind: Option<&str>, is_normalized: bool) -> Result<Comparison, Unread> {
        let mut bytes = [const { Vec::new() }; 2];
        for (bytes, path) in bytes.iter_mut().zip(paths) {
            let unread = |error| Unread {
                path: path.to_owned(),
                error,
            };
            *bytes = bytes_of(path).map_err(unread)?;
        }
        let [former, latter] = &bytes;
        Comparison::of_bytes([former, latter], paths, kind, is_normalized)
    }

    /// Compares the contents of two files.
    ///
    /// # Errors
    /// One of the files is no profile.
    pub fn of_bytes(
        bytes: [&[u8]; 2],
        paths: [&str; 2],
        kind: Option<&str>,
        is_normalized: bool,
    ) -> Result<Comparison, Unread> {
        let mut tree = Tree::new();
        let mut said = Said::default();
        for (side, (bytes, path)) in bytes.into_iter().zip(paths).enumerate() {
            let found = read(bytes, kind, &mut tree, side).map_err(|error| Unread {
                path: path.to_owned(),
                error,
            })?;
            if said.kind.is_empty() {
                said = found;
            }
        }
        let changes = changes(&tree);
        Ok(Comparison {
            tree,
            said,
            is_normalized,
            paths: paths.map(str::to_owned),
            changes,
        })
    }

    /// A value's share of the sum of its profile.
    fn share(&self, value: [u64; 2], side: usize) -> f64 {
        value[side] as f64 / self.tree.total(side).max(1) as f64
    }

    /// By how much a value has changed: its share, or the value itself.
    fn change(&self, value: [u64; 2]) -> f64 {
        match self.is_normalized {
            true => self.share(value, AFTER) - self.share(value, BEFORE),
            false => value[AFTER] as f64 - value[BEFORE] as f64,
        }
    }

    /// The functions whose value has changed, in descending order of the change.
    fn most(&self, value: ValueOf, rows: usize) -> Vec<&Change> {
        let changed = self.changes.iter().filter(|change| self.change(value(change)) != 0.0);
        let mut changed: Vec<&Change> = changed.collect();
        let size = |change: &Change| self.change(value(change)).abs();
        changed.sort_by(|left, right| {
            let by_size = size(right).total_cmp(&size(left));
            by_size.then_with(|| self.tree.names.text(left.name).cmp(self.tree.names.text(right.name)))
        });
        changed.truncate(rows);
        changed
    }

    /// The tables of functions, each of at most `rows` rows, in 80 columns.
    #[must_use]
    pub fn text(&self, rows: usize) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        for (side, letter) in ["A", "B"].into_iter().enumerate() {
            let sum = shortened(self.tree.total(side));
            let unit = &self.said.unit;
            let _ = writeln!(
                out,
                "{letter} {sum:>10} {unit:<12} {}",
                cut(&self.paths[side], COLUMNS - 26)
            );
        }
        if self.tree.is_cut() {
            out.push_str("Some frames found no room; their values are in their callers.\n");
        }
        let sections: [(&str, ValueOf); 2] = [
            ("SELF: stacks that end in the function", |change| change.own),
            ("TOTAL: stacks that go through the function", |change| change.total),
        ];
        for (title, value) in sections {
            let most = self.most(value, rows);
            let _ = writeln!(out, "\n{title}");
            if most.is_empty() {
                out.push_str("no difference\n");
                continue;
            }
            let _ = writeln!(
                out,
                "{:>10} {:>10} {:>6} {:>6} {:>8}  FUNCTION",
                "A", "B", "A %", "B %", "CHANGE"
            );
            for change in most {
                let value = value(change);
                let _ = writeln!(
                    out,
                    "{:>10} {:>10} {:>6.1} {:>6.1} {:>8}  {}",
                    shortened(value[BEFORE]),
                    shortened(value[AFTER]),
                    100.0 * self.share(value, BEFORE),
                    100.0 * self.share(value, AFTER),
                    self.change_text(value),
                    cut(self.tree.names.text(change.name), COLUMNS - COLUMNS_OF_NUMBERS)
                );
            }
        }
        out
    }

    fn change_text(&self, value: [u64; 2]) -> String {
        if self.is_normalized {
            return format!("{:+.1}%", 100.0 * self.change(value));
        }
        let sign = if value[AFTER] < value[BEFORE] { '-' } else { '+' };
        format!("{sign}{}", shortened(value[AFTER].abs_diff(value[BEFORE])))
    }

    /// All functions that have changed, as one JSON object.
    #[must_use]
    pub fn json(&self) -> Json {
        let function = |change: &&Change| {
            Json::Object(vec![
                ("function", Json::from(self.tree.names.text(change.name))),
                ("self", self.json_of(change.own)),
                ("total", self.json_of(change.total)),
            ])
        };
        let changed = self.most(|change| change.total, usize::MAX);
        let by_self_alone = self.most(|change| change.own, usize::MAX);
        let mut functions: Vec<Json> = changed.iter().map(function).collect();
        let listed: HashSet<NameId> = changed.iter().map(|change| change.name).collect();
        let rest = by_self_alone.iter().filter(|change| !listed.contains(&change.name));
        functions.extend(rest.map(function));
        Json::Object(vec![
            ("kind", Json::from("profile_difference")),
            ("profile", Json::from(&*self.said.kind)),
            ("unit", Json::from(&*self.said.unit)),
            ("normalized", Json::Boolean(self.is_normalized)),
            ("before", self.json_of_side(BEFORE)),
            ("after", self.json_of_side(AFTER)),
            ("is_cut", Json::Boolean(self.tree.is_cut())),
            ("functions", Json::List(functions)),
        ])
    }

    fn json_of_side(&self, side: usize) -> Json {
        Json::Object(vec![
            ("file", Json::from(&*self.paths[side])),
            ("total", Json::from(self.tree.total(side))),
        ])
    }

    fn json_of(&self, value: [u64; 2]) -> Json {
        Json::Object(vec![
            ("before", Json::from(value[BEFORE])),
            ("after", Json::from(value[AFTER])),
            ("share_before", Json::Floating(self.share(value, BEFORE))),
            ("share_after", Json::Floating(self.share(value, AFTER))),
            ("change", Json::Floating(self.change(value))),
        ])
    }

    /// Draws the second profile in the colours of the change: red is more, blue is less.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, path: &str) -> Result<(), Error> {
        file::write(path, |out| self.draw_into(Wrapping::of(path), out))
    }

    /// The same picture as SVG text.
    #[must_use]
    pub fn picture(&self) -> Vec<u8> {
        let mut out = Vec::new();
        // Writing to a vector cannot fail.
        let _ = self.draw_into(Wrapping::Svg, &mut out);
        out
    }

    fn draw_into(&self, wrapping: Wrapping, out: &mut dyn Write) -> io::Result<()> {
        let name = |side: usize| {
            let path = Path::new(&self.paths[side]);
            path.file_name()
                .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let scale = match self.is_normalized {
            true => (self.tree.total(AFTER), self.tree.total(BEFORE)),
            false => (1, 1),
        };
        let scaled = if self.is_normalized {
            ", scaled to the same sum"
        } else {
            ""
        };
        let subtitle = format!(
            "as wide as in {}; red: more in the function itself than in {}{scaled}, blue: less",
            name(AFTER),
            name(BEFORE)
        );
        let unit = match &*self.said.unit {
            "" => "hits",
            unit => unit,
        };
        let picture = Picture {
            title: &format!("{} compared with {}", name(AFTER), name(BEFORE)),
            subtitle: &subtitle,
            unit,
            is_difference: true,
            scale,
        };
        draw(&self.tree, &picture, wrapping, out)
    }
}

/// The functions of a tree. The stacks through a function that calls itself count once.
fn changes(tree: &Tree) -> Vec<Change> {
    let nodes = tree.nodes();
    let sums = tree.sums();
    let empty = |name: usize| Change {
        name: name as NameId,
        own: [0; 2],
        total: [0; 2],
    };
    let mut changes: Vec<Change> = (0..tree.names.all().len()).map(empty).collect();
    for (node, sum) in nodes.iter().zip(&sums).skip(1) {
        let Some(change) = changes.get_mut(node.name as usize) else {
            continue;
        };
        let mut callers = std::iter::successors(Some(node.parent), |caller| {
            Some(nodes[*caller as usize].parent).filter(|_| *caller != 0)
        });
        let is_recursive = callers.any(|caller| nodes[caller as usize].name == node.name);
        for side in [BEFORE, AFTER] {
            change.own[side] += node.own[side];
            if !is_recursive {
                change.total[side] += sum[side];
            }
        }
    }
    changes
}

/// A number in at most nine digits: 1234567, 12345M.
fn shortened(value: u64) -> String {
    let units = ["", "k", "M", "G", "T"];
    let mut shown = value;
    let mut unit = 0;
    while shown >= 1_000_000_000 && unit + 1 < units.len() {
        shown = shown / 1000 + u64::from(shown % 1000 >= 500);
        unit += 1;
    }
    format!("{shown}{}", units[unit])
}

/// A text, cut to at most this many columns.
fn cut(text: &str, columns: usize) -> String {
    let width = |character: char| character.width().unwrap_or(0);
    if text.chars().map(width).sum::<usize>() <= columns {
        return text.to_owned();
    }
    let mut room = columns.saturating_sub(2);
    let mut out: String = text
        .chars()
        .take_while(|character| {
            let fits = width(*character) <= room;
            room = room.saturating_sub(width(*character));
            fits
        })
        .collect();
    out.push_str("..");
    out
}
