//! The packages of which the workspace is built, as cargo reports them.

use std::path::Path;

use serde_json::Value;

use crate::tool;

/// The only target for which nanoprobe is built.
pub const TARGET: &str = "x86_64-unknown-linux-gnu";

/// One package.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Package {
    /// Cargo's identifier of the package, unique in the graph.
    pub id: String,
    /// The name in the package's manifest.
    pub name: String,
    /// Its version.
    pub version: String,
    /// The licence expression in the package's manifest.
    pub license: Option<String>,
    /// The registry from which the package comes; `None` for a package of the workspace.
    pub source: Option<String>,
    /// The identifiers of the packages that are linked into this package. Packages that only build scripts, macros or
    /// tests need are left out.
    pub dependencies: Vec<String>,
}

/// All packages that `Cargo.lock` names for our target.
///
/// # Errors
/// When cargo fails, or prints something else.
pub fn read(root: &Path) -> Result<Vec<Package>, String> {
    let mut command = tool::cargo(root);
    command.args([
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        TARGET,
    ]);
    let text = tool::text(&mut command)?;
    parse(&text).ok_or_else(|| "cargo metadata printed what is not understood".to_owned())
}

fn parse(text: &str) -> Option<Vec<Package>> {
    let all: Value = serde_json::from_str(text).ok()?;
    let nodes = all["resolve"]["nodes"].as_array()?;
    let packages = all["packages"].as_array()?.iter().map(|package| {
        let id = package["id"].as_str()?;
        let node = nodes.iter().find(|node| node["id"] == id)?;
        Some(Package {
            id: id.to_owned(),
            name: package["name"].as_str()?.to_owned(),
            version: package["version"].as_str()?.to_owned(),
            license: package["license"].as_str().map(str::to_owned),
            source: package["source"].as_str().map(str::to_owned),
            dependencies: linked(node)?,
        })
    });
    packages.collect()
}

/// The dependencies of one node that have a normal kind, which is null.
fn linked(node: &Value) -> Option<Vec<String>> {
    let normal = node["deps"].as_array()?.iter().filter(|dependency| {
        let kinds = dependency["dep_kinds"].as_array();
        kinds.is_some_and(|kinds| kinds.iter().any(|kind| kind["kind"].is_null()))
    });
    normal
        .map(|dependency| Some(dependency["pkg"].as_str()?.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn only_what_is_linked_is_a_dependency() {
        let text = r#"{
            "packages": [
                {"id": "a", "name": "first", "version": "1.0.0", "license": "MIT", "source": null},
                {"id": "b", "name": "second", "version": "2.0.0", "license": null, "source": "registry+x"},
                {"id": "c", "name": "third", "version": "3.0.0", "license": "MIT", "source": "registry+x"}
            ],
            "resolve": {"nodes": [
                {"id": "a", "deps": [
                    {"pkg": "b", "dep_kinds": [{"kind": "dev"}, {"kind": null}]},
                    {"pkg": "c", "dep_kinds": [{"kind": "build"}]}
                ]},
                {"id": "b", "deps": []},
                {"id": "c", "deps": []}
            ]}
        }"#;
        let packages = parse(text).expect("understood");
        assert_eq!(packages[0].dependencies, ["b"]);
        assert_eq!(packages[1].license, None);
        assert_eq!(parse("{}"), None);
    }
}
