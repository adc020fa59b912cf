//! The prototypes beside those of the running kernel: its types (BTF) describe the functions `__do_sys_NAME` that the
//! compiler has not inlined. How many parameters a call has is the same in every kernel that has the call; their names
//! and types may change, so they are compared in the kernel from which the table was made.
//!
//! ```text
//! struct btf_header { magic, version, flags, hdr_len, type_off, type_len, str_off, str_len }
//! struct btf_type   { name_off, info: kind << 24 | vlen, size or type }, and what the kind brings
//! ```

use std::collections::BTreeMap;

use nanoprobe_syscalls::prototypes::calls;

/// The kernel from which the table was made.
const TABLE_OF: &str = "6.18.";

struct Kind {
    kind: u32,
    name: String,
    of: u32,
    /// For the prototype of a function: name and type of each parameter.
    parameters: Vec<(String, u32)>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn kinds(file: &[u8]) -> Vec<Kind> {
    let header = word(file, 4) as usize;
    let (types, strings) = (header + word(file, 8) as usize, header + word(file, 16) as usize);
    let end = types + word(file, 12) as usize;
    let text = |offset: u32| {
        let from = &file[strings + offset as usize..];
        let length = from.iter().position(|byte| *byte == 0).expect("an end");
        String::from_utf8_lossy(&from[..length]).into_owned()
    };
    let mut all = vec![Kind {
        kind: 0,
        name: "void".to_owned(),
        of: 0,
        parameters: Vec::new(),
    }];
    let mut at = types;
    while at < end {
        let info = word(file, at + 4);
        let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
        let own = at + 12;
        let pair = |index: usize| (text(word(file, own + 8 * index)), word(file, own + 8 * index + 4));
        all.push(Kind {
            kind,
            name: text(word(file, at)),
            of: word(file, at + 8),
            parameters: if kind == 13 {
                (0..count).map(pair).collect()
            } else {
                Vec::new()
            },
        });
        // INT, VAR and DECL_TAG; ARRAY; STRUCT, UNION, DATASEC and ENUM64; ENUM and FUNC_PROTO.
        at = own
            + match kind {
                1 | 14 | 17 => 4,
                3 => 12,
                4 | 5 | 15 | 19 => 12 * count,
                6 | 13 => 8 * count,
                _ => 0,
            };
    }
    all
}

/// A type as C writes it.
fn shown(all: &[Kind], of: u32) -> String {
    let Some(found) = all.get(of as usize) else {
        return "?".to_owned();
    };
    match found.kind {
        2 => match shown(all, found.of) {
            to if to.ends_with('*') => format!("{to}*"),
            to => format!("{to} *"),
        },
        4 => format!("struct {}", found.name),
        5 => format!("union {}", found.name),
        6 => format!("enum {}", found.name),
        // What is const or volatile has another notation in each place.
        9 | 10 | 11 | 18 => shown(all, found.of),
        _ => found.name.clone(),
    }
}

/// A type in one notation.
fn plain(c_type: &str) -> String {
    let text = c_type
        .replace("const ", "")
        .replace(" const", "")
        .replace("*const", "*");
    let text = text
        .replace("__kernel_timespec", "timespec")
        .replace("__kernel_itimerspec", "itimerspec");
    let text = text.replace("rlimit64", "rlimit").replace("rlimit", "rlimit64");
    let text = text
        .replace("long unsigned int", "unsigned long")
        .replace("__u32", "u32")
        .replace("__s32", "int");
    text.replace("long int", "long").trim().to_owned()
}

#[test]
fn prototypes_are_those_of_the_running_kernel() {
    let Ok(file) = std::fs::read("/sys/kernel/btf/vmlinux") else {
        eprintln!("left out: this kernel has no types (/sys/kernel/btf/vmlinux)");
        return;
    };
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").expect("the kernel's release");
    let is_same = release.starts_with(TABLE_OF);
    if !is_same {
        eprintln!(
            "left out: names and types of parameters, because this kernel is no {TABLE_OF} ({})",
            release.trim()
        );
    }
    let all = kinds(&file);
    // FUNC -> FUNC_PROTO.
    let functions = all.iter().filter(|found| found.kind == 12);
    let functions: BTreeMap<&str, &Kind> = functions
        .map(|found| (found.name.as_str(), &all[found.of as usize]))
        .collect();
    let mut compared = 0;
    for call in calls() {
        // The calls that have replaced older ones keep `new` in their names.
        let found = functions.get(format!("__do_sys_new{}", call.name).as_str());
        let Some(found) = found.or_else(|| functions.get(format!("__do_sys_{}", call.name).as_str())) else {
            continue;
        };
        let known: Vec<String> = call
            .parameters
            .iter()
            .map(|of| format!("{} {}", plain(of.c_type), of.name))
            .collect();
        let kernel = found.parameters.iter().filter(|(name, _)| name != "__unused");
        let kernel: Vec<String> = kernel
            .map(|(name, of)| format!("{} {name}", plain(&shown(&all, *of))))
            .collect();
        assert_eq!(known.len(), kernel.len(), "{}: {kernel:?}", call.name);
        if is_same {
            assert_eq!(known, kernel, "{}", call.name);
        }
        compared += 1;
    }
    assert!(compared > 60 || !is_same, "{compared}");
}
