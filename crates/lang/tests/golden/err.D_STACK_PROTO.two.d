profile-97 { stack(3, 4); }
