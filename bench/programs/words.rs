//! A Rust program of the ordinary kind, for the coverage table: it counts the words of its input, on some threads.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead, Write};
use std::sync::mpsc;
use std::thread;

fn count(lines: Vec<String>) -> HashMap<String, usize> {
    let mut words = HashMap::new();
    for word in lines.iter().flat_map(|line| line.split_whitespace()) {
        *words.entry(word.to_lowercase()).or_insert(0) += 1;
    }
    words
}

fn main() -> io::Result<()> {
    let lines: Vec<String> = io::stdin().lock().lines().collect::<Result<_, _>>()?;
    let (sender, receiver) = mpsc::channel();
    for chunk in lines.chunks(1000) {
        let (sender, chunk) = (sender.clone(), chunk.to_vec());
        thread::spawn(move || sender.send(count(chunk)));
    }
    drop(sender);
    let mut total: BTreeMap<String, usize> = BTreeMap::new();
    for words in receiver {
        for (word, times) in words {
            *total.entry(word).or_default() += times;
        }
    }
    let mut out = io::stdout().lock();
    for (word, times) in total {
        writeln!(out, "{times:8} {word}")?;
    }
    Ok(())
}
