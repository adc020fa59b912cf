//! The header: macros for a program's probes, in C and C++, for gcc and clang. It needs no other header.
//!
//! A probe is a `nop` and a note. The note says where the probe is and where the compiler has the
//! arguments. This is what `DTRACE_PROBE` of sys/sdt.h makes, so all readers of such notes find it.
//!
//! Three things differ from sys/sdt.h. The `nop` has five bytes, room for a jump. Each argument
//! is evaluated into a variable of its own, so arrays become pointers and bit-fields become
//! integers. And memory is up to date at a probe, as at a call, because a tracer may read what an
//! argument points to.

use std::fmt::Write as _;

use nanoprobe_lang::providers::{Probe, Provider};

use super::semaphore;

/// The part that all such headers share. The first header that is included defines it.
const COMMON: &str = r##"#ifndef _NANOPROBE_SDT
#define _NANOPROBE_SDT 1

#if defined __x86_64__ || defined __i386__
# define _NANOPROBE_SDT_NOP ".byte 0x0f, 0x1f, 0x44, 0x00, 0x00"
#else
# define _NANOPROBE_SDT_NOP "nop"
#endif
#if defined __LP64__
# define _NANOPROBE_SDT_ADDRESS ".8byte "
#else
# define _NANOPROBE_SDT_ADDRESS ".4byte "
#endif

/* The instruction, and a note of .note.stapsdt about it. */
#define _NANOPROBE_SDT_NOTE(provider, name, semaphore, arguments) \
	"990:	" _NANOPROBE_SDT_NOP "\n" \
	"	.pushsection .note.stapsdt,\"?\",\"note\"\n" \
	"	.balign 4\n" \
	"	.4byte 992f-991f, 994f-993f, 3\n" \
	"991:	.asciz \"stapsdt\"\n" \
	"992:	.balign 4\n" \
	"993:	" _NANOPROBE_SDT_ADDRESS "990b\n" \
	"	" _NANOPROBE_SDT_ADDRESS "_.stapsdt.base\n" \
	"	" _NANOPROBE_SDT_ADDRESS semaphore "\n" \
	"	.asciz \"" provider "\"\n" \
	"	.asciz \"" name "\"\n" \
	"	.asciz \"" arguments "\"\n" \
	"994:	.balign 4\n" \
	"	.popsection\n" \
	"	.ifndef _.stapsdt.base\n" \
	"	.pushsection .stapsdt.base,\"aG\",\"progbits\",.stapsdt.base,comdat\n" \
	"	.weak _.stapsdt.base\n" \
	"	.hidden _.stapsdt.base\n" \
	"_.stapsdt.base: .space 1\n" \
	"	.size _.stapsdt.base, 1\n" \
	"	.popsection\n" \
	"	.endif\n"

/* An argument's value: an array is a pointer, a bit-field an integer. */
#if !defined __cplusplus
# define _NANOPROBE_SDT_VALUE(number, value) __auto_type _nanoprobe_##number = ((void)0, (value))
#elif __cplusplus >= 201103L
# define _NANOPROBE_SDT_VALUE(number, value) auto _nanoprobe_##number = (value)
#else
extern "C++" { template <typename T> T _nanoprobe_value(T); }
# define _NANOPROBE_SDT_VALUE(number, value) \
	__typeof__(_nanoprobe_value(value)) _nanoprobe_##number = (value)
#endif

/* Its size, with the sign that %n turns round: -4 is an int. Of pointers there are no signs. */
#define _NANOPROBE_SDT_SIZE(x) \
	((__builtin_classify_type(x) != 5 && (__typeof__(x))-1 < (__typeof__(x))1 ? 1 : -1) * (int)sizeof(x))
