//! The tests by tiers: the first for a change, and everything.

use std::path::Path;
use std::process::Command;

/// Some commands of cargo. If one fails, the later commands are not run.
#[derive(Debug, PartialEq, Eq)]
pub struct Tier {
    commands: &'static [&'static str],
    /// Environment variables for all of these commands.
    environment: &'static [(&'static str, &'static str)],
}

const PURE: &str = "test --locked -p nanoprobe-patch -p nanoprobe-lang -p nanoprobe-codegen -p nanoprobe-symbols \
                    -p nanoprobe-types -p nanoprobe-runtimes -p nanoprobe-export -p nanoprobe-arena";

/// The tier of a name.
pub fn named(name: &str) -> Option<&'static Tier> {
    match name {
        "fast" => Some(&Tier {
            commands: &[PURE],
            environment: &[],
        }),
        "live" => Some(&Tier {
            commands: &[
                "test --locked -p nanoprobe-target -p nanoprobe-text -p nanoprobe-session -p libnanoprobe -p nanoprobe \
                 -p nanoprobe-tests",
            ],
            environment: &[],
        }),
        "all" => Some(&Tier {
            commands: &[
                "fmt --all --check",
                "clippy --workspace --all-targets --locked -- -D warnings",
                "xtask tidy",
                "xtask deny",
                "xtask dist",
                "test --workspace --locked",
            ],
            // Tests run in the folder of their crate, and `tests` is beside `target`.
            environment: &[("NANOPROBE_DIST", "../target/dist"), ("NANOPROBE_DIST_TWICE", "1")],
        }),
        "bless" => Some(&Tier {
            commands: &[
                "test --locked -p nanoprobe-patch -p nanoprobe-export -p nanoprobe-bench -p nanoprobe-lang -p nanoprobe-codegen",
            ],
            environment: &[("BLESS", "1")],
        }),
        _ => None,
    }
}

/// Runs a tier in the workspace's folder.
///
/// # Errors
/// The command that failed, or could not be started.
pub fn run(root: &Path, tier: &Tier) -> Result<(), String> {
    for line in tier.commands {
        eprintln!("cargo {line}");
        let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        command.args(line.split_whitespace()).current_dir(root);
        command.envs(tier.environment.iter().copied());
        match command.status() {
            Ok(status) if status.success() => {}
            Ok(status) => return Err(format!("cargo {line}: {status}")),
            Err(error) => return Err(format!("cargo {line}: {error}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::named;

    #[test]
    fn each_command_of_the_usage_is_a_tier() {
        for line in crate::USAGE.lines().skip(1) {
            let name = line.split_whitespace().next().expect("a name");
            assert!(
                ["tidy", "deny", "dist"].contains(&name) || named(name).is_some(),
                "{name}"
            );
        }
        assert_eq!(named("nothing"), None);
    }
}
