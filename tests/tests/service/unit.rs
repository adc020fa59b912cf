//! The unit file of the packages: systemd accepts it, and nanoprobe works with the rights that it leaves.

use std::path::PathBuf;
use std::process::Command;

use nanoprobe_tests::command::{as_ordinary_user, run};
use nanoprobe_tests::left_out::{has_another_user, left_out, need_command};
use nanoprobe_tests::results::table;
use nanoprobe_tests::tracer::nanoprobe;

use crate::copy;
use crate::manager::Service;
use crate::told::{BY_PROCESS, Told};

/// Lines of a unit that have systemd install a seccomp filter (systemd.exec(5): "system call filtering").
const FILTERS: [&str; 15] = [
    "SystemCall",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RestrictSUIDSGID",
    "RestrictFileSystems",
    "LockPersonality",
    "MemoryDenyWriteExecute",
    "PrivateDevices",
    "ProtectClock",
    "ProtectHostname",
    "ProtectKernelLogs",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "DynamicUser",
];

fn unit() -> (PathBuf, String) {
    let path = PathBuf::from(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../crates/nanoprobe/service/nanoprobe@.service"
    ));
    let text = std::fs::read_to_string(&path).unwrap();
    (path, text)
}

/// The values of a key, in order.
fn values<'t>(text: &'t str, key: &str) -> Vec<&'t str> {
    let of = |line: &'t str| line.split_once('=').filter(|(found, _)| *found == key);
    text.lines().filter_map(of).map(|(_, value)| value).collect()
}

#[test]
fn no_line_of_the_unit_takes_what_nanoprobe_needs() {
    let (_, text) = unit();
    assert_eq!(values(&text, "Type"), ["notify"]);
    assert_eq!(values(&text, "ExecReload"), ["/bin/kill -HUP $MAINPID"]);
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let filter = FILTERS.iter().find(|filter| line.starts_with(**filter));
        assert!(
            filter.is_none(),
            "{line}: nanoprobe could not read the filters of others"
        );
    }
}

/// The command line of the unit is one of this nanoprobe.
#[test]
fn the_command_line_of_the_unit_is_accepted() {
    let folder = tempfile::tempdir().unwrap();
    let path = copy(folder.path(), "of-the-unit");
    let program = folder.path().join("x.d");
    std::fs::write(&program, BY_PROCESS).unwrap();
    let (_, text) = unit();
    let line = values(&text, "ExecStart")[0].replace("%%", "%");
    let mut words = line.split(' ');
    assert_eq!(words.next(), Some("/usr/bin/nanoprobe"));
    assert_eq!(words.next(), Some("--service"));
    let options = ["--exe", path.to_str().unwrap(), "-x", "maxcost=50%"];
    let arguments: Vec<&str> = words
        .flat_map(|word| match word {
            "/etc/nanoprobe/%i.d" => vec![program.to_str().unwrap()],
            "$OPTIONS" => options.to_vec(),
            word => vec![word],
        })
        .collect();
    let mut told = Told::of(&path);
    let mut service = Service::start(&arguments);
    service.wait_for_processes(1);
    told.tell("call 77");
    let (stdout, stderr) = service.end();
    assert_eq!(table(&stdout), told.end(), "{stderr}");
}

#[test]
fn systemd_accepts_the_unit() {
    let what = "verifying the unit";
    let Some(analyze) = need_command(what, "systemd-analyze") else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let (path, text) = unit();
    // The command of the test stands where the package's would.
    let text = text.replace("/usr/bin/nanoprobe", nanoprobe().to_str().unwrap());
    let instance = folder.path().join("nanoprobe@x.service");
    std::fs::write(folder.path().join(path.file_name().unwrap()), &text).unwrap();
    std::fs::write(&instance, &text).unwrap();
    let verified = run(Command::new(analyze).args(["verify", "--man=no"]).arg(&instance));
    assert_eq!(
        (verified.code(), verified.stderr.as_str()),
        (0, ""),
        "{}",
        verified.stdout
    );
}

/// The capabilities, the mounts and the network of the unit; the process is another user's.
#[test]
fn a_process_of_another_user_is_traced_with_the_rights_of_the_unit() {
    let what = "tracing with the rights of the unit";
    let (Some(setpriv), Some(unshare)) = (need_command(what, "setpriv"), need_command(what, "unshare")) else {
        return;
    };
    if !has_another_user() {
        return left_out(what, "there is no other user here");
    }
    let folder = tempfile::tempdir().unwrap();
    nanoprobe_tests::program::copy_program(
        &nanoprobe_tests::program::program("member.c"),
        &folder.path().join("others"),
    );
    let path = folder.path().join("others");
    // All may come this far.
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut told = Told::started(as_ordinary_user(&Command::new(&path)));
    let (_, text) = unit();
    let capabilities = values(&text, "CapabilityBoundingSet")[0].to_lowercase();
    let set: Vec<String> = capabilities.split(' ').map(|name| name.replace("cap_", "+")).collect();
    let set = format!("-all,{}", set.join(","));
    let script = format!(
        "mount -o remount,bind,ro / && exec {} --no-new-privs --inh-caps=-all --bounding-set={set} {} \"$@\"",
        setpriv.display(),
        nanoprobe().display()
    );
    let mut command = Command::new(unshare);
    command.args(["--mount", "--net", "sh", "-c", &script, "service"]);
    let mut service = Service::start_by(&mut command, &["--exe", path.to_str().unwrap(), "-n", BY_PROCESS]);
    service.wait_for_processes(1);
    told.tell("call 321");
    let (stdout, stderr) = service.end();
    assert_eq!(table(&stdout), told.end(), "{stderr}");
}
