//! The choice for one site.
//!
//! All shapes that could cover it are tried: first those that start at the site, then those that start before it,
//! nearest first, as far down as the text is free. A run that starts five or more bytes before the site is no better
//! than a shorter one. The best [`Quality`] wins. If the best shape needs a springboard or an address that may not
//! exist, the other shapes are its alternatives.

use super::planner::{Choice, Planner, Previous, Quality};
use super::run::RunPlan;
use super::shape::{BranchTargets, JUMP, shape_at};
use super::sites::Site;
use crate::Tactic;

impl Planner<'_> {
    /// The best run that covers a site and starts at or after `floor`. `rest`: the later sites, the next site last.
    pub(super) fn choose(&self, site: &Site, rest: &[Site], floor: u32) -> Option<Choice> {
        let map = self.map;
        let sites = std::slice::from_ref(site);
        let site_offset = map.code().get(site.index)?.offset;
        let mut best: Option<Choice> = None;
        for first in (0..=site.index).rev() {
            let start = map.code().get(first)?.offset;
            if start < floor {
                break;
            }
            for (quality, shape) in self.shapes(first, site.index) {
                if best.as_ref().is_some_and(|best| best.quality <= quality) {
                    continue;
                }
                if let Some((run, covered)) = self.cover(&shape, sites, rest) {
                    best = Some(Choice {
                        quality,
                        first,
                        run,
                        covered,
                    });
                }
            }
            let found = best.as_ref().is_some_and(|best| best.quality == Quality::Jump);
            // A run that starts five or more bytes before the site is no better than a shorter one.
            if found || start + JUMP <= site_offset {
                break;
            }
        }
        let mut best = best?;
        if best.quality != Quality::Jump && self.force.is_none() {
            best.run.alternative = self.alternative(&best, site, rest);
        }
        Some(best)
    }

    /// The choices for the case that the best choice finds no place. These are the other shapes from the same start
    /// over the same sites, each as the alternative of the previous one.
    fn alternative(&self, best: &Choice, site: &Site, rest: &[Site]) -> Option<Box<RunPlan>> {
        let mut shapes = self.shapes(best.first, site.index);
        shapes.retain(|(quality, _)| *quality > best.quality);
        let mut chain: Option<Box<RunPlan>> = None;
        for (_, shape) in shapes.iter().rev().filter(|(_, shape)| shape.tactic() != Tactic::Evict) {
            let covered = self.cover(shape, std::slice::from_ref(site), rest);
            if let Some((mut run, _)) = covered.filter(|(_, covered)| *covered == best.covered) {
                run.alternative = chain.take();
                chain = Some(Box::new(run));
            }
        }
        chain
    }

    /// The previous run, extended so that it also covers this site.
    pub(super) fn extend(&self, previous: &Previous, site: &Site, rest: &[Site]) -> Option<Choice> {
        let mut sites = previous.sites.clone();
        sites.push(site.clone());
        let attempts = [BranchTargets::Refuse, BranchTargets::BehindJump];
        attempts.into_iter().find_map(|targets| {
            let shape = shape_at(self.map, previous.first, site.index, JUMP, targets)?;
            if shape.keeps_unreached {
                return None;
            }
            let quality = match targets {
                BranchTargets::Refuse if shape.avoided => Quality::ExtendedWithCall,
                BranchTargets::Refuse => Quality::Extended,
                BranchTargets::BehindJump | BranchTargets::Trapping(_) => Quality::PartlyTrapping,
            };
            if self.force.is_some_and(|tactic| tactic != shape.tactic()) {
                return None;
            }
            let (run, covered) = self.cover(&shape, &sites, rest)?;
            Some(Choice {
                quality,
                first: previous.first,
                run,
                covered,
            })
        })
    }
}
