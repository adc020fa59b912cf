//! Draws a tree of stacks as a flame graph: an SVG picture with its own script.
//!
//! ```text
//!              | leaf |
//!       | parse       | print |
//! | main                      |      a frame is as wide as the sum of the values of the stacks through it;
//! | all                              |      adjacent frames are in the order of their names
//! ```
//!
//! A click on a frame zooms. Ctrl-F, or the word Search, asks for a regular expression. The pointer on a frame shows
//! its name, value and share. Nothing is loaded from elsewhere.

use std::io::{self, Write};

use super::colour::{colour, colour_of_change};
use super::tree::{AFTER, BEFORE, Tree};

/// The texts of a picture besides the frames.
pub(crate) struct Picture<'a> {
    pub title: &'a str,
    pub subtitle: &'a str,
    /// The word after a frame's value.
    pub unit: &'a str,
    /// Whether frames have the colour of the change from the first profile.
    pub is_difference: bool,
    /// The first profile's values are multiplied by `scale.0 / scale.1`.
    pub scale: (u64, u64),
}

/// Whether a picture is an HTML page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapping {
    Svg,
    Html,
}

impl Wrapping {
    /// By the name of the file.
    pub fn of(path: &str) -> Wrapping {
        let is_html = [".html", ".htm"].iter().any(|end| path.ends_with(end));
        if is_html { Wrapping::Html } else { Wrapping::Svg }
    }
}

/// The most frames that are drawn. If there are more, the narrowest frames are left out.
const DRAWN_MAX: usize = 1 << 15;
/// Frames that are narrower than this part (one in 20,000) of the picture are left out; the picture has 1,200 columns.
const NARROWEST: u64 = 20_000;
/// The most bytes of a name in a picture.
const NAME_BYTES_MAX: usize = 300;
/// Sizes in pixels. `picture.js` also has the sizes of the frames.
const WIDTH: f64 = 1180.0;
const LEFT: f64 = 10.0;
const ROW: usize = 16;
const TOP: usize = 60;
const BOTTOM: usize = 34;
const CHARACTER: f64 = 6.7;

const SCRIPT: &str = include_str!("picture.js");
const STYLE: &str = "text { font: 11px monospace; fill: #222; } g.f { cursor: pointer; } g.f text { pointer-events: none; } \
                     g.f:hover rect { stroke: #222; } .button { cursor: pointer; } .button:hover { fill: #a00; } \
                     #heading { font-size: 16px; }";

/// A frame of the picture.
struct Drawn {
    node: usize,
    depth: usize,
    /// The sum of the values of the frames to its left.
    start: u64,
}

