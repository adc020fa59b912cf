//! `-C`: the layout of C's headers in a script is the compiler's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use nanoprobe_tests::in_time::InTime;
use nanoprobe_tests::left_out::left_out;

fn nanoprobe(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_nanoprobe"))
        .args(arguments)
        .output_in_time()
        .expect("the command runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether there is a compiler, which brings the preprocessor.
fn has_gcc() -> bool {
    let found = Command::new("gcc").arg("--version").output_in_time().is_ok();
    if !found {
        left_out("C's headers in scripts", "there is no gcc");
    }
    found
}

/// A C program, compiled.
fn compiled(folder: &Path, source: &str) -> String {
    let (file, program) = (folder.join("program.c"), folder.join("program"));
    std::fs::write(&file, source).unwrap();
    let output = Command::new("gcc")
        .args(["-w", "-g", "-o"])
        .args([&program, &file])
        .output_in_time()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program.to_string_lossy().into_owned()
}

/// Sizes and offsets from gcc and from the script are the same. `types`: the types, each with its members, by their
/// names in C.
fn assert_laid_out(prelude: &str, types: &[(&str, &[&str])]) {
    if !has_gcc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut program = format!("#include <stdio.h>\n#include <stddef.h>\n{prelude}\nint main(void) {{\n");
    let mut script = format!("{prelude}\n");
    for (of, members) in types {
        let _ = writeln!(program, "printf(\"{of} %zu\\n\", sizeof ({of}));");
        let _ = writeln!(script, "BEGIN {{ printf(\"{of} %d\\n\", sizeof ({of})); }}");
        for member in *members {
            let _ = writeln!(program, "printf(\"{of}.{member} %zu\\n\", offsetof({of}, {member}));");
            let _ = writeln!(
                script,
                "BEGIN {{ printf(\"{of}.{member} %d\\n\", offsetof({of}, {member})); }}"
            );
        }
    }
    program += "return 0; }\n";
    script += "BEGIN { exit(0); }\n";
    let expected = Command::new(compiled(folder.path(), &program))
        .output_in_time()
        .unwrap();
    let file = folder.path().join("script.d");
    std::fs::write(&file, script).unwrap();
    let output = nanoprobe(&["-C", "-qs", &file.to_string_lossy()]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(text(&output.stdout), text(&expected.stdout) + "\n");
}

#[test]
fn structures_of_system_headers_lie_where_gcc_has_them() {
    let headers = [
        "dirent",
        "errno",
        "linux/tcp",
        "netinet/in",
        "netinet/ip",
        "pthread",
        "signal",
        "stdlib",
        "sys/epoll",
        "sys/inotify",
        "sys/mount",
        "sys/resource",
        "sys/socket",
        "sys/stat",
        "sys/un",
        "sys/utsname",
        "time",
        "ucontext",
    ];
    let prelude: String = headers.iter().map(|name| format!("#include <{name}.h>\n")).collect();
    assert_laid_out(
        &prelude,
        &[
            (
                "struct stat",
                &[
                    "st_dev",
                    "st_ino",
                    "st_nlink",
                    "st_mode",
                    "st_uid",
                    "st_gid",
                    "st_rdev",
                    "st_size",
                    "st_blksize",
                    "st_blocks",
                    "st_atim",
                    "st_mtim",
                    "st_ctim",
                ],
            ),
            (
                "struct sockaddr_in",
                &["sin_family", "sin_port", "sin_addr", "sin_zero"],
            ),
            (
                "struct sockaddr_in6",
                &["sin6_port", "sin6_flowinfo", "sin6_addr", "sin6_scope_id"],
            ),
            ("struct sockaddr_un", &["sun_family", "sun_path"]),
            ("struct dirent", &["d_ino", "d_off", "d_reclen", "d_type", "d_name"]),
            ("struct epoll_event", &["events", "data"]),
            ("struct inotify_event", &["wd", "mask", "cookie", "len", "name"]),
            (
                "struct iphdr",
                &["tos", "tot_len", "id", "ttl", "protocol", "check", "saddr", "daddr"],
            ),
            (
                "struct tcphdr",
                &["source", "dest", "seq", "ack_seq", "window", "check", "urg_ptr"],
            ),
            ("struct sigaction", &["sa_handler", "sa_mask", "sa_flags"]),
            ("struct timespec", &["tv_sec", "tv_nsec"]),
            ("struct rusage", &["ru_utime", "ru_stime", "ru_maxrss", "ru_nivcsw"]),
            ("struct utsname", &["sysname", "release", "machine"]),
            (
                "struct msghdr",
                &["msg_name", "msg_iov", "msg_iovlen", "msg_control", "msg_flags"],
            ),
            ("struct cmsghdr", &["cmsg_len", "cmsg_level", "cmsg_type"]),
            ("siginfo_t", &["si_signo", "si_code", "si_pid", "si_addr"]),
            ("ucontext_t", &["uc_link", "uc_stack", "uc_mcontext", "uc_sigmask"]),
            ("pthread_mutex_t", &[]),
            ("pthread_cond_t", &[]),
            ("fd_set", &[]),
            ("sigset_t", &[]),
        ],
    );
}

#[test]
fn structures_by_gnu_c_lie_where_gcc_has_them() {
    assert_laid_out(
        r#"
typedef int aligned_t __attribute__((aligned(8)));
typedef long loose_t __attribute__((__aligned__(2)));
typedef int vector_t __attribute__((__vector_size__(16)));
typedef int word_t __attribute__((__mode__(__DI__)));
typedef enum { PA, PB } __attribute__((packed)) small_t;
enum wider { WA = 300, WB = 1 } __attribute__((packed));
typedef __builtin_va_list list_t;
struct plain { char a; aligned_t b; loose_t c; vector_t d; word_t e; small_t f; enum wider g; list_t h; };
struct packed { char a; aligned_t b; loose_t c; long double d; } __attribute__((packed));
struct __attribute__((packed, aligned(4))) both { char a; long b; short c[2]; };
struct members { char a; int b __attribute__((packed)); short c __attribute__((aligned(16))); _Alignas(8) char d; };
struct fields { int a : 23; unsigned char b : 6; long : 40; char c; int : 0; char d; _Bool e : 1; } __attribute__((packed));
struct ends { char a; int : 0; };
struct nested { char a; struct { char b; union { long c; char d; } __attribute__((packed)); } e; union { int f; double g; }; };
struct empty { struct { } a; int b[0]; char c[]; };
struct wide { char a; __int128 b; _Float128 c; _Complex float d; _Complex long double e; _Float64x f; _Bool g; };
struct functions { int (*a)(int (*)(void *), ...); void (*(*b)(int))(void); char c; };
#pragma pack(push, 2)
struct two { char a; long b; struct { char c; int d; } e; int f : 9; short g : 9; char h; };
#pragma pack(pop)
#pragma pack(1)
struct one { char a; long b __attribute__((aligned(4))); int : 0; char c; };
#pragma pack()
struct usual { char a; long b; };
"#,
        &[
            ("struct plain", &["b", "c", "d", "e", "f", "g", "h"]),
            ("struct packed", &["b", "c", "d"]),
            ("struct both", &["a", "b", "c"]),
            ("struct members", &["b", "c", "d"]),
            ("struct fields", &["c", "d"]),
            ("struct ends", &["a"]),
            ("struct nested", &["e", "f", "g"]),
            ("struct empty", &["a", "b", "c"]),
            ("struct wide", &["b", "c", "d", "e", "f", "g"]),
            ("struct functions", &["b", "c"]),
            ("struct two", &["b", "e", "h"]),
            ("struct one", &["b", "c"]),
            ("struct usual", &["b"]),
        ],
    );
}

/// The arguments of a call, with the types of the system's headers: a packed structure, bit-fields
/// that cross their units, `errno` and other names for which these headers have macros.
#[test]
fn a_live_call_is_read_by_the_types_of_headers() {
    if !has_gcc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let header = "struct bits { unsigned a : 5; unsigned b : 30; long c : 41; _Bool d : 1; int e : 7; } __attribute__((packed));\n";
    std::fs::write(folder.path().join("bits.h"), header).unwrap();
    let program = compiled(
        folder.path(),
        r#"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "bits.h"
__attribute__((noinline)) void take(struct bits *bits, struct epoll_event *event, int *error)
{
	__asm__ volatile ("" : : "r"(bits), "r"(event), "r"(error) : "memory");
}
int main(void)
{
	struct sockaddr_in to = { AF_INET, htons(4321), { htonl(0x7f000001) } };
	struct bits bits = { 21, 0x2aaaaaaa, -0x5555555555, 1, -3 };
	struct epoll_event event = { EPOLLIN | EPOLLET, { .u64 = 0x1122334455667788 } };
	connect(-1, (struct sockaddr *)&to, sizeof to);
	take(&bits, &event, &errno);
	return 0;
}
"#,
    );
    let script = folder.path().join("script.d");
    let source = r#"
#include <errno.h>
#include <libgen.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include "bits.h"
pid$target:libc:connect:entry
{
	this->to = (struct sockaddr_in *)copyin(arg1, arg2);
	printf("%d %d %s\n", this->to->sin_family == AF_INET, ntohs(this->to->sin_port), inet_ntoa(&this->to->sin_addr.s_addr));
}
pid$target:a.out:take:entry
{
	this->bits = (struct bits *)arg0;
	this->event = (struct epoll_event *)arg1;
	printf("%d %x %d %d %d\n", this->bits->a, this->bits->b, this->bits->c, this->bits->d, this->bits->e);
	printf("%d %d %x\n", this->event->events & EPOLLIN, (this->event->events & EPOLLET) != 0, this->event->data.u64);
	printf("%d %s %d\n", errno == EBADF, basename("/a/b"), offsetof(struct epoll_event, data));
}
"#;
    std::fs::write(&script, source).unwrap();
    let output = nanoprobe(&["-C", "-qs", &script.to_string_lossy(), "-c", &program]);
    assert_eq!(text(&output.stderr), "");
    assert_eq!(
        text(&output.stdout),
        "1 4321 127.0.0.1\n21 2aaaaaaa -366503875925 1 -3\n1 1 1122334455667788\n1 b 4\n\n"
    );
}

/// A message about an error names the file and the line of the error.
#[test]
fn errors_have_the_place_that_they_were_included_from() {
    if !has_gcc() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (script, header) = (folder.path().join("script.d"), folder.path().join("wrong.h"));
    std::fs::write(&header, "struct fine { int a; };\n\nint x = pid y;\nnothing_t z;\n").unwrap();
    std::fs::write(&script, "#include <sys/types.h>\nBEGIN\n{\n\ttrace(nowhere);\n}\n").unwrap();
    let output = nanoprobe(&["-C", "-qs", &script.to_string_lossy()]);
    assert!(
        text(&output.stderr).contains("[D_IDENT_UNDEF] line 4: "),
        "{}",
        text(&output.stderr)
    );
    std::fs::write(&script, "#include \"wrong.h\"\nBEGIN { exit(0); }\n").unwrap();
    let output = nanoprobe(&["-C", "-qs", &script.to_string_lossy()]);
    let place = format!("\"{}\", line 4: ", header.display());
    assert!(text(&output.stderr).contains(&place), "{}", text(&output.stderr));
}
