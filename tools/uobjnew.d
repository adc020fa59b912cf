/*
 * uobjnew - objects that a C++ program makes, by size and by caller
 *
 * usage: nanoprobe tool uobjnew {-p PID | -c COMMAND} [MODULE]
 *
 * Counts calls of operator new of MODULE (default: libstdc++; a.out for a static program), by size and by the calling
 * code: a type has one size, and mostly one place where it is made. The other forms of new call this form.
 *
 * example:
 *
 *   # nanoprobe tool uobjnew -c ./shapes
 *           EACH      OBJECTS        BYTES  MADE BY
 *             24           10          240  a.out`make_circle+0xe
 *           4096            3        12288  libstdc++.so.6`std::string::_Rep::_S_create+0x5c
 */
#pragma D option quiet

pid$target:$1:_Znwm:entry,
pid$target:$1:_ZnwmSt11align_val_t:entry
{
	@objects[arg0, uaddr(ucaller)] = count();
	@bytes[arg0, uaddr(ucaller)] = sum(arg0);
}

END
{
	printf("%12s %12s %12s  MADE BY\n", "EACH", "OBJECTS", "BYTES");
	printa("%12d %@12u %@12u  %A\n", @objects, @bytes);
}
