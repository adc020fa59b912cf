BEGIN { @ = count(); @ = count(); }
