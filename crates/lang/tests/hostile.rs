//! Senseless and hostile texts. For each one the front end must answer with a program that has all promised properties,
//! or with diagnostics that point into the text.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use nanoprobe_lang::bytes::{bytes_of, text_of};
use nanoprobe_lang::diagnostic::OWN_TAGS;
use nanoprobe_lang::{MacroValues, Source, compile, dump};
use proptest::prelude::*;

/// Words that occur in D, so that random sequences of them sometimes get past the first token.
const WORDS: &[&str] = &[
    "BEGIN",
    "END",
    "pid$target:::entry",
    "int",
    "string",
    "self",
    "this",
    "self->a",
    "this->b",
    "a",
    "b",
    "x",
    "@",
    "@a",
    "@a[1]",
    "{",
    "}",
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ";",
    ";",
    ",",
    "/",
    "/",
    "*",
    "+",
    "-",
    "=",
    "==",
    "+=",
    "++",
    "--",
    "?",
    ":",
    "->",
    ".",
    "!",
    "~",
    "&",
    "&&",
    "||",
    "^^",
    "<<",
    "1",
    "0",
    "2147483648",
    "0x80000000u",
    "'c'",
    "\"s\"",
    "\"%d %s\"",
    "trace(",
    "printf(\"%d\",",
    "printa(@a)",
    "count()",
    "sum(arg0)",
    "quantize(",
    "lquantize(arg0,0,10,1)",
    "ustack()",
    "copyin(arg0,4)",
    "copyinstr(arg0)",
    "strlen(",
    "stringof",
    "sizeof",
    "(int)",
    "(char *)",
    "(int *)",
    "arg0",
    "pid",
    "execname",
    "timestamp",
    "$1",
    "$$1",
    "$target",
    "if",
    "(1)",
    "else",
    "typedef",
    "enum",
    "struct",
    "inline",
    "translator",
    "provider",
    "/* c */",
    "/*",
    "\n#pragma D option quiet\n",
    "\n#define\n",
    "NULL",
    "uregs[R_SP]",
    "exit(0)",
    "clear(@a)",
    "trunc(@a,1)",
    "`x",
    "\\",
    "\u{e9}",
    "\0",
];

/// Compiles a text, and checks the properties of the result.
fn answer(text: &str) {
    let macros = MacroValues {
        target: Some(1),
        arguments: vec!["7".to_owned()],
        ..MacroValues::default()
    };
    let sources = [Source::new("hostile", text)];
    match compile(&sources, &macros) {
        Ok(program) => {
            common::check(&program);
            assert!(dump::dump(&program).lines().count() >= program.clauses.len());
        }
        Err(diagnostics) => {
            assert!(!diagnostics.is_empty());
            for diagnostic in &diagnostics {
                let range = diagnostic.span.range();
                assert!(range.start <= range.end && range.end <= text.len(), "{diagnostic:?}");
                assert!(
                    text.is_char_boundary(range.start) && text.is_char_boundary(range.end),
                    "{diagnostic:?}"
                );
                let own = OWN_TAGS.iter().any(|(tag, _)| *tag == diagnostic.tag);
                assert!(diagnostic.tag.starts_with("D_") || own, "{diagnostic:?}");
                assert!(!diagnostic.message.is_empty(), "{diagnostic:?}");
                assert!(diagnostic.render(&sources).starts_with("hostile:"));
            }
        }
    }
}

fn words() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(WORDS), 0..60).prop_map(|words| words.join(" "))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text(text in "(?s).{0,200}") {
        answer(&text);
    }

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let text = text_of(&bytes);
        assert_eq!(bytes_of(&text), bytes);
        answer(&text);
    }

    #[test]
    fn any_structures(text in prop::collection::vec(prop::sample::select(STRUCTURES), 0..14)) {
        let text = text.join(" ");
        answer(&format!("{DECLARED}BEGIN {{ i = 0; w[v] = v; this->q = (struct s *)alloca(99); {text} }}"));
        answer(&format!("{DECLARED}BEGIN {{ i = 0; w[v] = v; this->q = (struct s *)alloca(99); trace({text}); }}"));
    }

    #[test]
    fn any_words(text in words()) {
        answer(&text);
    }

    #[test]
    fn any_words_in_a_clause(text in words()) {
        answer(&format!("BEGIN {{ x = 1; self->a = arg0; this->b = \"s\"; @a[1] = count(); {text} }}"));
    }

    #[test]
    fn any_expression(text in prop::collection::vec(prop::sample::select(EXPRESSION), 0..12)) {
        answer(&format!("BEGIN {{ i = 1; s = \"s\"; p = (int *)arg0; c = (char)1; u = timestamp; trace({}); }}", text.join(" ")));
    }
}

