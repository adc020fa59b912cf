//! Messages about errors and losses during tracing, in DTrace's words. The texts have no prefix with the
//! program's name, and no newline.

use nanoprobe_lang::interpret::{ClauseFault, FaultKind};

use crate::event::ProbeName;

/// `error on enabled probe ID 1 (ID 2: pid1:a:b:c): invalid address (0x0) in action #1`.
pub fn error_message(epid: u32, probe: &ProbeName, fault: &ClauseFault) -> String {
    let place = match fault.action {
        0 => "predicate".to_owned(),
        action => format!("action #{action}"),
    };
    let details = match fault.fault.kind {
        FaultKind::BadAddress => format!(" (0x{:x})", fault.fault.value),
        _ => String::new(),
    };
    let kind = fault.fault.kind;
    format!("{}: {kind}{details} in {place}", enabled(epid, probe))
}

/// `error on enabled probe ID 1 (ID 2: pid1:a:b:c)`.
pub(crate) fn enabled(epid: u32, probe: &ProbeName) -> String {
    let ProbeName {
        id,
        provider,
        module,
        shown: function,
        name,
        ..
    } = probe;
    format!("error on enabled probe ID {epid} (ID {id}: {provider}:{module}:{function}:{name})")
}

/// `3 drops on CPU 1`, `1 aggregation drop`, `2 dynamic variable drops`. `what` is empty, `aggregation`
/// and so on; `place` is empty or `CPU 1`.
pub fn drop_message(count: u64, what: &str, place: &str) -> String {
    let space = if what.is_empty() { "" } else { " " };
    let plural = if count > 1 { "s" } else { "" };
    let on = if place.is_empty() { "" } else { " on " };
    format!("{count} {what}{space}drop{plural}{on}{place}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nanoprobe_lang::interpret::Fault;

    #[test]
    fn messages_are_dtraces() {
        let probe = ProbeName {
            id: 75978,
            provider: "pid1234".to_owned(),
            module: "libc.so.6".to_owned(),
            shown: "strlen".to_owned(),
            name: "entry".to_owned(),
            ..ProbeName::default()
        };
        let fault = ClauseFault {
            fault: Fault::bad_address(0xdead),
            action: 2,
        };
        assert_eq!(
            error_message(3, &probe, &fault),
            "error on enabled probe ID 3 (ID 75978: pid1234:libc.so.6:strlen:entry): invalid address (0xdead) in action \
             #2"
        );
        let fault = ClauseFault {
            fault: Fault::new(FaultKind::Divide),
            action: 0,
        };
        assert!(error_message(3, &probe, &fault).ends_with("strlen:entry): divide-by-zero in predicate"));
        assert_eq!(drop_message(1, "", "CPU 3"), "1 drop on CPU 3");
        assert_eq!(
            drop_message(20, "aggregation", "CPU 0"),
            "20 aggregation drops on CPU 0"
        );
        assert_eq!(drop_message(2, "dynamic variable", ""), "2 dynamic variable drops");
    }
}
