//! Flame graphs: aggregations with stacks among their keys as an SVG picture.
//!
//! ```text
//!              | leaf |
//!       | parse       | print |
//! | main                      |      a frame is as wide as the values of the stacks that go through it;
//! | all                              |      frames side by side are in the order of their names
//! ```
//!
//! A browser shows a frame's whole name and share when the pointer rests on it. Frames too narrow
//! to be seen are left out.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::OpenOptions;

use nanoprobe_lang::interpret::Value;
use nanoprobe_lang::program::{AggregatingFunction, Aggregation, AggregationId, KeyType, Program};

use crate::Error;
use crate::aggregate::word;
use crate::console::Console;
use crate::printf::name_of_value;
use crate::sink::{Sink, View};
use crate::stack::{Symbolizer, frame_names, name_of};
use crate::table::AggregateTable;

/// The file of a flame graph. It is written at the end.
pub struct FlameGraph {
    path: String,
    title: String,
}

impl FlameGraph {
    /// A picture that will be drawn into this file, with this title.
    #[must_use]
    pub fn new(path: &str, title: String) -> FlameGraph {
        let path = path.to_owned();
        FlameGraph { path, title }
    }

    /// Whether the file can be written. This is checked before tracing begins, so that no results are lost.
    ///
    /// # Errors
    /// [`Error::File`]
    pub fn check(path: &str) -> Result<(), Error> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        file.map(drop).map_err(|error| Error::File {
            path: path.to_owned(),
            error,
        })
    }
}

impl Sink for FlameGraph {
    fn aggregations(&mut self, _: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        let stacks = folded(view.program, view.aggregations, view.symbolizer);
        std::fs::write(&self.path, flame_graph(&self.title, &stacks)).map_err(|error| Error::File {
            path: self.path.clone(),
            error,
        })
    }
}

/// Pixels.
const WIDTH: f64 = 1200.0;
const ROW: usize = 16;
const MARGIN: usize = 8;
const CHARACTER: f64 = 6.6;
const NARROWEST: f64 = 0.2;
/// Deeper frames are left out.
const DEPTH_MAX: usize = 256;

/// One stack: the names from the outermost frame on, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Folded {
    /// Without offsets, so that all places in a function are one frame.
    frames: Vec<String>,
    /// A count or a sum.
    value: u64,
}

/// Whether a program has something to draw: a `count()` or `sum()` by `ustack()`.
#[must_use]
pub fn has_stacks(program: &Program) -> bool {
    program.aggregations.iter().any(is_drawn)
}

fn is_drawn(aggregation: &Aggregation) -> bool {
    let has_stack = aggregation
        .keys
        .iter()
        .any(|key| matches!(key, KeyType::UserStack { .. }));
    has_stack
        && matches!(
            aggregation.function,
            AggregatingFunction::Count | AggregatingFunction::Sum
        )
}

/// The stacks of all aggregations that can be drawn. Strings and numbers of a key are frames below its stack.
fn folded(program: &Program, table: &AggregateTable, symbolizer: &mut dyn Symbolizer) -> Vec<Folded> {
    let mut stacks = Vec::new();
    for (index, aggregation) in (0_u32..).zip(&program.aggregations) {
        if !is_drawn(aggregation) {
            continue;
        }
        for row in table.rows(program, AggregationId(index)) {
            let Some(value) = u64::try_from(word(&row.words, 0) as i64)
                .ok()
                .filter(|value| *value > 0)
            else {
                continue;
            };
            let mut frames = Vec::new();
            for (element, key) in row.key.iter().zip(aggregation.shown_keys()) {
                match (element, key) {
                    (Value::Stack(addresses), _) => {
                        let names =
                            frame_names(addresses, symbolizer).map(|(_, name)| without_offset(&name).to_owned());
                        let inward: Vec<String> = names.collect();
                        frames.extend(inward.into_iter().rev());
                    }
                    (Value::Integer(address), KeyType::Symbol(kind)) => {
                        frames.push(name_of(symbolizer, *address as u64, *kind));
                    }
                    (Value::Integer(number), KeyType::Enumeration(of)) => {
                        frames.push(name_of_value(of, *number).into_owned());
                    }
                    (Value::Integer(number), KeyType::Integer(integer)) if !integer.signed => {
                        frames.push((*number as u64).to_string());
                    }
                    (Value::Integer(number), _) => frames.push(number.to_string()),
                    (other, _) => frames.push(String::from_utf8_lossy(other.as_bytes()).into_owned()),
                }
            }
            stacks.push(Folded { frames, value });
        }
    }
    stacks
}

fn without_offset(name: &str) -> &str {
    name.rsplit_once("+0x").map_or(name, |(function, _)| function)
}

#[derive(Default)]
struct Frame {
    value: u64,
    above: BTreeMap<String, Frame>,
}

impl Frame {
    fn add(&mut self, frames: &[String], value: u64) {
        let mut frame = self;
        frame.value = frame.value.saturating_add(value);
        for name in frames.iter().take(DEPTH_MAX) {
            frame = frame.above.entry(name.clone()).or_default();
            frame.value = frame.value.saturating_add(value);
        }
    }

