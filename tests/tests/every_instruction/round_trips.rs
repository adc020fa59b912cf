//! Requests, certificates, messages, keys and signatures of openssl's commands, there and back, with every instruction
//! of libcrypto probed. Deterministic output must equal that of the unprobed program; the unprobed program checks
//! random output. The keys are fixed, and are used only here: the key of an issuer (RSA), and two keys whose
//! certificates it has signed (EC, Ed25519).

use std::path::{Path, PathBuf};
use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::tracer::Form;

use crate::subject::{Subject, all_is_asked_for};

/// The owners of a key and a certificate.
const NAMES: [&str; 3] = ["rsa", "ec", "ed"];

/// The program, and a folder with the keys, the certificates, and the results of the unprobed program.
struct Openssl {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl Openssl {
    fn new() -> Option<Openssl> {
        let program = need_command("round trips of openssl", "openssl")?;
        let folder = tempfile::tempdir().expect("a temporary folder");
        let keys = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/every_instruction/keys");
        for name in NAMES {
            for kind in ["pem", "crt"] {
                let file = format!("{name}.{kind}");
                std::fs::copy(keys.join(&file), folder.path().join(&file)).expect("a copy of a key");
            }
        }
        let openssl = Openssl { program, folder };
        std::fs::write(openssl.at("data"), "There and back.\n".repeat(200)).expect("data");
        openssl.unprobed("dgst -sha256 -binary -out hash data");
        for name in ["rsa", "ec"] {
            openssl.unprobed(&format!(
                "pkeyutl -sign -inkey {name}.pem -in hash -out {name}.signature"
            ));
        }
        openssl.unprobed("pkeyutl -sign -rawin -inkey ed.pem -in data -out ed.signature");
        openssl.unprobed("cms -sign -binary -nodetach -signer ec.crt -inkey ec.pem -in data -outform DER -out message");
        openssl.unprobed("cms -encrypt -binary -aes-128-cbc -in data -outform DER -out sealed rsa.crt");
        // A byte in the middle of the data, or of the signed number.
        for (name, at) in [("hash", 7), ("message", 300), ("ed.signature", 40)] {
            let mut bytes = std::fs::read(openssl.at(name)).expect("what was written");
            bytes[at] ^= 4;
            std::fs::write(openssl.at(&format!("{name}.wrong")), bytes).expect("a copy");
        }
        Some(openssl)
    }

    fn at(&self, name: &str) -> String {
        self.folder
            .path()
            .join(name)
            .to_str()
            .expect("a path in UTF-8")
            .to_owned()
    }

    /// The words of a line; names of files, existing or future ones, get the path of their folder.
    fn words(&self, line: &str) -> Vec<String> {
        let word = |word: &str| {
            let is_new = word.starts_with("new.");
            let is_file = is_new || self.folder.path().join(word).exists();
            if is_file { self.at(word) } else { word.to_owned() }
        };
        line.split_whitespace().map(word).collect()
    }

    #[track_caller]
    fn unprobed(&self, line: &str) -> String {
        let mut command = Command::new(&self.program);
        // The name of an output file gets the path, too.
        command.current_dir(self.folder.path()).args(line.split_whitespace());
        let mut running = Running::start(&mut command);
        running.close_input();
        let finished = running.finish().success();
        finished.stdout + &finished.stderr
    }

    fn subject(&self, line: &str, code: i32) -> Subject {
        let words = self.words(line);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        Subject::ending(&self.program, &words, code)
    }

    /// Checks that output and status are the same as without probes; returns the output.
    fn same(&self, line: &str, code: i32) -> String {
        let subject = self.subject(line, code);
        subject.sum(Form::Default, "libcrypto*");
        subject.expected.stdout
    }

