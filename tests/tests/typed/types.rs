//! The program's own types, in running C, C++ and Rust programs: D reads their arguments, variables and results.

use std::process::Command;

use nanoprobe_tests::command::{Running, run};
use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::{Build, need_program, program};
use nanoprobe_tests::tracer::{Tracer, nanoprobe};

use crate::printed;

live_tests! {
    fn arguments_and_results_of_c_have_their_types(form) {
        let found = printed(form, &program("typed.c"), "2", &[
            r#"pid$target:a.out:serve:entry { printf("serve %s:%d %s %d %d\n", stringof(args[0]->path), args[0]->server.port,
               stringof(args[1]), args[2], args[3]); }"#,
            r#"pid$target:a.out:serve:entry { printf("bits %d %d %x %x; %d %d %d\n", args[0]->kind, args[0]->level, args[0]->level, args[0]->wide,
               args[0]->next->second, args[0]->bytes[0], args[0]->corners[2].y); }"#,
            r#"pid$target:a.out:serve:return { printf("served %d\n", args[1]); }"#,
            r#"pid$target:a.out:paint:entry /args[0] == RED/ { printf("paint %d %d\n", args[0], args[2]); }"#,
            r#"pid$target:a.out:paint:return /args[1] == BLUE/ { print(args[1]); }"#,
            r#"pid$target:a.out:both:entry { printf("both %d %d %d %c\n", args[0].a, args[0].b, args[0].c, args[1]); }"#,
            r#"pid$target:a.out:both:return { printf("both %d %d %d\n", args[1].a, args[1].b, args[1].c); }"#,
            r#"pid$target:a.out:many:entry { printf("many %d %d %c %d %d\n", args[0], args[1].words[3], args[1].last, args[6],
               args[7]); }"#,
            r#"pid$target:a.out:many:return { printf("many %d %d\n", args[1].words[0], args[1].last); }"#,
            r#"pid$target:a.out:follow:entry { printf("follow %d %d %d\n", args[0] == NULL, args[1].x, args[1].y); }"#,
            r#"pid$target:a.out:follow:return { printf("follow %d\n", args[1]->server.octets[3]); }"#,
        ]);
        let round = [
            "serve /index.html:8080 alice -3 200",
            "bits 5 -9 fffffff7 abcdef1234; 22 22 9",
            "served 8282",
            "paint 3 77",
            "enum color BLUE",
            "both 1 2 3 c",
            "both 100 2 6",
            "many 6 4 z 5 -8",
            "many 21 -8",
            "follow 1 1 2",
            "follow 7",
        ];
        assert_eq!(found, [round, round].concat());
    }

    fn enumerations_are_printed_by_name_wherever_they_occur(form) {
        let found = printed(form, &program("typed.c"), "3", &[
            r#"pid$target:a.out:paint:entry { printf("%s %d %6s|\n", args[0], args[0], args[0]); trace(args[0]); self->color = args[0]; }"#,
            r#"pid$target:a.out:paint:return { trace((int)args[1]); @[self->color, args[1], args[1]] = count(); @same[args[1]] = sum(args[1]); }"#,
            // A value without a name, a bit-field, and a variable of the program's.
            r#"pid$target:a.out:serve:entry { trace((enum color)1); trace(args[0]->hue); print(args[0]->hue); trace(`shade); }"#,
            r#"END { printa("%s to %s, %d: %@d\n", @); printa(@same); }"#,
        ]);
        // With -q, recorded values are not separated.
        let wanted = [
            "1GREENenum color GREEN",
            "BLUERED 3    RED|",
            "RED7001GREENenum color GREEN",
            "BLUERED 3    RED|",
            "RED7001GREENenum color GREEN",
            "BLUERED 3    RED|",
            "RED700RED to BLUE, 700: 3",
            "  BLUE                                                           2100",
        ];
        assert_eq!(found, wanted);
    }

    fn variables_are_read_where_they_are(form) {
        for build in [Build::Usual, Build::FixedAddress] {
            let Some(path) = need_program("typed.c", build) else { continue };
            let found = printed(form, &path, "3", &[
                r#"pid$target:a.out:serve:entry { printf("%d %d %d %d\n", a.out`counter, `counter, `head->server.port,
                   a.out`table.words[4]); print(`shade); printf("same %d\n", &`head->server == &args[0]->server); }"#,
                r#"pid$target:a.out:serve:entry { printf("here %d\n", (uintptr_t)&a.out`serve == uregs[R_RIP]); }"#,
            ]);
            // Each round adds 1 in serve, and in lines the result of its calls of twice.
            let counts: Vec<i64> =
                found.iter().filter_map(|line| line.split(' ').next()?.parse().ok()).collect();
            assert_eq!(counts, [41, 43, 48]);
            assert_eq!(found.iter().filter(|line| **line == "same 1").count(), 3, "{found:?}");
            assert_eq!(found.iter().filter(|line| **line == "enum color BLUE").count(), 3, "{found:?}");
            // A function has no type that D could read, only an address.
            assert_eq!(found.iter().filter(|line| **line == "here 1").count(), 3, "{found:?}");
            assert!(found.iter().any(|line| line.ends_with("41 41 8080 5")), "{found:?}");
        }
    }

    fn a_structure_is_printed_as_its_source_has_it(form) {
        let found = printed(form, &program("typed.c"), "1", &[
            "pid$target:a.out:serve:entry { print(args[0]->server); print(args[0]->ratio); print(*(point_t *)&args[0]->corners[2]); }",
        ]);
        let wanted = [
            "struct address {",
            "    unsigned char [4] octets = [ 0xa, 0, 0, 0x7 ]",
            "    unsigned short port = 0x1f90",
            "}double +7.5000000e-01",
            "point_t {",
            "    int x = 0xfffffffc",
            "    short y = 0x9",
            "}",
        ];
        assert_eq!(found, wanted);
    }

    fn floating_point_is_printed_by_its_conversions(form) {
        let found = printed(form, &program("typed.c"), "1", &[
            r#"struct wide { char text[8]; double ratio; float half; };
               pid$target:a.out:serve:entry { printf("%f %.2f %g|", args[0]->ratio, args[0]->ratio, *(double *)&args[0]->ratio);
                   this->w = (struct wide *)alloca(sizeof (struct wide)); *(uint32_t *)((uintptr_t)this->w + 16) = 0xbf000000;
                   printf("%5.1f %e\n", this->w->half, this->w->ratio); }"#,
        ]);
        assert_eq!(found, ["0.750000 0.75 0.75| -0.5 0.000000e+00"]);
    }

    fn a_type_may_be_named_with_the_number_of_its_process(form) {
        let mut command = Command::new(program("typed.c"));
        let target = Running::start(command.arg("100000000"));
        let pid = target.pid();
        let ask = |clause: String, named: bool| {
            let tracer = Tracer::new(form).argument("-q").clause(&clause);
            if named { tracer.process(pid).run() } else { tracer.run() }
        };
        // The message names the process; nothing else does.
        for named in [true, false] {
            let clause = format!(
                "BEGIN {{ printf(\"%d %d %d \", sizeof (pid{pid}`point_t), sizeof (struct pid{pid}`a.out`pair), \
                 (pid{pid}`int)7); print((enum pid{pid}`color)3); exit(0); }}"
            );
            assert_eq!(ask(clause, named).success().results.trim_end(), "8 16 7 enum color RED");
        }
        for other in ["pid0`int", "pid1`int"] {
            let refused = ask(format!("BEGIN {{ trace(({other})1); exit(0); }}"), true);
            assert_eq!(refused.finished.code(), 1, "{other}: {}", refused.finished.stderr);
        }
    }

    fn classes_of_cpp_have_their_bases_members(form) {
        let found = printed(form, &program("typed.cpp"), "1", &[
            r#"pid$target:a.out:*measure*:entry { printf("%s %d %d %d %d\n", probefunc, args[0]->radius, args[0]->id, args[0]->weight,
               args[2]); print(args[0]->kind); }"#,
            r#"pid$target:a.out:shapes*Circle*area:entry { printf("%s %d %d\n", probefunc, args[0]->radius, args[1]); }"#,
            r#"pid$target:a.out:shapes*Circle*area:return { printf("%d\n", args[1]); }"#,
        ]);
        assert_eq!(
            found,
            ["shapes::measure 3 77 -5 0", "enum Kind Flat", "shapes::Circle::area 3 2", "18"]
        );
    }

    fn rust_s_structures_and_enumerations_have_their_types(form) {
        let Some(path) = need_program("typed.rs", Build::Rust) else { return };
        let found = printed(form, &path, "2", &[
            r#"pid$target:a.out:typed*draw:entry { printf("%s %d %d %d %d %d\n", probefunc, args[0]->x, args[0]->y, args[0]->name.length,
               args[1]->Circle.__0, args[4]); printf("%s\n", copyinstr((uintptr_t)args[2].data_ptr, args[2].length + 1)); print(args[3]); }"#,
            r#"pid$target:a.out:typed*draw:return { printf("%d\n", args[1]); }"#,
        ]);
        let round = |level: &str, sum: &str| {
            ["typed::draw -7 1 6 5 3", "abc", level, sum].map(str::to_owned)
        };
        assert_eq!(found, [round("enum Level High", "28"), round("enum Level Low", "21")].concat());
    }

    fn what_is_not_known_is_refused_and_starts_nothing(form) {
        for (clause, tag) in [
            ("pid$target:a.out:paint:entry { trace(args[1]); }", "D_ARGS_TYPE"),
            ("pid$target:a.out:paint:entry { trace(args[3]); }", "D_ARGS_IDX"),
            ("pid$target:a.out:paint:entry { trace(`own); }", "D_SYM_BADREF"),
            ("pid$target:a.out:paint:entry { trace(`nobody); }", "D_IDENT_UNDEF"),
            ("pid$target:a.out:serve:entry { trace(args[0]->nobody); }", "D_TYPE_MEMBER"),
            ("pid$target:a.out:serve:entry { trace(args[0]->ratio + 1); }", "N_FLOAT"),
        ] {
            let finished = Tracer::new(form).clause(clause).command(&program("typed.c"), "1").run().finished;
            assert_ne!(finished.status.code(), Some(0), "{clause}");
            assert!(finished.stderr.contains(&format!("[{tag}]")), "{clause}: {}", finished.stderr);
            assert!(!finished.stdout.contains("700"), "{clause}: the program ran");
        }
    }
}

/// The command stands before its first instruction while its program is compiled; there it is killed.
#[test]
fn a_command_whose_program_does_not_compile_executes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let made = folder.path().join("made");
    for text in [
        "BEGIN { trace(nobody); }",
        "pid$target:a.out:main:entry { trace(args[99]); }",
        "pid$target:a.out:no_such:entry { }",
    ] {
        for _ in 0..20 {
            let mut command = Command::new(nanoprobe());
            command
                .args(["-n", text, "-c"])
                .arg(format!("touch {}", made.display()));
            let finished = run(&mut command);
            assert_eq!(finished.code(), 1, "{}", finished.stderr);
            assert!(!made.exists(), "the command ran: {text}");
        }
    }
}
