BEGIN { trace("\xff"); }
