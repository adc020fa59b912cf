//! Libraries: the texts in the directories of `-L`, whose declarations every program may use. They
//! precede the program, and each library follows those that it depends on:
//!
//! ```text
//! lib/request.d      #pragma D depends_on library types.d        a library of the same folder
//!                    #pragma D depends_on provider pid           if the provider is missing, the library is skipped
//!                    inline string method[struct request *r] = stringof(r->method);
//! ```
//!
//! As in DTrace, a library is compiled as a whole and its clauses have no effect. A library with a
//! missing dependency is skipped; any other error in a library is an error of the program.

use crate::derived;
use crate::diagnostic::Diagnostic;
use crate::source::{Source, Span};
use std::collections::HashMap;

/// A requirement of a text: `#pragma D depends_on class name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dependency {
    /// `library`, `provider` or `module`.
    pub class: String,
    /// The required name; for a library, the name of its file.
    pub name: String,
    /// The place of the pragma.
    pub span: Span,
}

/// Providers that exist whatever the process is, besides the derived ones.
const PROVIDERS: [&str; 5] = ["dtrace", "pid", "profile", "sched", "syscall"];

/// The first dependency that is missing. `loaded`: the libraries that were loaded before `source`.
pub(crate) fn unmet(source: &Source, dependencies: &[Dependency], loaded: &[&Source]) -> Option<Diagnostic> {
    dependencies.iter().find_map(|dependency| {
        let Dependency { class, name, span } = dependency;
        let missing = |message| Some(Diagnostic::new("D_PRAGMA_DEPEND", *span, message));
        match class.as_str() {
            "library" if !source.is_library => {
                missing("main program may not explicitly depend on a library".to_owned())
            }
            "library" => {
                let wanted = beside(&source.name, name);
                if loaded.iter().any(|library| library.name == wanted) {
                    return None;
                }
                missing(format!("program requires library \"{wanted}\" which failed to load"))
            }
            "provider" if PROVIDERS.contains(&name.as_str()) || derived::names_of(name).is_some() => None,
            "provider" | "module" => missing(format!("program requires {class} {name}")),
            _ => {
                let message = format!("invalid class {class} specified by #pragma depends_on");
                Some(Diagnostic::new("D_PRAGMA_INVAL", *span, message))
            }
        }
    })
}

/// Why libraries have no order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OrderError {
    /// A library depends on another library that does not exist.
    Missing {
        /// The path of the library.
        library: String,
        /// The path where the missing library should be.
        wanted: String,
    },
    /// A library depends on itself, perhaps through other libraries.
    Circular { library: String },
}

impl std::fmt::Display for OrderError {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OrderError::Missing { library, wanted } => {
                write!(formatter, "library {library} depends on {wanted}, which does not exist")
            }
            OrderError::Circular { library } => {
                write!(formatter, "library {library} depends on itself, through others")
            }
        }
    }
}

/// The libraries in an order in which each follows the libraries on which it depends. Apart from that, their order
/// stays.
///
/// # Errors
/// Dependencies that are missing or circular.
pub fn ordered(libraries: Vec<Source>) -> Result<Vec<Source>, OrderError> {
    let by_name: HashMap<&str, usize> = libraries.iter().map(|one| one.name.as_str()).zip(0..).collect();
    let mut wanted = Vec::with_capacity(libraries.len());
    for library in &libraries {
        let mut indices = Vec::new();
        for name in dependencies(&library.text) {
            let path = beside(&library.name, name);
            indices.push(*by_name.get(path.as_str()).ok_or_else(|| OrderError::Missing {
                library: library.name.clone(),
                wanted: path.clone(),
            })?);
        }
        wanted.push(indices);
    }
    // Each round takes the libraries whose dependencies are all taken.
    let mut taken = vec![false; libraries.len()];
    let mut order = Vec::with_capacity(libraries.len());
    while order.len() < libraries.len() {
        let is_ready = |index: &usize| {
            let of = wanted.get(*index).map_or(&[][..], Vec::as_slice);
            taken.get(*index) == Some(&false) && of.iter().all(|one| taken.get(*one) == Some(&true))
        };
        let ready: Vec<usize> = (0..libraries.len()).filter(is_ready).collect();
        if ready.is_empty() {
            let left = libraries.iter().zip(&taken).find(|(_, taken)| !**taken);
            let library = left.map(|(library, _)| library.name.clone()).unwrap_or_default();
            return Err(OrderError::Circular { library });
        }
        for index in ready {
            if let Some(taken) = taken.get_mut(index) {
                *taken = true;
            }
            order.push(index);
        }
    }
    Ok(order
        .into_iter()
        .filter_map(|index| libraries.get(index).cloned())
        .collect())
}

/// The names of the libraries that a text depends on.
fn dependencies(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.trim_start().strip_prefix('#')?.split_ascii_whitespace();
        let is_one = ["pragma", "D", "depends_on", "library"]
            .iter()
            .all(|word| words.next() == Some(word));
        words.next().filter(|_| is_one)
    })
}

