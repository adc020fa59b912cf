//! The description of the machine: without it a figure in ns means nothing.

use std::fs;

/// The machine, as far as it describes itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Name and value, in order.
    pub facts: Vec<(&'static str, String)>,
}

impl Machine {
    /// This machine.
    pub fn here() -> Machine {
        let cpuinfo = read("/proc/cpuinfo");
        let field = |name: &str| {
            let line = cpuinfo
                .lines()
                .find(|line| line.split_once(':').is_some_and(|(key, _)| key.trim() == name));
            line.and_then(|line| line.split_once(": "))
                .map_or("?", |(_, value)| value)
                .trim()
                .to_owned()
        };
        let processor = format!(
            "{}, family {} model {} stepping {}",
            field("model name"),
            field("cpu family"),
            field("model"),
            field("stepping")
        );
        let is_virtual = cpuinfo
            .lines()
            .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"));
        let facts = vec![
            ("processor", processor),
            ("processors", crate::processors().to_string()),
            ("kernel", format!("Linux {}", read("/proc/sys/kernel/osrelease"))),
            ("virtual machine", virtualisation(is_virtual)),
            ("mitigations", mitigations()),
            (
                "frequency governor",
                or(
                    read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
                    "not visible here",
                ),
            ),
            (
                "clock",
                read("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            ),
            ("load before the run", read("/proc/loadavg")),
            (
                "user",
                if is_root() {
                    "root"
                } else {
                    "not root: no kernel probes"
                }
                .to_owned(),
            ),
        ];
        Machine { facts }
    }

    /// One line: the processor, the number of processors, the kernel.
    pub fn line(&self) -> String {
        let value = |name: &str| {
            let fact = self.facts.iter().find(|(known, _)| *known == name);
            fact.map_or("?", |(_, value)| value.as_str())
        };
        format!(
            "{}, {} processors, {}",
            value("processor"),
            value("processors"),
            value("kernel")
        )
    }

    #[cfg(test)]
    pub(crate) fn example() -> Machine {
        let fact = |name, value: &str| (name, value.to_owned());
        Machine {
            facts: vec![
                fact("processor", "A <fast> one"),
                fact("processors", "2"),
                fact("kernel", "Linux 6"),
            ],
        }
    }
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn or(text: String, otherwise: &str) -> String {
    if text.is_empty() { otherwise.to_owned() } else { text }
}

fn is_root() -> bool {
    // SAFETY: a plain query.
    unsafe { libc::geteuid() == 0 }
}

/// Whether it is a virtual machine: single-steps and faults exit to the hypervisor, and differ most from bare metal.
fn virtualisation(is_virtual: bool) -> String {
    if !is_virtual {
        return "no".to_owned();
    }
    let names = [
        "/sys/class/dmi/id/sys_vendor",
        "/sys/class/dmi/id/product_name",
        "/sys/hypervisor/type",
    ];
    let names: Vec<String> = names
        .iter()
        .map(|path| read(path))
        .filter(|name| !name.is_empty())
        .collect();
    format!(
        "yes ({})",
        if names.is_empty() {
            "of a kind that it does not tell".to_owned()
        } else {
            names.join(" ")
        }
    )
}

/// The mitigations that are active, since a trap pays for them.
fn mitigations() -> String {
    let Ok(folder) = fs::read_dir("/sys/devices/system/cpu/vulnerabilities") else {
        return "not visible here".to_owned();
    };
    let mut active: Vec<String> = folder
        .flatten()
        .filter_map(|entry| {
            let text = read(entry.path().to_str()?);
            let how = text.strip_prefix("Mitigation: ")?;
            Some(format!("{}: {how}", entry.file_name().to_string_lossy()))
        })
        .collect();
    active.sort();
    or(active.join(" | "), "none active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_is_named() {
        let machine = Machine::here();
        for name in [
            "processor",
            "kernel",
            "virtual machine",
            "mitigations",
            "frequency governor",
        ] {
            let fact = machine.facts.iter().find(|(known, _)| *known == name);
            assert!(
                fact.is_some_and(|(_, value)| !value.is_empty()),
                "{name} in {machine:?}"
            );
        }
        assert!(machine.line().contains("processors, Linux "), "{}", machine.line());
    }
}
