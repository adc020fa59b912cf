//! Which functions run on stacks so small that handlers must not: Go's. See docs/design/stacks.md.

use nanoprobe_patch::Position;
use nanoprobe_symbols::Module;

/// The tracer's knowledge of the stacks of a module's functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SmallStack {
    /// Ordinary stacks: C's, which must have room for a signal's frame anyway.
    No,
    /// Goroutines' stacks, for Go's functions only.
    Go,
    /// Goroutines' stacks, with C functions among Go's, whose red zone may be live.
    GoAndC,
}

impl SmallStack {
    /// The position of a point, given its `position` in a function of the module.
    pub fn position(self, position: Position) -> Position {
        match (self, position) {
            (SmallStack::No, position) => position,
            (SmallStack::GoAndC, Position::Inside) => Position::SmallInside,
            (SmallStack::Go | SmallStack::GoAndC, _) => Position::Small,
        }
    }
}

/// The stacks of each module. `has_stacks`: contexts have stacks of their own.
pub(crate) fn small_stacks(modules: &[Module], has_stacks: bool) -> Vec<SmallStack> {
    let of = |module: &Module| {
        // The C side of cgo, and the race detector's runtime.
        let has_c = || {
            ["_cgo_init", "x_cgo_init", "__tsan_init"]
                .iter()
                .any(|name| module.symbol(name).is_some())
        };
        match has_stacks && module.linkage().go {
            false => SmallStack::No,
            true if has_c() => SmallStack::GoAndC,
            true => SmallStack::Go,
        }
    };
    modules.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_red_zone_is_left_alone_where_c_may_stand() {
        assert_eq!(SmallStack::No.position(Position::Inside), Position::Inside);
        assert_eq!(SmallStack::Go.position(Position::Inside), Position::Small);
        assert_eq!(SmallStack::GoAndC.position(Position::Inside), Position::SmallInside);
        assert_eq!(SmallStack::GoAndC.position(Position::Entry), Position::Small);
    }
}
