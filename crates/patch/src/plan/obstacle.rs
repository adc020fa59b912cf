//! What keeps a jump from a site: `why.rs` finds it out.

/// What keeps a jump from a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
pub enum Obstacle {
    /// Alone it would have a jump.
    #[error("the patches around it leave no room")]
    Neighbours,
    /// There is padding for a springboard in reach, and others have it.
    #[error("all springboards in its reach are taken")]
    Springboards,
    /// The holes of the address space are elsewhere.
    #[error("no free address spells the bytes that its jump needs")]
    Address,
    /// A thread that comes that way would trap every time.
    #[error("a branch leads to where its jump would lie")]
    Branch,
    /// And there is not enough padding after it.
    #[error("the function ends where its jump would lie")]
    End,
    /// None of them alone.
    #[error("more than one of: a branch, the function's end, no free address")]
    Several,
    /// Whatever were otherwise.
    #[error("it cannot be moved together with what is around it")]
    Unmovable,
    /// Functions share text, and patches of both would overlap.
    #[error("its patch would cross that of a function that shares its text")]
    Crossing,
    /// The jump would end with the bytes of the next patch.
    #[error("the patch behind it, whose bytes its jump shares, could not be had")]
    Successor,
    /// Of a tactic that is forced: whatever were otherwise, but the instructions.
    #[error("the instructions there are too short for it, or too long")]
    Length,
    /// The springboard was to lie in an instruction which is displaced for that.
    #[error("the instruction nearby that its springboard would lie in could not be displaced")]
    Host,
}
