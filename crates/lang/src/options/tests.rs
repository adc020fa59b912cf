use super::*;

const DAY_NS: u64 = 24 * 60 * 60 * 1_000_000_000;

fn set(text: &str) -> Result<Options, OptionError> {
    let mut options = Options::default();
    options.set_text(text).map(|()| options)
}

#[test]
fn sizes_have_binary_suffixes() {
    for (text, bytes) in [
        ("bufsize=4k", 4096),
        ("bufsize=2M", 2 << 20),
        ("bufsize=0x10000", 65536),
        ("bufsize=1g", 1 << 30),
        ("bufsize=16", 4096),
        ("bufsize=4097", 4097),
    ] {
        assert_eq!(set(text).unwrap().recording.buffer_bytes, bytes, "{text}");
    }
    assert_eq!(set("strsize=4096").unwrap().limits().strsize, 4096);
    for text in [
        "bufsize=k",
        "bufsize=4kk",
        "bufsize=-4k",
        "bufsize=+4k",
        "bufsize=4.5m",
        "bufsize=0x",
        "bufsize=4é",
    ] {
        assert!(matches!(set(text), Err(OptionError::Invalid { .. })), "{text}");
    }
    for text in ["bufsize=0", "bufsize=5t", "strsize=1", "strsize=1m"] {
        assert!(matches!(set(text), Err(OptionError::OutOfRange { .. })), "{text}");
    }
    // 2^64 in all: the overflow is an error and not a small number
    assert!(matches!(set("bufsize=16777216t"), Err(OptionError::Invalid { .. })));
    assert!(matches!(set("bufsize"), Err(OptionError::Missing { .. })));
    assert!(matches!(set("bufsize="), Err(OptionError::Missing { .. })));
}

#[test]
fn rates_are_periods_or_frequencies() {
    for (text, ns) in [
        ("switchrate=10hz", 100_000_000),
        ("switchrate=10", 100_000_000),
        ("switchrate=10ms", 10_000_000),
        ("switchrate=5SEC", 5_000_000_000),
        ("switchrate=1m", 60_000_000_000),
        ("switchrate=2hour", 7_200_000_000_000),
        ("switchrate=1d", DAY_NS),
        ("switchrate=3d", 3 * DAY_NS),
        ("switchrate=1nsec", 1),
        ("switchrate=0", 0),
        ("switchrate=0hz", 0),
    ] {
        assert_eq!(set(text).unwrap().recording.switch_ns, ns, "{text}");
    }
    for text in ["switchrate=ms", "switchrate=5furlongs", "switchrate=-1s"] {
        assert!(matches!(set(text), Err(OptionError::Invalid { .. })), "{text}");
    }
}

#[test]
fn switches_have_many_words() {
    for (text, expected) in [
        ("quiet", true),
        ("quiet=yes", true),
        ("quiet=Enabled", true),
        ("quiet=1", true),
        ("quiet=0", true),
    ] {
        assert_eq!(set(text).unwrap().printing.quiet, expected, "{text}");
    }
    let mut options = set("quiet").unwrap();
    for text in ["quiet=no", "quiet=", "quiet=unset", "quiet=OFF"] {
        options.printing.quiet = true;
        options.set_text(text).unwrap();
        assert!(!options.printing.quiet, "{text}");
    }
    let error = options.set_text("quiet=perhaps").unwrap_err();
    assert_eq!(
        error.to_string(),
        "Invalid value for specified option: perhaps: expected yes or no"
    );
}

#[test]
fn words_are_few() {
    assert_eq!(
        set("bufpolicy=ring").unwrap().recording.buffer_policy,
        BufferPolicy::Ring
    );
    assert_eq!(
        set("evaltime=main").unwrap().tracing.evaluation_time,
        EvaluationTime::Main
    );
    assert_eq!(set("tactic=trap").unwrap().tracing.tactic.as_deref(), Some("trap"));
    assert_eq!(set("trap=boost").unwrap().tracing.trap.as_deref(), Some("boost"));
    assert_eq!(
        set("bufpolicy=maybe").unwrap_err().to_string(),
        "Invalid value for specified option: maybe: expected switch, fill or ring"
    );
    assert_eq!(set("wings").unwrap_err().to_string(), "Invalid option name");
}