#define _NANOPROBE_SDT_OPERAND(number) \
	[s##number] "n" (_NANOPROBE_SDT_SIZE(_nanoprobe_##number)), [a##number] "nor" (_nanoprobe_##number)

/* Somebody traces the probe. */
#define _NANOPROBE_SDT_ENABLED(semaphore) \
	((int)__builtin_expect(*(volatile unsigned short *)&(semaphore) != 0, 0))

#endif

"##;

/// The header's text; `path` is its file.
pub fn header(providers: &[Provider], path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    let guard = format!("_NANOPROBE_{}", macro_name(name));
    let mut text = format!(
        "/* Made by nanoprobe -h of provider definitions. What nanoprobe -G makes of them is to be linked in. */\n\
         #ifndef {guard}\n#define {guard} 1\n\n"
    );
    text.push_str(COMMON);
    text.push_str("#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    for provider in providers {
        for probe in &provider.probes {
            write_probe(&mut text, &provider.name, probe);
        }
    }
    let _ = writeln!(text, "#ifdef __cplusplus\n}}\n#endif\n\n#endif");
    text
}

fn write_probe(text: &mut String, provider: &str, probe: &Probe) {
    let count = probe.arguments.len();
    let list = |each: &dyn Fn(usize) -> String, between: &str| -> String {
        (0..count).map(each).collect::<Vec<_>>().join(between)
    };
    let macro_name = format!(
        "{}_{}",
        macro_name(provider),
        macro_name(&probe.name.replace("__", "_"))
    );
    let semaphore = semaphore(provider, &probe.name);
    let _ = writeln!(text, "/* {macro_name}({}) */", told(&probe.arguments));
    let _ = writeln!(
        text,
        "extern unsigned short {semaphore} __attribute__((visibility(\"hidden\")));"
    );
    let _ = writeln!(
        text,
        "#define {macro_name}_ENABLED() _NANOPROBE_SDT_ENABLED({semaphore})"
    );
    let _ = writeln!(
        text,
        "#define {macro_name}({}) do {{ \\",
        list(&|number| format!("arg{number}"), ", ")
    );
    for number in 0..count {
        let _ = writeln!(text, "\t_NANOPROBE_SDT_VALUE({number}, arg{number}); \\");
    }
    let operands = list(&|number| format!("%n[s{number}]@%[a{number}]"), " ");
    let _ = writeln!(
        text,
        "\t__asm__ __volatile__ (_NANOPROBE_SDT_NOTE(\"{provider}\", \"{}\", \"{semaphore}\", \"{operands}\") \\",
        probe.name
    );
    let values = list(&|number| format!("_NANOPROBE_SDT_OPERAND({number})"), ", \\\n\t\t");
    let _ = writeln!(text, "\t\t: : {values} : \"memory\"); \\\n}} while (0)\n");
}

/// A name, or a file's name, as a part of a macro's name.
fn macro_name(name: &str) -> String {
    let upper = |character: char| match character {
        _ if character.is_ascii_alphanumeric() => character.to_ascii_uppercase(),
        _ => '_',
    };
    name.chars().map(upper).collect()
}

/// The parameters for a comment; only their number, if their text would end or disturb the comment.
fn told(arguments: &[String]) -> String {
    let told = arguments.join(", ");
    match told.contains("/*") || told.contains("*/") || told.contains('#') {
        true => format!("{} arguments", arguments.len()),
        false => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macros_are_called_as_those_of_dtrace() {
        let providers = [Provider {
            name: "python".into(),
            probes: vec![Probe {
                name: "function__entry".into(),
                arguments: vec!["const char *".into(), "int".into()],
            }],
        }];
        let text = header(&providers, "Include/pydtrace_probes.h");
        for line in [
            "#ifndef _NANOPROBE_PYDTRACE_PROBES_H",
            "/* PYTHON_FUNCTION_ENTRY(const char *, int) */",
            "extern unsigned short python_function__entry_semaphore __attribute__((visibility(\"hidden\")));",
            "#define PYTHON_FUNCTION_ENTRY_ENABLED() _NANOPROBE_SDT_ENABLED(python_function__entry_semaphore)",
            "#define PYTHON_FUNCTION_ENTRY(arg0, arg1) do { \\",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn parameters_that_would_end_a_comment_are_left_out() {
        assert_eq!(told(&["int /* a */ b".into(), "char".into()]), "2 arguments");
    }
}
