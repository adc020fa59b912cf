//! `-l`: the probes that match, and with `-v` how each would be patched.

use std::io::Write;

use nanoprobe_export::Json;
use nanoprobe_session::{Place, Session};

/// Prints the table, as dtrace does.
pub fn print(session: &Session, out: &mut dyn Write) -> std::io::Result<()> {
    writeln!(
        out,
        "{:>5} {:>10} {:>17} {:>33} NAME",
        "ID", "PROVIDER", "MODULE", "FUNCTION"
    )?;
    for probe in session.probes() {
        writeln!(
            out,
            "{:>5} {:>10} {:>17} {:>33} {}",
            probe.id,
            probe.provider,
            probe.module,
            probe.function,
            probe.name()
        )?;
    }
    Ok(())
}

/// Prints a line of JSON for each.
pub fn print_json(session: &Session, out: &mut dyn Write) -> std::io::Result<()> {
    for probe in session.probes() {
        let line = Json::Object(vec![
            ("type", "probe".into()),
            ("id", probe.id.into()),
            ("provider", probe.provider.to_string().into()),
            ("module", probe.module.to_string().into()),
            ("function", probe.function.to_string().into()),
            ("name", probe.name().into_owned().into()),
        ]);
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Prints how the sites of the probes would be patched.
pub fn print_plan(session: &mut Session, out: &mut dyn Write) -> Result<(), anyhow::Error> {
    let has_target = session.probes().any(|probe| {
        matches!(
            probe.place,
            Place::Function { .. } | Place::Address { .. } | Place::Static { .. }
        )
    });
    if !has_target {
        return Ok(());
    }
    let placement = session.plan()?;
    writeln!(out)?;
    writeln!(out, "{:>18} {:>15} {:>7}  SITES", "PATCH", "TACTIC", "BYTES")?;
    for patch in &placement.patches {
        let sites: Vec<String> = patch.sites.iter().map(|site| session.symbolize(site.0)).collect();
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
