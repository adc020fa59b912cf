BEGIN {
	trace(1); // one
}
