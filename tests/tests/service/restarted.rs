//! A service that was killed, and is started again by its manager.

use nanoprobe_tests::results::table;

use crate::copy;
use crate::manager::Service;
use crate::told::{self, BY_PROCESS, Told};

#[test]
fn a_killed_service_begins_anew_and_every_text_is_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (path, other) = (copy(folder.path(), "killed"), copy(folder.path(), "other-one"));
    let (exe, other_exe) = (path.to_str().unwrap(), other.to_str().unwrap());
    let mut told = vec![Told::of(&path), Told::of(&path)];
    let mut others = vec![Told::of(&other)];
    let mut before = Service::start(&["--exe", exe, "-n", BY_PROCESS]);
    let mut of_others = Service::start(&["--exe", other_exe, "-n", BY_PROCESS]);
    before.wait_for_processes(2);
    of_others.wait_for_processes(1);
    told[0].tell("call 10");
    others[0].tell("call 10");
    before.kill();
    // Nobody starts this one again: what it has left is taken away nevertheless.
    of_others.kill();
    told.iter_mut().for_each(|told| told.tell("call 1"));
    let mut service = Service::start(&["--exe", exe, "-n", BY_PROCESS]);
    service.wait_for_processes(2);
    told[0].tell("call 200");
    told[1].tell("call 3000");
    let pids: Vec<i32> = told.iter().map(Told::pid).collect();
    let (stdout, stderr) = service.end();
    let expected = [(pids[0].to_string(), 200), (pids[1].to_string(), 3000)].into();
    assert_eq!(table(&stdout), expected, "{stderr}");
    told::end(told);
    told::end(others);
}
