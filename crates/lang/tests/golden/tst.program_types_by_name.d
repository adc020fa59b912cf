/* typed target */
pid$target:a.out:serve:entry
{
	trace(((struct request *)arg0)->server.port);
	trace(((struct a.out`request *)arg0)->level);
	trace(((point_t *)arg1)->x);
	trace((point_t *)arg1);
	trace(sizeof (struct request));
	trace(sizeof (point_t));
	trace(offsetof(struct request, ratio));
	trace(offsetof(point_t, x));
	print((enum color)arg0);
	print(*args[0]);
	print(args[0]->color);
	print(args[0]->ratio);
	trace((enum color)arg0 == BLUE ? 1 : 2);
	@[args[0]->color] = count();
}
