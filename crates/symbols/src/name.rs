//! Names of functions: versions, cold suffixes, mangling.

use std::borrow::Cow;
use std::fmt::Write;

/// Longer mangled names are not demangled, and demangling stops at [`DEMANGLED_BYTES_MAX`]. A mangled name can refer
/// to its own parts again and again, so the demangled name can be exponentially longer.
const MANGLED_BYTES_MAX: usize = 16 * 1024;
/// Longer demangled names are cut off, marked by `...`.
const DEMANGLED_BYTES_MAX: usize = 4 * 1024;
/// The depth of nested types and expressions in demangling: enough for real templates, and little enough for the
/// stack.
const DEMANGLE_DEPTH_MAX: u32 = 128;

/// The source-language forms of a mangled name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Demangled {
    /// The whole name: `ns::area(int, double)`.
    pub full: Box<str>,
    /// The name without parameters and return type: `ns::area`, as users type it in a probe description.
    pub short: Box<str>,
}

/// Demangles a C++ (Itanium) or Rust (legacy and v0) name; `None` for any other name.
pub fn demangle(name: &str) -> Option<Demangled> {
    if name.len() > MANGLED_BYTES_MAX || !is_mangled(name) {
        return None;
    }
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        // `{:#}` leaves out the hash. Rust names have no parameters, so the short and the full form are the same.
        let full = limited(|out| write!(out, "{rust:#}").is_ok())?;
        return Some(Demangled {
            short: without_brackets(&full).into(),
            full,
        });
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(DEMANGLE_DEPTH_MAX);
    let symbol = cpp_demangle::Symbol::new_with_options(name, &parse).ok()?;
    let options = cpp_demangle::DemangleOptions::new().recursion_limit(DEMANGLE_DEPTH_MAX);
    let short = options.no_params().no_return_type();
    Some(Demangled {
        full: limited(|out| symbol.structured_demangle(out, &options).is_ok())?,
        short: without_tags(&limited(|out| symbol.structured_demangle(out, &short).is_ok())?).into(),
    })
}

/// A method of Rust as its source names it, and as the older mangling shows it: `shapes::Circle::area`. The newer
/// mangling shows `<shapes::Circle>::area`. A method of a trait stays: `<shapes::Circle as core::clone::Clone>::clone`.
fn without_brackets(name: &str) -> Cow<'_, str> {
    let Some(inner) = name.strip_prefix('<') else {
        return Cow::Borrowed(name);
    };
    let mut depth = 1_u32;
    let mut last = ' ';
    for (at, character) in inner.char_indices() {
        match character {
            '<' => depth += 1,
            // The arrow in a function's type is no bracket.
            '>' if last != '-' => depth -= 1,
            _ => {}
        }
        last = character;
        if depth == 0 {
            let (of, method) = inner.split_at(at);
            let is_path = of.starts_with(|first: char| first.is_alphabetic() || first == '_');
            return match method.strip_prefix('>') {
                Some(method) if is_path && !of.contains(" as ") => Cow::Owned(format!("{of}{method}")),
                _ => Cow::Borrowed(name),
            };
        }
    }
    Cow::Borrowed(name)
}

/// A name of C++ without ABI tags, which no source contains: `name[abi:cxx11]`.
fn without_tags(name: &str) -> Cow<'_, str> {
    const TAG: &str = "[abi:";
    if !name.contains(TAG) {
        return Cow::Borrowed(name);
    }
    let mut parts = name.split(TAG);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        plain.push_str(part.split_once(']').map_or("", |(_, rest)| rest));
    }
    Cow::Owned(plain)
}

/// A name in readable form: [`Demangled::short`], with the marks of copies and cold parts. A name that is not mangled
/// stays unchanged. The result can be written in a probe description.
pub fn readable(name: &str) -> Cow<'_, str> {
    let Some(demangled) = demangle(name) else {
        return Cow::Borrowed(name);
    };
    let marks = COPY_MARKS.iter().filter_map(|mark| name.find(mark));
    match marks.min().and_then(|at| name.get(at..)) {
        Some(marks) => Cow::Owned(format!("{}{marks}", demangled.short)),
        None => Cow::Owned(demangled.short.into()),
    }
}

