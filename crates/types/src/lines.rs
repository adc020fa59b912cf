//! Lines: at which instructions the code of a source line begins.
//!
//! ```text
//!   file.c:7   for (i = 0; i < n; i++)    rows of the line table, in the order of their addresses
//!                                           1000  7:10  is_stmt    <- i = 0
//!                                           1004  7:10  is_stmt       belongs to it: the same line and column
//!                                           1007  8:3   is_stmt
//!                                           1010  7:22  is_stmt    <- i++
//!                                           1013  7:22                belongs to it
//! ```
//!
//! A line begins at each of its rows that begins a statement, unless the previous row has the same line
//! and column. So it begins at each of its columns, and in each copy that the compiler made of it. These
//! are the places at which a debugger would stop.
//!
//! Each line table is read once for a question, however many units share it. Tables that do not name the
//! file are not executed. Code that the linker left out begins at address 0. Manual: DWARF 5, 6.2 Line
//! Number Information.

use std::collections::HashSet;

use gimli::{AttributeValue, DebugInfoOffset};
use nanoprobe_lang::glob;

use crate::units::UnitIndex;
use crate::{DebugInfo, Dwarf, Problem, Slice, Unit};

/// The most addresses of one line.
const ADDRESSES_MAX: usize = 1 << 16;
/// Paths that are longer than this match nothing.
const PATH_BYTES_MAX: usize = 4096;

/// Why a line has no addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoLine {
    /// The debug information cannot be read.
    Problem(Problem),
    /// No unit was compiled from such a file.
    NoFile,
    /// The line has no code of its own. The nearest lines that have some are given.
    NoCode {
        /// The nearest earlier line that has code.
        before: Option<u64>,
        /// The nearest later line that has code.
        after: Option<u64>,
    },
}

/// The line that is searched, and the results so far.
struct Search<'p> {
    file: &'p str,
    line: u64,
    addresses: Vec<u64>,
    has_file: bool,
    before: Option<u64>,
    after: Option<u64>,
}

impl DebugInfo {
    /// The addresses in the image at which a line begins, ascending. `file` is a glob that matches the file's
    /// name, or its whole path as the compiler was given it.
    ///
    /// # Errors
    /// The reason why there are no such addresses.
    pub fn line(&self, file: &str, line: u64) -> Result<Vec<u64>, NoLine> {
        let dwarf = self.dwarf();
        let mut search = Search {
            file,
            line,
            addresses: Vec::new(),
            has_file: false,
            before: None,
            after: None,
        };
        let mut seen = HashSet::new();
        let mut problem = None;
        for index in (0..self.units().count()).map(UnitIndex) {
            // If a unit's entries lie in another file (.dwo), its lines are nevertheless in this file.
            let Some(unit) = self.skeleton(&dwarf, index) else {
                continue;
            };
            let Some(program) = &unit.line_program else { continue };
            if seen.insert(program.header().offset().0) && search.run(&dwarf, &unit).is_none() {
                problem.get_or_insert_with(|| self.damaged("a line table"));
            }
        }
        search.addresses.sort_unstable();
        search.addresses.dedup();
        match (search.addresses.is_empty(), search.has_file, problem) {
            (false, ..) => Ok(search.addresses),
            (true, true, _) => Err(NoLine::NoCode {
                before: search.before,
                after: search.after,
            }),
            (true, false, Some(problem)) => Err(NoLine::Problem(problem)),
            (true, false, None) => Err(NoLine::NoFile),
        }
    }
}

impl Search<'_> {
    /// Executes a unit's table. `None`: the table is cut off; the rows before the cut count.
    fn run<'a>(&mut self, dwarf: &Dwarf<'a>, unit: &Unit<'a>) -> Option<()> {
        let program = unit.line_program.clone()?;
        let header = program.header();
        let first = if header.version() >= 5 { 0 } else { 1 };
        let text = |value: AttributeValue<Slice<'a>>| dwarf.attr_string(unit, value).ok();
        let mut wanted = HashSet::new();
        for (number, entry) in (first..).zip(header.file_names()) {
            let name = text(entry.path_name())?.to_string_lossy();
            let directory = entry
                .directory(header)
                .and_then(text)
                .map(|directory| directory.to_string_lossy());
            if is_meant(self.file, &name, directory.as_deref()) {
                wanted.insert(number);
            }
        }
        if wanted.is_empty() {
            return Some(());
        }
        self.has_file = true;
        let mut rows = program.rows();
        // The line and column of the previous row in this sequence, if that row belongs to the wanted file.
        let mut before = None;
        let mut begins = true;
        let mut left_out = false;
        while let Some((_, row)) = rows.next_row().ok()? {
            if begins {
                left_out = row.address() == 0;
                before = None;
            }
            begins = row.end_sequence();
            if begins || left_out {
                continue;
            }
            let line = row.line().map_or(0, std::num::NonZeroU64::get);
            let here = wanted.contains(&row.file_index()).then(|| (line, row.column()));
            if here.is_some() && row.is_stmt() && line != 0 && here != before {
                self.take(line, row.address());
            }
            before = here;
        }
        Some(())
    }

    fn take(&mut self, line: u64, address: u64) {
        match line.cmp(&self.line) {
            std::cmp::Ordering::Equal if self.addresses.len() < ADDRESSES_MAX => self.addresses.push(address),
            std::cmp::Ordering::Equal => {}
            std::cmp::Ordering::Less => self.before = self.before.max(Some(line)),
            std::cmp::Ordering::Greater => {
                self.after = Some(self.after.map_or(line, |after| after.min(line)));
            }
        }
    }
}

/// Whether a glob matches a file by its name or by its path.
fn is_meant(pattern: &str, name: &str, directory: Option<&str>) -> bool {
    let base = name.rsplit('/').next().unwrap_or(name);
    if glob::matches(pattern, base) || glob::matches(pattern, name) {
        return true;
    }
    directory.is_some_and(|directory| {
        directory.len() + name.len() < PATH_BYTES_MAX
            && !name.starts_with('/')
            && glob::matches(pattern, &format!("{directory}/{name}"))
    })
}

impl DebugInfo {
    /// A unit with its line table. Its entries may lie in another file.
    pub(crate) fn skeleton<'a>(&self, dwarf: &Dwarf<'a>, index: UnitIndex) -> Option<Unit<'a>> {
        let offset: DebugInfoOffset = self.units().offset(index)?;
        let header = dwarf.unit_header(offset).ok()?;
        dwarf.unit(header).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_match_by_name_or_path() {
        let source = Some("/home/me/src");
        for (pattern, name, meant) in [
            ("main.c", "main.c", true),
            ("main.c", "lib/main.c", true),
            ("*.c", "main.c", true),
            ("*src?main.c", "main.c", true),
            ("ain.c", "main.c", false),
            ("main.c", "main.cc", false),
            ("*other*main.c", "main.c", false),
        ] {
            assert_eq!(is_meant(pattern, name, source), meant, "{pattern} {name}");
        }
        assert!(!is_meant("*src?main.c", "/elsewhere/main.c", source));
    }
}
