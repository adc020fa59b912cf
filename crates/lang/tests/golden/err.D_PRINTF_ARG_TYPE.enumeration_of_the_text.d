/* As in DTrace, a value of an enumeration of D's own is an int. */
enum mine { FIRST, SECOND } own;

BEGIN
{
	printf("%s", own);
}
