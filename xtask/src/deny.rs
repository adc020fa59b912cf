//! `cargo xtask deny`: deny.toml's rules on licences, sources and duplicates of our dependencies.
//!
//! cargo-deny takes minutes to build, so this checks the same rules without it. Only cargo-deny checks texts of
//! licences, and the advisories, for which it needs their database.

use std::collections::BTreeMap;
use std::path::Path;

use spdx::{Expression, Licensee, ParseMode};
use toml::{Table, Value};

use crate::metadata::{self, Package};
use crate::tool;

/// Checks the rules, by cargo-deny if it is installed.
///
/// # Errors
/// The violations, one a line.
pub fn run(root: &Path) -> Result<(), String> {
    let installed = tool::cargo(root)
        .args(["deny", "--version"])
        .stderr(std::process::Stdio::null())
        .output();
    if installed.is_ok_and(|output| output.status.success()) {
        let mut command = tool::cargo(root);
        command.args(["deny", "--locked", "--offline", "check", "licenses", "sources", "bans"]);
        return tool::run(&mut command);
    }
    let text = std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let rules: Table = text.parse().map_err(|error| format!("deny.toml: {error}"))?;
    let found = findings(&rules, &metadata::read(root)?)?;
    if found.is_empty() {
        return Ok(());
    }
    Err(found.join("\n"))
}

fn findings(rules: &Table, packages: &[Package]) -> Result<Vec<String>, String> {
    let mut found = licences(rules, packages)?;
    found.extend(packages.iter().filter_map(source));
    found.extend(duplicates(rules, packages));
    Ok(found)
}

fn licences(rules: &Table, packages: &[Package]) -> Result<Vec<String>, String> {
    let names = texts(rules, "licenses", "allow");
    let allowed = names
        .iter()
        .map(|name| Licensee::parse(name).map_err(|error| format!("deny.toml: {error}")))
        .collect::<Result<Vec<Licensee>, String>>()?;
    let mut used = vec![false; allowed.len()];
    let mut found = Vec::new();
    for package in packages {
        let Some(expression) = &package.license else {
            found.push(format!("{} {} names no licence", package.name, package.version));
            continue;
        };
        let parsed = Expression::parse_mode(expression, ParseMode::LAX)
            .map_err(|error| format!("{} {}: {error}", package.name, package.version))?;
        let permitted = parsed.evaluate(|licence| {
            let position = allowed.iter().position(|one| one.satisfies(licence));
            if let Some(position) = position {
                used[position] = true;
            }
            position.is_some()
        });
        if !permitted {
            found.push(format!(
                "{} {} has the licence {expression}, which [licenses] of deny.toml does not allow",
                package.name, package.version
            ));
        }
    }
    for (name, used) in names.iter().zip(used) {
        if !used {
            found.push(format!("deny.toml allows the licence {name}, which no package has"));
        }
    }
    Ok(found)
}

/// A package comes from this workspace or from crates.io.
fn source(package: &Package) -> Option<String> {
    let source = package.source.as_ref()?;
    let known = source.starts_with("registry+") && source.ends_with("/crates.io-index");
    (!known).then(|| {
        format!(
            "{} {} comes from {source}, which is not crates.io",
            package.name, package.version
        )
    })
}

fn duplicates(rules: &Table, packages: &[Package]) -> Vec<String> {
    let skipped: Vec<&str> = rules
        .get("bans")
        .and_then(|bans| bans.get("skip"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|skip| skip.get("crate")?.as_str())
        .collect();
    let mut versions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(&package.version);
    }
    let several = versions
        .iter()
        .filter(|(name, versions)| versions.len() > 1 && !skipped.contains(name));
    several
        .map(|(name, versions)| {
            format!(
                "{name} is built in the versions {}: take one, or add it to bans.skip of deny.toml with the reason",
                versions.join(", ")
            )
        })
        .collect()
}

fn texts(rules: &Table, section: &str, key: &str) -> Vec<String> {
    let list = rules.get(section).and_then(|section| section.get(key));
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::findings;
    use crate::metadata::Package;

    fn package(name: &str, version: &str, license: Option<&str>, source: Option<&str>) -> Package {
        Package {
            name: name.to_owned(),
            version: version.to_owned(),
            license: license.map(str::to_owned),
            source: source.map(str::to_owned),
            ..Package::default()
        }
    }

    const CRATES_IO: Option<&str> = Some("registry+https://somewhere/crates.io-index");

    #[test]
    fn what_the_rules_do_not_allow_is_found() {
        let rules = "licenses.allow = ['MIT', 'Apache-2.0 WITH LLVM-exception']\nbans.skip = [{ crate = 'known' }]";
        let rules = rules.parse().expect("rules");
        let good = [
            package("own", "1.0.0", Some("Apache-2.0 OR MIT"), None),
            package("old", "1.0.0", Some("MIT/Apache-2.0"), CRATES_IO),
            package("llvm", "1.0.0", Some("Apache-2.0 WITH LLVM-exception"), CRATES_IO),
            package("known", "1.0.0", Some("MIT"), CRATES_IO),
            package("known", "2.0.0", Some("MIT"), CRATES_IO),
        ];
        assert_eq!(findings(&rules, &good), Ok(Vec::new()));
        let bad = [
            package("copyleft", "1.0.0", Some("MIT AND GPL-3.0-only"), CRATES_IO),
            package("silent", "1.0.0", None, CRATES_IO),
            package("foreign", "1.0.0", Some("MIT"), Some("git+https://somewhere")),
            package("twice", "1.0.0", Some("MIT"), CRATES_IO),
            package("twice", "2.0.0", Some("MIT"), CRATES_IO),
        ];
        let found = findings(&rules, &bad).expect("readable licences");
        let begins: Vec<&str> = found.iter().filter_map(|line| line.split(' ').next()).collect();
        // The last line is about a licence that no package has.
        assert_eq!(
            begins,
            ["copyleft", "silent", "deny.toml", "foreign", "twice"],
            "{found:#?}"
        );
    }
}
