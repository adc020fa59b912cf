//! The table as text and as docs/coverage.md.

use std::fmt::Write;

use nanoprobe_session::{Class, Coverage, Tactic, Wanted};

/// The results for one program and one kind of points.
pub struct Row {
    pub program: String,
    pub kind: Wanted,
    pub coverage: Coverage,
}

#[derive(Default)]
pub struct Table {
    pub rows: Vec<Row>,
    /// Programs that were not found, with the reasons.
    pub missing: Vec<String>,
}

/// The name of a kind of points.
pub fn name(kind: Wanted) -> &'static str {
    match kind {
        Wanted::Entries => "entries",
        Wanted::Exits => "exits",
        Wanted::Instructions => "instructions",
    }
}

/// The goal, in percent of the points.
fn goal(kind: Wanted) -> f64 {
    match kind {
        Wanted::Entries => 99.9,
        Wanted::Exits => 99.5,
        Wanted::Instructions => 99.0,
    }
}

impl Row {
    fn traps(&self) -> usize {
        self.coverage.tactics.get(&Tactic::Trap).copied().unwrap_or(0)
    }

    fn refused(&self) -> usize {
        self.coverage.refusals.values().map(|class| class.points).sum()
    }

    /// The share of the points that have a jump of any kind, in percent.
    fn by_jump(&self) -> f64 {
        let had: usize = self.coverage.tactics.values().sum();
        percent(had - self.traps(), self.coverage.points)
    }

    /// The table for the terminal.
    pub fn text(&self) -> String {
        let coverage = &self.coverage;
        let mut text = format!(
            "{} {}: {} of {} functions ({} unnamed, {} without a way out, {} indirect), {:.3} % by jump, {} ms\n",
            self.program,
            name(self.kind),
            coverage.points,
            coverage.functions,
            coverage.unnamed,
            coverage.without_exit,
            coverage.indirect,
            self.by_jump(),
            coverage.elapsed.as_millis()
        );
        for (tactic, points) in &coverage.tactics {
            let _ = writeln!(
                text,
                "  {:8} {points:9} {:8.3} %",
                tactic.name(),
                percent(*points, coverage.points)
            );
        }
        for (what, classes) in [("trap", traps(coverage)), ("refused", refusals(coverage))] {
            for (why, class) in classes {
                let _ = writeln!(
                    text,
                    "  {what}: {why}: {} ({})",
                    class.points,
                    class.examples.join(", ")
                );
            }
        }
        for (what, class) in [
            ("int3 of the program's own, no points", &coverage.breakpoints),
            ("functions whose ways out may not all be known", &coverage.incomplete),
            ("bytes that nothing is known to lead to", &coverage.unreached),
        ] {
            let _ = writeln!(text, "  {what}: {} ({})", class.points, class.examples.join(", "));
        }
        text
    }
}

impl Table {
    /// The text of docs/coverage.md.
    pub fn markdown(&self) -> String {
        let mut text = String::from(HEAD);
        for kind in [Wanted::Entries, Wanted::Exits, Wanted::Instructions] {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.kind == kind).collect();
            let _ = writeln!(text, "\n## All {}\n", name(kind));
            text.push_str("| program | functions |");
            let _ = write!(text, " {} |", name(kind));
            for tactic in Tactic::ALL {
                let _ = write!(text, " {} |", tactic.name());
            }
            let _ = writeln!(text, " refused | by jump | goal | time |");
            let _ = writeln!(text, "|---|{}", "--:|".repeat(Tactic::ALL.len() + 6));
            for row in rows {
                let coverage = &row.coverage;
                let _ = write!(
                    text,
                    "| {} | {} | {} |",
                    row.program, coverage.functions, coverage.points
                );
                for tactic in Tactic::ALL {
                    let points = coverage.tactics.get(&tactic).copied().unwrap_or(0);
                    let share = percent(points, coverage.points);
                    let _ = match tactic {
                        Tactic::Trap => write!(text, " {points} |"),
                        _ => write!(text, " {share:.2} % |"),
                    };
                }
                let _ = writeln!(
                    text,
                    " {} | {:.3} % | {} % | {} ms |",
                    row.refused(),
                    row.by_jump(),
                    goal(kind),
                    coverage.elapsed.as_millis()
                );
            }
        }
        self.classes(&mut text, TRAPS, traps);
        self.classes(&mut text, REFUSALS, refusals);
        text.push_str(BREAKPOINTS);
        for row in &self.rows {
            let (program, kind, class) = (&row.program, name(row.kind), &row.coverage.breakpoints);
            if class.points > 0 {
                let _ = writeln!(text, "| {program} | {kind} | {} | {} |", class.points, examples(class));
            }
        }
        text.push_str(LEFT_OUT);
        for row in self.rows.iter().filter(|row| row.kind == Wanted::Exits) {
            let coverage = &row.coverage;
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                row.program,
                coverage.unnamed,
                coverage.indirect,
                coverage.without_exit,
                summary(&coverage.incomplete),
                summary(&coverage.unreached),
            );
        }
        for missing in &self.missing {
            let _ = writeln!(text, "\nNot found: {missing}.");
        }
        text
    }

    fn classes(&self, text: &mut String, head: &str, of: fn(&Coverage) -> Vec<(String, &Class)>) {
        let columns = "| program | of | why | points | for example |\n|---|---|---|--:|---|";
        let _ = writeln!(text, "{head}\n{columns}");
        for row in &self.rows {
            let mut classes = of(&row.coverage);
            classes.sort_by_key(|(_, class)| std::cmp::Reverse(class.points));
            for (why, class) in classes {
                let (program, kind, examples) = (&row.program, name(row.kind), examples(class));
                let _ = writeln!(text, "| {program} | {kind} | {why} | {} | {examples} |", class.points);
            }
        }
    }
}

