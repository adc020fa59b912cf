#pragma D option nonsense=5
BEGIN { }
