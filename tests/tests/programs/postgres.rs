//! Static probes of a PostgreSQL server's process, compared with the traffic of its client.

use nanoprobe_tests::postgres::Server;
use nanoprobe_tests::results::table;
use nanoprobe_tests::text::Snapshot;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

/// One session with successful statements, failing statements and sorts, twice, each time in either form; nothing is
/// left in between.
#[test]
fn static_probes_count_what_the_client_sent() {
    let Some(server) = Server::start("postgres's static probes") else {
        return;
    };
    for form in [Form::Default, Form::Trap] {
        let mut client = server.connect();
        client.query("create temp table words(word text, number int)");
        client.query("insert into words select md5(i::text), i from generate_series(1, 500) i");
        let snapshot = Snapshot::take(client.pid);
        let clause = r#"
            postgresql$target:::query-start,postgresql$target:::query-done { @[probename, copyinstr(arg0)] = count(); }
            postgresql$target:::transaction-start,postgresql$target:::transaction-commit,postgresql$target:::transaction-abort
                { @transactions[probename] = count(); }

            postgresql$target:::sort-start { @sorts["sort", args[2], args[3]] = count(); }"#;
        let tracing = Tracer::new(form).clause(clause).trace(client.pid);
        (client.done, client.failed) = (0, 0);
        for _ in 0..30 {
            client.query("select count(*) from words");
        }
        for _ in 0..7 {
            client.query("select 1 / 0");
        }
        for _ in 0..3 {
            client.query("select * from words order by word, number");
        }
        for _ in 0..4 {
            client.execute("select 'extended'");
        }
        let answered = (client.done, client.failed);
        assert_eq!(answered, (37, 7));
        let traced = tracing.interrupt();
        assert_nothing_lost(&traced.finished.stderr);
        snapshot.assert_restored(client.pid);
        let rows = table(&traced.results);
        let expected = [
            ("query-start select count(*) from words", 30),
            ("query-done select count(*) from words", 30),
            ("query-start select 1 / 0", 7),
            ("query-start select * from words order by word, number", 3),
            ("query-done select * from words order by word, number", 3),
            ("transaction-start", answered.0 + answered.1),
            ("transaction-commit", answered.0),
            ("transaction-abort", answered.1),
            // Two keys, and the kilobytes of work_mem, which initdb sets.
            ("sort 2 4096", 3),
        ];
        for (row, count) in expected {
            assert_eq!(rows.get(row), Some(&count), "{row} {form:?}: {rows:#?}");
        }
        // A failed statement has no "done" probe, and neither has the extended protocol.
        let queries = rows.keys().filter(|row| row.starts_with("query-"));
        assert_eq!(queries.count(), 5, "{rows:#?}");
        // The server continues to work.
        client.query("select 1");
        assert_eq!(client.done, answered.0 + 1);
    }
    server.stop();
}
