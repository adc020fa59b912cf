BEGIN {}
f:entry {}
a.out:f:entry {}
pid7:::entry {}
:::tick-1s {}
