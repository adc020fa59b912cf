BEGIN { printf("\xff"); }
