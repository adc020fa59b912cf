//! The flags that a compiler other than gcc needs for the programs of the tests.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::in_time::InTime;

/// Flags before all others. The programs mark functions whose calls are counted by gcc's attributes
/// `noipa` and `noclone`. clang knows neither: it inlines such a function, and evaluates its calls.
/// It leaves functions alone that it may not optimise. It also removes a `malloc` whose memory is
/// only freed, which is counted, too. Its other warnings are ignored: gcc's warnings are errors.
pub fn flags(compiler: impl AsRef<OsStr>) -> &'static [&'static str] {
    const FOR_CLANG: [&str; 4] = [
        "-w",
        "-Dnoipa=noinline,optnone",
        "-Dnoclone=noinline",
        "-fno-builtin-malloc",
    ];
    if is_clang(compiler.as_ref()) { &FOR_CLANG } else { &[] }
}

/// Whether a command is clang, by whatever name: on some machines `cc` is clang. Asked once.
pub fn is_clang(compiler: &OsStr) -> bool {
    static ASKED: Mutex<Option<HashMap<std::ffi::OsString, bool>>> = Mutex::new(None);
    let mut asked = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    *asked
        .get_or_insert_with(HashMap::new)
        .entry(compiler.to_owned())
        .or_insert_with(|| {
            let told = Command::new(compiler).arg("--version").output_in_time();
            told.is_ok_and(|told| String::from_utf8_lossy(&told.stdout).contains("clang"))
        })
}
