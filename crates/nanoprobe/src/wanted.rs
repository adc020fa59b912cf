//! The processes that the command line names: those of `-p`, and a rule by which others are found.

mod cgroups;
mod rule;

pub use rule::Rule;

use crate::processes;

/// The processes to trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The processes of `-p`, each once, in the given order.
    pub listed: Vec<Listed>,
    /// How further processes are found, now and while tracing.
    pub rule: Option<Rule>,
}

/// A process of `-p`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub pid: i32,
    /// The name by which it was found.
    pub name: Option<String>,
}

impl Wanted {
    /// The processes that the words of `-p` mean: numbers and names, with commas between them.
    ///
    /// # Errors
    /// A message.
    pub fn new(words: &[String], rule: Option<Rule>) -> Result<Wanted, String> {
        let mut listed: Vec<Listed> = Vec::new();
        for word in words.iter().flat_map(|words| words.split(',')) {
            let name = word.parse::<i32>().is_err().then(|| word.to_owned());
            for pid in processes::numbers_of(word)? {
                if listed.iter().all(|other| other.pid != pid) {
                    let name = name.clone();
                    listed.push(Listed { pid, name });
                }
            }
        }
        Ok(Wanted { listed, rule })
    }

    /// The process, if there is exactly one and none can come.
    pub fn one(&self) -> Option<&Listed> {
        match (&self.listed[..], &self.rule) {
            ([one], None) => Some(one),
            _ => None,
        }
    }

    /// The number of the only process.
    pub fn pid(&self) -> Option<i32> {
        self.one().map(|one| one.pid)
    }

    /// Whether no process was named.
    pub fn is_none(&self) -> bool {
        self.listed.is_empty() && self.rule.is_none()
    }

    /// Whether several processes are traced, or may be.
    pub fn is_set(&self) -> bool {
        self.one().is_none() && !self.is_none()
    }

    /// Why something that is done with one process cannot be done.
    pub fn refusal(&self, what: &str) -> String {
        let mut text = format!("{what}: give one process by its number");
        if !self.listed.is_empty() {
            let pids: Vec<i32> = self.listed.iter().map(|listed| listed.pid).collect();
            text += &format!(":\n{}", processes::list(&pids));
        }
        text
    }

    /// The set in a few words.
    pub fn title(&self) -> String {
        let listed = match self.listed.len() {
            0 => None,
            1 => Some("1 process".to_owned()),
            count => Some(format!("{count} processes")),
        };
        let rule = self.rule.as_ref().map(Rule::to_string);
        let parts: Vec<String> = listed.into_iter().chain(rule).collect();
        parts.join(", ")
    }
}

impl Listed {
    /// Checks that the opened process is the one that was found.
    ///
    /// # Errors
    /// A message.
    pub fn check(&self) -> Result<(), String> {
        processes::check(self.pid, self.name.as_deref())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_is_listed_once() {
        let wanted = |words: &[&str]| {
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            Wanted::new(&words, None)
        };
        let pids = |words: &[&str]| -> Vec<i32> {
            let found = wanted(words).expect("numbers");
            found.listed.iter().map(|listed| listed.pid).collect()
        };
        assert_eq!(pids(&["12,34", "12", "56,34"]), [12, 34, 56]);
        assert_eq!(wanted(&["7,7"]).map(|wanted| wanted.pid()), Ok(Some(7)));
        assert!(wanted(&[]).is_ok_and(|wanted| wanted.is_none() && !wanted.is_set()));
        assert!(wanted(&["7,8"]).is_ok_and(|wanted| wanted.is_set() && wanted.one().is_none()));
        for wrong in ["", "7,", ",7", "7,8x", "7,-1x"] {
            assert!(wanted(&[wrong]).is_err_and(|what| what.contains("neither")), "{wrong}");
        }
    }
}
