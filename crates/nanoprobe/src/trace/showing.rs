//! The screen of a run: opened when the probes are in place, and left before they are taken out.

use nanoprobe_session::{Attached, Known, interrupt};

use super::run::{Trace, subject};
use crate::arguments::ProgramText;
use crate::output::{Names, message};
use crate::places::AllNames;
use crate::screen::{self, Screen};

impl Trace<'_> {
    /// Opens the screen, if one is wanted. Without one the trace goes on as text.
    pub(super) fn open_screen(&mut self, known: &Known) {
        let options = self.printer.options();
        if !screen::is_wanted(self.arguments, options, self.program, self.files.is_some()) {
            return;
        }
        let tool = self.arguments.programs.iter().find_map(|program| match program {
            ProgramText::Carried { name, .. } => Some(name.trim_start_matches("tools/").trim_end_matches(".d")),
            _ => None,
        });
        let title = format!("{}  {}", tool.unwrap_or("nanoprobe"), subject(self.arguments, known));
        match Screen::open(self.program, options, &title) {
            Ok(screen) => self.screen = Some(screen),
            Err(error) => message(format_args!("no screen: {error}")),
        }
    }

    /// Shows what happens, if there is a screen.
    pub(super) fn show(&mut self, attached: &mut Attached) -> Result<(), anyhow::Error> {
        let Some(screen) = &mut self.screen else {
            return Ok(());
        };
        if screen.is_due() {
            self.aggregated.load(attached.tracing_mut())?;
            for member in self.members.iter_mut().flat_map(|members| &mut members.list) {
                member.load_into(&mut self.aggregated)?;
            }
            screen.update(self.program, &self.aggregated.table);
        }
        let mut names = AllNames {
            places: &self.aggregated.places,
            names: Names(attached.known()),
        };
        match screen.show(self.program, self.printer.options(), &mut names) {
            Ok(false) => {}
            Ok(true) => interrupt::request(),
            // The terminal is gone, or belongs to another process. If it is gone, a signal ends the tracing.
            Err(_) => self.close_screen()?,
        }
        Ok(())
    }

    /// Leaves the screen, and prints the output that was kept meanwhile.
    pub(super) fn close_screen(&mut self) -> Result<(), anyhow::Error> {
        if let Some(mut screen) = self.screen.take() {
            screen.close(&mut self.out)?;
            self.show_files()?;
        }
        Ok(())
    }

    /// Prints the output that a command without the terminal has written to its files.
    pub(super) fn show_files(&mut self) -> Result<(), anyhow::Error> {
        if let Some(files) = &mut self.files {
            files.show(&mut crate::standard_output::Standard::Output)?;
        }
        Ok(())
    }
}
