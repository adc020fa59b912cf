BEGIN { this->string = 1; }
