//! The providers `tcp` and `udp`: what a program does with sockets, by ends and bytes, as the program itself counts it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program};
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

use crate::traced_when_attached;

const CLAUSES: &str = "#pragma D option quiet
    tcp::: {
        @[probeprov, probename, args[2]->ip_saddr, args[4]->tcp_sport, args[2]->ip_daddr, args[4]->tcp_dport] = count();
        @bytes[probeprov, probename, args[2]->ip_saddr, args[4]->tcp_sport, args[2]->ip_daddr, args[4]->tcp_dport]
            = sum(args[2]->ip_plength - args[4]->tcp_offset);
        this->out = probename == \"send\" || probename == \"connect-request\";
        @strange[\"local\"] = sum(args[3]->tcps_lport != (this->out ? args[4]->tcp_sport : args[4]->tcp_dport)
            || args[3]->tcps_laddr != (this->out ? args[2]->ip_saddr : args[2]->ip_daddr));
        @strange[\"remote\"] = sum(args[3]->tcps_rport != (this->out ? args[4]->tcp_dport : args[4]->tcp_sport)
            || args[3]->tcps_raddr != (this->out ? args[2]->ip_daddr : args[2]->ip_saddr));
        @strange[\"version\"] = sum(args[2]->ip_ver != (strchr(args[3]->tcps_raddr, ':') == NULL ? 4 : 6));
        @strange[\"process\"] = sum(args[1]->cs_pid != pid || args[1]->cs_cid == 0);
    }
    tcp:::accept-established { receives[args[1]->cs_cid] = 1; }
    tcp:::receive /receives[args[1]->cs_cid]/ { @of_accepted[\"receive\"] = sum(args[2]->ip_plength); }
    udp::: {
        @[probeprov, probename, args[2]->ip_saddr, args[4]->udp_sport, args[2]->ip_daddr, args[4]->udp_dport] = count();
        @bytes[probeprov, probename, args[2]->ip_saddr, args[4]->udp_sport, args[2]->ip_daddr, args[4]->udp_dport]
            = sum(args[4]->udp_length);
        @strange[\"datagram\"] = sum(args[2]->ip_plength != args[4]->udp_length || args[3]->udps_lport
            != (probename == \"send\" ? args[4]->udp_sport : args[4]->udp_dport));
    }
    END {
        printa(\"%s.%s %s,%d %s,%d %@d %@d\\n\", @, @bytes);
        printa(\"strange %s %@d\\n\", @strange); printa(\"accepted %s %@d\\n\", @of_accepted);
    }";

/// Kind and ends, with the number of events and their bytes.
type Events = BTreeMap<String, (i64, i64)>;

fn events(text: &str) -> Events {
    let mut events = BTreeMap::new();
    for line in text.lines() {
        if let [kind, source, target, count, bytes] = *line.split_whitespace().collect::<Vec<_>>()
            && let (Ok(count), Ok(bytes)) = (count.parse(), bytes.parse())
        {
            let known = events.insert(format!("{kind} {source} {target}"), (count, bytes));
            assert_eq!(known, None, "{line}");
        }
    }
    events
}

/// The events that are not the same in both.
fn without(events: &Events, others: &Events) -> Vec<String> {
    let rows = events.iter().filter(|(key, value)| others.get(*key) != Some(value));
    rows.map(|row| format!("{row:?}")).collect()
}

/// The output of the program, the results and the messages.
fn traced(attached: bool, form: Form, program: &Path, arguments: &str) -> (String, String, String) {
    if attached {
        let (target, traced) = traced_when_attached(form, CLAUSES, program, arguments);
        return (target.stdout, traced.results, traced.finished.stderr);
    }
    let tracer = Tracer::new(form).clause(CLAUSES).command(program, arguments);
    let traced = tracer.run().complete();
    assert!(traced.finished.stdout.contains("OK\n"), "{}", traced.finished.stdout);
    (traced.finished.stdout, traced.results, traced.finished.stderr)
}

live_tests! {
    /// Every way to connect, accept, send and receive, over IPv4, IPv6 and IPv4 in IPv6; also on a connection that is
    /// older than the tracing.
    fn events_of_sockets_have_the_ends_and_bytes_of_the_program(form) {
        for (build, attached) in [(Build::Usual, false), (Build::Usual, true), (Build::MuslStatic, false)] {
            let Some(program) = need_program("network.c", build) else { continue };
            let rounds = form.scale(10, 2).to_string();
            let (stdout, results, messages) = traced(attached, form, &program, &rounds);
            assert_nothing_lost(&messages);
            let (expected, seen) = (events(&stdout), events(&results));
            let (missing, wrong) = (without(&expected, &seen), without(&seen, &expected));
            assert!(missing.is_empty() && wrong.is_empty(), "{build:?} {attached}: {missing:#?} but {wrong:#?}");
            let kinds: BTreeSet<&str> = seen.keys().filter_map(|key| key.split(' ').next()).collect();
            assert_eq!(kinds.len(), 8, "{kinds:?}");
            for line in results.lines().filter(|line| line.starts_with("strange ")) {
                assert!(line.ends_with(" 0"), "{line}");
            }
            // The number of a socket is the same at all of its probes: what servers receive is what clients send them.
            let servers: BTreeSet<&str> = seen.keys().filter_map(|key| key.strip_prefix("tcp.accept-established "))
                .filter_map(|ends| ends.split(' ').nth(1)).collect();
            let of_servers = seen.iter().filter(|(key, _)| {
                key.starts_with("tcp.receive ") && key.rsplit(' ').next().is_some_and(|end| servers.contains(end))
            });
            let received: i64 = of_servers.map(|(_, (_, bytes))| bytes).sum();
            assert!(results.contains(&format!("accepted receive {received}\n")), "{received}: {results}");
        }
    }
}
