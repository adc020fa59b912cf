//! Enablings, grouped by the function in which their probes fire.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use nanoprobe_patch::{Fire, TargetAddress};
use nanoprobe_symbols::{FunctionKind, ImageAddress, Module};
use nanoprobe_text::code::extent_around;

use super::{Choices, Hook, Named, Planner, Refused, RefusedBecause};
use crate::enable::Enabling;
use crate::probes::{Place, Spot};

/// A module, a range of its code, whether the range begins at a function's entry, and a spot in the range.
pub(super) type Located = (usize, Range<u64>, bool, Spot);

/// A function in which something fires.
pub(super) struct Group {
    pub(super) module: usize,
    pub(super) named: Named,
    pub(super) extent: Range<u64>,
    /// Whether the extent begins at a function's entry, where nothing below the stack pointer is live. If no symbol
    /// names the function, this is not known: it may be a part of another function, entered by a jump.
    pub(super) is_function: bool,
    pub(super) members: Vec<(usize, Spot)>,
    pub(super) hooks: Vec<Fire>,
}

impl Planner<'_> {
    pub(super) fn groups(&self, first: usize, hooks: &[Hook], refused: &mut Vec<Refused>) -> BTreeMap<u64, Group> {
        let mut groups: BTreeMap<u64, Group> = BTreeMap::new();
        for (number, enabling) in self.enablings.list().iter().enumerate().skip(first) {
            if (self.is_cancelled)() {
                break;
            }
            let Some(probe) = self.probes.get(enabling.probe) else {
                continue;
            };
            for located in self.located(enabling, &probe.place) {
                let (module, extent, is_function, spot) = match located {
                    Ok(located) => located,
                    Err(reason) => {
                        refused.push(Refused {
                            site: None,
                            function: format!("{}`{}", probe.module, probe.function),
                            reason,
                        });
                        continue;
                    }
                };
                let group = groups.entry(extent.start).or_insert_with(|| Group {
                    module,
                    named: Named::Probe(enabling.probe),
                    extent,
                    is_function,
                    // Usually one probe fires in a function, so there is one member.
                    members: Vec::with_capacity(1),
                    hooks: Vec::new(),
                });
                group.is_function |= is_function;
                group.members.push((number, spot));
            }
        }
        for group in groups.values_mut() {
            self.keep_one_name(&mut group.members);
        }
        for hook in hooks {
            let Some(module) = self.modules.get(hook.module) else {
                continue;
            };
            let Some(extent) = module.extent_at(hook.address) else {
                continue;
            };
            let start = module.bias().to_target(extent.start).0;
            let group = groups.entry(start).or_insert_with(|| Group {
                module: hook.module,
                named: Named::Hook(hook.module),
                extent: start..module.bias().to_target(extent.end).0,
                is_function: true,
                members: Vec::new(),
                hooks: Vec::new(),
            });
            group.hooks.push(hook.fire);
        }
        groups
    }

    /// The function's name in messages.
    pub(super) fn name_of(&self, group: &Group) -> String {
        group.named.name(self.probes, self.modules)
    }

    /// Several probes of one description may be the same place under several names, as for an IFUNC and the function
    /// that it chose. Keeps one of these probes: that of the function itself if it has a name, else the first probe
    /// with a name.
    fn keep_one_name(&self, members: &mut Vec<(usize, Spot)>) {
        let list = self.enablings.list();
        let rank = |number: usize| {
            let probe = list.get(number).and_then(|enabling| self.probes.get(enabling.probe));
            let Some(Place::Function { module, function, .. }) = probe.map(|probe| &probe.place) else {
                return None;
            };
            let function = self.modules.get(*module)?.functions().get(*function)?;
            Some(match function.kind {
                FunctionKind::Code if function.is_named => 2,
                FunctionKind::Ifunc { .. } => 1,
                FunctionKind::Code => 0,
            })
        };
        let mut kept: HashMap<(usize, usize, Spot), (u8, usize)> = HashMap::new();
        for (number, spot) in members.iter() {
            let (Some(enabling), Some(rank)) = (list.get(*number), rank(*number)) else {
                continue;
            };
            let one = kept
                .entry((enabling.clause, enabling.description, *spot))
                .or_insert((rank, *number));
            if rank > one.0 || rank == 2 {
                *one = (rank, *number);
            }
        }
        members.retain(|(number, spot)| {
            let enabling = list.get(*number).filter(|_| rank(*number).is_some());
            let one = enabling.and_then(|enabling| kept.get(&(enabling.clause, enabling.description, *spot)));
            one.is_none_or(|(_, one)| one == number)
        });
    }

    /// Where a clause fires at a probe; the list is empty where it fires in the tracer.
    fn located(&self, enabling: &Enabling, place: &Place) -> Vec<Result<Located, RefusedBecause>> {
        match *place {
            Place::Function { module, function, spot } => {
                let located = locate(self.modules, self.choices, module, function);
                let home = self.modules.get(module);
                let is_function = home
                    .and_then(|home| home.functions().get(function))
                    .is_some_and(|function| function.is_named);
                vec![located.map(|(module, extent)| (module, extent, is_function, spot))]
            }
            Place::Address { module, address } => vec![self.locate_address(module, address)],
            Place::Static { module, number } => {
                let sites = self.statics.get(number).map_or(&[][..], |known| &known.sites);
                let located = sites.iter().map(|site| self.locate_address(module, site.address));
                located.collect()
            }
            Place::CallSites { module, end } => self.located_calls(enabling, module, end),
            _ => Vec::new(),
        }
    }

    /// The code around an address, and the spot of the address in this code.
    pub(super) fn locate_address(&self, module: usize, address: ImageAddress) -> Result<Located, RefusedBecause> {
        let home = self.modules.get(module).ok_or(RefusedBecause::NoCode)?;
        let (extent, is_function) = extent_around(home, address).ok_or(RefusedBecause::NoCode)?;
        let offset = home.bias().to_target(address).0.wrapping_sub(extent.start);
        Ok((module, extent, is_function, Spot::Offset(offset)))
    }
}

/// The code in which a function's probes fire: the function itself, or the function that its IFUNC chose.
///
/// # Errors
/// The file does not have the code, or the choice is not known.
pub fn locate(
    modules: &[Module],
    choices: &Choices,
    module: usize,
    function: usize,
) -> Result<(usize, Range<u64>), RefusedBecause> {
    let home = modules.get(module).ok_or(RefusedBecause::NoCode)?;
    let function = home.functions().get(function).ok_or(RefusedBecause::NoCode)?;
    let FunctionKind::Ifunc { resolver } = function.kind else {
        let extent = function.extent();
        return Ok((
            module,
            home.bias().to_target(extent.start).0..home.bias().to_target(extent.end).0,
        ));
    };
    let choice = choices
        .get(&home.bias().to_target(resolver))
        .ok_or(RefusedBecause::Unresolved)?;
    extent_of_choice(modules, *choice).ok_or(RefusedBecause::Unresolved)
}

/// The module in which an IFUNC's chosen code lies, and the range of this code.
pub fn extent_of_choice(modules: &[Module], choice: TargetAddress) -> Option<(usize, Range<u64>)> {
    modules.iter().enumerate().find_map(|(index, module)| {
        let extent = module.extent_at(module.bias().to_image(choice))?;
        let end = module.bias().to_target(extent.end);
        (choice.0 < end.0).then_some((index, choice.0..end.0))
    })
}
