BEGIN {}
END { ; ; }
