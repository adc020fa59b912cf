//! The names of a module in probe descriptions.
//!
//! A probe on `libc` refers to the C library, whatever its file is called: `libc.so.6`, `libc-2.36.so`, musl's
//! `ld-musl-x86_64.so.1`. DTrace matches a module by its base name, or up to the suffix; the program itself is also
//! `a.out`.

use crate::module_kind::ModuleKind;

/// All names of a module with this base name, the base name first, without repetitions.
pub(crate) fn names(base: &str, soname: Option<&str>, kind: ModuleKind) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut add = |name: &str| {
        if !name.is_empty() && !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    };
    for full in std::iter::once(base).chain(soname) {
        add(full);
        let Some(stem) = stem(full) else { continue };
        add(&format!("{stem}.so"));
        add(stem);
        if let Some(unversioned) = without_version(stem) {
            add(&format!("{unversioned}.so"));
            add(unversioned);
        }
    }
    // The loader of musl is also its C library.
    if base.starts_with("ld-musl-") {
        add("libc.so");
        add("libc");
    }
    if kind == ModuleKind::Executable {
        add("a.out");
    }
    // This is Solaris' name, which D scripts in books use.
    if names.iter().any(|name| name == "libc") {
        names.push("libc.so.1".to_owned());
    }
    names
}

/// `libc` for `libc.so.6`: the part before `.so` at the end, or before `.so.`.
fn stem(base: &str) -> Option<&str> {
    let (at, _) = base.match_indices(".so").find(|(at, _)| {
        let rest = base.get(at + 3..).unwrap_or("");
        rest.is_empty() || rest.starts_with('.')
    })?;
    base.get(..at)
}

/// `libc` for `libc-2.36`. A version contains a dot, so `ld-linux-x86-64` keeps its name.
fn without_version(stem: &str) -> Option<&str> {
    let (name, version) = stem.rsplit_once('-')?;
    let is_version = version.contains('.') && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    is_version.then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_answer_with_and_without_version() {
        let of = |base| names(base, None, ModuleKind::Library);
        assert_eq!(of("libc.so.6"), ["libc.so.6", "libc.so", "libc", "libc.so.1"]);
        assert_eq!(
            of("libc-2.36.so"),
            ["libc-2.36.so", "libc-2.36", "libc.so", "libc", "libc.so.1"]
        );
        assert_eq!(
            of("libpython3.11.so.1.0"),
            ["libpython3.11.so.1.0", "libpython3.11.so", "libpython3.11"]
        );
        assert_eq!(
            of("libstdc++.so.6.0.30"),
            ["libstdc++.so.6.0.30", "libstdc++.so", "libstdc++"]
        );
        assert_eq!(of("plugin.sonic"), ["plugin.sonic"]);
        assert_eq!(
            names("libz.so.1.2.13", Some("libz.so.1"), ModuleKind::Library),
            ["libz.so.1.2.13", "libz.so", "libz", "libz.so.1"]
        );
    }

    #[test]
    fn the_program_and_the_linkers_have_their_names() {
        assert_eq!(names("bash", None, ModuleKind::Executable), ["bash", "a.out"]);
        let linker = names("ld-linux-x86-64.so.2", None, ModuleKind::Linker);
        assert_eq!(
            linker,
            ["ld-linux-x86-64.so.2", "ld-linux-x86-64.so", "ld-linux-x86-64"]
        );
        assert!(names("ld-musl-x86_64.so.1", None, ModuleKind::Linker).contains(&"libc".to_owned()));
    }
}
