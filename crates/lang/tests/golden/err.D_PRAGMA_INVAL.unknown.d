#pragma D nonsense
BEGIN { }
