typedef int t;
typedef string t;
BEGIN { }
