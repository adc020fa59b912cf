/* typed target */
struct request { int mine; };
enum color { RED = 77 };
pid$target:a.out:serve:entry
{
	trace(((struct request *)arg0)->mine);
	trace(sizeof (struct request));
	trace(RED);
	color = 3;
}
