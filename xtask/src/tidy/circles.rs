//! No circle between files: imports point one way.
//!
//! The modules of each crate are the nodes, and the paths of `use crate::...` and `use super::...` the arrows. A parent
//! that names its child's items and a child that names its parent's are a circle, too.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Finding};

/// A module by its path within the crate: `session::attaching`, empty for the root.
type Module = String;
type Arrows = BTreeMap<Module, BTreeSet<Module>>;

/// One finding for each circle.
pub fn findings(files: &[File]) -> Vec<Finding> {
    let mut crates: BTreeMap<&str, Vec<(&File, Module)>> = BTreeMap::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some((folder, module)) = module_of(&file.path) {
            crates.entry(folder).or_default().push((file, module));
        }
    }
    let mut found = Vec::new();
    for (folder, modules) in crates {
        for circle in circles(&arrows(&modules)) {
            found.push(Finding {
                rule: "circle",
                place: format!("{folder}: {}", circle.join(" ")),
                message: "these files import each other".to_owned(),
            });
        }
    }
    found
}

/// The crate's folder and the module of a source file.
fn module_of(path: &str) -> Option<(&str, Module)> {
    let (folder, rest) = path.split_once("/src/")?;
    let rest = rest.strip_suffix(".rs")?;
    if rest == "main" || rest == "lib" {
        return Some((folder, Module::new()));
    }
    let rest = rest.strip_suffix("/mod").unwrap_or(rest);
    Some((folder, rest.replace('/', "::")))
}

fn arrows(modules: &[(&File, Module)]) -> Arrows {
    let known: BTreeSet<&str> = modules.iter().map(|(_, module)| module.as_str()).collect();
    let mut arrows = Arrows::new();
    for (file, module) in modules {
        let to = arrows.entry(module.clone()).or_default();
        for path in paths(&file.text, module) {
            // The longest prefix of a path that is a module.
            let mut target = path.as_str();
            while !known.contains(target) {
                target = target.rsplit_once("::").map_or("", |(parent, _)| parent);
            }
            if target != module {
                to.insert(target.to_owned());
            }
        }
    }
    arrows
}

/// The names in the `use` declarations before the tests, from the crate's root.
fn paths(text: &str, module: &str) -> Vec<String> {
    let text: Vec<&str> = text.lines().take_while(|line| line.trim() != "#[cfg(test)]").collect();
    let text = text.join("\n");
    let mut all = Vec::new();
    let is_use = |start: usize| {
        text[..start].ends_with('\n') || text[..start].ends_with(") ") || text[..start].ends_with("pub ")
    };
    for (start, _) in text.match_indices("use ") {
        if start != 0 && !is_use(start) {
            continue;
        }
        let declaration = text[start + 4..].split(';').next().unwrap_or_default();
        let flat: String = declaration.split_whitespace().collect::<Vec<_>>().join(" ");
        spread("", &flat, &mut all);
    }
    all.iter().filter_map(|path| from_root(path, module)).collect()
}

/// `a::{b, c::d}` as `a::b` and `a::c::d`.
fn spread(before: &str, tree: &str, into: &mut Vec<String>) {
    let tree = tree.trim();
    match tree.split_once('{') {
        Some((head, rest)) if tree.ends_with('}') => {
            let inner = &rest[..rest.len() - 1];
            let mut depth = 0;
            let parts = inner.split(|character| {
                depth += match character {
                    '{' => 1,
                    '}' => -1,
                    _ => 0,
                };
                character == ',' && depth == 0
            });
            for part in parts.filter(|part| !part.trim().is_empty()) {
                spread(&format!("{before}{head}"), part, into);
            }
        }
        _ => into.push(format!("{before}{}", tree.split(" as ").next().unwrap_or(tree))),
    }
}

fn from_root(path: &str, module: &str) -> Option<String> {
    if let Some(rest) = path.strip_prefix("crate::") {
        return Some(rest.to_owned());
    }
    let mut parent = module;
    let mut rest = path.strip_prefix("self::").unwrap_or(path);
    let is_own = rest.len() != path.len();
    let mut ups = 0;
    while let Some(up) = rest.strip_prefix("super::") {
        parent = parent.rsplit_once("::").map_or("", |(parent, _)| parent);
        rest = up;
        ups += 1;
    }
    let is_local = is_own || ups > 0;
    let joined = if parent.is_empty() {
        rest.to_owned()
    } else {
        format!("{parent}::{rest}")
    };
    is_local.then_some(joined)
}

/// The strongly connected parts with more than one module. (For a few hundred files, Tarjan's algorithm is not needed.)
fn circles(arrows: &Arrows) -> Vec<Vec<Module>> {
    let reach: BTreeMap<&Module, BTreeSet<&Module>> =
        arrows.keys().map(|from| (from, reachable(arrows, from))).collect();
    let mut done = BTreeSet::new();
    let mut all = Vec::new();
    for from in arrows.keys() {
        let circle: Vec<&Module> = arrows
            .keys()
            .filter(|to| reach[from].contains(to) && reach[to].contains(from))
            .collect();
        if circle.len() > 1 && done.insert(circle.clone()) {
            let name = |module: &&Module| {
                if module.is_empty() {
                    "(root)".to_owned()
                } else {
                    (*module).clone()
                }
            };
            all.push(circle.iter().map(name).collect());
        }
    }
    all
}

fn reachable<'a>(arrows: &'a Arrows, from: &Module) -> BTreeSet<&'a Module> {
    let mut seen = BTreeSet::new();
    let mut left: Vec<&Module> = arrows.get(from).into_iter().flatten().collect();
    while let Some(module) = left.pop() {
        if seen.insert(module) {
            left.extend(arrows.get(module).into_iter().flatten());
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::{File, findings, from_root, spread};

    fn places(sources: &[(&str, &str)]) -> Vec<String> {
        let file = |(path, text): &(&str, &str)| File {
            path: (*path).to_owned(),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = sources.iter().map(file).collect();
        findings(&files).into_iter().map(|finding| finding.place).collect()
    }

    #[test]
    fn trees_of_names_are_spread() {
        let mut all = Vec::new();
        spread("", "crate::{a::{B, c::D}, e as f}", &mut all);
        assert_eq!(all, ["crate::a::B", "crate::a::c::D", "crate::e"]);
        assert_eq!(from_root("super::super::x", "a::b::c").as_deref(), Some("a::x"));
        assert_eq!(from_root("std::fmt", "a"), None);
    }

    #[test]
    fn a_circle_is_found_and_a_line_is_none() {
        let line = [
            ("c/src/lib.rs", ""),
            ("c/src/a.rs", "use crate::b::B;\n"),
            ("c/src/b.rs", ""),
        ];
        assert_eq!(places(&line), Vec::<String>::new());
        let circle = [
            ("c/src/lib.rs", ""),
            ("c/src/a.rs", "use crate::b::B;\n"),
            ("c/src/b.rs", "//! b\nuse crate::{\n    a::A,\n};\n"),
        ];
        assert_eq!(places(&circle), ["c: a b"]);
    }
}
