BEGIN { this->i = 5; trace(this->i++ + ++this->i); trace(-this->i--); trace(sizeof this->i + 1); }