    fn depth(&self) -> usize {
        1 + self.above.values().map(Frame::depth).max().unwrap_or(0)
    }
}

fn flame_graph(title: &str, stacks: &[Folded]) -> String {
    let mut root = Frame::default();
    stacks.iter().for_each(|stack| root.add(&stack.frames, stack.value));
    let rows = root.depth();
    let height = (rows + 2) * ROW + 2 * MARGIN;
    let mut picture = Picture {
        text: String::new(),
        bottom: height - MARGIN,
        total: root.value.max(1),
    };
    let width = WIDTH + 2.0 * MARGIN as f64;
    // Writing to a String cannot fail.
    let _ = write!(
        picture.text,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
         font-family=\"monospace\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fffdf4\"/>\n\
         <text x=\"{MARGIN}\" y=\"{}\" font-size=\"14\">{}</text>\n",
        MARGIN + ROW,
        escaped(title)
    );
    picture.frame("all", &root, MARGIN as f64, 0);
    picture.text.push_str("</svg>\n");
    picture.text
}

struct Picture {
    text: String,
    bottom: usize,
    total: u64,
}

impl Picture {
    fn frame(&mut self, name: &str, frame: &Frame, x: f64, depth: usize) {
        let share = frame.value as f64 / self.total as f64;
        let width = share * WIDTH;
        if width < NARROWEST {
            return;
        }
        let y = self.bottom - (depth + 1) * ROW;
        let _ = write!(
            self.text,
            "<g><title>{} ({}, {:.2}%)</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" rx=\"1\" \
             fill=\"{}\"/>",
            escaped(name),
            frame.value,
            100.0 * share,
            ROW - 1,
            colour(name)
        );
        let room = ((width - 4.0) / CHARACTER) as usize;
        if room >= 3 {
            let shown: String = match name.chars().count() {
                length if length <= room => name.to_owned(),
                _ => name.chars().take(room - 2).chain("..".chars()).collect(),
            };
            let _ = write!(
                self.text,
                "<text x=\"{:.1}\" y=\"{}\">{}</text>",
                x + 2.0,
                y + ROW - 5,
                escaped(&shown)
            );
        }
        self.text.push_str("</g>\n");
        let mut left = x;
        for (name, above) in &frame.above {
            self.frame(name, above, left, depth + 1);
            left += above.value as f64 / self.total as f64 * WIDTH;
        }
    }
}

/// A warm colour; a name has the same colour in every picture.
fn colour(name: &str) -> String {
    let hash = name.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let [red, green, blue, _] = hash.to_le_bytes();
    format!("#{:02x}{:02x}{:02x}", 205 + red % 50, 80 + green % 130, 40 + blue % 50)
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // XML allows no other control characters, and neither of these two.
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[&str], value: u64) -> Folded {
        Folded {
            frames: frames.iter().map(|frame| (*frame).to_owned()).collect(),
            value,
        }
    }

    /// The data of a picture's frames, in the order of drawing.
    fn titles(picture: &str) -> Vec<&str> {
        let parts = picture.split("<title>").skip(1);
        parts.filter_map(|part| part.split("</title>").next()).collect()
    }

    #[test]
    fn frames_are_as_wide_as_the_sum_of_their_stacks() {
        let stacks = [stack(&["main", "b"], 1), stack(&["main", "a"], 2), stack(&["main"], 1)];
        let picture = flame_graph("calls", &stacks);
        assert_eq!(
            titles(&picture),
            [
                "all (4, 100.00%)",
                "main (4, 100.00%)",
                "a (2, 50.00%)",
                "b (1, 25.00%)"
            ]
        );
        assert!(picture.contains("x=\"8.0\" y=\"40\" width=\"600.0\""), "{picture}");
        assert!(picture.contains("x=\"608.0\" y=\"40\" width=\"300.0\""), "{picture}");
    }

    #[test]
    fn names_are_data() {
        let picture = flame_graph("<&>", &[stack(&["operator<\"x\">&\u{7}\u{ffff}"], 1)]);
        assert!(picture.contains(">&lt;&amp;&gt;</text>"));
        assert!(picture.contains("operator&lt;&quot;x&quot;&gt;&amp;??"));
        assert_eq!(picture.matches("<g>").count(), picture.matches("</g>").count());
    }

    #[test]
    fn nothing_makes_a_picture_too() {
        assert_eq!(titles(&flame_graph("nothing", &[])), Vec::<&str>::new());
        let deep: Vec<String> = (0..5000).map(|frame| frame.to_string()).collect();
        let picture = flame_graph(
            "deep",
            &[Folded {
                frames: deep,
                value: u64::MAX,
            }],
        );
        assert_eq!(titles(&picture).len(), DEPTH_MAX + 1);
    }

    #[test]
    fn offsets_do_not_divide_functions() {
        assert_eq!(without_offset("a.out`main+0x1f"), "a.out`main");
        assert_eq!(without_offset("a.out`main"), "a.out`main");
        assert_eq!(without_offset("0x401000"), "0x401000");
    }
}
