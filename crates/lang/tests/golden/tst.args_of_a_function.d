/* typed target */
pid$target:a.out:serve:entry
/args[2] < 0 && args[0]->color == RED/
{
	trace(args[0]->server.port);
	trace(stringof(args[0]->path));
	trace(args[0]->level);
	trace(args[0]->next->second);
	trace(args[1][3]);
	trace(args[3]);
	self->request = args[0];
}

pid$target:a.out:serve:return
{
	trace(args[1]);
	trace(self->request->server.octets[2]);
}
