//! The statements of the DTrace guide, chapter by chapter: a program, and its output or the reason why it is refused.
//!
//! `tests/guide/CHAPTER.txt` holds cases:
//!
//! ```text
//! ### the claim
//! option: strsize=16          (any number of these: as after -x; the default is only `quiet`)
//! BEGIN { trace(1); }         (the program)
//! --- prints                  or `--- refused D_TAG`
//! 1                           (what it prints; messages on stderr begin with `! `)
//! ```
//!
//! The program's clauses fire in this order: BEGIN, the pid probes once (`pid$target:a.out:work:entry`),
//! END; ERROR after a fault. Each clause runs twice. The interpreter runs it, and its records are printed.
//! Then it runs as machine code with the agent's own image, and its records must be the same. In a pid
//! clause `arg0` is the address of [`world::MEMORY`]. `BLESS=1` rewrites the outputs, but never the tags.
#![allow(clippy::unwrap_used)] // tests

#[path = "guide_runner/mod.rs"]
mod guide_runner;
#[path = "guide_runner/random.rs"]
mod random;
mod support;

use std::fmt::Write as _;
use std::path::Path;

struct Case {
    claim: String,
    options: Vec<String>,
    program: String,
    /// The text after `---`.
    verdict: String,
    output: String,
}

fn cases(text: &str) -> Vec<Case> {
    let mut cases = Vec::new();
    for part in text.split("### ").skip(1) {
        let (claim, rest) = part.split_once('\n').unwrap();
        let (head, tail) = rest
            .split_once("\n--- ")
            .unwrap_or_else(|| panic!("no verdict: {claim}"));
        let (verdict, output) = tail.split_once('\n').unwrap_or((tail, ""));
        let (options, program): (Vec<&str>, Vec<&str>) = head.lines().partition(|line| line.starts_with("option: "));
        cases.push(Case {
            claim: claim.to_owned(),
            options: options.iter().map(|line| line["option: ".len()..].to_owned()).collect(),
            program: program.join("\n"),
            verdict: verdict.trim().to_owned(),
            output: output.trim_end_matches('\n').to_owned(),
        });
    }
    cases
}

/// The case as it should be written, and the error in it, if there is one.
fn check(case: &Case) -> (String, Option<String>) {
    let found = guide_runner::run(&case.program, &case.options);
    let (verdict, output) = match found {
        Ok(output) => ("prints".to_owned(), output),
        Err(diagnostics) => (format!("refused {}", diagnostics[0].tag), String::new()),
    };
    let mut text = format!("### {}\n", case.claim);
    for option in &case.options {
        writeln!(text, "option: {option}").unwrap();
    }
    writeln!(text, "{}\n--- {}", case.program, case.verdict).unwrap();
    let output = output.trim_end_matches('\n');
    if !output.is_empty() {
        writeln!(text, "{output}").unwrap();
    }
    let wrong = if verdict != case.verdict {
        Some(format!("expected {}, found {verdict}\n{output}", case.verdict))
    } else if output != case.output {
        Some(format!("--- expected\n{}\n--- found\n{output}", case.output))
    } else {
        None
    };
    (text, wrong.map(|wrong| format!("{}: {wrong}", case.claim)))
}

#[test]
fn the_guide_is_right() {
    let bless = std::env::var_os("BLESS").is_some();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/guide");
    let mut files: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let (mut wrong, mut count) = (Vec::new(), 0);
    for path in files {
        let text = std::fs::read_to_string(&path).unwrap();
        let found: Vec<(String, Option<String>)> = cases(&text).iter().map(check).collect();
        count += found.len();
        let chapter = path.file_stem().unwrap().to_string_lossy().into_owned();
        wrong.extend(
            found
                .iter()
                .filter_map(|(_, wrong)| Some(format!("{chapter}: {}", wrong.as_ref()?))),
        );
        if bless {
            let head = text.split("### ").next().unwrap();
            let body: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
            std::fs::write(&path, format!("{head}{}", body.join("\n"))).unwrap();
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {count} cases:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

/// Random programs have the same effects in the interpreter and as machine code. `NANOPROBE_RANDOM=seed,seconds` runs
/// programs for this many seconds, starting with this seed.
#[test]
fn random_programs_have_the_same_effects_interpreted_and_compiled() {
    let given = std::env::var("NANOPROBE_RANDOM").ok();
    let given = given.as_deref().and_then(|given| given.split_once(','));
    let (first, seconds) = given.map_or((1, 0), |(seed, seconds)| {
        (seed.parse().unwrap(), seconds.parse().unwrap())
    });
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let (mut seed, mut ran) = (first, 0_u64);
    while seed < first + 300 || std::time::Instant::now() < end {
        let text = random::program(seed);
        match std::panic::catch_unwind(|| guide_runner::run(&text, &["nspec=2".to_owned()])) {
            Ok(Ok(_)) => ran += 1,
            // The front end refuses an obvious error such as a division by 0.
            Ok(Err(_)) => {}
            Err(_) => panic!("the program of seed {seed}:\n{text}"),
        }
        seed += 1;
    }
    let made = seed - first;
    assert!(ran > made / 2, "only {ran} of {made} programs were accepted");
}
