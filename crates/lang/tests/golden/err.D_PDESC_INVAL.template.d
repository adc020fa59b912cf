pid$target:a.out:std::map<int, std::string>::at:entry { }
