//! The format of `--flamegraph`: all profiles of a program in one picture.

use super::colour::LEGEND;
use super::file;
use super::picture::{Picture, Wrapping, draw};
use super::stacks::{Stacks, kinds};
use super::tree::{AFTER, Tree};
use crate::Error;
use crate::console::Console;
use crate::sink::{Sink, View};

/// The file of a flame graph, which is written at the end.
pub(crate) struct FlameGraph {
    pub path: String,
    pub title: String,
}

impl Sink for FlameGraph {
    fn aggregations(&mut self, _: &mut dyn Console, view: &mut View<'_>) -> Result<(), Error> {
        file::write(&self.path, |out| {
            let kinds = kinds(view.program);
            let mut stacks = Stacks::default();
            let mut tree = Tree::new();
            for kind in &kinds {
                // If there are several profiles, the first frame of every stack is the name of its profile.
                let base = (kinds.len() > 1).then(|| stacks.names.number(&kind.name));
                stacks.each(view, kind, &mut |_, frames, value| {
                    let frames = frames.iter().map(|frame| frame.name);
                    tree.add(AFTER, base.into_iter().chain(frames), value);
                    Ok(())
                })?;
            }
            tree.names = stacks.names;
            let unit = match &*kinds {
                [kind] => kind.unit.word(),
                _ => "of all",
            };
            let mut subtitle = LEGEND.to_owned();
            if tree.is_cut() {
                subtitle.push_str("; some frames found no room");
            }
            let picture = Picture {
                title: &self.title,
                subtitle: &subtitle,
                unit,
                is_difference: false,
                scale: (1, 1),
            };
            draw(&tree, &picture, Wrapping::of(&self.path), out)
        })
    }
}
