//! The bill of materials: each package that is linked into the command or the library, as CycloneDX 1.5.
//!
//! <https://cyclonedx.org/docs/1.5/json/>

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::{Value, json};
use toml::Table;

use super::Release;
use crate::metadata::Package;
use crate::tool;

/// The bill of one package of the workspace.
///
/// # Errors
/// When there is no such package, or a program fails.
pub fn text(release: &Release, packages: &[Package], name: &str) -> Result<String, String> {
    let lock =
        std::fs::read_to_string(release.root.join("Cargo.lock")).map_err(|error| format!("Cargo.lock: {error}"))?;
    let lock: Table = lock.parse().map_err(|error| format!("Cargo.lock: {error}"))?;
    let time = tool::text(
        release
            .command("date")
            .args(["-u", "-d", &format!("@{}", release.epoch), "+%FT%TZ"]),
    )?;
    let rustc = tool::text(Command::new("rustc").arg("--version"))?;
    let rustc = rustc.split(' ').nth(1).unwrap_or_default();
    let mut outside = vec![outside("rust-std", rustc, "MIT OR Apache-2.0")];
    if name == "nanoprobe" {
        let libc = tool::text(Command::new("getconf").arg("GNU_LIBC_VERSION"))?;
        let version = libc.trim().rsplit(' ').next().unwrap_or_default();
        outside.push(self::outside("glibc", version, "LGPL-2.1-or-later"));
    }
    let bill = bill(packages, name, &checksums(&lock), time.trim(), outside)?;
    serde_json::to_string_pretty(&bill)
        .map(|text| text + "\n")
        .map_err(|error| error.to_string())
}

/// A part that no manifest names, because the compiler links it.
fn outside(name: &str, version: &str, licence: &str) -> Value {
    let reference = format!("pkg:generic/{name}@{version}");
    json!({
        "type": "library", "bom-ref": reference, "name": name, "version": version, "purl": reference,
        "licenses": [{ "expression": licence }],
    })
}

fn checksums(lock: &Table) -> BTreeMap<(String, String), String> {
    let packages = lock.get("package").and_then(toml::Value::as_array);
    let entries = packages.into_iter().flatten().filter_map(|package| {
        let text = |key: &str| Some(package.get(key)?.as_str()?.to_owned());
        Some(((text("name")?, text("version")?), text("checksum")?))
    });
    entries.collect()
}

fn bill(
    packages: &[Package],
    name: &str,
    checksums: &BTreeMap<(String, String), String>,
    time: &str,
    outside: Vec<Value>,
) -> Result<Value, String> {
    let root = packages.iter().find(|package| package.name == name);
    let root = root.ok_or_else(|| format!("the workspace has no package {name}"))?;
    let by_id: BTreeMap<&str, &Package> = packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let mut linked = BTreeSet::new();
    let mut next = vec![root.id.as_str()];
    while let Some(id) = next.pop() {
        if linked.insert(id) {
            next.extend(
                by_id
                    .get(id)
                    .into_iter()
                    .flat_map(|package| &package.dependencies)
                    .map(String::as_str),
            );
        }
    }
    let mut linked: Vec<&Package> = linked.iter().filter_map(|id| by_id.get(id).copied()).collect();
    linked.sort_by_key(|package| (&package.name, &package.version));
    let mut components: Vec<Value> = linked
        .iter()
        .filter(|package| package.id != root.id)
        .map(|package| component(package, "library", checksums))
        .collect();
    components.extend(outside);
    let dependencies: Vec<Value> = linked
        .iter()
        .map(|package| {
            let on = package.dependencies.iter().filter_map(|id| by_id.get(id.as_str()));
            let on: BTreeSet<String> = on.map(|package| reference(package)).collect();
            json!({ "ref": reference(package), "dependsOn": on })
        })
        .collect();
    let kind = if name == "nanoprobe" { "application" } else { "library" };
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "timestamp": time, "component": component(root, kind, checksums) },
        "components": components,
        "dependencies": dependencies,
    }))
}

fn component(package: &Package, kind: &str, checksums: &BTreeMap<(String, String), String>) -> Value {
    let mut value = json!({
        "type": kind, "bom-ref": reference(package), "name": package.name, "version": package.version,
        "purl": reference(package),
    });
    if let Some(licence) = &package.license {
        // Older manifests write a slash instead of OR.
        let expression = licence.replace(" / ", " OR ").replace('/', " OR ");
        value["licenses"] = json!([{ "expression": expression }]);
    }
    if let Some(checksum) = checksums.get(&(package.name.clone(), package.version.clone())) {
        value["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    value
}

fn reference(package: &Package) -> String {
    format!("pkg:cargo/{}@{}", package.name, package.version)
}

#[cfg(test)]
mod tests {
    use super::{bill, checksums};
    use crate::metadata::Package;

    fn package(name: &str, license: &str, dependencies: &[&str]) -> Package {
        Package {
            id: name.to_owned(),
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            license: Some(license.to_owned()),
            dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
            ..Package::default()
        }
    }

    #[test]
    fn every_part_of_the_command_and_of_the_library_has_a_licence_and_comes_from_somewhere() {
        let packages = crate::metadata::read(&crate::root()).expect("cargo metadata");
        let lock = std::fs::read_to_string(crate::root().join("Cargo.lock")).expect("Cargo.lock");
        let checksums = checksums(&lock.parse().expect("a lock file"));
        for (name, part) in [("nanoprobe", "cranelift-codegen"), ("libnanoprobe", "iced-x86")] {
            let bill = bill(&packages, name, &checksums, "", Vec::new()).expect("a bill");
            let components = bill["components"].as_array().expect("components");
            assert!(components.iter().any(|component| component["name"] == part), "{name}");
            for component in components {
                assert!(component["licenses"][0]["expression"].is_string(), "{component}");
                let own = component["name"]
                    .as_str()
                    .is_some_and(|name| name.contains("nanoprobe"));
                assert!(own || component["hashes"][0]["content"].is_string(), "{component}");
            }
        }
    }

    #[test]
    fn a_bill_has_what_is_linked_and_nothing_else() {
        let packages = [
            package("root", "MIT", &["direct"]),
            package("direct", "MIT/Apache-2.0", &["deep"]),
            package("deep", "MIT", &["direct"]),
            package("other", "MIT", &[]),
        ];
        let lock = "[[package]]\nname = 'deep'\nversion = '1.2.3'\nchecksum = 'abc'";
        let checksums = checksums(&lock.parse().expect("a lock file"));
        let bill = bill(&packages, "root", &checksums, "2026-01-01T00:00:00Z", Vec::new()).expect("a bill");
        assert_eq!(bill["bomFormat"], "CycloneDX");
        assert_eq!(bill["metadata"]["component"]["purl"], "pkg:cargo/root@1.2.3");
        let names: Vec<&str> = bill["components"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|component| component["name"].as_str())
            .collect();
        assert_eq!(names, ["deep", "direct"]);
        assert_eq!(bill["components"][0]["hashes"][0]["content"], "abc");
        assert_eq!(bill["components"][1]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(bill["dependencies"][0]["ref"], "pkg:cargo/deep@1.2.3");
        assert_eq!(bill["dependencies"][0]["dependsOn"][0], "pkg:cargo/direct@1.2.3");
    }
}
