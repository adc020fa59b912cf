//! openssl with every instruction of libcrypto probed. A probe that changed an instruction would
//! cause a wrong digest, a signature that does not fit, or an invalid certificate.

use std::process::Command;

use nanoprobe_tests::command::Running;
use nanoprobe_tests::left_out::{left_out, need_command};
use nanoprobe_tests::program::{profile_folder, sources};
use nanoprobe_tests::results::value;
use nanoprobe_tests::tracer::{Form, Tracer};

use crate::subject::{Subject, all};

#[test]
fn openssl() {
    let Some(openssl) = need_command("every instruction of openssl", "openssl") else {
        return;
    };
    let Some(bash) = need_command("every instruction of openssl", "bash") else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let at = |name: &str| folder.path().join(name).to_str().expect("a path in UTF-8").to_owned();
    let data: Vec<u8> = (0..40_000_u32)
        .map(|index| (index.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    std::fs::write(at("data"), data).expect("data");
    // The keys and signatures of the unprobed program.
    let openssl_path = openssl.display();
    let prepare = format!(
        "cd {} && O={openssl_path} && $O genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out rsa 2>/dev/null &&
         $O genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out ec && $O genpkey -algorithm ED25519 -out ed &&
         for k in rsa ec ed; do $O pkey -in $k -pubout -out $k.pub; done && $O dgst -sha256 -sign ec -out ec.sig data &&
         $O dgst -sha256 -sign rsa -out rsa.sig data",
        folder.path().display()
    );
    let mut command = Command::new(bash);
    command.args(["-c", &prepare]);
    Running::start(&mut command).finish().success();

    // A wrong constant yields a wrong digest: the expected digests are those of the unprobed program.
    let data = at("data");
    let key = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
    let vector = "0f0e0d0c0b0a09080706050403020100";
    let mut commands: Vec<Vec<String>> = Vec::new();
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<String>>();
    for digest in ["md5", "sha1", "sha256", "sha512", "sha3-256", "blake2b512", "sm3"] {
        commands.push(words(&format!("dgst -{digest} {data}")));
    }
    for cipher in [
        "aes-128-cbc",
        "aes-256-ctr",
        "chacha20",
        "camellia-256-cbc",
        "aria-128-cbc",
    ] {
        let key = if cipher.contains("128") { &key[..32] } else { key };
        commands.push(words(&format!(
            "enc -{cipher} -K {key} -iv {vector} -in {data} -base64"
        )));
    }
    commands.push(words(&format!("dgst -sha256 -mac HMAC -macopt hexkey:{key} {data}")));
    commands.push(words(&format!("dgst -sha256 -sign {} -hex {data}", at("rsa"))));
    commands.push(words(&format!(
        "dgst -sha256 -verify {} -signature {} {data}",
        at("rsa.pub"),
        at("rsa.sig")
    )));
    commands.push(words(&format!(
        "dgst -sha256 -verify {} -signature {} {data}",
        at("ec.pub"),
        at("ec.sig")
    )));
    commands.push(words(&format!(
        "pkeyutl -sign -rawin -inkey {} -in {} -hexdump",
        at("ed"),
        at("ec.sig")
    )));
    commands.push(words("prime -checks 20 170141183460469231731687303715884105727"));
    let some = if all() { commands.len() } else { 0 };
    let chosen = [2, 3, 7, 9, 13, 15];
    for (index, command) in commands.iter().enumerate() {
        if index < some || chosen.contains(&index) {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            Subject::new(&openssl, &arguments).sum(Form::Default, "libcrypto*");
        }
    }
    // Speeds differ from run to run. So the test only checks that the command succeeds and has executed every part.
    let algorithms = ["sha256", "aes-128-gcm", "ecdsap256", "x25519"];
    for algorithm in algorithms.iter().take(if all() { algorithms.len() } else { 1 }) {
        let line = format!("{openssl_path} speed -seconds 1 -bytes 1024 {algorithm}");
        let tracer = Tracer::new(Form::Default).clause("pid$target:libcrypto*:: { @ = count(); }");
        let traced = tracer.argument("-c").argument(&line).run().success();
        assert!(
            !traced.finished.stderr.contains("killed by"),
            "{algorithm}: {}",
            traced.finished.stderr
        );
        assert!(value(&traced.results) > 100_000, "{algorithm}");
    }
}

/// All of a libcrypto with symbols, which distributions' builds lack. It contains the assembly for this processor, with
/// tables between the functions. A probe on a table would cause a wrong answer.
#[test]
fn static_libcrypto() {
    let Some(compiler) = need_command("every instruction of libcrypto", "cc") else {
        return;
    };
    let program = profile_folder().join("test-crypto");
    let mut command = Command::new(compiler);
    command
        .args(["-O2", "-g", "-D_GNU_SOURCE", "-pthread", "-o"])
        .arg(&program)
        .arg(sources().join("crypto.c"));
    command.args(["-l:libcrypto.a", "-ldl", "-lm"]);
    let built = Running::start(&mut command).finish();
    if built.code() != 0 {
        let sign = ["openssl/bn.h", "cannot find -l:libcrypto.a"]
            .iter()
            .any(|sign| built.stderr.contains(sign));
        assert!(sign, "{}", built.stderr);
        return left_out("every instruction of libcrypto", "libssl-dev is not installed");
    }
    let subject = Subject::new(&program, &[]);
    assert!(subject.expected.stdout.ends_with("OK\n"));
    let functions = subject.functions(Form::Default, "a.out");
    let blocks = functions
        .keys()
        .filter(|name| name.starts_with("sha256_block_data_order"))
        .count();
    assert!(blocks > 0 && functions.len() > 1500, "{} functions", functions.len());
    assert!(functions.values().sum::<i64>() > 10_000_000);
}
