//! Matching probes that only debug information shows: lines of the source, and inlined copies of functions.
//!
//! Both are lists of sites, like static probes. A line is one probe in each function, the copies of a function are
//! one probe in each module, each with all of its sites.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nanoprobe_lang::glob;
use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_symbols::{ImageAddress, Module, ModuleKind};
use nanoprobe_text::code::extent_around;
use nanoprobe_types::NoLine;

use super::Known;
use crate::debug::{debug_info, inlined_copies};
use crate::error::SessionError;
use crate::inlined;
use crate::names::{NO_FUNCTION, NameError, Reason};
use crate::probes::{Line, answers_to, describe, matching_name, means_inlined};

impl Known {
    /// Matches a description that names a line, in the modules from index `first` on.
    pub(in crate::session) fn match_line(
        &mut self,
        clause: usize,
        number: usize,
        description: &ProbeDescription,
        line: &Line,
        first: usize,
    ) -> Result<(), SessionError> {
        let mut found = Vec::new();
        let mut reasons = Vec::new();
        for (index, module) in self.modules.list().iter().enumerate().skip(first) {
            if !means(description, module) {
                continue;
            }
            let info = debug_info(module).map_err(NoLine::Problem);
            let addresses = match info.and_then(|info| info.line(&line.file, line.number)) {
                Ok(addresses) => addresses,
                Err(reason) => {
                    reasons.push(reason);
                    continue;
                }
            };
            let mut functions: BTreeMap<Cow<'_, str>, Vec<ImageAddress>> = BTreeMap::new();
            for address in addresses.into_iter().map(ImageAddress) {
                // A line table may hold anything: an address outside of all functions is no site.
                if extent_around(module, address).is_none() {
                    continue;
                }
                let name = match module.function_at(address) {
                    Some(function) => matching_name(function, &line.function, self.compiled.options.printing.demangle),
                    None => answers_to(NO_FUNCTION, &line.function, self.compiled.options.printing.demangle),
                };
                if let Some(name) = name {
                    functions.entry(name).or_default().push(address);
                }
            }
            for (function, sites) in functions {
                let name = format!("{}@{}", line.file, line.number);
                let sites = sites.into_iter().map(|site| (site, None));
                let number = self.statics.add(index, &function, &name, sites);
                found.push(
                    self.probes
                        .add_listed(description, module, index, number, &self.statics),
                );
            }
        }
        for reason in reasons {
            self.note_no_line(clause, number, description, reason);
        }
        self.enable(clause, number, found.into_iter().flatten().collect())
    }

    /// Matches the inlined copies of the function that a description names, in the modules from index `first` on.
    pub(in crate::session) fn match_inlined(
        &mut self,
        clause: usize,
        number: usize,
        description: &ProbeDescription,
        first: usize,
    ) -> Result<(), SessionError> {
        if !means_inlined(description) {
            return Ok(());
        }
        let mut found = Vec::new();
        let demangle = self.compiled.options.printing.demangle;
        for (index, module) in self.modules.list().iter().enumerate().skip(first) {
            if !means(description, module) {
                continue;
            }
            let functions = inlined_copies(module, &description.function, demangle);
            let copies = inlined::Copies::of(module);
            let mut by_name: BTreeMap<String, Vec<_>> = BTreeMap::new();
            for function in &*functions {
                let sites = function.copies.iter().filter_map(|copy| {
                    let address = ImageAddress(copy.address);
                    extent_around(module, address)?;
                    Some((address, Some(inlined::operands(&copies, &function.signature, copy))))
                });
                by_name.entry(function.name.clone()).or_default().extend(sites);
            }
            for (function, sites) in by_name.into_iter().filter(|(_, sites)| !sites.is_empty()) {
                let number = self.statics.add(index, &function, "entry", sites);
                found.push(
                    self.probes
                        .add_listed(description, module, index, number, &self.statics),
                );
            }
        }
        self.take_static_arguments();
        self.enable(clause, number, found.into_iter().flatten().collect())
    }

    /// Makes the operands of static sites known to the code generator.
    pub(in crate::session) fn take_static_arguments(&mut self) {
        let known = self.codegen.static_arguments.len();
        let more = self.statics.arguments().get(known..).unwrap_or_default();
        self.codegen.static_arguments.extend_from_slice(more);
    }

    /// Keeps why a line was not found. The error of a module that has the source file counts more than the errors of
    /// modules that lack it.
    fn note_no_line(&mut self, clause: usize, number: usize, description: &ProbeDescription, reason: NoLine) {
        let weight = |reason: &NoLine| match reason {
            NoLine::NoCode { .. } => 2,
            NoLine::NoFile => 1,
            NoLine::Problem(_) => 0,
        };
        let error = NameError {
            description: describe(description),
            reason: Reason::Line(reason.clone()),
        };
        let known = self
            .matches
            .name_errors
            .entry((clause, number))
            .or_insert_with(|| error.clone());
        if matches!(&known.reason, Reason::Line(before) if weight(before) < weight(&reason)) {
            *known = error;
        }
    }
}

fn means(description: &ProbeDescription, module: &Module) -> bool {
    module.kind() != ModuleKind::Vdso
        && (description.module.is_empty() || module.module_matches(|name| glob::matches(&description.module, name)))
}
