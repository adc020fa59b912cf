//! From points to runs: which bytes are displaced, by which tactic, and what their detour must satisfy.

mod assign;
mod choose;
mod displace;
mod guest;
mod last_resort;
mod moved;
mod neighbour;
mod obstacle;
mod pass;
mod planner;
mod reconcile;
mod replan;
mod run;
mod shape;
mod sites;
mod springboard;
mod successor;
mod why;

pub use guest::Guest;
pub use moved::Shift;
pub use obstacle::Obstacle;
pub use pass::plan;
pub use reconcile::reconcile;
pub use replan::plan_again;
pub use run::{Displaced, FunctionPlan, PlanOptions, RunPlan};
pub use springboard::Springboard;
pub use why::{why_not, why_trap};