/// The path of a file in the directory of another.
fn beside(path: &str, name: &str) -> String {
    match path.rsplit_once('/') {
        Some((folder, _)) => format!("{folder}/{name}"),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MacroValues, compile};

    fn library(name: &str, text: &str) -> Source {
        Source::library(format!("lib/{name}.d"), text)
    }

    fn names(of: Vec<Source>) -> Vec<String> {
        of.into_iter().map(|one| one.name).collect()
    }

    #[test]
    fn libraries_come_after_their_dependencies() {
        let needs = |name: &str| format!("# pragma D  depends_on library {name}.d\n");
        let all = vec![
            library("a", &needs("d")),
            library("b", ""),
            library("c", &needs("e")),
            library("d", &needs("b")),
            library("e", &needs("a")),
        ];
        let order = ordered(all).unwrap();
        assert_eq!(names(order), ["lib/b.d", "lib/d.d", "lib/a.d", "lib/e.d", "lib/c.d"]);
        let circle = vec![library("a", &needs("b")), library("b", &needs("a"))];
        let library_a = "lib/a.d".to_owned();
        assert_eq!(
            ordered(circle),
            Err(OrderError::Circular {
                library: library_a.clone()
            })
        );
        let missing = OrderError::Missing {
            library: library_a,
            wanted: "lib/b.d".to_owned(),
        };
        assert_eq!(ordered(vec![library("a", &needs("b"))]), Err(missing));
    }

    #[test]
    fn declarations_of_libraries_are_the_programs_and_clauses_are_not() {
        let sources = [
            library("empty", ""),
            library("used", "inline int two = 2; struct s { int a; }; BEGIN { trace(1); }"),
            library(
                "kernel",
                "#pragma D depends_on provider fbt\ninline int three = nonsense;",
            ),
            library(
                "needs",
                "#pragma D depends_on library kernel.d\ninline int four = three;",
            ),
            library("pid", "#pragma D depends_on provider pid\ninline int five = 5;"),
            Source::new("script", "BEGIN { trace(two + five + sizeof (struct s)); }"),
        ];
        let program = compile(&sources, &MacroValues::default()).unwrap();
        assert_eq!(program.clauses.len(), 1);
        let wrong = [
            library("wrong", "inline int six = nonsense;"),
            Source::new("script", "BEGIN"),
        ];
        let refused = compile(&wrong, &MacroValues::default()).unwrap_err();
        assert_eq!((refused[0].tag, refused[0].span.source), ("D_IDENT_UNDEF", 0));
    }

    /// An error anywhere in a library counts, because DTrace, too, compiles all of it.
    #[test]
    fn unknown_functions_are_refused_in_libraries() {
        for text in [
            "inline int x = nosuch(5);",
            "inline int x[int a] = nosuch(a);",
            "inline int x[int a] = a + sizeof (nosuch(a));",
            "inline string x = strjoin(nosuch(), \"a\");",
            "int nosuch(int); inline int x = nosuch(5);",
            "struct o { int a; }; translator struct o < int i > { a = nosuch(i); };",
            "BEGIN { nosuch(); }",
            "BEGIN { x = 1 + nosuch(1); }",
            "BEGIN /nosuch()/ { }",
            "BEGIN { @ = sum(nosuch()); }",
            "BEGIN { if (1) { nosuch(); } }",
            "pid1:::entry { printf(\"%d\", nosuch(arg0)); }",
        ] {
            let sources = [library("wrong", text), Source::new("script", "BEGIN { exit(0); }")];
            let refused = compile(&sources, &MacroValues::default()).map_err(|all| (all[0].tag, all[0].span.source));
            assert_eq!(refused.map(|_| ()), Err(("D_FUNC_UNDEF", 0)), "{text}");
        }
        // A failure that depends on the traced program is not an error of the library.
        let sources = [
            library("right", "pid1:a.out:f:entry { trace(args[0]); }"),
            Source::new("script", "BEGIN { exit(0); }"),
        ];
        assert_eq!(compile(&sources, &MacroValues::default()).unwrap().clauses.len(), 1);
    }

    #[test]
    fn a_program_depends_on_providers_only() {
        let tag = |text: &str| {
            let source = Source::new("script", format!("{text}\nBEGIN"));
            compile(&[source], &MacroValues::default())
                .map_err(|all| all[0].tag)
                .err()
        };
        assert_eq!(tag("#pragma D depends_on provider profile"), None);
        for present in ["io", "proc", "plockstat", "plockstat7", "sched", "syscall", "tcp"] {
            assert_eq!(tag(&format!("#pragma D depends_on provider {present}")), None);
        }
        assert_eq!(tag("#pragma D depends_on provider fbt"), Some("D_PRAGMA_DEPEND"));
        assert_eq!(tag("#pragma D depends_on module unix"), Some("D_PRAGMA_DEPEND"));
        assert_eq!(tag("#pragma D depends_on library io.d"), Some("D_PRAGMA_DEPEND"));
        assert_eq!(tag("#pragma D depends_on something else"), Some("D_PRAGMA_INVAL"));
        assert_eq!(tag("#pragma D depends_on library"), Some("D_PRAGMA_MALFORM"));
    }
}
