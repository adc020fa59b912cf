//! Probe descriptions: `provider:module:function:name`.
//!
//! Fields are filled from the right: `read:entry` is a function and a name, `BEGIN` a name. An
//! omitted field matches everything. Each field may be a glob.
//!
//! Names of C++ and Rust contain `::`, which is two separators. A description with all four fields has
//! only one reading. Provider and module are before the first two colons, the name is after the last
//! one, and the function is the rest. Every colon in the function must be one of a pair:
//!
//! ```text
//!   pid7 : a.out : ns::Box::area : entry       pid7 :: ns::area : entry       pid7 : a.out : ns::f :
//! ```

use crate::diagnostic::Diagnostic;
use crate::program::ProbeDescription;
use crate::source::Span;

/// A description from its text, with macro arguments already replaced.
///
/// # Errors
/// `D_PDESC_INVAL`: there are more than four fields, and the additional colons are not `::` in the function.
pub fn parse(text: &str, span: Span) -> Result<ProbeDescription, Diagnostic> {
    let fields: Vec<&str> = text.split(':').collect();
    let field = |from_right: usize| -> String {
        let index = fields.len().checked_sub(from_right);
        let field = index.and_then(|index| fields.get(index));
        field.copied().unwrap_or("").to_owned()
    };
    if fields.len() <= 4 {
        return Ok(ProbeDescription {
            provider: field(4),
            module: field(3),
            function: field(2),
            name: field(1),
            span,
        });
    }
    let scoped = || {
        let (provider, rest) = text.split_once(':')?;
        let (module, rest) = rest.split_once(':')?;
        let (function, name) = rest.rsplit_once(':')?;
        is_scoped(function).then_some([provider, module, function, name])
    };
    let Some([provider, module, function, name]) = scoped() else {
        let message = format!("the probe description {text} has {} fields", fields.len());
        return Err(Diagnostic::new("D_PDESC_INVAL", span, message)
            .with_help("provider:module:function:name; only a function may have `::` in it, as in pid1::ns::f:entry"));
    };
    Ok(ProbeDescription {
        provider: provider.to_owned(),
        module: module.to_owned(),
        function: function.to_owned(),
        name: name.to_owned(),
        span,
    })
}

/// The error of a description with a sign in it, such as the `<` of a full name of C++ or Rust.
pub fn ended_by(sign: char, text: &str, span: Span) -> Diagnostic {
    let message = format!("a probe description cannot have `{sign}` in it, which stands after {text}");
    Diagnostic::new("D_PDESC_INVAL", span, message).with_help(
        "write ? for each of < > ( ) & , and blank in a function's name, or * for all of them: std::vector<int>::size is \
         std::vector?int?::size, or std::vector*::size",
    )
}

/// The probe with a number. As in DTrace, the probes of the provider `dtrace` have the same numbers in
/// every session.
///
/// # Errors
/// `N_PROBE_ID`: any other number, because it would mean another probe in the next session.
pub fn numbered(id: u64, span: Span) -> Result<ProbeDescription, Diagnostic> {
    match id {
        1 => parse("dtrace:::BEGIN", span),
        2 => parse("dtrace:::END", span),
        3 => parse("dtrace:::ERROR", span),
        _ => {
            let message =
                format!("probe description :::{id} does not match any probes: numbers change with each session");
            Err(Diagnostic::new("N_PROBE_ID", span, message)
                .with_help("write provider:module:function:name; only BEGIN, END and ERROR are always 1, 2 and 3"))
        }
    }
}

/// Whether a text consists of names with `::` between them.
fn is_scoped(function: &str) -> bool {
    let is_name = |part: &str| !part.is_empty() && !part.contains(':');
    function.contains("::") && function.split("::").all(is_name)
}

impl std::fmt::Display for ProbeDescription {
    /// All four fields, in a form that can be parsed again.
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
    fn a_function_may_have_scopes_where_all_fields_are_written() {
        assert_eq!(fields("pid1:a.out:ns::f:entry"), ["pid1", "a.out", "ns::f", "entry"]);
        assert_eq!(fields("pid1:a.out:ns::Box*::f:"), ["pid1", "a.out", "ns::Box*::f", ""]);
        assert_eq!(fields("pid1::a::b::c:entry"), ["pid1", "", "a::b::c", "entry"]);
        assert_eq!(fields(":lib:a::b:"), ["", "lib", "a::b", ""]);
        // The usual reading, which is also DTrace's.
        assert_eq!(fields("std::f:entry"), ["std", "", "f", "entry"]);
    }

    #[test]
    fn a_fifth_field_is_refused() {
        for text in [
            "a:b:c:d:entry",
            "a:b:c:d::entry",
            "a:b::f:entry",
            "a:b:c:::f:entry",
            "a:::::b",
            "a:b:c::d:e:f",
        ] {
            assert_eq!(parse(text, Span::default()).unwrap_err().tag, "D_PDESC_INVAL", "{text}");
        }
    }
}