#[test]
fn every_name_is_known_and_there_is_one_row_of_it() {
    for row in rows().chain(ignored()) {
        let result = Options::default().set(row.name, Some("5\u{0}nonsense"));
        assert!(!matches!(result, Err(OptionError::Unknown { .. })), "{}", row.name);
        assert!(!row.line.is_empty(), "{}", row.name);
    }
    let mut names: Vec<&str> = rows().chain(ignored()).map(|row| row.name).collect();
    names.extend(refused().map(|(name, _)| name));
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_default_of_the_table_is_the_default() {
    for row in rows().filter(|row| !["", "none", "auto", "off", "on"].contains(&row.default)) {
        let mut options = Options::default();
        options.set(row.name, Some(row.default)).unwrap();
        // Without the option, all of the scratch memory is granted.
        options.recording.scratch_bytes = None;
        // The command line has a default of its own.
        options.tracing.follow_is_given = false;
        assert_eq!(options, Options::default(), "{}", row.name);
    }
    for row in rows().filter(|row| ["off", "on"].contains(&row.default)) {
        let mut options = Options::default();
        options.set(row.name, Some(row.default)).unwrap();
        assert_eq!(options, Options::default(), "{}", row.name);
    }
}

#[test]
fn a_misspelt_name_gets_the_right_one_as_a_hint() {
    for (given, meant) in [
        ("bufsiz", "bufsize"),
        ("bufsizes", "bufsize"),
        ("bugsize", "bufsize"),
        ("bufisze", "bufsize"),
        ("quite", "quiet"),
        ("uiet", "quiet"),
    ] {
        let error = set(given).unwrap_err().to_string();
        assert_eq!(error, format!("Invalid option name; did you mean {meant}?"));
    }
    assert_eq!(set("cup").unwrap_err().to_string(), "Invalid option name");
}

#[test]
fn a_refused_value_changes_nothing() {
    let mut options = set("ustackframes=7").unwrap();
    assert!(options.set("ustackframes", Some("100000")).is_err());
    assert_eq!(options.recording.stack_frames, 7);
}

#[test]
fn names_of_timed_probes() {
    let tick = |period_ns| {
        Some(Interval {
            kind: IntervalKind::Tick,
            period_ns,
        })
    };
    assert_eq!(parse_interval("tick-100ms"), tick(100_000_000));
    assert_eq!(parse_interval("tick-5"), tick(200_000_000));
    assert_eq!(parse_interval("tick-1sec"), tick(1_000_000_000));
    assert_eq!(parse_interval("tick-5000hz"), tick(200_000));
    assert_eq!(
        parse_interval("profile-97"),
        Some(Interval {
            kind: IntervalKind::Profile,
            period_ns: 10_309_278
        })
    );
    for name in [
        "tick-",
        "tick-0",
        "tick-0s",
        "tick-5001hz",
        "tick-1ns",
        "tick-s",
        "tick",
        "tock-1s",
        "tick-99999999999d",
    ] {
        assert_eq!(parse_interval(name), None, "{name}");
    }
}

#[test]
fn a_cost_is_a_percentage_in_hundredths() {
    let cost = |text: &str| set(&format!("maxcost={text}")).map(|options| options.tracing.max_cost);
    assert_eq!(cost("5%"), Ok(Some(500)));
    assert_eq!(cost("5"), Ok(Some(500)));
    assert_eq!(cost("0.25%"), Ok(Some(25)));
    assert_eq!(cost("0.5%"), Ok(Some(50)));
    assert_eq!(cost("400%"), Ok(Some(40_000)));
    for wrong in ["", "%", "x", "5%%", "-1", "+1", ".5", "1.", "0.001", "0", "99999999"] {
        assert!(cost(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_rotation_is_a_size_and_a_number() {
    let rotation = |text: &str| set(text).map(|options| options.recording.rotation);
    let of = |bytes_max, kept| Ok(Some(Rotation { bytes_max, kept }));
    assert_eq!(rotation("rotate=100m,3"), of(100 << 20, 3));
    assert_eq!(rotation("rotate=64k"), of(64 << 10, 5));
    for text in [
        "rotate=100m,",
        "rotate=,3",
        "rotate=100m,3,4",
        "rotate=100m,x",
        "rotate=x",
    ] {
        assert!(matches!(set(text), Err(OptionError::Invalid { .. })), "{text}");
    }
    for text in ["rotate=4095", "rotate=1m,0", "rotate=1m,1001"] {
        assert!(matches!(set(text), Err(OptionError::OutOfRange { .. })), "{text}");
    }
    assert_eq!(set("quiet").unwrap().recording.rotation, None);
}

#[test]
fn a_given_follow_is_told_from_the_default() {
    assert!(!set("quiet").unwrap().tracing.follow_is_given);
    for (text, follow) in [("follow=no", Follow::No), ("follow=all", Follow::All)] {
        let tracing = set(text).unwrap().tracing;
        assert!(tracing.follow_is_given && tracing.follow == follow, "{text}");
    }
}
