BEGIN { if ((char *)arg0) { @ = count(); } }
