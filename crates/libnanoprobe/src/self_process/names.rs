//! Finds functions by name, by an index for each module in which a function was looked for. An index holds hashes
//! instead of names, in sixteen bytes for each name.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use nanoprobe_symbols::{Function, Module};

/// The indices, by the module's number, which is never used again.
#[derive(Default)]
pub struct Names(HashMap<usize, Vec<(u64, u32)>>);

impl Names {
    /// The functions of a module that have this name, in the module's order.
    pub fn find<'module>(&mut self, number: usize, module: &'module Module, name: &str) -> Vec<&'module Function> {
        let index = self.0.entry(number).or_insert_with(|| index_of(module));
        let wanted = hash(name);
        let first = index.partition_point(|(hash, _)| *hash < wanted);
        let same = index.iter().skip(first).take_while(|(hash, _)| *hash == wanted);
        let functions = same.filter_map(|(_, function)| module.functions().get(*function as usize));
        functions
            .filter(|function| function.names().any(|other| other == name))
            .collect()
    }

    /// Drops the index of a module that is gone.
    pub fn forget(&mut self, number: usize) {
        self.0.remove(&number);
    }
}

/// By hash, then in the module's order.
fn index_of(module: &Module) -> Vec<(u64, u32)> {
    let functions = (0_u32..)
        .zip(module.functions())
        .filter(|(_, function)| function.is_named);
    let names = functions.flat_map(|(number, function)| function.names().map(move |name| (hash(name), number)));
    let mut index: Vec<(u64, u32)> = names.collect();
    index.sort_unstable();
    index
}

fn hash(name: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}
