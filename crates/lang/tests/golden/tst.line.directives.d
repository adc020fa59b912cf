# 1 "file.d"
#line 7
#
BEGIN { }
