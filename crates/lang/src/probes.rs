//! Probe descriptions: `provider:module:function:name`.
//!
//! Fields are filled from the right: `read:entry` is a function and a name, `BEGIN` a name. What is left out matches
//! everything, and so do globs where they match.

use crate::diagnostic::Diagnostic;
use crate::program::ProbeDescription;
use crate::source::Span;

/// A description from its text, macro arguments already replaced.
///
/// # Errors
/// `D_PDESC_INVAL`: more than four fields.
pub fn parse(text: &str, span: Span) -> Result<ProbeDescription, Diagnostic> {
    let fields: Vec<&str> = text.split(':').collect();
    let field = |from_right: usize| -> String {
        fields
            .len()
            .checked_sub(from_right)
            .and_then(|index| fields.get(index))
            .copied()
            .unwrap_or("")
            .to_owned()
    };
    if fields.len() > 4 {
        return Err(Diagnostic::new(
            "D_PDESC_INVAL",
            span,
            format!("the probe description {text} has {} fields", fields.len()),
        )
        .with_help("provider:module:function:name; a name with `::` in it is matched with a glob, such as *vector*"));
    }
    Ok(ProbeDescription {
        provider: field(4),
        module: field(3),
        function: field(2),
        name: field(1),
        span,
    })
}

impl std::fmt::Display for ProbeDescription {
    /// With all four fields, as it can be written again.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}:{}", self.provider, self.module, self.function, self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> [String; 4] {
        let probe = parse(text, Span::default()).unwrap();
        [probe.provider, probe.module, probe.function, probe.name]
    }

    #[test]
    fn fields_fill_from_the_right() {
        assert_eq!(fields("BEGIN"), ["", "", "", "BEGIN"]);
        assert_eq!(fields("f:entry"), ["", "", "f", "entry"]);
        assert_eq!(fields("pid12::str*:"), ["pid12", "", "str*", ""]);
        assert_eq!(fields("profile:::tick-1s"), ["profile", "", "", "tick-1s"]);
    }

    #[test]
    fn a_fifth_field_is_refused() {
        assert_eq!(
            parse("a:b:std::f:entry", Span::default()).unwrap_err().tag,
            "D_PDESC_INVAL"
        );
    }
}
