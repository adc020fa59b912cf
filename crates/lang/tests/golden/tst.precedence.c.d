int a; int b; int c;
BEGIN { trace(a + b * c); trace((a + b) * c); trace(a - b - c); trace(a << b + c); trace(a & b == c); trace(a | b ^ c & 7);
	trace(a && b || c); trace(a || b ^^ c && a); trace(a < b == c > 1); trace(-a + ~b * !c); trace(a ? b : c ? 1 : 2); trace(a = b = c); }
