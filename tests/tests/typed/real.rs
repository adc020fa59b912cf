//! The types of a large C program of the distribution, with the distribution's debug information.

use nanoprobe_tests::left_out::need_command;
use nanoprobe_tests::live_tests;
use nanoprobe_tests::tracer::Tracer;

live_tests! {
    /// Python's debug build: its objects by the names of their types, and its results, compared with the script's own
    /// counts.
    fn python_s_objects_have_their_types(form) {
        let Some(python) = need_command("types of python's own", "python3-dbg") else { return };
        let script = tempfile::Builder::new().suffix(".py").tempfile().expect("a script");
        let text = "class Hashed:\n  def __hash__(self): return 77\n\
                    class Sized:\n  def __len__(self): return 7\n\
                    print(sum(hash(Hashed()) for _ in range(50)) + sum(len(Sized()) for _ in range(30)))\n";
        std::fs::write(script.path(), text).expect("the script");
        let clause = "pid$target:a.out:PyObject_Hash:entry { self->type = stringof(args[0]->ob_type->tp_name); }
                      pid$target:a.out:PyObject_Hash:return /self->type == \"Hashed\"/ { @hashed[\"hashed\"] = sum(args[1]); self->type = 0; }
                      pid$target:a.out:PyObject_Size:entry { self->size = (PyTypeObject *)args[0]->ob_type; }
                      pid$target:a.out:PyObject_Size:return /stringof(self->size->tp_name) == \"Sized\"/ {
                          @sized[\"sized\"] = sum(args[1]);
                          @slots[\"slots\"] = sum(self->size->tp_as_sequence->sq_length != 0); }";
        let traced = Tracer::new(form).argument("-q").clause(clause).command(&python, &script.path().display().to_string()).run().success();
        assert_eq!(traced.finished.stdout.trim(), (50 * 77 + 30 * 7).to_string());
        let rows = nanoprobe_tests::results::table(&traced.results);
        assert_eq!((rows["hashed"], rows["sized"], rows["slots"]), (50 * 77, 30 * 7, 30), "{rows:?}");
    }
}
