/* typed target */
/*
 * Values of the program's enumerations keep their names as long as nothing is computed with them.
 */
enum color shade;
enum mine { FIRST, SECOND } own;
int by_color[enum color];

pid$target:a.out:serve:entry
{
	trace(args[0]->color);
	trace(args[0]->color + 1);
	trace((int)args[0]->color);
	trace((enum color)arg0);
	printf("%s %d %5S", args[0]->color, args[0]->color, args[0]->color);
	@by[args[0]->color, arg0] = count();
	self->color = args[0]->color;
	self->color++;
	shade = args[0]->color;
	by_color[args[0]->color] = 1;
	own = SECOND;
}

pid$target:a.out:serve:return
{
	trace(self->color);
	trace(own);
	@by[shade, arg1] = count();
	@mixed[shade] = count();
	@mixed[arg1] = count();
	@same[shade] = min(self->color);
}
