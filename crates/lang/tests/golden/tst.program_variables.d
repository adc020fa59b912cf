/* typed target */
BEGIN
{
	trace(a.out`counter);
	trace(`counter + 1);
	trace(a.out`head->server.port);
	trace(&a.out`head->server);
	print(`shade);
	print(a.out`table);
	trace(a.out`table.words[2]);
	trace(a.out`lines[1]);
}
