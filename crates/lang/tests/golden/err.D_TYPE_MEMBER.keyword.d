/* A member of a program's may be called so, in Rust. */
struct request {
	int kind;
};

pid$target::f:entry { trace(((struct request *)arg0)->auto); }