/// The declarations of the names in [`STRUCTURES`].
const DECLARED: &str = "struct s { int a : 3; unsigned b : 5; char t[8]; union { int u; char c[9]; }; long l[2]; } v;
    struct n { struct s s; string g; union { int x; char y; } m; } h[int, struct s];
    struct o { int i; char t[4]; struct s s; long k[2]; };
    translator struct o < struct s *p > { i = p->a; t = p->t; s = *p; };
    translator struct o < int z > { i = z; };
    struct s w[struct s]; struct o r; struct o f[int]; self struct s e;\n";

/// Paths to parts of structures, and operations on them.
const STRUCTURES: &[&str] = &[
    "v",
    "w[v]",
    "h[i, v]",
    "h[i++, w[v]]",
    "self->e",
    "*this->q",
    "*this->q++",
    "this->q[i]",
    "r",
    "f[1]",
    "f[i++]",
    "xlate <struct o>(this->q)",
    "xlate <struct o>(i)",
    "xlate <struct o *>(&v)->t",
    ".a",
    ".b",
    ".t",
    ".t[i]",
    ".u",
    ".c[3]",
    ".l",
    ".s",
    ".g",
    ".m",
    ".m.x",
    "->b",
    "=",
    "=",
    "+=",
    "++",
    "--",
    "[v]",
    "[1]",
    "(",
    ")",
    ";",
    ";",
    ",",
    "@ = count();",
    "@[v] = count();",
    "@[w[v], i] = sum(i);",
    "print(",
    "stringof(",
    "sizeof (",
    "? v :",
    "&",
    "==",
    "1",
    "0",
];

/// Operands and operators of expressions only.
const EXPRESSION: &[&str] = &[
    "i",
    "s",
    "p",
    "c",
    "u",
    "arg0",
    "1",
    "-1",
    "0",
    "0xffffffff",
    "\"t\"",
    "NULL",
    "*p",
    "p[1]",
    "&p[2]",
    "(c)",
    "i++",
    "copyin(arg0, 4)",
    "stringof(arg0)",
    "strlen(s)",
    "a[s]",
    "(int)",
    "(char)",
    "(string)",
    "(char *)",
    "(unsigned)",
    "+",
    "-",
    "*",
    "/",
    "%",
    "<<",
    ">>",
    "&",
    "|",
    "^",
    "&&",
    "||",
    "^^",
    "==",
    "<",
    "? i :",
    "? p :",
    "=",
    "+=",
    "!",
    "~",
    "-",
    "*",
    ",",
];

/// Every script of the golden files, cut off at every byte, and with every byte replaced in turn by a
/// few others.
#[test]
fn damaged_scripts() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "d") {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        if text.len() > 400 {
            continue;
        }
        for at in 0..text.len() {
            answer(&text_of(&text.as_bytes()[..at]));
            let mut bytes = text.clone().into_bytes();
            bytes[at] = 0xe9;
            answer(&text_of(&bytes));
        }
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            answer(&text[..at]);
            let width = text[at..].chars().next().map_or(0, char::len_utf8);
            for other in ["", "(", "}", "\"", "/"] {
                answer(&format!("{}{other}{}", &text[..at], &text[at + width..]));
            }
        }
    }
}