    /// A command that writes random bytes into the file `made`, which are not compared. The probed program writes the
    /// file anew.
    fn makes(&self, line: &str, made: &str) {
        let subject = self.subject(&format!("{line} -out {made}"), 0);
        std::fs::remove_file(self.at(made)).expect("what the unprobed program wrote");
        subject.sum(Form::Default, "libcrypto*");
    }
}

/// A deterministic signature over a message, with its certificate.
#[test]
fn a_signed_message_is_believed() {
    let Some(openssl) = Openssl::new() else { return };
    let signed = openssl.same(
        "cms -sign -noattr -binary -nodetach -signer rsa.crt -inkey rsa.pem -in data -outform PEM",
        0,
    );
    std::fs::write(openssl.at("signed"), signed).expect("the message");
    let verified = openssl.unprobed("cms -verify -no_check_time -binary -inform PEM -in signed -CAfile rsa.crt");
    assert!(
        verified.contains("There and back.") && verified.contains("successful"),
        "{verified}"
    );
}

/// All the rest, with `NANOPROBE_EVERY_INSTRUCTION=all`. Without it, `static_libcrypto` does the same in one process.
#[test]
fn signatures_made_under_probes_verify_and_changed_ones_do_not() {
    if !all_is_asked_for("all round trips of openssl") {
        return;
    }
    let Some(openssl) = Openssl::new() else { return };
    for name in NAMES {
        let request = format!("req -new -key {name}.pem -subj /CN=new-{name}");
        // An EC signature contains a random number.
        if name == "ec" {
            openssl.makes(&request, "new.request");
        } else {
            std::fs::write(openssl.at("new.request"), openssl.same(&request, 0)).expect("the request");
        }
        let said = openssl.unprobed("req -verify -noout -in new.request");
        assert!(said.contains("verify OK"), "{said}");
        openssl.same("req -verify -noout -text -in new.request", 0);
        // The output contains a serial number and the time of day.
        openssl.makes(
            "x509 -req -in new.request -CA rsa.crt -CAkey rsa.pem -set_serial 3",
            "new.certificate",
        );
        openssl.unprobed("verify -no_check_time -CAfile rsa.crt new.certificate");
        openssl.same(&format!("x509 -noout -text -fingerprint -sha256 -in {name}.crt"), 0);
    }
    let verdict = openssl.same("verify -no_check_time -CAfile rsa.crt ec.crt ed.crt", 0);
    assert_eq!(verdict.matches(": OK\n").count(), 2, "{verdict}");
    // The signer is not the trusted one.
    openssl.same("verify -no_check_time -CAfile ec.crt ed.crt", 2);

    let verify = "cms -verify -no_check_time -binary -inform DER -CAfile rsa.crt";
    let text = openssl.same(&format!("{verify} -in message"), 0);
    assert_eq!(text.matches("There and back.\n").count(), 200);
    openssl.same(&format!("{verify} -in message.wrong"), 4);
    let text = openssl.same(
        "cms -decrypt -binary -inform DER -in sealed -inkey rsa.pem -recip rsa.crt",
        0,
    );
    assert_eq!(text.matches("There and back.\n").count(), 200);
    openssl.makes(
        "cms -sign -binary -nodetach -signer ec.crt -inkey ec.pem -in data -outform DER",
        "new.message",
    );
    let said = openssl.unprobed(&format!("{verify} -in new.message"));
    assert!(said.contains("successful"), "{said}");

    for (algorithm, option) in [
        ("RSA", "-pkeyopt rsa_keygen_bits:2048"),
        ("EC", "-pkeyopt ec_paramgen_curve:P-384"),
        ("ED25519", ""),
    ] {
        openssl.makes(&format!("genpkey -algorithm {algorithm} {option}"), "new.key");
        let said = openssl.unprobed("pkey -check -noout -in new.key");
        assert!(said.contains("Key is valid"), "{algorithm}: {said}");
    }

    openssl.same("pkeyutl -sign -inkey rsa.pem -in hash -hexdump", 0);
    openssl.same("pkeyutl -sign -rawin -inkey ed.pem -in data -hexdump", 0);
    openssl.makes("pkeyutl -sign -inkey ec.pem -in hash", "new.signature");
    openssl.unprobed("pkeyutl -verify -inkey ec.pem -sigfile new.signature -in hash");
    for name in ["rsa", "ec"] {
        let verify = format!("pkeyutl -verify -inkey {name}.pem -sigfile {name}.signature");
        openssl.same(&format!("{verify} -in hash"), 0);
        let verdict = openssl.same(&format!("{verify} -in hash.wrong"), 1);
        assert_eq!(verdict, "Signature Verification Failure\n");
    }
    let verify = "pkeyutl -verify -rawin -inkey ed.pem -in data";
    openssl.same(&format!("{verify} -sigfile ed.signature"), 0);
    openssl.same(&format!("{verify} -sigfile ed.signature.wrong"), 1);
}