/// The marks that compilers add to the names of parts and copies of functions.
const COPY_MARKS: [&str; 5] = [".cold", ".part.", ".constprop.", ".isra.", ".__part."];

/// Whether a name may be one that [`demangle`] reads. This is fast.
pub fn is_mangled(name: &str) -> bool {
    ["_Z", "__Z", "_R"].iter().any(|prefix| name.starts_with(prefix))
}

/// The output of `print`, cut at the limit; `None` if it wrote nothing, or failed for a reason other than the limit.
fn limited(print: impl FnOnce(&mut Limited) -> bool) -> Option<Box<str>> {
    let mut out = Limited::default();
    let complete = print(&mut out);
    match (complete, out.full) {
        (_, true) => out.text.push_str("..."),
        (false, false) => return None,
        (true, false) => {}
    }
    (!out.text.is_empty()).then(|| out.text.into_boxed_str())
}

#[derive(Default)]
struct Limited {
    text: String,
    full: bool,
}

impl Write for Limited {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if self.full || self.text.len() + text.len() > DEMANGLED_BYTES_MAX {
            self.full = true;
            return Err(std::fmt::Error);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Turns `memcpy@@GLIBC_2.14` and `memcpy@GLIBC_2.2.5` into `memcpy`. A name may begin with `@`.
pub(crate) fn strip_version(name: &[u8]) -> &[u8] {
    let at = name.iter().skip(1).position(|byte| *byte == b'@');
    at.and_then(|at| name.get(..=at)).unwrap_or(name)
}

/// The function to which a cold fragment belongs, by its name: `f` for `f.cold` (GCC 9 and later, LLVM's function
/// splitter), for `f.cold.17` (GCC 8, LLVM's hot-cold splitter) and for `f.__part.2` (LLVM's basic block sections).
///
/// `f.part.0`, `f.constprop.0` and `f.isra.0` are not fragments: they are functions of their own, called with a frame
/// of their own.
pub(crate) fn cold_parent(name: &str) -> Option<&str> {
    let digits = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let numbered = if digits.len() < name.len() {
        digits.strip_suffix('.')
    } else {
        None
    };
    let part = numbered.and_then(|stem| stem.strip_suffix(".__part"));
    let parent = part.or_else(|| numbered.unwrap_or(name).strip_suffix(".cold"));
    parent.filter(|parent| !parent.is_empty())
}

/// The order of preference of two names at one address: first the one with fewer leading underscores, then the first in
/// the alphabet; one that begins with `$` comes last. This is the order of libproc, from which DTrace takes its names.
pub(crate) fn preference(left: &str, right: &str) -> std::cmp::Ordering {
    let key = |name: &str| {
        let underscores = name.bytes().take_while(|byte| *byte == b'_').count();
        (name.starts_with('$'), underscores)
    };
    key(left).cmp(&key(right)).then_with(|| left.cmp(right))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_stripped() {
        for (full, name) in [
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy"),
            ("memcpy", "memcpy"),
            ("@odd", "@odd"),
            ("@odd@V1", "@odd"),
            ("", ""),
        ] {
            assert_eq!(strip_version(full.as_bytes()), name.as_bytes());
        }
    }

    #[test]
    fn cold_names_have_parents() {
        for (name, parent) in [
            ("f.cold", Some("f")),
            ("f.cold.1", Some("f")),
            ("f.part.0.cold", Some("f.part.0")),
            ("_ZN1a1bEv.cold.123", Some("_ZN1a1bEv")),
            ("f.__part.3", Some("f")),
            ("f.__part", None),
            ("f.part.0", None),
            ("f.constprop.0", None),
            ("f.cold.x", None),
            ("f.cold1", None),
            (".cold", None),
            ("scold", None),
        ] {
            assert_eq!(cold_parent(name), parent, "{name}");
        }
    }

    #[test]
    fn names_are_preferred_as_dtrace_does() {
        let mut names = ["__libc_malloc", "malloc", "_malloc", "$x", "alloc", "__malloc"];
        names.sort_by(|left, right| preference(left, right));
        assert_eq!(names, ["alloc", "malloc", "_malloc", "__libc_malloc", "__malloc", "$x"]);
    }

    #[test]
    fn both_languages_demangle() {
        let cpp = demangle("_ZN2ns4areaEid").unwrap();
        assert_eq!((&*cpp.full, &*cpp.short), ("ns::area(int, double)", "ns::area"));
        let clone = demangle("_ZN2ns4areaEid.constprop.0").unwrap();
        assert_eq!(
            (&*clone.full, &*clone.short),
            ("ns::area(int, double) [clone .constprop.0]", "ns::area")
        );
        let rust = demangle("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE").unwrap();
        assert_eq!(&*rust.full, "core::fmt::Formatter::pad");
        let v0 = demangle("_RNvCs1234_7mycrate3foo").unwrap();
        assert_eq!(&*v0.short, "mycrate::foo");
        for plain in ["main", "_start", "_Zzz", "_R", "_Z"] {
            assert_eq!(demangle(plain), None, "{plain}");
        }
    }

    #[test]
    fn short_names_are_as_sources_have_them() {
        for (mangled, right) in [
            ("_RNvMNtCs1234_7mycrate3fooNtB2_5Thing3put", "mycrate::foo::Thing::put"),
            ("_ZN4bits4retsB5cxx11Ei", "bits::rets"),
        ] {
            assert_eq!(&*demangle(mangled).unwrap().short, right);
        }
        for (full, right) in [
            ("<a::Thing<u8>>::put::<i32>", "a::Thing<u8>::put::<i32>"),
            ("<a::Thing as b::Trait>::put", "<a::Thing as b::Trait>::put"),
            ("<a::Thing<fn(u8) -> u8>>::put", "a::Thing<fn(u8) -> u8>::put"),
            ("<[u8]>::put", "<[u8]>::put"),
            ("<unclosed", "<unclosed"),
        ] {
            assert_eq!(without_brackets(full), right);
        }
        assert_eq!(without_tags("a[abi:x][abi:y]::b"), "a::b");
        assert_eq!(without_tags("a[abi:x"), "a");
    }

    #[test]
    fn readable_names_keep_the_marks_of_parts_and_copies() {
        for (name, wanted) in [
            ("main", "main"),
            ("main.cold", "main.cold"),
            ("_ZN2ns4areaEid", "ns::area"),
            ("_ZN2ns4areaEid.cold", "ns::area.cold"),
            ("_ZN2ns4areaEid.constprop.0.cold", "ns::area.constprop.0.cold"),
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Zzz", "_Zzz"),
        ] {
            assert_eq!(readable(name), wanted, "{name}");
        }
    }

    #[test]
    fn expanding_names_are_cut() {
        // Each substitution doubles the text: `pair` would appear 2^24 times.
        let mut bomb = String::from("_Z1fSt4pairIiiE");
        let mut previous = "S_".to_string();
        for index in 0..24u32 {
            write!(bomb, "St4pairI{previous}{previous}E").unwrap();
            previous = format!("S{}_", char::from_digit(index, 36).unwrap().to_ascii_uppercase());
        }
        if let Some(name) = demangle(&bomb) {
            assert!(name.full.len() <= DEMANGLED_BYTES_MAX + 3, "{}", name.full.len());
        }
        let deep = format!("_Z1f{}i", "P".repeat(10_000));
        assert!(demangle(&deep).is_none_or(|name| name.full.len() <= DEMANGLED_BYTES_MAX + 3));
    }
}
