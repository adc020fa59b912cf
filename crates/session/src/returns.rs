//! Return probes by the return address (a kretprobe): the facts that planning needs, and in [`pool`] their memory in
//! the target. [`nanoprobe_text::returns`] says where return addresses may be replaced.

mod pool;

use nanoprobe_lang::options::ReturnForm;
use nanoprobe_patch::{FunctionMap, TargetAddress};
use nanoprobe_text::returns::{ReturnRefusal, needs_its_return_address};

pub(crate) use pool::{PutBack, Returns, put_back};

/// The facts about return probes that planning needs.
#[derive(Clone, Copy, Debug)]
pub struct ReturnPolicy<'a> {
    /// The form of return probes that the user has asked for.
    pub form: ReturnForm,
    /// Why no return address of the process is replaced.
    pub refusal: Option<&'a ReturnRefusal>,
    /// `np_return_take_at`.
    pub take: TargetAddress,
    /// `np_return_take_at_jump_from`.
    pub take_at_jump: TargetAddress,
    /// The code to which the stubs of return probes lead.
    pub exits: nanoprobe_patch::ReturnExits,
}

/// Whether the return address of a function may be replaced.
///
/// # Errors
/// Why it may not.
pub fn check_function<'a>(
    policy: &ReturnPolicy<'_>,
    names: impl Iterator<Item = &'a str>,
    parts: &[FunctionMap],
) -> Result<(), ReturnRefusal> {
    check_names(policy, names)?;
    match parts.iter().find_map(FunctionMap::return_address_use) {
        Some(used) => Err(used.into()),
        None => Ok(()),
    }
}

/// Whether the return address may be replaced where a function jumps to another one, after its own last use of the
/// address.
///
/// # Errors
/// Why it may not.
pub fn check_names<'a>(
    policy: &ReturnPolicy<'_>,
    mut names: impl Iterator<Item = &'a str>,
) -> Result<(), ReturnRefusal> {
    if let Some(refusal) = policy.refusal {
        return Err(refusal.clone());
    }
    match names.find(|name| needs_its_return_address(name)) {
        Some(name) => Err(ReturnRefusal::Name { name: name.to_owned() }),
        None => Ok(()),
    }
}
