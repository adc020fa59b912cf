//! The stacks of a program's aggregations, with their values: the content of every profile.

use std::collections::HashMap;
use std::io;

use nanoprobe_lang::interpret::{Value, key};
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, AggregationId, KeyType, Program, Side};

use super::names::{NameId, Names};
use crate::aggregate::word;
use crate::function_names::function_name;
use crate::printf::name_of_value;
use crate::sink::View;
use crate::stack::{Symbolizer, function_of_frame, name_of, without_offset};

/// The unit of a profile's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Hits of a probe: a `count()`.
    Hits,
    Bytes,
    Nanoseconds,
    Microseconds,
    Milliseconds,
    /// A `sum()` whose name does not show the unit.
    Sum,
}

impl Unit {
    /// The last part of an aggregation's name gives the unit of its sums: `@bytes`, `@wait_ns`.
    fn of(aggregation: &Aggregation) -> Unit {
        if aggregation.function == AggregatingFunction::Count {
            return Unit::Hits;
        }
        let name = aggregation.name.trim_start_matches('@');
        match name.rsplit('_').next().unwrap_or(name) {
            "bytes" => Unit::Bytes,
            "ns" => Unit::Nanoseconds,
            "us" => Unit::Microseconds,
            "ms" => Unit::Milliseconds,
            _ => Unit::Sum,
        }
    }

    /// The word after a number.
    pub fn word(self) -> &'static str {
        match self {
            Unit::Hits => "hits",
            Unit::Bytes => "bytes",
            Unit::Nanoseconds => "ns",
            Unit::Microseconds => "us",
            Unit::Milliseconds => "ms",
            Unit::Sum => "in sum",
        }
    }
}

/// One profile of a program: an aggregation with stacks.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub id: AggregationId,
    /// The aggregation's name, with its `@`.
    pub name: String,
    pub unit: Unit,
}

/// The profiles of a program: its counts and sums by `ustack()` or `stack()`. If there are none, its counts and sums by
/// a function or an address, which become stacks of one frame.
pub(crate) fn kinds(program: &Program) -> Vec<Kind> {
    let with = |is_frames: fn(&KeyType) -> bool| -> Vec<Kind> {
        let numbered = (0_u32..).zip(&program.aggregations);
        let drawn = numbered.filter(|(_, aggregation)| {
            let is_additive = matches!(
                aggregation.function,
                AggregatingFunction::Count | AggregatingFunction::Sum
            );
            is_additive && aggregation.keys.iter().any(is_frames)
        });
        drawn
            .map(|(id, aggregation)| Kind {
                id: AggregationId(id),
                name: aggregation.name.clone(),
                unit: Unit::of(aggregation),
            })
            .collect()
    };
    let by_stack = with(|key| matches!(key, KeyType::Stack(_)));
    match by_stack.is_empty() {
        true => with(|key| matches!(key, KeyType::Symbol(_) | KeyType::Function)),
        false => by_stack,
    }
}

/// Whether a program has something that a profile can show.
#[must_use]
pub fn has_stacks(program: &Program) -> bool {
    !kinds(program).is_empty()
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Frame {
    /// The function's name without an offset, so that all places in a function have the same name.
    pub name: NameId,
    /// The address of the instruction: for a return address, the address of its call. 0: the frame is a part of the key
    /// beside the stack.
    pub address: u64,
}

/// The function that receives each stack and its value.
type Each<'e> = &'e mut dyn FnMut(&Names, &[Frame], u64) -> io::Result<()>;

/// Reads stacks, and names each address once.
#[derive(Default)]
pub(crate) struct Stacks {
    pub names: Names,
    known: HashMap<(u64, bool), NameId>,
    frames: Vec<Frame>,
}

impl Stacks {
    /// Passes on each stack with a value above 0, the outermost frame first. The other elements of a key become
    /// frames below its stack, and so does the program's stack below that of the kernel, which it has called.
    pub fn each(&mut self, view: &mut View<'_>, kind: &Kind, each: Each<'_>) -> io::Result<()> {
        let Some(aggregation) = view.program.aggregations.get(kind.id.0 as usize) else {
            return Ok(());
        };
        for (bytes, words) in view.aggregations.profiled(kind.id) {
            let value = u64::try_from(word(words, 0) as i64).unwrap_or(0);
            let elements = key::read_key(aggregation.shown_keys(), bytes);
            let (Some(elements), true) = (elements, value > 0) else {
                continue;
            };
            self.frames.clear();
            let is_kernels = |key: &KeyType| matches!(key, KeyType::Stack(stack) if stack.side == Side::Kernel);
            let mut elements: Vec<(&Value, &KeyType)> = elements.iter().zip(aggregation.shown_keys()).collect();
            elements.sort_by_key(|(_, key)| is_kernels(key));
            for (element, key) in elements {
                match element {
                    Value::Stack(addresses) => self.push_stack(addresses, view.symbolizer),
                    _ => self.push_element(element, key, view.symbolizer),
                }
            }
            each(&self.names, &self.frames, value)?;
        }
        Ok(())
    }

    fn push_stack(&mut self, addresses: &[u64], symbolizer: &mut dyn Symbolizer) {
        let depth = addresses.iter().take_while(|address| **address != 0).count();
        let innermost_last = addresses.iter().copied().enumerate().take(depth).rev();
        for (index, address) in innermost_last {
            // The first address is the thread's position; the others are return addresses.
            let is_return = index != 0;
            let name = match self.known.get(&(address, is_return)) {
                Some(name) => *name,
                None => {
                    let text = function_of_frame(address, is_return, symbolizer);
                    let name = self.names.number(&text);
                    self.known.insert((address, is_return), name);
                    name
                }
            };
            // A frame of interpreted code has no machine code of its own.
            let address = match symbolizer.interpreted_function(address) {
                Some(_) => 0,
                None => address - u64::from(is_return),
            };
            self.frames.push(Frame { name, address });
        }
    }

    fn push_element(&mut self, element: &Value, key: &KeyType, symbolizer: &mut dyn Symbolizer) {
        let mut address = 0;
        let text = match (element, key) {
            (Value::Integer(at), KeyType::Symbol(kind)) => {
                address = *at as u64;
                let name = name_of(symbolizer, address, *kind);
                without_offset(&name).to_owned()
            }
            (Value::Integer(number), KeyType::Enumeration(of)) => name_of_value(of, *number).into_owned(),
            (Value::Integer(number), KeyType::Integer(integer)) if !integer.signed => (*number as u64).to_string(),
            (Value::Integer(number), _) => number.to_string(),
            (Value::String(_), KeyType::Function) => {
                let name = function_name(element, symbolizer);
                String::from_utf8_lossy(name.as_bytes()).into_owned()
            }
            (other, _) => String::from_utf8_lossy(other.as_bytes()).into_owned(),
        };
        let name = self.names.number(&text);
        self.frames.push(Frame { name, address });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_a_sum_gives_its_unit() {
        let of = |name: &str, function| {
            Unit::of(&Aggregation {
                name: name.to_owned(),
                function,
                keys: Vec::new(),
                by_processor: false,
            })
        };
        assert_eq!(of("@bytes", AggregatingFunction::Sum), Unit::Bytes);
        assert_eq!(of("@wait_ns", AggregatingFunction::Sum), Unit::Nanoseconds);
        assert_eq!(of("@", AggregatingFunction::Sum), Unit::Sum);
        assert_eq!(of("@bytes", AggregatingFunction::Count), Unit::Hits);
    }
}
