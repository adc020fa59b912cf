//! openssl's own tests with every instruction of the tested code probed: the FIPS provider, which
//! is loaded while they run and tests itself before it answers any call; libcrypto; libssl; the
//! test's own code.
//!
//! No distribution packages them, so `NANOPROBE_OPENSSL` names the folder of a build (CONTRIBUTING.md has the
//! commands). A test prints the result of each of its parts, and this output is compared. The parts check vectors of
//! every algorithm, arithmetic on random numbers, and handshakes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use nanoprobe_tests::command::{Finished, Running};
use nanoprobe_tests::left_out::left_out;
use nanoprobe_tests::results::value;
use nanoprobe_tests::tracer::{Form, Tracer, assert_nothing_lost};

/// Half a million probes are placed in ten seconds, or in minutes on a busy machine.
const LIMIT: Duration = Duration::from_secs(900);

const FIPS: &str = "fips.so";
const LIBCRYPTO: &str = "libcrypto.so.3";
const LIBSSL: &str = "libssl.so.3";

/// A build, and a folder for its output.
struct Build {
    folder: PathBuf,
    written: tempfile::TempDir,
}

impl Build {
    fn find() -> Option<Build> {
        let Some(folder) = std::env::var_os("NANOPROBE_OPENSSL").map(PathBuf::from) else {
            left_out("openssl's own tests", "NANOPROBE_OPENSSL names no build of openssl");
            return None;
        };
        let build = Build {
            folder,
            written: tempfile::tempdir().expect("a temporary folder"),
        };
        // This line shows that the provider is the one that was built: without it the provider answers no call.
        build.unprobed(&build.installation("fipsmodule.cnf"));
        Some(build)
    }

    /// A path in the build.
    fn at(&self, name: &str) -> String {
        format!("{}/{name}", self.folder.display())
    }

    /// The command that makes the provider test itself, and write the result.
    fn installation(&self, file: &str) -> String {
        let settings = std::fs::read_to_string(self.at("configdata.pm")).expect("configdata.pm");
        let key = settings
            .lines()
            .find_map(|line| line.trim().strip_prefix("\"FIPSKEY\" => \""));
        let key = key.expect("a build with enable-fips").trim_end_matches("\",");
        format!(
            "{} fipsinstall -out {}/{file} -module {} -provider_name fips -mac_name HMAC -macopt digest:SHA256 \
             -macopt hexkey:{key} -section_name fips_sect",
            self.at("apps/openssl"),
            self.written.path().display(),
            self.at("providers/fips.so"),
        )
    }

