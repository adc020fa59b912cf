/*
 * threadsnoop - new threads, and the functions in which they start
 *
 * usage: nanoprobe tool threadsnoop {-p PID | -c COMMAND} [MODULE]
 *
 * One line for each successful pthread_create of MODULE (default: libc): milliseconds since tracing began, the creating
 * thread, the function in which the new thread starts, its argument. The threads of C++'s std::thread and of Rust's
 * std::thread all start in a function of the library. So for these the type of what runs in the thread is shown: the
 * table of virtual functions of C++'s std::thread::_State_impl<...>, which names a lambda, or else a function pointer
 * and the types of its arguments, and the function itself where its pointer is found; the drop_in_place<...> of Rust's
 * closure. For Go each new goroutine is a line (runtime.newproc).
 *
 * example:
 *
 *   # nanoprobe tool threadsnoop -c ./server
 *           MS      BY TID        ARGUMENT  STARTS IN
 *           12        4711    55d0c63f5260  a.out`worker
 *           13        4711    55d0c63f5268  a.out`accept_loop
 */
#pragma D option quiet
#pragma D option zdefs

self uint64_t function;
self uint64_t argument;
self uint64_t text;
self int64_t cpp;
self int64_t rust;

BEGIN
{
	start = timestamp;
	printf("%12s %11s %15s  STARTS IN\n", "MS", "BY TID", "ARGUMENT");
}

pid$target::_ZNSt6thread15_M_start_thread*:entry
{
	self->cpp = 1;
}

pid$target::_ZNSt6thread15_M_start_thread*:return
{
	self->cpp = 0;
}

pid$target::_R*3std3sys*6Thread3new:entry,
pid$target::_ZN3std3sys*6Thread3new17h*:entry
{
	self->rust = 1;
}

pid$target::_R*3std3sys*6Thread3new:return,
pid$target::_ZN3std3sys*6Thread3new17h*:return
{
	self->rust = 0;
}

pid$target:$1:pthread_create:entry
{
	self->function = arg2;
	self->argument = arg3;
	self->text = 0;
}

/*
 * The argument has a pointer to the closure and one to its table of virtual functions, in the second and third word, in
 * either order. Both can lie a little above the code: the closure is on the heap, which may begin there. A table is
 * told by its words: drop_in_place or zero, a size, an alignment, which is a power of two, and a function of the program.
 */
pid$target:$1:pthread_create:entry
/self->rust && self->function/
{
	this->first = *(uint64_t *)copyin(self->argument + 8, 8);
	this->second = *(uint64_t *)copyin(self->argument + 16, 8);
	this->first = this->first > self->function && this->first - self->function < 0x10000000 ? this->first : 0;
	this->second = this->second > self->function && this->second - self->function < 0x10000000 ? this->second : 0;
	this->alignment = this->second ? *(uint64_t *)copyin(this->second + 16, 8) : 0;
	this->call = this->second ? *(uint64_t *)copyin(this->second + 24, 8) : 0;
	this->is_table = this->alignment && this->alignment <= 4096 && !(this->alignment & (this->alignment - 1)) &&
	    this->call && this->call < this->second && this->second - this->call < 0x10000000;
	this->table = this->is_table ? this->second : this->first;
}

pid$target:$1:pthread_create:entry
/this->table/
{
	this->drop = *(uint64_t *)copyin(this->table, 8);
	self->function = this->drop ? this->drop : self->function;
	this->table = 0;
}

/*
 * The state begins with its table of virtual functions; the function pointer comes after the arguments. A
 * function of the same module lies below the table, within a few megabytes.
 */
pid$target:$1:pthread_create:entry
/self->cpp && self->function/
{
	this->table = *(uint64_t *)copyin(self->argument, 8);
	this->first = *(uint64_t *)copyin(self->argument + 8, 8);
	this->second = *(uint64_t *)copyin(self->argument + 16, 8);
	this->third = *(uint64_t *)copyin(self->argument + 24, 8);
	self->function = this->table;
	self->text = this->first < this->table && this->table - this->first < 0x10000000 ? this->first :
	    this->second < this->table && this->table - this->second < 0x10000000 ? this->second :
	    this->third < this->table && this->table - this->third < 0x10000000 ? this->third : 0;
}

pid$target:$1:pthread_create:return
/self->function && !(int)arg1 && !self->text/
{
	printf("%12d %11d %15x  %A\n", (timestamp - start) / 1000000, tid, self->argument, self->function);
}

pid$target:$1:pthread_create:return
/self->function && !(int)arg1 && self->text/
{
	printf("%12d %11d %15x  %A, by %A\n", (timestamp - start) / 1000000, tid, self->argument, self->text,
	    self->function);
}

pid$target:$1:pthread_create:return
{
	self->function = 0;
}

pid$target:a.out:runtime.newproc:entry
{
	printf("%12d %11d %15x  %A\n", (timestamp - start) / 1000000, tid, arg0, *(uint64_t *)copyin(arg0, 8));
}
