BEGIN	
{trace(\
1)
;}
