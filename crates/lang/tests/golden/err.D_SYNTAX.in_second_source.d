BEGIN { x = 1; }
/* source */
END {
	trace(x;
}
