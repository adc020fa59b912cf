//! The flags that ask for profiles: one for each row of [`PROFILE_FORMATS`].

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches};
use nanoprobe_export::profile::{PROFILE_FORMATS, ProfileFormat};

/// The wanted profiles.
#[derive(Debug)]
pub struct ProfileFlags {
    /// Each with its file.
    pub wanted: Vec<(ProfileFormat, String)>,
}

impl FromArgMatches for ProfileFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ProfileFlags, Error> {
        let of = |format: ProfileFormat| Some((format, matches.get_one::<String>(format.flag)?.clone()));
        let wanted = PROFILE_FORMATS.into_iter().filter_map(of).collect();
        Ok(ProfileFlags { wanted })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = ProfileFlags::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for ProfileFlags {
    fn augment_args(command: Command) -> Command {
        PROFILE_FORMATS.iter().fold(command, |command, format| {
            let flag = Arg::new(format.flag).long(format.flag);
            let flag = flag.value_name(format.file).help(format.help);
            command.arg(flag.action(ArgAction::Set))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        ProfileFlags::augment_args(command)
    }
}
