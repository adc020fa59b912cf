//! `args[]` of system calls: the parameters as the kernel declares them.
//!
//! A structure is that of the program's debug information, if it has one of this name. Without it, a pointer to one
//! is a pointer to void.

use std::borrow::Cow;

use nanoprobe_arena::layout::CALL_NUMBERS;
use nanoprobe_lang::glob;
use nanoprobe_lang::program::{IntegerType, ProbeDescription, Type};
use nanoprobe_lang::target::{Argument, ArgumentPlace, Target, Unknown};
use nanoprobe_lang::types;

use crate::calls::{End, MODULE, name_of};
use crate::probes::means_calls;

/// The types of the arguments of the call of this name, as C writes them, with the names of the parameters.
#[must_use]
pub fn argument_types(name: &str, end: End) -> Vec<(&'static str, &'static str)> {
    let of_result = ("long", "");
    match (end, nanoprobe_syscalls::call(name)) {
        (End::Return, _) => vec![of_result, of_result],
        (End::Entry, Some(call)) => call.parameters.iter().map(|of| (of.c_type, of.name)).collect(),
        (End::Entry, None) => Vec::new(),
    }
}

/// The arguments of a probe, and its name.
type Described = (Vec<Argument>, String);

/// The calls that a description means, with their arguments; `None`: it means none.
pub(crate) fn arguments_of_calls(
    target: &dyn Target,
    probe: &ProbeDescription,
) -> Result<Option<Vec<Described>>, Unknown> {
    let answers = |pattern: &str, text: &str| pattern.is_empty() || glob::matches(pattern, text);
    if !means_calls(probe) || !answers(&probe.module, MODULE) {
        return Ok(None);
    }
    let mut found = Vec::new();
    for name in (0..=CALL_NUMBERS).map(name_of) {
        if !answers(&probe.function, &name) {
            continue;
        }
        for end in [End::Entry, End::Return] {
            if answers(&probe.name, end.name()) {
                found.push((arguments(target, &name, end), format!("{name}:{}", end.name())));
            }
        }
    }
    match &found[..] {
        [(nothing, name)] if nothing.is_empty() => {
            let message = format!("the probe {probe} has no args[ ]: {name} takes no arguments, or they are not known");
            Err(Unknown::new("D_ARGS_NONE", message).with_help("arg0 to arg5 are the six words that the kernel gets"))
        }
        _ => Ok(Some(found)),
    }
}

fn arguments(target: &dyn Target, name: &str, end: End) -> Vec<Argument> {
    let types = argument_types(name, end).into_iter().zip(0_u8..);
    let argument = |((c_type, name), index): ((&'static str, &'static str), u8)| Argument {
        name: name.to_owned(),
        value_type: type_of(target, c_type),
        place: ArgumentPlace::Words(index),
    };
    types.map(argument).collect()
}

/// The type in D of a parameter's type in C.
fn type_of(target: &dyn Target, c_type: &str) -> Type {
    // `char *const *`: what is constant makes no difference to D.
    let plain = c_type.replace("const", " ");
    let words: Vec<&str> = plain.split_whitespace().collect();
    let plain: Cow<'_, str> = words.join(" ").into();
    let (base, stars) = match plain.find('*') {
        Some(at) => (plain[..at].trim(), plain.matches('*').count()),
        None => (plain.trim(), 0),
    };
    let integer = |bytes, signed| Some(Type::Integer(IntegerType { bytes, signed }));
    let base = match base {
        "void" => None,
        "char" => integer(1, true),
        "unsigned char" => integer(1, false),
        "int" | "timer_t" | "mqd_t" | "key_serial_t" | "rwf_t" | "qid_t" => integer(4, true),
        "unsigned int" | "u32" => integer(4, false),
        "umode_t" => integer(2, false),
        "long" => integer(8, true),
        "unsigned long" | "u64" | "aio_context_t" => integer(8, false),
        "cap_user_header_t" | "cap_user_data_t" => return Type::Pointer(None),
        _ => match base.split_once(' ') {
            Some(("enum", _)) => integer(4, true),
            Some((keyword, tag)) => target.tagged(keyword, tag).ok(),
            None => types::named(base)
                .or_else(|| types::customary(base))
                .or_else(|| target.named(base).ok()),
        },
    };
    match (base, stars) {
        (Some(base), 0) => base,
        (None, 0) => Type::U64,
        (base, _) => (1..stars).fold(Type::Pointer(base.map(Box::new)), |to, _| {
            Type::Pointer(Some(Box::new(to)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use nanoprobe_lang::target::NoTarget;
    use nanoprobe_syscalls::prototypes::calls;

    use super::*;

    #[test]
    fn types_of_c_are_types_of_d() {
        let shown = |c_type| types::name(&type_of(&NoTarget, c_type));
        for (c_type, expected) in [
            ("const char *", "int8_t *"),
            ("const char *const *", "int8_t **"),
            ("unsigned int", "uint32_t"),
            ("umode_t", "uint16_t"),
            ("size_t", "uint64_t"),
            ("loff_t", "int64_t"),
            ("struct stat *", "void *"),
            ("void *", "void *"),
            ("const clockid_t", "int"),
            ("sigset_t *", "void *"),
            ("__s32", "int"),
            ("const void *const", "void *"),
        ] {
            assert_eq!(shown(c_type), expected, "{c_type}");
        }
    }

    /// A value that is no pointer has a type of its own, and not a guess.
    #[test]
    fn each_number_has_a_known_type() {
        for call in calls() {
            for parameter in &call.parameters {
                let base = parameter.c_type.trim_start_matches("const ");
                let is_known = parameter.c_type.contains('*')
                    || [
                        "int",
                        "unsigned int",
                        "long",
                        "unsigned long",
                        "u32",
                        "umode_t",
                        "aio_context_t",
                    ]
                    .contains(&base)
                    || ["timer_t", "mqd_t", "key_serial_t", "rwf_t", "qid_t"].contains(&base)
                    || base.starts_with("cap_user_")
                    || base.starts_with("enum ")
                    || types::named(base).or_else(|| types::customary(base)).is_some();
                assert!(is_known, "{}: {}", call.name, parameter.c_type);
            }
        }
    }

    #[test]
    fn descriptions_mean_calls() {
        let description = |text: &str| {
            let parts: Vec<&str> = text.split(':').collect();
            ProbeDescription {
                provider: parts[0].to_owned(),
                module: parts[1].to_owned(),
                function: parts[2].to_owned(),
                name: parts[3].to_owned(),
                span: nanoprobe_lang::Span::default(),
            }
        };
        let of = |text: &str| arguments_of_calls(&NoTarget, &description(text));
        let openat = of("syscall::openat:entry").unwrap().unwrap();
        let names: Vec<&str> = openat[0].0.iter().map(|argument| argument.name.as_str()).collect();
        assert_eq!((openat.len(), names), (1, vec!["dfd", "filename", "flags", "mode"]));
        assert_eq!(of("syscall::openat:return").unwrap().unwrap()[0].0.len(), 2);
        assert_eq!(of("syscall::openat:").unwrap().unwrap().len(), 2);
        assert_eq!(of("pid1:libc:openat:entry").unwrap().map(|of| of.len()), None);
        assert_eq!(of("syscall::getpid:entry").unwrap_err().tag, "D_ARGS_NONE");
    }
}