    /// With these settings no file of the system's own openssl is used.
    fn environment(&self) -> [(&'static str, PathBuf); 5] {
        [
            ("LD_LIBRARY_PATH", self.folder.clone()),
            ("OPENSSL_MODULES", self.folder.join("providers")),
            ("OPENSSL_ENGINES", self.folder.join("engines")),
            ("OPENSSL_CONF", self.folder.join("apps/openssl.cnf")),
            ("OPENSSL_CONF_INCLUDE", self.written.path().to_owned()),
        ]
    }

    #[track_caller]
    fn unprobed(&self, line: &str) -> Finished {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command.args(words).envs(self.environment());
        let mut running = Running::start(&mut command);
        running.close_input();
        running.finish_within(LIMIT).success()
    }

    /// Checks that the standard output is the same with every instruction of a module counted. Returns the number of
    /// hits, and the program's standard error.
    #[track_caller]
    fn probed(&self, module: &str, line: &str, expected: &Finished) -> (i64, Vec<String>) {
        let environment = self.environment();
        let environment = environment.each_ref().map(|(name, value)| (*name, Path::new(value)));
        let tracer = Tracer::new(Form::Default).environment(&environment).argument("-Z");
        let tracer = tracer.clause(&format!("pid$target:{module}:: {{ @ = count(); }}"));
        let mut tracing = tracer.argument("-c").argument(line).start();
        tracing.running.close_input();
        let traced = tracing.finish_within(LIMIT).success();
        let Finished { stdout, stderr, .. } = &traced.finished;
        let (ours, its): (Vec<&str>, Vec<&str>) = stderr.lines().partition(|line| line.starts_with("nanoprobe: "));
        let ours = ours.join("\n");
        assert_eq!(*stdout, expected.stdout, "{module} of {line}: {ours}");
        assert!(
            !ours.contains("killed by") && !ours.contains("(status"),
            "{module} of {line}: {ours}"
        );
        assert_nothing_lost(&ours);
        // After a minute without an answer, a program stops waiting for the probes in its libraries.
        assert!(
            !ours.contains("the program continued before the probes of a new library were placed"),
            "the machine is too busy: {module} of {line}: {ours}"
        );
        (value(&traced.results), its.into_iter().map(str::to_owned).collect())
    }

    /// A test of the build, with its arguments. Arguments that name files of the test folder get its path.
    #[track_caller]
    fn same(&self, module: &str, test: &str) {
        let in_folder = |word: &str| {
            let path = format!("test/{word}");
            if self.folder.join(&path).exists() {
                self.at(&path)
            } else {
                word.to_owned()
            }
        };
        let line = test.split(' ').map(in_folder).collect::<Vec<String>>().join(" ");
        let expected = self.unprobed(&line);
        assert!(expected.stdout.contains("ok 1 "), "{line}: {}", expected.stdout);
        let (hits, _) = self.probed(module, &line, &expected);
        println!("{module} of {test}: {hits} hits");
        assert!(hits > 1_000_000, "{hits} hits in {module} of {line}");
    }
}

/// The provider runs all its self tests when it is loaded, with probes.
#[test]
fn the_fips_provider_believes_itself() {
    let Some(build) = Build::find() else { return };
    let expected = build.unprobed(&build.installation("expected.cnf"));
    assert!(expected.stderr.contains("INSTALL PASSED"), "{}", expected.stderr);
    let (hits, said) = build.probed(FIPS, &build.installation("probed.cnf"), &expected);
    assert!(hits > 10_000_000, "{hits} hits");
    assert_eq!(said, expected.stderr.lines().collect::<Vec<&str>>());
    let written = |name: &str| std::fs::read_to_string(build.written.path().join(name)).expect("what was written");
    assert_eq!(written("probed.cnf"), written("expected.cnf"));
}

#[test]
fn vectors_by_the_fips_provider() {
    let Some(build) = Build::find() else { return };
    for file in [
        "evpciph_aes_common",
        "evppkey_rsa_common",
        "evppkey_ecc",
        "evpmac_common",
    ] {
        let data = format!("recipes/30-test_evp_data/{file}.txt");
        build.same(FIPS, &format!("evp_test -config fips-and-base.cnf {data}"));
    }
}

#[test]
fn vectors_and_arithmetic_by_libcrypto() {
    let Some(build) = Build::find() else { return };
    for file in ["evpciph_aes_common", "evpciph_chacha", "evppkey_rsa"] {
        let data = format!("recipes/30-test_evp_data/{file}.txt");
        build.same(LIBCRYPTO, &format!("evp_test -config default-and-legacy.cnf {data}"));
    }
    for file in ["bnmod", "bnmul"] {
        build.same(LIBCRYPTO, &format!("bntest recipes/10-test_bn_data/{file}.txt"));
    }
    // These tests use functions that no library exports, so the tests contain the library.
    for test in ["rsa_test", "ectest"] {
        build.same("a.out", test);
    }
}

/// Hundreds of handshakes, and their failures.
#[test]
fn handshakes_by_libssl() {
    let Some(build) = Build::find() else { return };
    let data = "recipes/90-test_sslapi_data";
    let file = build.written.path().join("sessions");
    let arguments = format!(
        "certs {data}/passwd.txt {} fips fips-and-base.cnf {data}/dhparams.pem",
        file.display()
    );
    build.same(LIBSSL, &format!("sslapitest {arguments}"));
}
