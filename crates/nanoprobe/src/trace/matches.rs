//! Which descriptions match nothing, in one process or in several.

use std::collections::BTreeSet;

use nanoprobe_lang::Program;
use nanoprobe_session::Known;

/// Descriptions by their clauses and their numbers there. The text of one names each process by another number.
pub type Unmatched = BTreeSet<(usize, usize)>;

/// The descriptions that match nothing in a process, those for other processes among them.
pub fn without_match(known: &Known) -> Unmatched {
    let clauses = known.program().clauses.iter().enumerate();
    let all = clauses.flat_map(|(clause, found)| (0..found.probes.len()).map(move |number| (clause, number)));
    all.filter(|(clause, number)| known.is_without_match(*clause, *number))
        .collect()
}

/// Descriptions as text, each once.
pub fn texts_of<'u>(program: &Program, descriptions: impl Iterator<Item = &'u (usize, usize)>) -> Vec<String> {
    let mut texts: Vec<String> = Vec::new();
    for (clause, number) in descriptions {
        let description = program
            .clauses
            .get(*clause)
            .and_then(|clause| clause.probes.get(*number));
        if let Some(text) = description.map(ToString::to_string)
            && !texts.contains(&text)
        {
            texts.push(text);
        }
    }
    texts
}