/// Every form that can be nested, nested far beyond the limit.
#[test]
fn nesting_beyond_the_limit_is_refused() {
    let deep = |open: &str, close: &str| format!("BEGIN {{ x = {}1{}; }}", open.repeat(50_000), close.repeat(50_000));
    let texts = [
        deep("(", ")"),
        deep("!", ""),
        deep("- ", ""),
        deep("1 + ", ""),
        deep("1 ? 1 : ", ""),
        deep("1 ? ", ": 1"),
        deep("a = ", ""),
        deep("1, ", ""),
        deep("strlen(", ")"),
        deep("a[", "]"),
        deep("(int)", ""),
        deep("sizeof ", ""),
        deep("stringof(", ")"),
        deep("", "[1]"),
        deep("strlen(", ")"),
        deep("", "->x"),
        deep("", "++"),
        format!("BEGIN {{ {} {} }}", "if (1) {".repeat(50_000), "}".repeat(50_000)),
        format!("BEGIN {{ {} ; }}", "if (1) trace(1); else ".repeat(50_000)),
        format!("int {}x; BEGIN {{ }}", "*".repeat(50_000)),
        format!("int {}x{}; BEGIN {{ }}", "(".repeat(50_000), ")".repeat(50_000)),
        format!("int a{}; BEGIN {{ }}", "[1]".repeat(50_000)),
        format!("int a{}; BEGIN {{ }}", "[int".repeat(50_000)),
        format!("BEGIN {{ trace((int{})1); }}", "(*".repeat(50_000)),
        format!("BEGIN {{ trace(sizeof(int (*)({})); }}", "int (*)(".repeat(50_000)),
        format!(
            "{} int x; {} s; BEGIN {{ }}",
            "struct {".repeat(50_000),
            "} a;".repeat(50_000)
        ),
        (0..2_000).fold("typedef int *t0;".to_owned(), |text, n| {
            text + &format!("typedef t{n} *t{};\n", n + 1)
        }),
        (0..200).fold("inline int i0 = pid;".to_owned(), |text, n| {
            text + &format!("inline int i{} = i{n} + i{n};\n", n + 1)
        }),
    ];
    for text in texts {
        let sources = [Source::new("deep", text.as_str())];
        let diagnostics = compile(&sources, &MacroValues::default()).unwrap_err();
        let refused = diagnostics
            .iter()
            .any(|d| matches!(d.tag, "N_NESTING" | "N_STRUCT" | "D_SYNTAX"));
        assert!(refused, "{}: {:?}", &text[..60], diagnostics[0]);
    }
}

/// Many statements, clauses and variables: their number has no limit, and the work is linear in it.
#[test]
fn many_statements_clauses_and_variables_are_accepted() {
    let many = (0..20_000).map(|n| format!("x{n} = {n}; ")).collect::<String>();
    let program = compile(
        &[Source::new("wide", format!("BEGIN {{ {many} }}"))],
        &MacroValues::default(),
    )
    .unwrap();
    assert_eq!(program.globals.len(), 20_000);
    assert_eq!(program.clauses[0].statements.len(), 20_000);
}

/// Forms in which a part is named several times: at any depth of nesting, none of them grows faster
/// than the text.
#[test]
fn nesting_costs_no_more_than_its_text() {
    const DEPTH: usize = 28;
    let nested = |open: &str, inner: &str, close: &str| format!("{}{inner}{}", open.repeat(DEPTH), close.repeat(DEPTH));
    let declared = "struct s { int n; int row[4]; unsigned int low : 3; } x[int], y[int], *p; int i;
        struct t { int n; struct in { int n; } in; } *q;";
    let in_it = nested("((struct t *)&", "q", "->in)");
    let statements = [
        format!("x[1].row[{}] = 1;", nested("x[1].row[", "0", "]")),
        format!("x[1].row[{}] = 1;", nested("x[1].row[i + ", "0", "]")),
        format!("trace({in_it}->in.n);"),
        format!("trace(&{in_it}->in);"),
        format!("trace(sizeof({in_it}->in));"),
        format!("x[1] = {};", nested("x[(x[2] = ", "y[i++]", ", 3)]")),
        format!("{} = y[0];", nested("x[(", "x[i++]", " = y[0], 3)]")),
        format!("x[{}] = y[0];", nested("y[", "0", "].n")),
        format!("x[{}].low = 1;", nested("x[", "i++", "].low++")),
        format!("p[{}].low = 1;", nested("p[", "i++", "].low++")),
        format!("print(&p[{}]);", nested("p[", "0", "].n")),
    ];
    for statement in statements {
        let text = format!("{declared} BEGIN {{ {statement} }}");
        match compile(&[Source::new("nested", text.as_str())], &MacroValues::default()) {
            Ok(program) => {
                let size = dump::dump(&program).len();
                assert!(size < 1000 * text.len(), "{statement}: {size} bytes");
            }
            Err(diagnostics) => panic!("{statement}: {}", diagnostics[0]),
        }
    }
}
