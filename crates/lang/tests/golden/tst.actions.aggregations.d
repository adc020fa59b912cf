BEGIN { @a[1] = count(); @b[2] = sum(1); }
END { printa(@a); printa("%d %@d\n", @a); printa("%d %@d %@d\n", @a, @b); clear(@a); trunc(@a); trunc(@a, 5); trunc(@b, -pid); normalize(@a, 1000); denormalize(@a); }
