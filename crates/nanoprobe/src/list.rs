//! `-l`: the probes that match, and with `-v` how each probe would be patched.

use std::io::Write;

use nanoprobe_export::{Console, Sink};
use nanoprobe_session::{Known, Listed, Place, argument_types};

use crate::output::probe_name;

/// Prints the probes. `with_types`: those of system calls with the types of their arguments.
pub fn print(
    known: &Known,
    with_types: bool,
    sink: &mut dyn Sink,
    out: &mut dyn Console,
) -> Result<(), nanoprobe_export::Error> {
    sink.list_begins(out)?;
    known.probes().try_for_each(|probe| {
        sink.listed(out, &probe_name(known, probe))?;
        match probe.place {
            Place::Call { end, .. } if with_types => {
                let types = argument_types(&probe.function, end).into_iter();
                let types: Vec<String> = types.map(|(of, name)| declared(of, name)).collect();
                sink.listed_arguments(out, &types)
            }
            _ => Ok(()),
        }
    })
}

/// A parameter as C declares it.
fn declared(of: &str, name: &str) -> String {
    let gap = if of.ends_with('*') || name.is_empty() { "" } else { " " };
    format!("{of}{gap}{name}")
}

/// Prints how the sites of the probes would be patched.
pub fn print_plan(listed: &Listed, out: &mut dyn Write) -> Result<(), anyhow::Error> {
    let known = listed.known();
    let has_target = known.probes().any(|probe| {
        matches!(
            probe.place,
            Place::Function { .. } | Place::Address { .. } | Place::Static { .. } | Place::Call { .. }
        )
    });
    if !has_target {
        return Ok(());
    }
    let placement = listed.plan()?;
    writeln!(out)?;
    writeln!(out, "{:>18} {:>15} {:>7}  SITES", "PATCH", "TACTIC", "BYTES")?;
    for patch in &placement.patches {
        let sites: Vec<String> = patch.sites.iter().map(|site| known.symbolize(site.0)).collect();
        let bytes = patch.built.patched.len();
        let form = if patch.takes_return {
            ", return address replaced"
        } else {
            ""
        };
        writeln!(
            out,
            "{:>18} {:>15} {bytes:>7}  {}{form}",
            patch.built.address.to_string(),
            patch.how(),
            sites.join(" ")
        )?;
    }
    for refused in &placement.refused {
        let site = refused.site.map_or_else(|| "-".to_owned(), |site| site.to_string());
        writeln!(
            out,
            "{site:>18} {:>15} {:>7}  {}: {}",
            "none", "-", refused.function, refused.reason
        )?;
    }
    Ok(())
}
