//! Tests: what descriptions match, and which ids probes have.

use nanoprobe_lang::program::ProbeDescription;
use nanoprobe_text::code::{Instructions, NoInstruction};

use super::*;
use crate::names::{Name, Reason};

fn description(text: &str) -> ProbeDescription {
    let mut fields: Vec<String> = text.split(':').map(str::to_owned).collect();
    while fields.len() < 4 {
        fields.insert(0, String::new());
    }
    let mut fields = fields.into_iter();
    let mut next = || fields.next().unwrap_or_default();
    ProbeDescription {
        provider: next(),
        module: next(),
        function: next(),
        name: next(),
        span: nanoprobe_lang::Span::default(),
    }
}

#[test]
fn the_tracer_s_probes_have_fixed_ids() {
    let mut list = ProbeList::new(Demangle::Auto);
    for (text, id) in [("END", 2), ("BEGIN", 1), ("dtrace:::ERROR", 3)] {
        let found = list.match_tracer(&description(text), None).unwrap();
        let ids: Vec<u32> = found
            .iter()
            .filter_map(|index| list.get(*index))
            .map(|probe| probe.id)
            .collect();
        assert_eq!(ids, [id], "{text}");
    }
    let tick = list.match_tracer(&description("profile:::tick-100ms"), None).unwrap();
    assert_eq!(list.get(tick[0]).unwrap().id, 4);
    assert_eq!(list.match_tracer(&description("tick-100ms"), None).unwrap(), tick);
}

#[test]
fn a_provider_of_another_process_is_refused() {
    let mut list = ProbeList::new(Demangle::Auto);
    assert!(
        list.match_tracer(&description("pid7:a:b:entry"), Some("pid7"))
            .unwrap()
            .is_empty()
    );
    assert!(list.match_tracer(&description("pid8:a:b:entry"), Some("pid7")).is_err());
    assert!(list.match_tracer(&description("pid8:a:b:entry"), None).is_err());
    assert!(list.match_tracer(&description("tick-0"), None).is_err());
}

/// The probes that a name matches on a function whose instructions are at 0, 1 and 1a.
fn named(list: &mut ProbeList, name: &str) -> (Vec<String>, Option<Reason>) {
    let labels = Labels {
        provider: "pid7".into(),
        module: "a.out".into(),
        function: "func".into(),
    };
    let later = Later {
        module: 0,
        function: 3,
        labels,
        name: Name::parse(name),
    };
    let matched = list.match_later(&later, &Instructions::made(0x1000, 0x1e, &[0, 1, 0x1a]));
    let shown = matched.found.iter().filter_map(|index| list.get(*index));
    (
        shown.map(Probe::to_string).collect(),
        matched.error.map(|(_, reason)| reason),
    )
}

#[test]
fn offsets_are_probes_of_their_own_and_the_same_when_named_twice() {
    let mut list = ProbeList::new(Demangle::Auto);
    assert_eq!(named(&mut list, "1a").0, ["pid7:a.out:func:1a"]);
    assert_eq!(named(&mut list, "1*").0, ["pid7:a.out:func:1", "pid7:a.out:func:1a"]);
    assert_eq!(named(&mut list, "").0.len(), 3);
    let ids: Vec<u32> = list.iter().map(|probe| probe.id).collect();
    assert_eq!(ids, [4, 5, 6]);
}

#[test]
fn an_offset_that_is_no_instruction_s_is_an_error_with_the_nearest() {
    let (found, error) = named(&mut ProbeList::new(Demangle::Auto), "0x1B");
    assert!(found.is_empty());
    let inside = NoInstruction::Inside {
        before: Some(0x1a),
        after: None,
    };
    assert_eq!(error, Some(Reason::Offset(inside)));
    let outside = NoInstruction::Outside { bytes: 0x1e };
    assert_eq!(
        named(&mut ProbeList::new(Demangle::Auto), "1e").1,
        Some(Reason::Offset(outside))
    );
}

#[test]
fn who_asks_for_the_kernel_s_probes_is_told_where_to_look() {
    for (text, word) in [
        ("vminfo:::maj_fault", "syscall::open*:entry"),
        ("fbt:::", "libc"),
        ("uprobe:bash:readline", "bpftrace"),
        ("interval:s:1", "tick-1s"),
    ] {
        let hint = hint_for_elsewhere(&description(text)).unwrap();
        assert!(hint.contains(word), "{text}: {hint}");
    }
    for text in [
        "pid7:a.out:open:entry",
        "tick-1s",
        "postgresql7:::query-start",
        "syscall::open:entry",
    ] {
        assert_eq!(hint_for_elsewhere(&description(text)), None, "{text}");
    }
}

#[test]
fn who_puts_a_field_in_another_s_place_is_told_which() {
    for (text, word) in [
        ("pid7:malloc", "all four"),
        ("pid7:libc:malloc", "all four"),
        ("pid:libc:malloc:entry", "pid$target"),
        ("malloc:entry", "pid$target"),
    ] {
        let hint = hint_for_fields(&description(text)).unwrap();
        assert!(hint.contains(word), "{text}: {hint}");
    }
    for text in [
        "pid7:a.out:open:entry",
        "tick-1s",
        "postgresql7:::query-start",
        "syscall::open:entry",
    ] {
        assert_eq!(hint_for_fields(&description(text)), None, "{text}");
    }
}