/// Draws a tree.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn draw(
    tree: &Tree,
    picture: &Picture<'_>,
    wrapping: Wrapping,
    out: &mut dyn Write,
) -> Result<(), io::Error> {
    let title = escaped(picture.title);
    if wrapping == Wrapping::Html {
        write!(
            out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
             <style>body {{ margin: 0; background: #fffdf6; }}</style>\n</head>\n<body>\n"
        )?;
    } else {
        writeln!(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>")?;
    }
    svg(tree, picture, &title, out)?;
    match wrapping {
        Wrapping::Svg => Ok(()),
        Wrapping::Html => out.write_all(b"</body>\n</html>\n"),
    }
}

fn svg(tree: &Tree, picture: &Picture<'_>, title: &str, out: &mut dyn Write) -> io::Result<()> {
    let sums = tree.sums();
    let (frames, own) = frames(tree, &sums);
    let depth = frames.iter().map(|frame| frame.depth).max().unwrap_or(0);
    let height = TOP + (depth + 1) * ROW + BOTTOM;
    let (middle, right) = (LEFT + WIDTH / 2.0, LEFT + WIDTH);
    let subtitle = match frames.is_empty() {
        true => "no stacks were recorded".to_owned(),
        false => escaped(picture.subtitle),
    };
    write!(
        out,
        "<svg id=\"flames\" xmlns=\"http://www.w3.org/2000/svg\" width=\"1200\" height=\"{height}\" \
         viewBox=\"0 0 1200 {height}\">\n<style>{STYLE}</style>\n\
         <rect width=\"1200\" height=\"{height}\" fill=\"#fffdf6\"/>\n\
         <text id=\"heading\" x=\"{middle}\" y=\"22\" text-anchor=\"middle\">{title}</text>\n\
         <text x=\"{middle}\" y=\"42\" text-anchor=\"middle\">{subtitle}</text>\n\
         <text id=\"reset\" class=\"button\" x=\"{LEFT}\" y=\"22\" style=\"display:none\">Reset Zoom</text>\n\
         <text id=\"search\" class=\"button\" x=\"{right}\" y=\"22\" text-anchor=\"end\">Search</text>\n\
         <text id=\"details\" x=\"{LEFT}\" y=\"{}\"></text>\n\
         <text id=\"matched\" x=\"{right}\" y=\"{}\" text-anchor=\"end\"></text>\n",
        height - 12,
        height - 12
    )?;
    let changes = changes(&own, tree, picture);
    let largest = changes
        .iter()
        .fold(0.0, |largest: f64, change| largest.max(change.abs()));
    let total = sums[0][AFTER].max(1) as f64;
    for frame in &frames {
        let value = sums[frame.node][AFTER];
        let (x, w) = (frame.start as f64 / total, value as f64 / total);
        let name = name_of(tree, frame.node);
        let (red, green, blue) = match (picture.is_difference, frame.node) {
            (true, node) => colour_of_change(changes[node], largest),
            (false, 0) => (224, 224, 224),
            (false, _) => colour(name),
        };
        let change = match picture.is_difference {
            true => format!("; self {:+.2}%", 100.0 * changes[frame.node]),
            false => String::new(),
        };
        let y = height - BOTTOM - (frame.depth + 1) * ROW;
        let left = LEFT + x * WIDTH;
        writeln!(
            out,
            "<g class=\"f\" data-x=\"{x:.10}\" data-w=\"{w:.10}\"><title>{} ({} {}, {:.2}%{change})</title>\
             <rect x=\"{left:.2}\" y=\"{y}\" width=\"{:.2}\" height=\"{}\" fill=\"#{red:02x}{green:02x}{blue:02x}\"/>\
             <text x=\"{:.2}\" y=\"{}\">{}</text></g>",
            escaped(name),
            separated(value),
            picture.unit,
            100.0 * w,
            w * WIDTH,
            ROW - 1,
            left + 3.0,
            y + ROW - 5,
            escaped(&fitting(name, w * WIDTH))
        )?;
    }
    writeln!(out, "<script>\n{SCRIPT}</script>\n</svg>")
}

/// The frames in the order of their names, and for each node its own values plus those of left-out frames above it.
fn frames(tree: &Tree, sums: &[[u64; 2]]) -> (Vec<Drawn>, Vec<[u64; 2]>) {
    let nodes = tree.nodes();
    // The least width of a drawn frame, so that few enough frames are left.
    let mut narrowest = (sums[0][AFTER] / NARROWEST).max(1);
    let wide = |narrowest: u64| sums.iter().filter(|sum| sum[AFTER] >= narrowest).count();
    while wide(narrowest) > DRAWN_MAX {
        narrowest = narrowest.saturating_mul(2);
    }
    let mut own: Vec<[u64; 2]> = nodes.iter().map(|node| node.own).collect();
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (index, node) in nodes.iter().enumerate().skip(1).rev() {
        // A parent is at least as wide.
        if sums[index][AFTER] >= narrowest {
            children[node.parent as usize].push(index);
            continue;
        }
        let [former, latter] = own[index];
        let parent = &mut own[node.parent as usize];
        parent[BEFORE] += former;
        parent[AFTER] += latter;
    }
    let mut frames = Vec::new();
    let mut open = Vec::new();
    if sums[0][AFTER] > 0 {
        open.push(Drawn {
            node: 0,
            depth: 0,
            start: 0,
        });
    }
    while let Some(frame) = open.pop() {
        let above = &mut children[frame.node];
        above.sort_by_key(|node| name_of(tree, *node));
        let mut start = frame.start;
        for node in above.iter().copied() {
            let depth = frame.depth + 1;
            open.push(Drawn { node, depth, start });
            start += sums[node][AFTER];
        }
        frames.push(frame);
    }
    (frames, own)
}

/// For each node, by how much its own share of the sum has changed. Without a first profile, there are no changes.
fn changes(own: &[[u64; 2]], tree: &Tree, picture: &Picture<'_>) -> Vec<f64> {
    if !picture.is_difference {
        return Vec::new();
    }
    let (multiply, divide) = (picture.scale.0 as f64, picture.scale.1.max(1) as f64);
    let total = tree.total(AFTER).max(1) as f64;
    let change = |own: &[u64; 2]| (own[AFTER] as f64 - own[BEFORE] as f64 * multiply / divide) / total;
    own.iter().map(change).collect()
}

fn name_of(tree: &Tree, node: usize) -> &str {
    let name = match node {
        0 => "all",
        _ => tree.nodes().get(node).map_or("", |node| tree.names.text(node.name)),
    };
    name.get(..name.floor_char_boundary(NAME_BYTES_MAX)).unwrap_or_default()
}

/// A name, or as much of the name as fits.
fn fitting(name: &str, width: f64) -> String {
    let room = ((width - 4.0) / CHARACTER).max(0.0) as usize;
    match name.chars().count() {
        _ if room < 3 => String::new(),
        length if length <= room => name.to_owned(),
        _ => name.chars().take(room - 2).chain("..".chars()).collect(),
    }
}

/// A number with a comma before each three digits.
fn separated(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '&' => out.push_str("&amp;"),
            '"' => out.push_str("&quot;"),
            // XML allows neither other control characters nor these two characters.
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => out.push('?'),
            character => out.push(character),
        }
    }
    out
}

#[cfg(test)]
mod tests;
