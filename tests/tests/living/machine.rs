//! The handler is invisible (I2): registers, flags, vectors, x87, the red zone, whatever the clause does.

use nanoprobe_tests::live_tests;
use nanoprobe_tests::program::program;
use nanoprobe_tests::results::{said, table};
use nanoprobe_tests::tracer::Tracer;

use crate::traced_from_start;

const PROBES: &str = "pid$target:a.out:untouching*:entry,pid$target:a.out:untouching*:return,
                      pid$target:a.out:red_zone*:entry,pid$target:a.out:red_zone*:return,
                      pid$target:a.out:carry_out:entry,pid$target:a.out:carry_out:return";

live_tests! {
    fn the_state_survives_a_count(form) {
        let clause = format!("{PROBES} {{ @[probefunc, probename] = count(); }}");
        let rounds = form.scale(2000, 100).to_string();
        let traced = traced_from_start(form, &clause, &program("machine.c"), &rounds);
        let rows = table(&traced.results);
        for (function, said_as) in [
            ("untouching", "untouching"),
            ("untouching_short", "untouching"),
            ("red_zone_leaf", "red_zone"),
            ("red_zone_loop", "red_zone"),
            ("carry_out", "carry"),
        ] {
            let right = said(&traced.finished.stdout, said_as);
            assert_eq!(rows[&format!("{function} entry")], right, "{function}");
            assert_eq!(rows[&format!("{function} return")], right, "{function}");
        }
    }

    /// A one-byte function: entry and return are the same instruction.
    fn the_state_survives_every_action(form) {
        for body in [
            "@ = count();",
            "@[arg0, arg1] = count();",
            "@[ustack()] = count();",
            "@q = quantize(arg2); @a = avg(arg3); @s = stddev(arg4); @l = lquantize(arg5 & 1023, 0, 1024, 16);",
            "this->t = timestamp; @ = sum(vtimestamp - vtimestamp + this->t - this->t + walltimestamp * 0 + cpu * 0);",
            "self->x[arg0 & 7] = arg1; @ = sum(self->x[arg1 & 7]);",
            "x[arg0 & 7] = uregs[R_RIP] + uregs[R_RSP]; @ = max(x[arg2 & 7]);",
            "@[copyinstr(uregs[R_RSP])] = count();",
            "trace(timestamp); printf(\"%s %d %x\\n\", execname, tid, ucaller); ustack(5);",
            "@[copyinstr(0)] = count();",
            "@ = sum(arg0 / (arg1 - arg1));",
        ] {
            let clause = format!("{PROBES} {{ {body} }}");
            let program = program("machine.c");
            let rounds = form.scale(200, 20).to_string();
            let right = crate::unprobed(&program, &rounds).success();
            // The last two clauses fail at every hit on purpose. Errors are reported, and the target does not notice
            // them.
            let traced = Tracer::new(form).clause(&clause).command(&program, &rounds).run().success();
            assert_eq!(crate::without_messages(&traced.finished.stdout), right.stdout, "{body}");
        }
    }

    fn arguments_are_the_arguments(form) {
        let clause = "pid$target:a.out:ten_arguments:entry
                      { @[arg0, arg1, arg2, arg3, arg4, arg5, arg6, arg7, arg8, arg9] = count(); }";
        let traced = traced_from_start(form, clause, &program("tails.c"), "50");
        let rows = table(&traced.results);
        assert_eq!(rows.len(), 1, "{}", traced.results);
        assert_eq!(rows["1 2 3 4 5 6 7 8 9 10"], 50);
    }
}
