BEGIN , END,
	profile:::tick-100ms