fn traps(coverage: &Coverage) -> Vec<(String, &Class)> {
    let classes = coverage.traps.iter();
    classes.map(|(why, class)| (why.to_string(), class)).collect()
}

fn refusals(coverage: &Coverage) -> Vec<(String, &Class)> {
    let classes = coverage.refusals.iter();
    classes.map(|(why, class)| ((*why).to_owned(), class)).collect()
}

fn examples(class: &Class) -> String {
    let names = class.examples.iter().take(3).map(|name| format!("`{}`", cut(name)));
    names.collect::<Vec<String>>().join(", ")
}

/// The number of names, and some of them.
fn summary(class: &Class) -> String {
    let examples = class.examples.iter().take(3).map(|name| format!(" `{}`", cut(name)));
    class.points.to_string() + &examples.collect::<String>()
}

/// C++ names may be long.
fn cut(name: &str) -> String {
    const LONGEST: usize = 48;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", name.get(..end).unwrap_or(name)),
        None => name.to_owned(),
    }
}

fn percent(part: usize, whole: usize) -> f64 {
    100.0 * part as f64 / whole.max(1) as f64
}

const HEAD: &str = "# What can be probed, and how

    cargo run --release -p nanoprobe-bench --bin coverage -- --markdown > docs/coverage.md

Every function of these programs, planned as a session would plan `pid$target:module::entry`, `:return` and all
instructions, with all patches of a kind together. No process is involved: the address space is a model of the one that
the kernel makes (`crates/session/src/coverage.rs`). Programs with more than 262,144 points are planned in pieces of
that many, because all of node's instructions at once would need more near memory than there is. A *point* is one site;
functions that share text may name it more than once.
The columns are the tactics of `docs/design/patching.md`; *by jump* is everything except traps and refusals.
";

const TRAPS: &str = "
## What traps, and why

A site traps when every tactic fails. The reason names what prevents a jump there. It is found by planning the site again
with that one thing changed (`crates/patch/src/plan/obstacle.rs`), or it is a conflict between the plans of several
functions.
";

const REFUSALS: &str = "
## What is refused, and why
";

const BREAKPOINTS: &str = "
## What is no code

An `int3` of the program's own: the labels at the ends of Go's text, which lie on one; builtins that a build of V8 does not
have; what compilers put where no thread should arrive. A probe there is refused, and the tables above do not count
these places.

| program | of | points | for example |
|---|---|--:|---|
";

const LEFT_OUT: &str = "
## What else there is

*Unnamed*: functions that only the unwinding tables know, as in stripped programs. They are part of the tables above, and
are probed by their address. *Indirect*: IFUNCs, planned in a process as the function that they chose. *Never return*: a
`return` probe is refused with that reason. *Unknown exits*: a computed branch has an unknown destination, and only that
branch can reach some of the function's bytes. A return probe says so; use the return-address form there. *Unreached*:
bytes inside functions to which no known path leads: constants and tables among the code, dead code. No probe is placed
there, because a patch on data would change what the program reads.

| program | unnamed | indirect | never return | unknown exits | unreached bytes |
|---|--:|--:|--:|---|---|
";
