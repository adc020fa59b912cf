//! Hints for users of bpftrace: what to write in D in the place of bpftrace's names.

/// The hint for an unknown variable.
pub(super) fn variable(name: &str) -> Option<&'static str> {
    Some(match name {
        "comm" => "that is bpftrace's; in D it is execname",
        "nsecs" => "that is bpftrace's; in D it is timestamp",
        "elapsed" => "that is bpftrace's; in D: BEGIN { start = timestamp; } ... timestamp - start",
        "retval" => "that is bpftrace's; in D it is arg1, at a return probe",
        "func" => "that is bpftrace's; in D it is probefunc",
        "probe" => "that is bpftrace's; in D: probeprov, probemod, probefunc, probename",
        "kstack" | "kaddr" => {
            "that is bpftrace's; in D the kernel's stack is stack( ), in clauses of profile-N and sched"
        }
        _ => return None,
    })
}

/// The hint for an unknown function.
pub(super) fn function(name: &str) -> Option<&'static str> {
    Some(match name {
        "hist" => "that is bpftrace's; in D it is quantize(value)",
        "lhist" => "that is bpftrace's; in D it is lquantize(value, base, limit, step)",
        "str" => "that is bpftrace's; in D it is copyinstr(address)",
        "buf" => "that is bpftrace's; in D: tracemem(address, size), or trace(copyin(address, size))",
        "delete" => "that is bpftrace's; in D, assigning 0 to an element deletes it",
        "time" | "strftime" => "that is bpftrace's; in D: printf(\"%Y\", walltimestamp)",
        "reg" => "that is bpftrace's; in D: uregs[R_RAX]",
        "ntop" => "that is bpftrace's; in D: inet_ntop(family, address)",
        "strncmp" | "strcontains" => "D has ==, strstr( ) and substr( )",
        "zero" => "that is bpftrace's; in D it is clear(@aggregation)",
        "stats" => "that is bpftrace's; in D: count( ), avg( ) and sum( ), an aggregation each",
        "kstack" => "that is bpftrace's; in D it is stack( ), in clauses of profile-N and sched",
        "ksym" => "that is bpftrace's; in D it is func(address)",
        "kaddr" => "that is bpftrace's; the addresses of the kernel's symbols are not available",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use crate::{MacroValues, Source, compile};

    #[test]
    fn bpftraces_names_get_ds_as_hints() {
        for (text, word) in [
            ("BEGIN { @[comm] = count(); }", "execname"),
            ("BEGIN { x = nsecs; }", "timestamp"),
            ("BEGIN { @ = hist(5); }", "quantize"),
            ("BEGIN { trace(str(arg0)); }", "copyinstr"),
            ("BEGIN { $x = 5; }", "this->x"),
        ] {
            let source = Source::new("script", text);
            let refused = compile(&[source], &MacroValues::default()).unwrap_err();
            let help = refused[0].help.clone().unwrap_or_default();
            assert!(help.contains(word), "{text}: {help}");
        }
        let own = Source::new("script", "int comm; BEGIN { trace(comm); }");
        assert!(
            compile(&[own], &MacroValues::default()).is_ok(),
            "a name like any other"
        );
    }
}
