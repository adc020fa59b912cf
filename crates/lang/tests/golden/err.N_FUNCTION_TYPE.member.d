struct s {
	int function(int);
};
BEGIN { }
